"""What a driver does with the journal of one replica, life after life, in the right order.

The simulator and the real driver do the same:

    keeper = JournalKeeper(disk, group, replica, settings)    # recovers, and begins a life
    ...                                      # the engine is built with keeper.past()
    keeper.checkpoint = primary.checkpoint   # where its state is to be had
    ...
    keeper.write(records)                    # every turn, before any of its frames leaves,
                                             # but behind them if `keeper.may_follow(records)`
    if keeper.needs_sync(now):
        keeper.sync()                        # also before; it may run in a thread
    work = keeper.housekeeping()
    if work is not None:
        work()                               # at once, or in a thread while turns go on

The order matters in three places. A state taken over from another replica is stored before the
turn that speaks of it, or recovery would find the record and no state. A snapshot is finished only
after the turn that settled its position is as safe as turns are to be. And segments go only once
the snapshot that makes them unnecessary is there.

All of that is the same for all engines; where they differ, the keeper asks their family.
`coterie.journal.engines` has keepers that also recover, under names of their own.

Housekeeping that fails costs nothing but room: the replica goes on, and tries again later. What
fails in `write` or `sync` is a `StorageFailed`, and the replica must stop serving at once.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.format import Sync
from coterie.journal.life import begin_life
from coterie.journal.retention import Retention, retain
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.stable import Stable
from coterie.journal.writer import JournalSettings
from coterie.kernel.engine import Checkpoint, Chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.family import Adoption, LifeFound
    from coterie.journal.format import Mark
    from coterie.kernel.records import Record


class KeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the journal of a replica is kept. Sizes are bytes."""

    journal: JournalSettings = JournalSettings()
    retention: Retention = Retention()
    snapshot_bytes: int = 64 << 20
    """A snapshot is due when turns of so many bytes were written since the last one, or of as many
    as that one took, if it was larger: so snapshots at most double what is written."""
    dumps: int = 1000
    """How many state dumps are kept for the pipeline; older ones go."""


Job = tuple[str, "Callable[[], object]"]
"""Something to be done besides turns, and what to say if it fails."""


class Keeper:
    """Keeps the journal of one replica for one life, which begins with what was *found*.

    Raises `StorageFailed` if the journal cannot be begun: the replica must not start.
    """

    def __init__(
        self,
        disk: Disk,
        found: LifeFound,
        settings: KeeperSettings | None = None,
        *,
        at: int = 0,
    ) -> None:
        settings = settings or KeeperSettings()
        self.disk = disk
        self.group = found.group
        self.replica = found.replica
        self.settings = settings
        self.family = found.family
        self.recovery = found
        self.writer = begin_life(disk, found, settings.journal, at=at)
        self.trouble = ""
        """Why the last housekeeping did not succeed, in words; empty if it did."""
        self.checkpoint: Callable[[], Checkpoint] | None = None
        """Where the replica's state is to be had; without it, no snapshots."""
        self.dumps_skipped = 0
        """How many state dumps were left out because they came faster than they were written."""
        self.store = SnapshotStore(disk, self.group, self.replica)
        self._dump_store = SnapshotStore(disk, self.group, self.replica, name=DUMPS)
        self._dump: tuple[int, Iterator[bytes]] | None = None
        snapshot = found.snapshot
        self._snapshot_position = 0 if snapshot is None else snapshot.position
        self._snapshot_size = 0 if snapshot is None else snapshot.size
        # What is to be read again above the snapshot counts as if it had just been written.
        self._snapshot_at = -found.bytes_above
        self._is_busy = False
        # Retention must not come between the storing of an adopted state and its record.
        self._adopting = threading.Lock()

    def mark_removed(self) -> None:
        """Note for good that the replica was removed from its group: it has no later life."""
        Stable(self.disk, self.group, self.replica).set_removed()

    @property
    def incarnation(self) -> int:
        """The number of this life."""
        return self.writer.incarnation

    # ---- turns

    def write(self, records: Sequence[Record]) -> None:
        """Write the records of one turn of this replica, all or none, and the state they adopt."""
        store = self._adopted_by(records)
        if store is None:
            self.writer.append(records)
            return
        with self._adopting:
            if self.writer.failure is not None:
                raise self.writer.failure
            try:
                store()
            except OSError as error:
                self.writer.fail(error, "a state taken over could not be stored")
            self.writer.append(records)

    def may_follow(self, records: Sequence[Record]) -> bool:
        """Say whether a turn with these records may be written when its frames have left."""
        return self.family.may_follow.issuperset(map(type, records))

    def is_forced(self, records: Sequence[Record]) -> bool:
        """Say whether writing these records waits for the disk."""
        return not self.family.forced.isdisjoint(map(type, records))

    def needs_sync(self, now: int) -> bool:
        """Say whether the driver, whose clock shows *now*, should call `sync`."""
        return self.writer.needs_sync(now)

    @property
    def is_behind(self) -> bool:
        """Whether something written would not survive the loss of the machine."""
        return self.writer.synced < self.writer.sequence

    def sync(self) -> None:
        """Make everything written so far survive the loss of the machine."""
        self.writer.sync()

    def close(self) -> None:
        """End this life's journal in good order; no housekeeping may be going on."""
        self.writer.close()

    def _adopted_by(self, records: Sequence[Record]) -> Callable[[], None] | None:
        """Give what stores the state that a turn takes over, if it takes over one."""
        adoption = self.family.adoption(self.writer, records)
        return None if adoption is None else partial(self._store_adopted, adoption)

    def _store_adopted(self, adoption: Adoption) -> None:
        self._store_state(self._take_checkpoint(), adoption.after, adopts=adoption.adopts)

    # ---- housekeeping

    def dump(self, position: int, chunks: Iterator[bytes]) -> None:
        """Keep the state at *position*, which this turn settles, to be dumped for the pipeline.

        Hosts call this inside a turn, at the same positions on all replicas. A dump that comes
        before the one before it was written takes its place.
        """
        if self._dump is not None:
            self.dumps_skipped += 1
            let_go(self._dump[1])
        self._dump = (position, chunks)

    def housekeeping(self) -> Callable[[], None] | None:
        """Give what is to be done besides turns, if anything is due; between turns only.

        The work may be done in a thread of its own while turns go on; until it is done nothing
        more is given. It raises `StorageFailed` only if turns could not be synced either.
        """
        # After most turns nothing is due, and that is to be seen at once.
        size = self.writer.bytes_written - self._snapshot_at
        if self._dump is None and size < self.settings.snapshot_bytes:
            return None
        if self._dump is None and not self._is_enough_written():
            return None
        if self._is_busy or self.writer.failure is not None:
            return None
        jobs = self._jobs()
        if not jobs:
            return None
        self._is_busy = True

        def work() -> None:
            try:
                self._keep_house(jobs)
            finally:
                self._is_busy = False

        return work

    def _jobs(self) -> list[Job]:
        """Give what is due, in order."""
        writer, dump = self.writer, self._take_dump()
        is_due = (
            self._is_enough_written()
            and self.checkpoint is not None
            and writer.memory.may_be_stored(self._snapshot_position)
        )
        jobs: list[Job] = []
        if dump is None and not is_due:
            return jobs
        end = writer.end
        if dump is not None:
            jobs.append(("a state could not be dumped", partial(self._write_dump, dump, end)))
        if is_due:
            take = partial(self._store_state, self._take_checkpoint(), end)
            jobs.append(("no snapshot could be taken", take))
            # Also where that failed: retention may make the room that was missing.
            jobs.append(("the journal could not be made shorter", self._retain))
        return jobs

    def _is_enough_written(self) -> bool:
        """Say whether so much was written since the last snapshot that another one is due."""
        since = self.writer.bytes_written - self._snapshot_at
        return since >= max(self.settings.snapshot_bytes, self._snapshot_size)

    def _keep_house(self, jobs: list[Job]) -> None:
        self._sync_before()
        troubles: list[str] = []
        for what, do in jobs:
            try:
                do()
            except OSError as error:
                troubles.append(f"{what}: {error.strerror or error}")
        self.trouble = "; ".join(troubles)

    def _sync_before(self) -> None:
        """Make what a snapshot rests on survive the loss of the machine, if turns do."""
        if self.settings.journal.sync is Sync.TURN or self.family.syncs_before_snapshots:
            # What settled the positions may not be synced yet.
            self.writer.sync()

    def _retain(self) -> None:
        with self._adopting:
            settings = self.settings
            key = settings.journal.seal_key
            retain(self.disk, self.group, self.replica, settings.retention, seal_key=key)

    def _snapshot_begins(self) -> None:
        """Learn that a snapshot is being stored: whatever comes of it, the next one waits."""
        self._snapshot_at = self.writer.bytes_written

    def _write_dump(self, dump: Checkpoint, end: Mark) -> None:
        _write(self._dump_store, dump, end)
        self._dump_store.keep(self.settings.dumps)

    def _take_dump(self) -> Checkpoint | None:
        if self._dump is None:
            return None
        (position, chunks), self._dump = self._dump, None
        # Recovery does not look at dumps, so they need not say which entry of whom came last.
        return Checkpoint(position, self.writer.facts().version, chunks)

    def _take_checkpoint(self) -> Checkpoint:
        assert self.checkpoint is not None, "a keeper is told where the state is to be had"
        return self.family.stored(self.checkpoint())

    def _store_state(self, checkpoint: Checkpoint, after: Mark, *, adopts: int = 0) -> None:
        """Store a state as a snapshot; *after* is where the journal stood when it was taken."""
        self._snapshot_begins()
        path = _write(self.store, checkpoint, after, adopts=adopts)
        self._snapshot_position = checkpoint.position
        self._snapshot_size = self.disk.size(path)


def _write(store: SnapshotStore, checkpoint: Checkpoint, after: Mark, *, adopts: int = 0) -> str:
    """Write a state into a store; give the path."""
    try:
        draft = store.begin(
            checkpoint.position,
            checkpoint.version,
            after=after,
            origins=checkpoint.origins,
            adopts=adopts,
            history=checkpoint.history,
        )
        return draft.write(checkpoint.chunks)
    finally:
        let_go(checkpoint.chunks)


def let_go(chunks: Iterator[bytes]) -> None:
    """End the encoding of a state, wherever that is done."""
    if isinstance(chunks, Chunks):
        chunks.close()
