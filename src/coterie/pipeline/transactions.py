"""Transactions over several groups, told from the events of all of them.

The events of a group are taken in the one order of its history, as far as that is authoritative.
What a transaction did is then in few places: its calls and their end in each group that took part,
and the decision in the group that coordinated it.

A transaction is *committed* if its coordinator decided so, *aborted* if a group says that it is
void there, and else *undecided*: it was still in progress when the journals ended, or it has only
read, which leaves no trace of its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from coterie.kernel.views import Viewstamp
from coterie.pipeline.cohort_history import Standing, read_group, view_of
from coterie.pipeline.schemas import FORCED, TRANSACTIONS
from coterie.pipeline.transaction_events import (
    WORDS,
    Aborted,
    Aid,
    Completed,
    Decided,
    Done,
    GivenUp,
    Installed,
    is_within,
    read_event,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coterie.kernel.views import ViewId
    from coterie.pipeline.cohort_history import CohortGroup, Place
    from coterie.pipeline.lake import Lake
    from coterie.pipeline.transaction_events import Event

Row = dict[str, Any]
_ROWS = 1 << 16


class Happened(NamedTuple):
    """One event of a group."""

    view: ViewId
    number: int
    event: Event | None
    standing: Standing
    at: int
    place: Place
    known_by: tuple[str, ...]
    data: bytes


@dataclass(slots=True)
class Taking:
    """What one group did of a transaction."""

    calls: dict[Viewstamp, tuple[Completed, Place]] = field(default_factory=dict)
    """Calls that survived."""
    lost: dict[Viewstamp, Place] = field(default_factory=dict)
    """Calls that did not."""
    given_up: list[str] = field(default_factory=list)
    installed: Installed | None = None
    installed_as: str = ""
    """The name of the versions that were installed."""
    aborted: str | None = None
    place: Place = ("", 0, 0)
    """Where its end, or else its last call, is on record."""


@dataclass(slots=True)
class Transaction:
    """What all groups did of a transaction."""

    aid: Aid
    groups: dict[str, Taking] = field(default_factory=dict)
    decision: Decided | None = None
    decided_at: Place = ("", 0, 0)
    is_done: bool = False
    abort: str | None = None
    """Why its coordinator aborted it, if that is on record there."""
    began_at: int = 0
    ended_at: int | None = None

    def part(self, group: str) -> Taking:
        """Give what a group did of it."""
        return self.groups.setdefault(group, Taking())

    @property
    def reason(self) -> str:
        """Why it was aborted, in the words of the groups that say so."""
        said = [taking.aborted for taking in self.groups.values() if taking.aborted]
        return self.abort or next(iter(said), "")

    @property
    def is_aborted(self) -> bool:
        """Whether some group says that it is void."""
        return self.abort is not None or any(
            taking.aborted is not None for taking in self.groups.values()
        )

    @property
    def outcome(self) -> str:
        """How it ended, as far as that is known."""
        if self.decision is not None:
            return "committed"
        return "aborted" if self.is_aborted else "undecided"


def events_of(lake: Lake, found: CohortGroup) -> Iterator[Happened]:
    """Give every event of a group once: the authoritative ones first, in their order."""
    rows = lake.table("event_records", found.group).to_pylist()
    primaries = {each.view: each.primary for each in found.started}
    by_stamp: dict[tuple[ViewId, int], list[Row]] = {}
    for row in rows:
        by_stamp.setdefault((view_of(row["view"]), row["number"]), []).append(row)
    authoritative = found.authoritative()
    happened: list[Happened] = []
    for (view, number), mine in by_stamp.items():
        # The primary's own record says when it happened.
        first = min(mine, key=lambda row: (row["replica"] != primaries.get(view), row["replica"]))
        happened.append(
            Happened(
                view=view,
                number=number,
                event=read_event(first["data"]),
                standing=found.standing(view, number, authoritative),
                at=first["at"],
                place=(first["replica"], first["incarnation"], first["sequence"]),
                known_by=tuple(sorted({row["replica"] for row in mine})),
                data=first["data"],
            )
        )
    happened.sort(
        key=lambda each: (each.standing != Standing.AUTHORITATIVE, each.view, each.number)
    )
    yield from happened


def tabulate_events(lake: Lake, group: str) -> Iterator[pa.RecordBatch]:
    """Give the history of a group as rows of `forced`."""
    rows = [
        {
            "group": group,
            "view": {
                "number": each.view.number,
                "proposer": each.view.proposer,
                "incarnation": each.view.incarnation,
            },
            "number": each.number,
            "aid": None if each.event is None else str(each.event.aid),
            "kind": None if each.event is None else WORDS[type(each.event)],
            "data": each.data,
            "standing": str(each.standing),
            "known_by": list(each.known_by),
        }
        for each in events_of(lake, read_group(lake, group))
    ]
    yield from pa.Table.from_pylist(rows, schema=FORCED).to_batches(max_chunksize=_ROWS)


class Ledger:
    """Gathers the transactions of all groups."""

    def __init__(self, lake: Lake, groups: Iterable[str]) -> None:
        self.transactions: dict[Aid, Transaction] = {}
        self.orders: dict[str, list[str]] = {}
        """The versions of each object, in the order in which they were installed."""
        self.locks: list[tuple[str, str, list[Place]]] = []
        """Objects that two transactions wrote at the same time: the group, and the evidence."""
        self.incomplete: set[str] = set()
        """Groups of which something is missing."""
        self.groups = list(groups)
        for group in self.groups:
            found = read_group(lake, group)
            if found.incomplete:
                self.incomplete.add(group)
            self._read(group, events_of(lake, found))

    def _read(self, group: str, events: Iterator[Happened]) -> None:
        locks = _WriteLocks()
        for each in events:
            if each.event is None:
                continue
            if each.standing is Standing.AUTHORITATIVE:
                self._take(group, each, each.event, locks)
            elif isinstance(each.event, Completed) and each.standing is Standing.ROLLED_BACK:
                stamp = _stamp(each)
                self._of(each.event.aid, each).part(group).lost[stamp] = each.place

    def _of(self, aid: Aid, each: Happened) -> Transaction:
        found = self.transactions.get(aid)
        if found is None:
            found = self.transactions[aid] = Transaction(aid, began_at=each.at)
        found.began_at = min(found.began_at, each.at)
        return found

    def _take(self, group: str, each: Happened, event: Event, locks: _WriteLocks) -> None:
        transaction = self._of(event.aid, each)
        match event:
            case Completed():
                part = transaction.part(group)
                part.calls[_stamp(each)] = (event, each.place)
                part.place = each.place
                self.locks += [
                    (group, f"{event.aid} wrote {group}/{name}, which {aid} had locked", places)
                    for name, aid, places in locks.take(event, each.place)
                ]
            case GivenUp(calls=calls):
                transaction.part(group).given_up += calls
                locks.give_up(event.aid, calls)
            case Decided():
                transaction.decision, transaction.decided_at = event, each.place
                transaction.ended_at = each.at
            case Done():
                transaction.is_done = True
            case Installed():
                part = transaction.part(group)
                part.installed, part.installed_as = event, str(_stamp(each))
                part.place = each.place
                self._order(group, part)
                locks.release(event.aid)
            case Aborted(reason=reason):
                if group in transaction.groups:
                    part = transaction.part(group)
                    part.aborted, part.place = reason, each.place
                else:
                    transaction.abort = reason
                transaction.ended_at = transaction.ended_at or each.at
                locks.release(event.aid)

    def _order(self, group: str, part: Taking) -> None:
        assert part.installed is not None, "it was just installed"
        for stamp in part.installed.calls:
            for write in part.calls[stamp][0].writes if stamp in part.calls else ():
                order = self.orders.setdefault(f"{group}/{write.name}", [])
                if not order or order[-1] != part.installed_as:
                    order.append(part.installed_as)

    def rows(self) -> pa.RecordBatch:
        """Give the transactions as rows."""
        listed = sorted(self.transactions.values(), key=lambda each: (each.began_at, str(each.aid)))
        return pa.RecordBatch.from_pylist([_row(each) for each in listed], schema=TRANSACTIONS)


def _stamp(each: Happened) -> Viewstamp:
    return Viewstamp(each.view, each.number)


class _WriteLocks:
    """Who has written what in one group and has not ended: transactions, by their calls."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[Aid, dict[str, Place]]] = {}
        self._held: dict[Aid, set[str]] = {}

    def take(self, event: Completed, place: Place) -> Iterator[tuple[str, Aid, list[Place]]]:
        """Take the locks of a call; give the objects that others hold, and who."""
        for write in event.writes:
            holders = self._holders.setdefault(write.name, {})
            for aid, calls in holders.items():
                if aid != event.aid and calls:
                    yield write.name, aid, [*calls.values(), place]
            holders.setdefault(event.aid, {})[event.call] = place
            self._held.setdefault(event.aid, set()).add(write.name)

    def give_up(self, aid: Aid, given_up: tuple[str, ...]) -> None:
        """End the locks of calls that a transaction gave up."""
        for name in self._held.get(aid, ()):
            calls = self._holders[name][aid]
            for call in [each for each in calls if any(is_within(each, one) for one in given_up)]:
                del calls[call]

    def release(self, aid: Aid) -> None:
        """End all locks of a transaction."""
        for name in self._held.pop(aid, ()):
            del self._holders[name][aid]


def _row(transaction: Transaction) -> Row:
    calls = [call for taking in transaction.groups.values() for call, _ in taking.calls.values()]
    outcome = transaction.outcome
    reason = transaction.reason if outcome == "aborted" else ""
    if outcome == "undecided":
        installed = [taking.installed for taking in transaction.groups.values()]
        has_only_read = any(each is not None and each.is_read_only for each in installed)
        reason = "it has only read" if has_only_read else "it was in progress"
    return {
        "aid": str(transaction.aid),
        "coordinator": transaction.aid.group,
        "groups": sorted(transaction.groups),
        "outcome": outcome,
        "reason": reason,
        "calls": len(calls),
        "reads": sum(len(call.reads) for call in calls),
        "writes": sum(len(call.writes) for call in calls),
        "began_at": transaction.began_at,
        "ended_at": transaction.ended_at,
    }
