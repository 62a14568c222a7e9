"""What viewstamped replication promises, checked from the records of all cohorts of a group.

- *forced events survive*: what a majority knew is part of every later view's initial state, whether
  it was forced before that view began or after (section 4); so no two primaries can both force;
- *forced majority*: what is called forced was known to a majority of the configuration that counts
  at its place;
- *one event*: cohorts that know the event at a viewstamp know the same one;
- *one primary*: a view has one primary, and one initial history;
- *viewids ordered*: the views that a replica promises and enters only rise, through all its lives;
- *equal states*: states at equal viewstamps are equal;
- *known in order*: the events a cohort knows of a view have no gaps;
- *crashed cohorts count for nothing*: who leads a view knows all that its history says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.checking.history import Violation
from coterie.kernel.configuration import decode_change, follows
from coterie.kernel.records import (
    Catastrophe,
    EventsKnown,
    Forced,
    InvitationAccepted,
    InvitationsMade,
    StateAt,
    StateTaken,
    ViewStarted,
)
from coterie.kernel.views import NO_VIEW, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.records import Record, VsrRecord
    from coterie.kernel.views import ChangedConfiguration, Configuration, Member, ViewId


@dataclass(slots=True)
class _Cohort:
    """What one life of a cohort knows, as its records tell it."""

    member: Member
    known: dict[ViewId, int] = field(default_factory=dict)
    """The history: how many events of each view."""


@dataclass(slots=True)
class _View:
    """One view, as far as it was seen."""

    primary: Member
    history: dict[ViewId, int]
    forced: int = -1


class ViewstampedTracker:
    """Takes the records of all cohorts of one group in true order; collects violations."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._lives: dict[Member, _Cohort] = {}
        self._promised: dict[str, ViewId] = {}
        self._views: dict[ViewId, _View] = {}
        self._events: dict[tuple[ViewId, int], tuple[int, Member]] = {}
        self._knew: dict[tuple[str, ViewId], int] = {}
        """The most that any life of a replica ever knew of a view."""
        self._states: dict[Viewstamp, tuple[bytes, Member]] = {}
        self._claims: list[tuple[ViewId, Viewstamp]] = []
        self._changes: dict[tuple[ViewId, int], ChangedConfiguration] = {}
        """The events that change members, wherever they stand."""
        self._settled = configuration
        """The last configuration that was forced."""
        self.catastrophes = 0
        self.forced = 0
        self.states_taken = 0
        self.violations: list[Violation] = []

    @property
    def views(self) -> int:
        """How many views were started."""
        return len(self._views)

    def add(self, record: Record | VsrRecord) -> None:
        """Take one record."""
        member = record.member
        life = self._lives.get(member)
        if life is None:
            life = self._lives[member] = _Cohort(member)
        match record:
            case EventsKnown():
                self._on_events(life, record)
            case Forced(view=view, number=number):
                self._on_forced(life, view, number)
            case InvitationsMade(view=view) | InvitationAccepted(view=view):
                self._promise(member, view, above=True)
            case ViewStarted():
                self._on_started(life, record)
            case StateTaken(history=history):
                self.states_taken += 1
                life.known = {known.view: known.number for known in history}
                self._learned(life)
            case StateAt(known=known, digest=digest):
                self._on_state(life, known, digest)
            case Catastrophe():
                self.catastrophes += 1
            case _:
                pass

    def inherit(self, member: Member, history: tuple[Viewstamp, ...]) -> None:
        """Learn that a life began with the state of an earlier one, from its disk."""
        life = self._lives.setdefault(member, _Cohort(member))
        life.known = {known.view: known.number for known in history}

    def _fail(self, check: str, evidence: str) -> None:
        self.violations.append(Violation(check, evidence))

    def _promise(self, member: Member, view: ViewId, *, above: bool) -> None:
        before = self._promised.get(member.id, NO_VIEW)
        if view < before or (above and view == before):
            self._fail("viewids ordered", f"{member} had promised {before}, and promised {view}")
        self._promised[member.id] = max(before, view)

    def _on_events(self, life: _Cohort, record: EventsKnown) -> None:
        view, known = record.view, life.known.get(record.view, 0)
        if known + 1 != record.first:
            self._fail(
                "known in order",
                f"{life.member} knew {known} events of {view} and then took {record.first}",
            )
        for number, event in enumerate(record.events, record.first):
            digest, by = self._events.setdefault((view, number), (crc32(event), life.member))
            if digest != crc32(event):
                self._fail("one event", f"{by} and {life.member} differ at {view}:{number}")
        self.look_at(view, record.first, record.events)
        life.known[view] = record.first + len(record.events) - 1
        self._learned(life)

    def look_at(self, view: ViewId, first: int, events: Sequence[bytes]) -> None:
        """See whether there are changes of members among events."""
        for number, event in enumerate(events, first):
            to = decode_change(event)
            if to is not None:
                self._changes[view, number] = to

    def _configuration_at(self, view: ViewId, number: int) -> Configuration:
        """Give the configuration that counts for an event of a view, by the view's history."""
        now = self._configuration
        if not self._changes:
            return now
        history = self._views[view].history
        for (known_in, place), to in sorted(self._changes.items()):
            end = number if known_in == view else history.get(known_in, -1)
            if place <= end and follows(to, now):
                now = to
        return now

    def configurations(self) -> list[Configuration]:
        """Give those that count, or may come to: the last that was forced, and what follows it."""
        number = self._settled.number
        later = [to for to in self._changes.values() if to.number > number]
        return [self._settled, *dict.fromkeys(later)]

    def _learned(self, life: _Cohort) -> None:
        view = max(life.known)
        key = (life.member.id, view)
        self._knew[key] = max(self._knew.get(key, 0), life.known[view])

    def _on_started(self, life: _Cohort, record: ViewStarted) -> None:
        self._promise(life.member, record.view, above=False)
        history = {known.view: known.number for known in record.history if known.view < record.view}
        for view, number in life.known.items():
            history.setdefault(view, number)
        for view, number in history.items():
            if life.known.get(view, 0) < number:
                self._fail(
                    "crashed cohorts count for nothing",
                    f"{life.member} started {record.view} with {view}:{number}, of which it knew "
                    f"{life.known.get(view)}",
                )
        life.known = {known.view: known.number for known in record.history}
        self._learned(life)
        known_view = self._views.get(record.view)
        if known_view is None:
            self._views[record.view] = _View(record.primary, history)
            if record.primary == life.member:
                self._check_survival(record.view, history)
            return
        if known_view.primary != record.primary:
            self._fail(
                "one primary",
                f"{record.view} has {known_view.primary} and {record.primary} as primary",
            )

    def _check_survival(self, view: ViewId, history: dict[ViewId, int]) -> None:
        for earlier, state in self._views.items():
            if earlier < view and state.forced >= 0:
                self._compare(earlier, state.forced, view, history)
        for claimed_in, known in self._claims:
            if claimed_in < view:
                self._compare(known.view, known.number, view, history)

    def _compare(
        self, earlier: ViewId, forced: int, view: ViewId, history: dict[ViewId, int]
    ) -> None:
        if history.get(earlier, -1) < forced:
            self._fail(
                "forced events survive",
                f"{earlier}:{forced} was forced, and {view} began with {history.get(earlier)}",
            )

    def _on_forced(self, life: _Cohort, view: ViewId, number: int) -> None:
        self.forced += 1
        configuration = self._configuration_at(view, number)
        everyone = configuration.everyone
        holders = {id for id in everyone if self._knew.get((id, view), -1) >= number}
        if configuration.number > self._settled.number:
            self._settled = configuration
        if not configuration.is_quorum(holders):
            self._fail(
                "forced majority",
                f"{life.member} calls {view}:{number} forced; {sorted(holders)} know it",
            )
        self._views[view].forced = max(self._views[view].forced, number)
        for later, state in self._views.items():
            if later > view:
                self._compare(view, number, later, state.history)

    def claim(self, view: ViewId, known: Viewstamp) -> None:
        """Learn that the primary of *view* was told that *known* is forced, perhaps of old."""
        self._claims.append((view, known))
        for later, state in self._views.items():
            if later > view:
                self._compare(known.view, known.number, later, state.history)

    def _on_state(self, life: _Cohort, known: Viewstamp, digest: bytes) -> None:
        before, by = self._states.setdefault(known, (digest, life.member))
        if before != digest:
            self._fail("equal states", f"{by} and {life.member} differ at {known}")
