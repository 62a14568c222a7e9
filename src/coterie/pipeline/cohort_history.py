"""What the journals of a group of cohorts say together: its views, who knew what, what is forced.

A view has one primary and one initial history: for each earlier view, how many of its events the
state reflects. So the authoritative history of a group follows from few rows: it is the initial
history of the last view in which anything was forced, and the events of that view that were. Events
of earlier views beyond that history were lost with their views.

Journals have no common clock. What is told here does not depend on when cohorts wrote, only on the
order in which each of them did.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from coterie.journal import Kind
from coterie.kernel.views import Configuration, ViewId, Viewstamp
from coterie.pipeline.findings import findings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.pipeline.lake import Lake

Row = dict[str, Any]
Place = tuple[str, int, int]
"""Replica, incarnation, sequence."""
Known = dict[ViewId, int]
"""A history: how many events of each view."""

STACK = "VSR"
"""What cohorts call their stack in `lives`."""
_INCOMPLETE = {
    kind.value
    for kind in (Kind.DAMAGED, Kind.MISSING, Kind.REMOVED, Kind.UNREADABLE, Kind.MISPLACED)
}


class Standing(enum.StrEnum):
    """What the journals at hand say of an event."""

    AUTHORITATIVE = "authoritative"
    ROLLED_BACK = "rolled back"
    """It was lost with its view."""
    OPTIMISTIC = "optimistic"
    """It is not known to be forced."""


@dataclass(slots=True)
class Started:
    """A cohort was active in a view."""

    view: ViewId
    place: Place
    primary: str
    history: Known
    """The initial one: without events of the view itself."""
    leads: bool
    lacks: list[str] = field(default_factory=list)
    """What of its history the cohort did not know, in words."""


@dataclass(slots=True)
class Claim:
    """A primary said that its events up to a number are forced."""

    number: int
    place: Place


@dataclass(slots=True)
class CohortGroup:
    """All that the checks of one group need, but for the events themselves."""

    group: str
    configuration: Configuration
    incomplete: set[str]
    """Replicas whose journals are missing, damaged, or lack their beginning."""
    started: list[Started] = field(default_factory=list)
    forced: dict[ViewId, Claim] = field(default_factory=dict)
    """The most that was called forced in each view."""
    knew: dict[tuple[str, ViewId], int] = field(default_factory=dict)
    """The most events of a view that each replica ever knew while it was in it."""
    promises: list[tuple[Place, ViewId, bool]] = field(default_factory=list)
    """Views that replicas promised or, where the last is true, began to be active in."""
    gaps: list[tuple[Place, str]] = field(default_factory=list)
    states: list[tuple[Viewstamp, bytes, Place]] = field(default_factory=list)
    events: int = 0

    @property
    def initial(self) -> dict[ViewId, Known]:
        """The initial history of each view, as its primary tells it, or else somebody."""
        found: dict[ViewId, Known] = {}
        for each in sorted(self.started, key=lambda each: not each.leads):
            found.setdefault(each.view, each.history)
        return found

    def authoritative(self) -> Known:
        """Give how many events of each view are authoritative."""
        if not self.forced:
            return {}
        last = max(self.forced)
        return {**self.initial.get(last, {}), last: self.forced[last].number}

    def standing(self, view: ViewId, number: int, authoritative: Known) -> Standing:
        """Say what is known of an event."""
        if number <= authoritative.get(view, 0):
            return Standing.AUTHORITATIVE
        is_over = bool(self.forced) and view < max(self.forced)
        return Standing.ROLLED_BACK if is_over else Standing.OPTIMISTIC


def cohort_groups(lake: Lake) -> list[str]:
    """Give the groups of the lake that are groups of cohorts."""
    return [
        group for group in lake.groups() if STACK in lake.table("lives", group)["stack"].to_pylist()
    ]


def view_of(row: Row) -> ViewId:
    """Give the view that a column names."""
    return ViewId(row["number"], row["proposer"], row["incarnation"])


def viewstamp_of(row: Row) -> Viewstamp:
    """Give the viewstamp that a column names."""
    return Viewstamp(view_of(row["view"]), row["number"])


def _place(row: Row) -> Place:
    return row["replica"], row["incarnation"], row["sequence"]


def read_group(lake: Lake, group: str) -> CohortGroup:
    """Read all journals of a group of cohorts, each in its order."""
    lives = lake.table("lives", group).to_pylist()
    began = [row for row in lives if row["event"] == "started"]
    latest = max(began, key=lambda row: row["configuration"])
    configuration = Configuration(latest["configuration"], tuple(latest["replicas"]))
    incomplete = set(configuration.members) - {row["replica"] for row in began}
    torn = {
        (row["replica"], row["incarnation"])
        for row in findings_of(lake, group).to_pylist()
        if row["kind"] in _INCOMPLETE
    }
    found = CohortGroup(group, configuration, incomplete | {replica for replica, _ in torn})
    rows = [*lake.table("cohorts", group).to_pylist(), *_runs(lake, group), *began]
    rows.sort(key=_place)
    for _, mine in groupby(rows, key=lambda row: row["replica"]):
        Walk(found, torn).read(mine)
    return found


def _runs(lake: Lake, group: str) -> Iterator[Row]:
    """Give the events of each record as one row: which view, from which number on, how many."""
    names = ["replica", "incarnation", "sequence", "view", "number"]
    rows = lake.table("event_records", group).select(names).to_pylist()
    rows.sort(key=lambda row: (*_place(row), row["number"]))
    for _, of_record in groupby(rows, key=_place):
        numbers = list(of_record)
        yield {**numbers[0], "event": "known", "count": len(numbers)}


class Walk:
    """Follows the journal of one replica through all its lives."""

    def __init__(self, found: CohortGroup, torn: set[tuple[str, int]]) -> None:
        self._found = found
        self._torn = torn
        """Lives of which records are missing."""
        self._known: Known = {}
        self._is_sure = True
        """Whether what is known here follows from the records read."""

    def read(self, rows: Iterator[Row]) -> None:
        """Take all records of the replica."""
        found = self._found
        for row in rows:
            place = _place(row)
            # Also a life whose very first record is lost shows that something is.
            self._is_sure &= place[:2] not in self._torn
            match row["event"]:
                case "started" if "stack" in row:
                    if row["is_zombie"]:
                        self._forget(place)
                case "invited" | "accepted":
                    found.promises.append((place, view_of(row["view"]), False))
                case "started":
                    found.promises.append((place, view_of(row["view"]), True))
                    self._on_started(row, place)
                case "known":
                    self._on_events(view_of(row["view"]), row["number"], row["count"], place)
                case "state taken":
                    self._is_sure = place[:2] not in self._torn
                    self._known = _history(row)
                    self._learned(place[0])
                case "forced":
                    self._on_forced(view_of(row["view"]), row["number"], place)
                case "state":
                    found.states.append((viewstamp_of(row["known"]), row["digest"], place))
                case _:
                    pass

    def _forget(self, place: Place) -> None:
        """Begin with nothing, whatever was lost before."""
        self._known = {}
        self._is_sure = place[:2] not in self._torn

    def _learned(self, replica: str) -> None:
        view = max(self._known)
        key = (replica, view)
        self._found.knew[key] = max(self._found.knew.get(key, 0), self._known[view])

    def _on_events(self, view: ViewId, first: int, count: int, place: Place) -> None:
        known = self._known.get(view, 0)
        if known + 1 != first and self._is_sure:
            self._found.gaps.append(
                (place, f"{place[0]} knew {known} events of {view} and then took {first}")
            )
        self._known[view] = first + count - 1
        self._found.events += count
        self._learned(place[0])

    def _on_started(self, row: Row, place: Place) -> None:
        view, whole = view_of(row["view"]), _history(row)
        history = {each: number for each, number in whole.items() if each < view}
        lacks = [
            f"{each}:{number}, of which it knew {self._known.get(each, 0)}"
            for each, number in history.items()
            if self._is_sure and self._known.get(each, 0) < number
        ]
        leads = (row["primary"]["id"], row["primary"]["incarnation"]) == place[:2]
        self._found.started.append(
            Started(view, place, row["primary"]["id"], history, leads, lacks)
        )
        self._known = whole
        self._learned(place[0])

    def _on_forced(self, view: ViewId, number: int, place: Place) -> None:
        before = self._found.forced.get(view)
        if before is None or number > before.number:
            self._found.forced[view] = Claim(number, place)


def _history(row: Row) -> Known:
    return {view_of(each["view"]): each["number"] for each in row["history"]}
