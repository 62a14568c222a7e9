"""A naive replica that keeps its history in a list, and writes the records an engine would.

What it remembers after each turn is kept, so that a test can say which of these states recovery
must give back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec

from coterie.journal.disk import Disk
from coterie.journal.engines.stack import Recovery, recover
from coterie.journal.format import Sync
from coterie.journal.life import begin_life
from coterie.journal.snapshots import SnapshotStore
from coterie.journal.writer import JournalSettings, JournalWriter
from coterie.kernel.engine import Run, Standing, Version
from coterie.kernel.records import (
    Delivered,
    Delivery,
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Record,
    Replied,
    Reply,
    RolledBack,
    Settled,
    Started,
    ViewInstalled,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId

GROUP, ID = "g", "a"
OTHER = Member("b", 1)
Entry = tuple[ViewId, int, Member, int, bytes]
"""View, number in it, origin, number of the origin, payload."""


@dataclass(frozen=True)
class State:
    """What a replica remembers."""

    entries: tuple[Entry, ...] = ()
    view: ViewId = NO_VIEW
    settled: int = 0
    highest_view: int = 0
    accepted: ViewId = NO_VIEW
    is_zombie: bool = False

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def version(self) -> Version:
        return Version(self.view, self.end)


def runs(entries: tuple[Entry, ...], first_position: int, random: Random) -> list[Run]:
    """Entries as runs, cut where they must be and at random places."""
    found: list[Run] = []
    for position, (view, number, origin, first, payload) in enumerate(entries, first_position):
        last = found[-1] if found else None
        if (
            last is not None
            and (last.view, last.origin) == (view, origin)
            and last.number + len(last.payloads) == number
            and last.first + len(last.payloads) == first
            and random.random() < 0.8
        ):
            last.payloads.append(payload)
        else:
            found.append(Run(view, number, position, origin, first, [payload]))
    return found


def entries_of(recovery: Recovery) -> tuple[Entry, ...]:
    """The whole history a recovery gives, from the snapshot's chunks and the runs."""
    entries: list[Entry] = []
    if recovery.snapshot is not None:
        entries = decode_state(b"".join(recovery.snapshot.chunks()))
        assert len(entries) == recovery.snapshot.position
    for run in recovery.runs:
        assert run.position == len(entries) + 1, "runs follow each other above the snapshot"
        assert run.payloads
        entries += [
            (run.view, run.number + i, run.origin, run.first + i, payload)
            for i, payload in enumerate(run.payloads)
        ]
    assert recovery.version.position == len(entries)
    return tuple(entries)


def encode_state(entries: tuple[Entry, ...]) -> bytes:
    """The object's state is the list of its entries."""
    return msgspec.msgpack.encode(entries)


def decode_state(data: bytes) -> list[Entry]:
    return msgspec.msgpack.decode(data, type=list[Entry]) if data else []


class NaiveReplica:
    """One replica on one disk."""

    def __init__(self, disk: Disk, random: Random, settings: JournalSettings) -> None:
        self.disk = disk
        self.random = random
        self.settings = settings
        self.states: list[State] = [State()]
        """What it remembered after each turn of its present life; first, at its beginning."""
        self.synced = 0
        """Which of the states is known to be synced."""
        self.marks = [0]
        """For each state, which one the turn that led to it says to be synced."""
        self.ever: list[tuple[Entry, ...]] = [()]
        """All histories it ever had, in all lives."""
        self.working = State()
        self.is_adopting = False
        self.writer: JournalWriter
        self.recovery: Recovery
        self._at = 0
        self._numbers: dict[tuple[ViewId, Member], int] = {}
        self._firsts: dict[Member, int] = {}

    @property
    def me(self) -> Member:
        return Member(ID, self.writer.incarnation)

    # ---- lives

    def start(self, *, incarnation_min: int = 1) -> Recovery:
        recovery = recover(self.disk, GROUP, ID, incarnation_min=incarnation_min)
        self.begin(recovery)
        return recovery

    def begin(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self.writer = begin_life(self.disk, recovery, self.settings)
        state = State(
            entries_of(recovery),
            recovery.version.view,
            recovery.settled,
            recovery.highest_view_number,
            recovery.accepted,
            recovery.is_zombie,
        )
        self.states = [state]
        self.synced, self.marks = 0, [0]
        self.working = state
        self.is_adopting = False

    # ---- turns

    def write(self, records: list[Record], state: State) -> None:
        """Write a turn, and sync if the mode says so."""
        self.working = state
        if not self.is_adopting:
            self.ever.append(state.entries)
        promised = self.states[-1] if self.is_adopting else state
        # Promises about views hold even while a history is being adopted.
        self.states.append(
            replace(
                promised,
                highest_view=state.highest_view,
                accepted=state.accepted,
                is_zombie=state.is_zombie,
            )
        )
        self.marks.append(self.synced)
        self.writer.append(records)
        self._at += 1000
        if self.writer.needs_sync(self._at):
            self.sync()

    def sync(self) -> None:
        self.writer.sync()
        self.synced = len(self.states) - 1

    def turn(self) -> None:
        """Do something an engine might do."""
        choices = [self.note, self.new_view]
        if self.is_adopting:
            choices += [self.go_on_adopting] * 4
        elif self.working.is_zombie or self.working.accepted == NO_VIEW:
            choices += [self.adopt_whole, self.adopt_entries, self.begin_adopting]
            if not self.working.is_zombie:
                choices += [self.accept_view]
        else:
            choices += [self.take] * 5 + [self.settle] * 3
            choices += [self.accept_view, self.adopt_entries, self.adopt_whole]
            choices += [self.begin_adopting, self.snapshot, self.snapshot]
        self.random.choice(choices)()

    def note(self) -> None:
        view = ViewId(self.working.highest_view, "b", 1)
        self.write(
            [
                Delivered(
                    **self._common(),
                    view=view,
                    sender=OTHER,
                    first=1,
                    count=1,
                    number=1,
                    safe=False,
                    delivery=Delivery.REGULAR,
                    digest=1,
                ),
                Replied(
                    **self._common(), replies=[Reply(1, 2, 3, view, 1, Standing.OPTIMISTIC, 7, 9)]
                ),
            ],
            self.working,
        )

    def new_view(self) -> None:
        state = self.working
        view = ViewId(state.highest_view + self.random.randint(1, 3), "b", 1)
        self.write(
            [
                ViewInstalled(
                    **self._common(), view=view, members=(OTHER,), previous=view, transitional=()
                )
            ],
            replace(state, highest_view=view.number),
        )

    def accept_view(self) -> None:
        """Accept and confirm a primary view with our own history."""
        view = ViewId(self.working.highest_view + 1, "b", 1)
        accepted, state = self._accepting(view, self.working)
        confirmed = PrimaryConfirmed(
            **self._common(), view=view, position=state.end, accepted_by=(OTHER, self.me)
        )
        if self.random.random() < 0.3:
            self.write([accepted], state)
            self.write([confirmed], replace(state, view=view))
        else:
            self.write([accepted, confirmed], replace(state, view=view))

    def take(self) -> None:
        """Accept entries, and perhaps learn that some are settled, in one turn."""
        state = self.working
        fresh = self._fresh(state.view, self.random.randint(1, 6))
        records: list[Record] = [
            EntriesAccepted(**self._common(), run=run)
            for run in runs(fresh, state.end + 1, self.random)
        ]
        self.write(records, replace(state, entries=state.entries + fresh))

    def settle(self) -> None:
        state = self.working
        position = self.random.randint(state.settled, state.end)
        record = Settled(**self._common(), position=position)
        self.write([record], replace(state, settled=position))

    def adopt_entries(self) -> None:
        """Adopt another history by its entries, in one turn, as an engine does."""
        records, state = self._adoption(kept=self.random.randint(*self._kept_range()))
        rest, state = self._rest_of_adoption(state)
        accepted, state = self._accepting(state.view, state)
        self.write([*records, *rest, accepted], state)

    def begin_adopting(self) -> None:
        """Adopt another history over several turns."""
        records, state = self._adoption(kept=self.random.randint(*self._kept_range()))
        self._whole = self._target
        self.is_adopting = self._target.end > state.end
        if not self.is_adopting:
            state = replace(state, view=self._target.view)
        self.write(records, state)
        if not self.is_adopting:
            self._accept_adopted()

    def go_on_adopting(self) -> None:
        state = self.working
        upto = self.random.randint(state.end + 1, self._whole.end)
        more = self._whole.entries[state.end : upto]
        records: list[Record] = [
            EntriesAccepted(**self._common(), run=run)
            for run in runs(more, state.end + 1, self.random)
        ]
        state = replace(state, entries=state.entries + more)
        if state.end == self._whole.end:
            self.is_adopting = False
            state = replace(state, view=self._whole.view)
        self.write(records, state)
        if not self.is_adopting:
            self._accept_adopted()

    def adopt_whole(self) -> None:
        """Take over the state of another replica, and the entries above it."""
        settled = self.working.entries[: self.working.settled]
        view = ViewId(self.working.highest_view + 1, "b", 1)
        fresh = self._fresh(view, self.random.randint(1, 9))
        target = settled + fresh
        restored = self.random.randint(max(1, len(settled)), len(target))
        # The same turn may settle more, and the snapshot is then of that later position.
        taken = self.random.randint(restored, len(target))
        self._store(target[:taken], Version(view, len(target)), adopts=restored)
        state = replace(
            self.working,
            entries=target,
            view=view,
            settled=taken,
            highest_view=max(self.working.highest_view, view.number),
        )
        records: list[Record] = [
            HistoryAdopted(
                **self._common(),
                view=view,
                source=OTHER,
                version=state.version,
                kept=len(settled),
                restored=restored,
            ),
            *(
                EntriesAccepted(**self._common(), run=run)
                for run in runs(target[restored:], restored + 1, self.random)
            ),
        ]
        if taken > restored:
            records.append(Settled(**self._common(), position=taken))
        accepted, state = self._accepting(view, state)
        self.write([*records, accepted], state)

    def snapshot(self) -> None:
        """Store our own state at the settled position."""
        state = self.working
        if self.settings.sync is Sync.TURN:
            self.sync()
        self._store(state.entries[: state.settled], state.version)

    # ---- parts

    def _common(self) -> dict[str, Any]:
        return {"group": GROUP, "member": self.me, "at": self._at}

    def _kept_range(self) -> tuple[int, int]:
        return self.working.settled, self.working.end

    def _fresh(self, view: ViewId, count: int) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        for _ in range(count):
            origin = self.random.choice((OTHER, Member("c", 2)))
            number = self._numbers[view, OTHER] = self._numbers.get((view, OTHER), 0) + 1
            first = self._firsts[origin] = self._firsts.get(origin, 0) + 1
            payload = self.random.randbytes(self.random.choice((0, 1, 5, 40, 200)))
            entries.append((view, number, origin, first, payload))
        return tuple(entries)

    def _adoption(self, *, kept: int) -> tuple[list[Record], State]:
        """The records that begin to adopt a history; `_target` is what it is to become."""
        old = self.working
        view = ViewId(old.highest_view + 1, "b", 1)
        fresh = self._fresh(view, self.random.randint(0, 8))
        self._target = replace(old, entries=old.entries[:kept] + fresh, view=view)
        records: list[Record] = [
            HistoryAdopted(
                **self._common(),
                view=view,
                source=OTHER,
                version=self._target.version,
                kept=kept,
                restored=0,
            )
        ]
        if kept < old.end:
            records.append(RolledBack(**self._common(), position=kept))
        return records, replace(old, entries=old.entries[:kept])

    def _rest_of_adoption(self, state: State) -> tuple[list[Record], State]:
        more = self._target.entries[state.end :]
        records: list[Record] = [
            EntriesAccepted(**self._common(), run=run)
            for run in runs(more, state.end + 1, self.random)
        ]
        return records, replace(state, entries=self._target.entries, view=self._target.view)

    def _accept_adopted(self) -> None:
        accepted, state = self._accepting(self._whole.view, self._whole_state())
        self.write([accepted], state)

    def _whole_state(self) -> State:
        return replace(self.working, entries=self._whole.entries, view=self._whole.view)

    def _accepting(self, view: ViewId, state: State) -> tuple[Record, State]:
        record = PrimaryAccepted(
            **self._common(), view=view, members=(OTHER, self.me), version=state.version
        )
        highest = max(state.highest_view, view.number)
        return record, replace(state, accepted=view, highest_view=highest, is_zombie=False)

    def _store(self, entries: tuple[Entry, ...], version: Version, *, adopts: int = 0) -> None:
        store = SnapshotStore(self.disk, GROUP, ID)
        data = encode_state(entries)
        middle = self.random.randint(0, len(data))
        origins = {origin: first for _, _, origin, first, _ in entries}
        store.begin(
            len(entries),
            version,
            after=self.writer.end,
            origins=sorted(origins.items()),
            adopts=adopts,
        ).write([data[:middle], b"", data[middle:]])

    def started(self) -> None:
        """The first record of a life."""
        self.write(
            [
                Started(
                    **self._common(),
                    stack="PRIMARY:DYNSEQ:VSYNC",
                    configuration=Configuration(1, ("a", "b", "c")),
                    is_zombie=self.working.is_zombie,
                )
            ],
            self.working,
        )
