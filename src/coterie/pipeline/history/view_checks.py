"""Checks that speak of views: **objects** 3.3.1 to 3.3.6 and 3.4.1, and the chain of primary views.

Views are few whatever the history's size, so one task takes all of a group. What the promises mean
is written once, in `coterie.checking`; here its checks run over the rows of `views` and `messages`.
Stacks with an engine do not record every message. Their replicas say at the end of each view how
many messages of each member they delivered, and a digest of the order: that is what
`ended_together` and `ended_alike` compare.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

from coterie.checking.extended_virtual_synchrony import transitional_agreement
from coterie.checking.group_communication import (
    ORDER_CHECKS,
    VIEW_CHECKS,
    check_group_communication,
)
from coterie.checking.history import GroupHistory
from coterie.checking.virtual_synchrony import fifo, integrity, self_delivery, view_atomicity
from coterie.kernel.records import (
    Delivered,
    Delivery,
    Sent,
    TransitionalInstalled,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW, Member, ViewId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.records import Record
    from coterie.pipeline.history.results import Place, Results
    from coterie.pipeline.history.witnesses import Testimony

Row = dict[str, Any]

_NEED_ALL_MESSAGES = frozenset(
    {integrity, self_delivery, fifo, view_atomicity, transitional_agreement}
)


def check_views(
    testimony: Testimony, views: list[Row], messages: list[Row], results: Results
) -> None:
    """Run all checks on views of one group; rows of one life must be in their order."""
    # Before a gap in a life, what came next is not known.
    views = sorted((row for row in views if testimony.is_contiguous(*_place(row))), key=_place)
    messages = [row for row in messages if testimony.is_contiguous(*_place(row))]
    history = make_history(testimony, views, messages)
    installed = [row for row in views if row["event"] == "installed"]
    if messages:
        stack = testimony.stack.upper()
        violations = check_group_communication(history, stack)
        names = [*VIEW_CHECKS, *(ORDER_CHECKS if stack != "VSYNC" else ())]
    else:
        names = [check for check in VIEW_CHECKS if check not in _NEED_ALL_MESSAGES]
        violations = [violation for check in names for violation in check(history)]
    for check in names:
        results.checked(name_of(check), len(installed) + len(messages))
    for violation in violations:
        if testimony.silent and violation.check in _UNSURE:
            results.undecided(violation.check, 1, "the journals of senders are missing")
            continue
        results.violate(violation.check, violation.evidence, rows=_named(views, violation.evidence))
    if not messages:
        eras = _eras(views)
        ended_together(eras, results)
        ended_alike(eras, results)
    confirmed_chain(testimony, views, results)


_UNSURE = {"integrity", "first in, first out"}
"""What cannot be told without the journals of all senders."""


def name_of(check: Any) -> str:  # noqa: ANN401 -- any of the checks
    """Give the name under which a check reports."""
    name: str = check.__name__
    return _NAMES.get(name, name.replace("_", " "))


_NAMES = {"fifo": "first in, first out", "self_inclusion": "self-inclusion"} | {
    "self_delivery": "self-delivery"
}


# ---- rows as records


def make_history(testimony: Testimony, views: list[Row], messages: list[Row]) -> GroupHistory:
    """Arrange rows the way the checks of `coterie.checking` want them."""
    history = GroupHistory()
    for row in sorted([*views, *messages], key=_place):
        record = _record(row)
        if record is not None:
            history.add(record)
    for row in views:
        # Whoever proposed these views cannot say so here: they are taken as proposed.
        view = _view(row["view"])
        if row["event"] == "installed" and testimony.is_silent_about(view.proposer, _plain(view)):
            history.add(
                ViewProposed(
                    group=testimony.group,
                    member=Member(view.proposer, view.incarnation),
                    at=0,
                    view=view,
                    members=_members(row["members"]),
                    after=NO_VIEW,
                )
            )
    return history


def _record(row: Row) -> Record | None:
    common = (row["group_name"], Member(row["replica"], row["incarnation"]), row["recorded_at"])
    view = _view(row["view"])
    match row["event"]:
        case "proposed":
            return ViewProposed(
                *common, view=view, members=_members(row["members"]), after=_view(row["previous"])
            )
        case "installed":
            return ViewInstalled(
                *common,
                view=view,
                members=_members(row["members"]),
                previous=_view(row["previous"]),
                transitional=_members(row["transitional"]),
            )
        case "transitional":
            return TransitionalInstalled(*common, view=view, members=_members(row["members"]))
        case "sent":
            return Sent(
                *common,
                view=view,
                first=row["first"],
                count=row["count"],
                safe=row["safe"],
                digest=row["digest"],
            )
        case "delivered":
            return Delivered(
                *common,
                view=view,
                sender=Member(**row["sender"]),
                first=row["first"],
                count=row["count"],
                number=row["number"],
                safe=row["safe"],
                delivery=Delivery(row["delivery"]),
                digest=row["digest"],
            )
        case _:
            return None


def _view(row: Row) -> ViewId:
    return ViewId(**row)


def _plain(view: ViewId) -> tuple[int, str, int]:
    return view.number, view.proposer, view.incarnation


def _members(rows: Iterable[Row]) -> tuple[Member, ...]:
    return tuple(Member(**row) for row in rows)


def _place(row: Row) -> tuple[str, int, int]:
    return row["replica"], row["incarnation"], row["sequence"]


def _named(views: list[Row], evidence: str) -> list[Place]:
    """Find the rows that a sentence of evidence speaks of: its members in its views."""
    words = {word.strip("[](){}'\".,;:") for word in evidence.split()}
    return [
        _place(row)
        for row in views
        if row["event"] in {"installed", "proposed"}
        and str(Member(row["replica"], row["incarnation"])) in words
        and str(_view(row["view"])) in words
    ]


# ---- what was delivered in views that are over


class _Era:
    """What one life says of one view that is over for it."""

    def __init__(self, row: Row, successor: ViewId) -> None:
        self.row = row
        self.view = _view(row["view"])
        self.successor = successor
        self.total = tuple(map(sum, zip(row["counts"], row["transitional_counts"], strict=False)))

    @property
    def late(self) -> tuple[int, ...]:
        """What was delivered after the transitional view."""
        return (*self.row["transitional_counts"], self.row["transitional_digest"])

    def __str__(self) -> str:
        return str(Member(self.row["replica"], self.row["incarnation"]))


def _eras(views: list[Row]) -> list[_Era]:
    """Give what lives said at the end of views, with the view that they went on to."""
    went_on = {
        (row["replica"], row["incarnation"], _view(row["previous"])): _view(row["view"])
        for row in views
        if row["event"] == "installed"
    }
    return [
        _Era(row, went_on.get((row["replica"], row["incarnation"], _view(row["view"])), NO_VIEW))
        for row in views
        if row["event"] == "ended"
    ]


def ended_together(eras: list[_Era], results: Results) -> None:
    """3.3.6 and slide 23: who goes on together delivered the same, on both sides of the divide."""
    check = "view atomicity"
    together: dict[tuple[ViewId, ViewId], list[_Era]] = {}
    for era in eras:
        if era.successor != NO_VIEW:
            together.setdefault((era.view, era.successor), []).append(era)
    results.checked(check, len(eras))
    results.checked("transitional agreement", len(eras))
    for (first, second), went in together.items():
        one = went[0]
        for other in went[1:]:
            if other.total != one.total:
                results.violate(
                    check,
                    f"{one} and {other} went from {first} to {second} together, but delivered "
                    f"{one.total} and {other.total} messages of its members",
                    view=one.row["view"],
                    rows=[_place(one.row), _place(other.row)],
                )
            elif other.late != one.late:
                results.violate(
                    "transitional agreement",
                    f"{one} and {other} went from {first} to {second} together, but delivered "
                    "different messages, or in another order, after the transitional view",
                    view=one.row["view"],
                    rows=[_place(one.row), _place(other.row)],
                )


def ended_alike(eras: list[_Era], results: Results) -> None:
    """3.4.1: of two sequences delivered in one view, one is a prefix of the other.

    The prefix of a sequence has no more messages of any member; and if two regular parts have
    equally many of each, they are the same sequence.
    """
    check = "strong prefix"
    by_view: dict[ViewId, list[_Era]] = {}
    for era in eras:
        if era.row["digest"] or not any(era.row["counts"]):
            by_view.setdefault(era.view, []).append(era)
    results.checked(check, len(eras))
    for view, members in by_view.items():
        for one, other in combinations(members, 2):
            mine, theirs = one.row["counts"], other.row["counts"]
            less = all(a <= b for a, b in zip(mine, theirs, strict=False))
            more = all(a >= b for a, b in zip(mine, theirs, strict=False))
            differs = mine == theirs and one.row["digest"] != other.row["digest"]
            if not (less or more) or differs:
                told = "in different orders" if differs else f"{mine} and {theirs} of its members"
                results.violate(
                    check,
                    f"in {view} {one} and {other} delivered messages {told}: neither sequence is "
                    "a prefix of the other",
                    view=one.row["view"],
                    rows=[_place(one.row), _place(other.row)],
                )


# ---- primary views


def confirmed_chain(testimony: Testimony, views: list[Row], results: Results) -> None:
    """A majority accepted each confirmed view, and some of them the one before as well."""
    check = "confirmed chain"
    accepted: dict[ViewId, dict[Member, Row]] = {}
    confirmed: dict[ViewId, Row] = {}
    for row in views:
        if row["event"] == "accepted":
            member = Member(row["replica"], row["incarnation"])
            accepted.setdefault(_view(row["view"]), {})[member] = row
        elif row["event"] == "confirmed":
            confirmed.setdefault(_view(row["view"]), row)
    for row in views:
        if row["event"] == "confirmed":
            results.checked(check, 1)
            known = accepted.get(_view(row["view"]), {})
            _check_confirmed(testimony, row, known, results)
    if testimony.has_accepted_loss:
        return
    for earlier, later in pairwise(sorted(confirmed)):
        before = {member.id for member in accepted.get(earlier, {})}
        after = {member.id for member in accepted.get(later, {})}
        if before & after:
            continue
        if any(testimony.is_silent_about(name, _plain(later)) for name in testimony.names):
            results.undecided(check, 1, "who accepted some views is not at hand")
            continue
        results.violate(
            check,
            f"{earlier} and {later} are primary views one after the other, and nobody accepted "
            f"both: {sorted(before)} and {sorted(after)}",
            view=confirmed[later]["view"],
            rows=[_place(confirmed[earlier]), _place(confirmed[later])],
        )


def _check_confirmed(
    testimony: Testimony, row: Row, accepted: dict[Member, Row], results: Results
) -> None:
    check = "confirmed chain"
    members = _members(row["members"])
    ids = {member.id for member in members}
    view = _view(row["view"])
    if not testimony.is_quorum(ids, row["position"]):
        results.violate(
            check,
            f"{row['replica']} took {view} for primary, accepted by {sorted(ids)} only",
            view=row["view"],
            rows=[_place(row)],
        )
    for member in members:
        if member not in accepted and not testimony.is_silent_about(member.id, _plain(view)):
            results.violate(
                check,
                f"{row['replica']} counted {member} in {view}, which {member} did not accept",
                view=row["view"],
                rows=[_place(row)],
            )
