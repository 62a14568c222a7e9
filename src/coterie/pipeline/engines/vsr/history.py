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

import numpy as np
import pyarrow as pa

from coterie.journal import Kind
from coterie.kernel.views import NO_VIEW, ChangedConfiguration, Configuration, ViewId, Viewstamp
from coterie.pipeline.engines.vsr.serial import NOTHING, UNKNOWN
from coterie.pipeline.lake.ends import End, ends_of, lost_writes, stopped_lives
from coterie.pipeline.lake.findings import findings_of
from coterie.pipeline.lake.lake import writer_of
from coterie.pipeline.lake.ranges import read_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]
Place = tuple[str, int, int]
"""Where a record stands: replica, incarnation, sequence."""
Known = dict[ViewId, int]
"""A history: how many events of each view."""

_INCOMPLETE = {
    kind.value
    for kind in (Kind.DAMAGED, Kind.MISSING, Kind.REMOVED, Kind.UNREADABLE, Kind.MISPLACED)
}


class EventStanding(enum.StrEnum):
    """What the journals at hand say of an event."""

    AUTHORITATIVE = "authoritative"
    ROLLED_BACK = "rolled back"
    """The event was lost with its view."""
    OPTIMISTIC = "optimistic"
    """The event is not known to be forced."""


STANDINGS = tuple(EventStanding)
"""Where columns have a number for a standing, it is the place here."""


@dataclass(slots=True)
class StartedView:
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
class ViewClaim:
    """A primary said that its events up to a number are forced."""

    number: int
    place: Place


@dataclass(slots=True)
class CohortGroup:
    """All that the checks of one group need, but for the events themselves."""

    group: str
    configurations: list[tuple[Viewstamp, Configuration]]
    """Who belongs to the group, and from which event on; the first ones founded it."""
    incomplete: set[str]
    """Replicas whose journals are missing, damaged, or lack their beginning."""
    started: list[StartedView] = field(default_factory=list)
    forced: dict[ViewId, ViewClaim] = field(default_factory=dict)
    """The most that was called forced in each view."""
    knew: dict[tuple[str, ViewId], int] = field(default_factory=dict)
    """The most events of a view that each replica ever knew while it was in it."""
    promises: list[tuple[Place, ViewId, bool]] = field(default_factory=list)
    """Views that replicas promised or, where the last is true, began to be active in."""
    gaps: list[tuple[Place, str]] = field(default_factory=list)
    states: list[tuple[Viewstamp, bytes, Place]] = field(default_factory=list)
    events: int = 0
    ends: dict[str, End] = field(default_factory=dict)
    """Replicas whose journals may lack their ends."""
    lost: set[str] = field(default_factory=set)
    """Replicas that lost records with a machine."""
    names: list[str] = field(default_factory=list)
    """The replicas that tell of events, in the order of their bits."""
    extent: Known = field(default_factory=dict)
    """The highest number of an event of each view that anybody tells of."""
    _positions: dict[ViewId, tuple[int, int]] | None = None
    """See `positions`."""

    def configuration_at(self, view: ViewId, number: int) -> Configuration:
        """Give the configuration that counts for an event of a view."""
        history = {**self.initial.get(view, {}), view: number}
        return next(
            configuration
            for known, configuration in reversed(self.configurations)
            if known.view == NO_VIEW or known.number <= history.get(known.view, -1)
        )

    @property
    def is_open(self) -> bool:
        """Whether journals are still being written."""
        return End.OPEN in self.ends.values()

    @property
    def is_waiting(self) -> bool:
        """Whether all that is not at hand is still to be written."""
        return not self.incomplete and End.OPEN in self.ends.values()

    def unheard(self, view: ViewId) -> set[str]:
        """Give the replicas that may know more of a view than their journals say."""
        latest: dict[str, ViewId] = {}
        for replica, known in self.knew:
            latest[replica] = max(latest.get(replica, known), known)
        return (
            self.incomplete
            | self.lost
            | {
                replica
                for replica, end in self.ends.items()
                if end is not End.UNSTOPPED and latest.get(replica, view) <= view
            }
        )

    @property
    def may_have_forced_more(self) -> bool:
        """Whether who led the last view may have called more forced than its journal says."""
        last = max(self.started, key=lambda each: (each.view, each.leads), default=None)
        return last is not None and last.primary in self.ends.keys() | self.incomplete | self.lost

    def view_at(self, place: Place) -> ViewId:
        """Give the view in which a replica wrote a record."""
        mine = [each for each in self.started if each.place[0] == place[0] and each.place <= place]
        return max(mine, key=lambda each: each.place).view if mine else NO_VIEW

    @property
    def views(self) -> list[ViewId]:
        """The views with events, in order."""
        return sorted(self.extent)

    @property
    def primaries(self) -> dict[ViewId, str]:
        """Who was primary in each view."""
        return {each.view: each.primary for each in self.started}

    @property
    def initial(self) -> dict[ViewId, Known]:
        """The initial history of each view, as its primary tells it, or else somebody."""
        found: dict[ViewId, Known] = {}
        for each in sorted(self.started, key=lambda each: not each.leads):
            found.setdefault(each.view, each.history)
        return found

    def position_of(self, version: Viewstamp | None) -> int:
        """Give the position of the event that installed a version."""
        if version is None:
            return NOTHING
        before, count = self.positions().get(version.view, (0, 0))
        return before + version.number if 0 < version.number <= count else UNKNOWN

    def positions(self) -> dict[ViewId, tuple[int, int]]:
        """Give for each view how many authoritative events come before it, and how many it has."""
        if self._positions is None:
            self._positions = {}
            reached = 0
            authoritative = self.authoritative()
            for view in self.views:
                count = authoritative.get(view, 0)
                self._positions[view] = (reached, count)
                reached += count
        return self._positions

    def authoritative(self) -> Known:
        """Give how many events of each view are authoritative."""
        if not self.forced:
            return {}
        last = max(self.forced)
        return {**self.initial.get(last, {}), last: self.forced[last].number}


def view_of(row: Row) -> ViewId:
    """Give the view that a column names."""
    return ViewId(row["number"], row["proposer"], row["incarnation"])


def viewstamp_of(row: Row) -> Viewstamp:
    """Give the viewstamp that a column names."""
    return Viewstamp(view_of(row["view"]), row["number"])


def _place(row: Row) -> Place:
    return row["replica"], row["incarnation"], row["sequence"]


def _configurations(
    began: list[Row], lake: Lake, group: str
) -> list[tuple[Viewstamp, Configuration]]:
    """Give who belonged to the group at the beginning, and who later."""
    named = [row for row in began if row["configuration"]]  # 0 is whom a newcomer looks for
    if named:
        first = min(named, key=lambda row: row["configuration"])
        founded = Configuration(first["configuration"], tuple(first["replicas"]))
    else:
        # Every record that says so is gone.
        names = lake.table("segments", group)["replica"].to_pylist()
        founded = Configuration(0, tuple(sorted(set(names))))
    found: dict[int, tuple[Viewstamp, Configuration]] = {}
    for row in lake.table("configurations", group).to_pylist():
        known, number = viewstamp_of(row["known"]), row["configuration"]
        if number not in found or known < found[number][0]:
            kept = (tuple(row[name]) for name in ("members", "learners", "before", "removed"))
            found[number] = known, ChangedConfiguration(number, *kept)
    later = [found[number] for number in sorted(found) if number > founded.number]
    return [(Viewstamp(NO_VIEW, 0), founded), *later]


def read_group(lake: Lake, group: str) -> CohortGroup:
    """Read all journals of a group of cohorts, each in its order."""
    lives = lake.table("lives", group).to_pylist()
    began = [row for row in lives if row["event"] == "started"]
    configurations = _configurations(began, lake, group)
    everyone = {id for _, each in configurations for id in (*each.members, *each.before)}
    incomplete = everyone - {row["replica"] for row in began}
    findings = [row for row in findings_of(lake, group).to_pylist() if row["incarnation"]]
    torn = {(row["replica"], row["incarnation"]) for row in findings if row["kind"] in _INCOMPLETE}
    cut = {
        (row["replica"], row["incarnation"])
        for row in findings
        if row["kind"] == Kind.TORN_TAIL.value
    }
    incomplete |= {replica for replica, _ in torn}
    found = CohortGroup(group, configurations, incomplete, ends=ends_of(lake, group))
    found.lost = _lost(lake.table("segments", group), stopped_lives(lake, group))
    rows = [*lake.table("cohorts", group).to_pylist(), *_runs(lake, found), *began]
    rows.sort(key=_place)
    for _, mine in groupby(rows, key=lambda row: row["replica"]):
        Walk(found, torn, cut).read(mine)
    return found


def _lost(segments: pa.Table, stopped: set[tuple[str, int]]) -> set[str]:
    """Give the replicas that lost records with a machine, because they were not synced."""
    columns = ["replica", "incarnation", "first", "sync", "boot_id"]
    rows = [row for row in segments.select(columns).to_pylist() if row["sync"] is not None]
    rows.sort(key=lambda row: (row["replica"], row["incarnation"], row["first"]))
    return {
        replica
        for replica, mine in groupby(rows, key=lambda row: row["replica"])
        if lost_writes(list(mine), stopped)
    }


def _runs(lake: Lake, found: CohortGroup) -> Iterator[Row]:
    """Give the events of each record as one row: which view, from which number on, how many."""
    names: set[str] = set()
    for path, _ in lake.files_of("event_records", found.group):
        replica, incarnation = writer_of(path)
        names.add(replica)
        table = read_columns(str(path), ["sequence", "view", "number"])
        sequences, numbers = table["sequence"].to_numpy(), table["number"].to_numpy()
        starts = np.flatnonzero(np.diff(sequences, prepend=-1))
        counts = np.diff(starts, append=len(sequences))
        ends = starts + counts - 1
        views = table["view"].take(pa.array(starts)).to_pylist()
        columns = (sequences[starts], numbers[starts], counts, numbers[ends])
        for view, sequence, first, count, last in zip(
            views, *(column.tolist() for column in columns), strict=True
        ):
            viewid = view_of(view)
            found.extent[viewid] = max(found.extent.get(viewid, 0), last)
            yield {
                "replica": replica,
                "incarnation": incarnation,
                "sequence": sequence,
                "event": "known",
                "view": view,
                "number": first,
                "count": count,
            }
    found.names = sorted(names)


class Walk:
    """Follows the journal of one replica through all its lives."""

    def __init__(
        self, found: CohortGroup, torn: set[tuple[str, int]], cut: set[tuple[str, int]]
    ) -> None:
        self._found = found
        self._torn = torn
        """Lives of which records are missing."""
        self._cut = cut
        """Lives whose last turn is there in part, so that there may have been more of them."""
        self._known: Known = {}
        self._life = 0
        self._is_sure = True
        """Whether what is known here follows from the records read."""

    def read(self, rows: Iterator[Row]) -> None:
        """Take all records of the replica."""
        found = self._found
        for row in rows:
            place = _place(row)
            self._live_on(place)
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

    def _live_on(self, place: Place) -> None:
        """Note which life comes next: if another, less may be sure from there on."""
        replica, life, _ = place
        before, self._life = self._life, life
        if before == life:
            return
        # A life whose very first record is lost shows that something is, so does one of which
        # nothing is left between two others, and one whose end was cut off.
        torn = (each for whose, each in self._torn if whose == replica)
        cut = (each for whose, each in self._cut if whose == replica)
        self._is_sure &= not any(before < each <= life for each in torn)
        self._is_sure &= not any(before <= each < life for each in cut)

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
        leads = (row["primary_member"]["id"], row["primary_member"]["incarnation"]) == place[:2]
        self._found.started.append(
            StartedView(view, place, row["primary_member"]["id"], history, leads, lacks)
        )
        self._known = whole
        self._learned(place[0])

    def _on_forced(self, view: ViewId, number: int, place: Place) -> None:
        before = self._found.forced.get(view)
        if before is None or number > before.number:
            self._found.forced[view] = ViewClaim(number, place)


def _history(row: Row) -> Known:
    return {view_of(each["view"]): each["number"] for each in row["history"]}
