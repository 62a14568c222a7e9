"""Checks of one group as a whole: components, attempts, and what each replica held when.

They go by the records of each replica, life after life. A replica whose journal lacks something is
believed in what it says, and not in what it does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from coterie.kernel.past_lives import ALL
from coterie.pipeline.engines.colours.order import LOSS, SILENT, summaries
from coterie.pipeline.engines.colours.told import place_of, view_key
from coterie.pipeline.history.group_checks import active_replication
from coterie.pipeline.history.view_checks import check_views

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.pipeline.engines.colours.order import Summary
    from coterie.pipeline.engines.colours.told import Row, ToldColours, View
    from coterie.pipeline.history.results import Place, Results
    from coterie.pipeline.lake.lake import Lake

Creator = tuple[str, int]
Vector = dict[Creator, int]


def check_servers(lake: Lake, found: ToldColours, scratch: str, results: Results) -> None:
    """Run all checks that look at a group as a whole."""
    group = found.group
    check_views(found.testimony, lake.table("views", group).to_pylist(), [], results)
    one_primary_component(found, results)
    ready_on_record(found, results)
    attempt_excluded(found, results)
    attempt_protected(found, results)
    handed_on = list(summaries(scratch, group))
    fifo_order(found, handed_on, results)
    green_for_ever(found, handed_on, results)
    farthest = green_prefix(found, handed_on, results)
    white_means_all(found, farthest, results)
    held = Held(lake, found, results)
    held.check()
    digests = lake.table("digests", group)
    if found.has_word:
        digests = digests.filter(digests["position"].to_numpy() <= found.given_up)
    active_replication(found.testimony, digests.sort_by("position"), results)


# ---- components


def one_primary_component(found: ToldColours, results: Results) -> None:
    """No number has two components, and each shares with the one before a quorum of that."""
    check = "one primary component"
    components = sorted(found.components.values(), key=lambda each: (each.index, each.view))
    results.checked(check, len(components))
    for index, same in groupby(components, key=lambda each: each.index):
        several = list(same)
        if len(several) > 1 and index < found.given_up_component:
            results.violate(
                check,
                f"component {index} is {' and '.join(_told(each.view) for each in several)}",
                view=_view_row(several[0].view),
                rows=[each.places[0] for each in several],
            )
    by_index = {each.index: each for each in components}
    votes = _votes(found)
    for each in components:
        before = by_index.get(each.index - 1)
        earlier = found.testimony.configuration.members if each.index == 1 else ()
        members = before.members if before is not None else tuple(earlier)
        if each.index >= found.given_up_component:
            results.undecided(check, 1, LOSS)
        elif not members:
            everyone = found.testimony.configuration.members
            if any(found.may_go_on(member, each.view) for member in everyone):
                results.undecided(check, 1, SILENT)
            else:
                results.violate(
                    check,
                    f"component {each.index} was installed, and nobody installed the one before",
                    view=_view_row(each.view),
                    rows=each.places,
                )
        elif not _has_quorum(members, {*each.members, *votes.get(each.view, ())}):
            # All together are a quorum as well, where few have lost their disks.
            if set(each.members) == set(found.testimony.configuration.members):
                continue
            results.violate(
                check,
                f"component {each.index} of {', '.join(each.members)} has no quorum of the one "
                f"before, {', '.join(members)}",
                view=_view_row(each.view),
                rows=each.places,
            )


def _votes(found: ToldColours) -> dict[View, set[str]]:
    """Give who took part in each attempt; whoever is to go is not in what comes of it."""
    votes: dict[View, set[str]] = {}
    for row in found.rows:
        if row["event"] == "attempted":
            votes.setdefault(view_key(row["view"]), set()).add(row["replica"])
    return votes


def _has_quorum(members: tuple[str, ...], here: Iterable[str]) -> bool:
    """Say whether replicas are more than half of a component, or half with its first member."""
    present = set(here)
    count = sum(each in present for each in members)
    if 2 * count == len(members):
        return members[0] in present
    return 2 * count > len(members)


def ready_on_record(found: ToldColours, results: Results) -> None:
    """All members of a component that was installed had its attempt on record."""
    check = "ready on record"
    ready = {
        (row["replica"], view_key(row["view"])) for row in found.rows if row["event"] == "attempted"
    }
    for component in found.components.values():
        results.checked(check, len(component.members))
        for member in component.members:
            if (member, component.view) in ready:
                continue
            has_installed = any(place[0] == member for place in component.places)
            if member in found.partial or (
                not has_installed and found.may_go_on(member, component.view)
            ):
                results.undecided(check, 1, SILENT)
                continue
            results.violate(
                check,
                f"component {component.index} was installed, and {member} has not been ready",
                view=_view_row(component.view),
                rows=component.places,
            )


def attempt_excluded(found: ToldColours, results: Results) -> None:
    """Where somebody installed a component, nobody went through case 0."""
    check = "attempt excluded"
    results.checked(check, len(found.failed) + len(found.components))
    for view, place in found.failed:
        component = found.components.get(view)
        if component is not None:
            results.violate(
                check,
                f"{component.places[0][0]} installed {_told(view)}, and {place[0]} went through "
                "case 0",
                view=_view_row(view),
                rows=[component.places[0], place],
            )


def attempt_protected(found: ToldColours, results: Results) -> None:
    """Who does not know what came of an attempt says so in the next exchange."""
    for replica, mine in groupby(found.rows, key=lambda row: row["replica"]):
        doubting = _Doubting(replica, found, results)
        for row in mine:
            doubting.take(row)


class _Doubting:
    """Follows the attempt of which one replica does not know what came."""

    def __init__(self, replica: str, found: ToldColours, results: Results) -> None:
        self._replica = replica
        self._found = found
        self._results = results
        self._doubt: View | None = None
        self._state, self._life = "", 0
        self._must = False
        """Whether the next state that it says must hold the record."""

    def take(self, row: Row) -> None:
        """Take a row of `components`."""
        if row["incarnation"] != self._life:
            self._life = row["incarnation"]
            if (self._replica, self._life) in self._found.zombies:
                self._doubt = None
            self._state, self._must = "", self._doubt is not None
        match row["event"]:
            case "entered":
                self._enter(row["state"])
            case "attempted" | "installed" if row["doubt_attempt"] is not None:
                self._doubt = view_key(row["doubt_attempt"])
            case "state":
                self._say(row)
            case "word":
                self._doubt, self._must = None, False
            case _:
                pass

    def _enter(self, state: str) -> None:
        if state == "ExchangeStates":
            if self._state in {"No", "TransPrim"}:
                self._doubt = None
            self._must |= self._state == "Un" and self._doubt is not None
        self._state = state

    def _say(self, row: Row) -> None:
        check, doubt = "attempt protected", self._doubt
        holds = None if row["doubt_attempt"] is None else view_key(row["doubt_attempt"])
        if self._must and doubt is not None:
            self._results.checked(check, 1)
            if holds != doubt and self._replica not in self._found.partial:
                self._results.violate(
                    check,
                    f"{self._replica} holds no record of the attempt {_told(doubt)}, and does not "
                    "know what came of it",
                    view=_view_row(doubt),
                    rows=[place_of(row)],
                )
        self._must, self._doubt = False, holds


# ---- the order


def fifo_order(found: ToldColours, handed_on: list[Summary], results: Results) -> None:
    """Each creator's actions are in the order without gaps, none twice."""
    check = "global FIFO order"
    last: dict[str, int] = {}
    if found.is_open and _has_holes(handed_on):
        # Somebody took over a state, and those who know what is in it were read before.
        results.undecided(check, sum(summary.rows for summary in handed_on), SILENT)
        return
    for summary in handed_on:
        results.checked(check, summary.rows)
        for id, incarnation, index, before, position in summary.broken:
            _out_of_order(found, f"{id}.{incarnation}", index, before, position, results)
        for creator, (first, end) in summary.creators.items():
            before = last.get(creator, 0)
            if first != before + 1 and not (found.partial and before == 0):
                _out_of_order(found, creator.replace("\n", "."), first, before, None, results)
            last[creator] = end


def _has_holes(handed_on: list[Summary]) -> bool:
    """Say whether there are positions below others that nobody is known to have marked."""
    reached = 0
    parts = (each[3::2] for summary in handed_on for each in summary.stretches)
    for first, last in sorted(parts):
        if first > reached + 1:
            return True
        reached = max(reached, last)
    return False


def _out_of_order(  # noqa: PLR0913, PLR0917 -- the parts of a sentence
    found: ToldColours,
    creator: str,
    index: int,
    before: int,
    position: int | None,
    results: Results,
) -> None:
    check = "global FIFO order"
    if found.has_word:
        results.undecided(check, 1, LOSS)
        return
    results.violate(
        check, f"action {index} of {creator} is ordered after its {before}", position=position
    )


def green_for_ever(found: ToldColours, handed_on: list[Summary], results: Results) -> None:
    """A later component orders nothing below what an earlier one ordered."""
    check = "green for ever"
    last = 0
    for summary in handed_on:
        results.checked(check, summary.rows)
        falls: list[int | None] = list(summary.falls)
        if summary.first and summary.first < last:
            falls.insert(0, None)
        last = summary.last or last
        for position in falls:
            if found.has_word:
                results.undecided(check, 1, LOSS)
                continue
            results.violate(
                check,
                "an earlier component ordered what stands behind actions of a later one",
                position=position,
            )


def green_prefix(found: ToldColours, handed_on: list[Summary], results: Results) -> dict[str, int]:
    """Each replica marks green without gaps, through its lives; give how far each came."""
    check = "green prefix"
    events: dict[str, list[tuple[int, int, int, int]]] = {}
    for summary in handed_on:
        for replica, incarnation, sequence, first, _, last in summary.stretches:
            events.setdefault(replica, []).append((incarnation, sequence, first, last))
    for row in found.rows:
        if row["event"] == "adopted":
            mine = events.setdefault(row["replica"], [])
            mine.append((row["incarnation"], row["sequence"], 0, row["position"]))
    farthest: dict[str, int] = {}
    for replica, mine in events.items():
        end, life = 0, 0
        for incarnation, sequence, first, last in sorted(mine):
            results.checked(check, 1)
            is_new = incarnation != life
            life = incarnation
            # A life that lost its disk begins anew; a state that is taken over is a new beginning.
            may_begin = not first or (is_new and first == 1) or replica in found.partial
            if first != end + 1 and not may_begin:
                results.violate(
                    check,
                    f"{replica} marks {first} green after {end}",
                    position=first,
                    rows=[(replica, incarnation, sequence)],
                )
            end = last
            farthest[replica] = max(farthest.get(replica, 0), end)
    return farthest


def white_means_all(found: ToldColours, farthest: dict[str, int], results: Results) -> None:
    """What a replica believes to be green elsewhere is green there."""
    check = "white means all"
    for row in found.rows:
        if row["event"] != "lines":
            continue
        # A record names all who belonged to the group by what was green then.
        believed = {line["replica"]: max(line["position"], row["white"]) for line in row["lines"]}
        results.checked(check, len(believed))
        for member, position in believed.items():
            if position <= farthest.get(member, 0):
                continue
            if found.has_word:
                results.undecided(check, 1, LOSS)
            elif member in found.partial or _may_have_lost(found, member):
                results.undecided(check, 1, SILENT)
            else:
                results.violate(
                    check,
                    f"{row['replica']} believes {position} actions to be green at {member}, and "
                    f"it marked {farthest.get(member, 0)}",
                    position=position,
                    rows=[place_of(row)],
                )


def _may_have_lost(found: ToldColours, replica: str) -> bool:
    """Say whether a replica may have marked more: it is at work, or its machine took it along."""
    witness = next((w for w in found.testimony.witnesses if w.replica == replica), None)
    return witness is None or witness.is_open or not found.is_synced


# ---- what replicas held


@dataclass(slots=True)
class _Said:
    cut: Vector
    past: dict[str, int]
    lines: dict[str, int]
    place: Place

    def lacks(self, creator: Creator, index: int) -> bool:
        """Say whether an action is not held."""
        return self.cut.get(creator, 0) < index and creator[1] > self.past.get(creator[0], -1)


@dataclass(slots=True)
class _Server:
    """One replica, as far as its journal was followed."""

    cut: Vector = field(default_factory=dict)
    life_cut: Vector = field(default_factory=dict)
    past: dict[str, int] = field(default_factory=dict)
    """For replicas, up to which of their lives all is held, as a state said that was taken over."""
    life_past: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    state: str = ""
    life: int = 0
    is_begun: bool = False


class Held:
    """Follows which actions each replica held: *red cut* and *eventual path*."""

    def __init__(self, lake: Lake, found: ToldColours, results: Results) -> None:
        self._lake = lake
        self._found = found
        self._results = results
        self._said: dict[View, list[tuple[str, _Said]]] = {}
        self._after: list[tuple[View, str, _Said]] = []

    def check(self) -> None:
        """Follow all replicas, then compare what they held after exchanges."""
        by_replica: dict[str, list[Row]] = {}
        for row in self._found.rows:
            by_replica.setdefault(row["replica"], []).append(row)
        actions = self._actions()
        for replica, rows in by_replica.items():
            self._follow(replica, rows, sorted(actions.get(replica, ())))
        check = "eventual path"
        for view, replica, after in self._after:
            for other, said in self._said.get(view, ()):
                self._results.checked(check, 1)
                lacks = [who for who, index in said.cut.items() if after.lacks(who, index)]
                behind = [
                    who
                    for who, at in said.lines.items()
                    # Whoever is gone by now is named no longer.
                    if after.lines.get(who, 0) < at and (who in after.lines or not after.lines)
                ]
                if lacks:
                    names = ", ".join(f"{id}.{life}" for id, life in lacks)
                    evidence = f"{replica} lacks actions of {names} that {other} had"
                elif behind:
                    evidence = f"{replica} does not know what {other} did of {', '.join(behind)}"
                else:
                    continue
                self._results.violate(
                    check, evidence, view=_view_row(view), rows=[after.place, said.place]
                )

    def _actions(self) -> dict[str, list[tuple[int, int, Creator, int]]]:
        """Give the actions that each replica came to know, as (life, sequence, creator, index)."""
        known: dict[str, list[tuple[int, int, Creator, int]]] = {}
        table = self._lake.table("actions", self._found.group)
        creators = table["creator"].combine_chunks()
        columns = (
            table["replica"].to_pylist(),
            table["incarnation"].to_pylist(),
            table["sequence"].to_pylist(),
            creators.field("id").to_pylist(),
            creators.field("incarnation").to_pylist(),
            table["index"].to_pylist(),
        )
        for replica, life, sequence, id, incarnation, index in zip(*columns, strict=True):
            known.setdefault(replica, []).append((life, sequence, (id, incarnation), index))
        return known

    def _follow(
        self, replica: str, rows: list[Row], actions: list[tuple[int, int, Creator, int]]
    ) -> None:
        server = _Server()
        is_partial = replica in self._found.partial
        at = 0
        for row in rows:
            place = (row["incarnation"], row["sequence"])
            while at < len(actions) and actions[at][:2] < place:
                self._know(replica, server, actions[at], is_partial=is_partial)
                at += 1
            self._begin(server, row["incarnation"])
            self._on_row(replica, server, row, is_partial=is_partial)
        for action in actions[at:]:
            self._know(replica, server, action, is_partial=is_partial)

    def _begin(self, server: _Server, life: int) -> None:
        if server.life != life:
            server.life, server.state = life, ""
            server.life_cut, server.life_past = {}, {}
            server.is_begun = False

    def _know(
        self,
        replica: str,
        server: _Server,
        action: tuple[int, int, Creator, int],
        *,
        is_partial: bool,
    ) -> None:
        life, sequence, creator, index = action
        self._begin(server, life)
        check = "red cut"
        self._results.checked(check, 1)
        before = server.cut.get(creator, 0)
        if index == 1 and before and creator not in server.life_cut:
            # It has begun anew, with nothing.
            server.cut, server.past = dict(server.life_cut), dict(server.life_past)
        elif index != before + 1:
            if is_partial:
                self._results.undecided(check, 1, SILENT)
            else:
                self._results.violate(
                    check,
                    f"{replica} took {creator[0]}.{creator[1]}:{index} after {before} of its "
                    "creator",
                    rows=[(replica, life, sequence)],
                )
        server.cut[creator] = server.life_cut[creator] = max(index, server.cut.get(creator, 0))

    def _on_row(self, replica: str, server: _Server, row: Row, *, is_partial: bool) -> None:
        match row["event"]:
            case "adopted":
                _adopt(server, row["greens"])
            case "entered":
                server.state = row["state"]
            case "lines":
                server.lines = {each["replica"]: each["position"] for each in row["lines"]}
            case "state" | "attempted":
                if (
                    not server.is_begun
                    and (replica, server.life) in self._found.zombies
                    and not row["position"]
                ):
                    server.cut, server.past = dict(server.life_cut), dict(server.life_past)
                    server.lines = {}
                server.is_begun = True
                view = view_key(row["view"])
                said = _Said(dict(server.cut), dict(server.past), dict(server.lines), place_of(row))
                if is_partial:
                    return
                if server.state == "ExchangeStates":
                    known = self._said.setdefault(view, [])
                    if all(each != replica for each, _ in known):
                        known.append((replica, said))
                else:
                    self._after.append((view, replica, said))
            case _:
                pass


def _adopt(server: _Server, greens: list[Row]) -> None:
    """Learn which actions are in a state that was taken over."""
    for id in greens:
        creator = (id["creator"]["id"], id["creator"]["incarnation"])
        if id["index"] == ALL:
            server.past[creator[0]] = server.life_past[creator[0]] = creator[1]
        else:
            server.cut[creator] = max(server.cut.get(creator, 0), id["index"])
            server.life_cut[creator] = server.cut[creator]


def _told(view: View) -> str:
    return f"{view[0]}{view[1]}.{view[2]}"


def _view_row(view: View) -> dict[str, Any]:
    return {"number": view[0], "proposer": view[1], "incarnation": view[2]}
