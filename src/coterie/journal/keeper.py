"""What a driver does with the journal of one replica, life after life, in the right order.

The simulator and the real driver do the same:

    keeper = JournalKeeper(disk, group, replica, settings)    # recovers, and begins a life
    ...                                      # the engine is built with keeper.past()
    keeper.checkpoint = primary.checkpoint   # where its state is to be had
    ...
    keeper.write(records)                    # every turn, before any of its frames leaves
    if keeper.needs_sync(now):
        keeper.sync()                        # also before; it may run in a thread
    work = keeper.housekeeping()
    if work is not None:
        work()                               # at once, or in a thread while turns go on

The order matters in three places. A state taken over from another replica is stored before the
turn that speaks of it, or recovery would find the record and no state. A snapshot is finished only
after the turn that settled its position is as safe as turns are to be. And segments go only once
the snapshot that makes them unnecessary is there.

Housekeeping that fails costs nothing but room: the replica goes on, and tries again later. What
fails in `write` or `sync` is a `StorageFailed`, and the replica must stop serving at once.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.format import Sync
from coterie.journal.life import begin_life
from coterie.journal.recovery import recover
from coterie.journal.retention import Retention, retain
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.writer import JournalSettings
from coterie.kernel.engine import Checkpoint, Chunks
from coterie.kernel.records import HistoryAdopted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.format import Mark
    from coterie.kernel.engine import Past
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


class JournalKeeper:
    """Keeps the journal of one replica for one life.

    Making one recovers what earlier lives left and begins the next. Raises `StorageFailed` if the
    journal cannot be begun, and `VersionUnknown` if a later release wrote it: the replica must not
    start.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        disk: Disk,
        group: str,
        replica: str,
        settings: KeeperSettings | None = None,
        *,
        incarnation_min: int = 1,
        at: int = 0,
    ) -> None:
        self.disk = disk
        self.group = group
        self.replica = replica
        self.settings = settings or KeeperSettings()
        self.recovery = recover(disk, group, replica, incarnation_min=incarnation_min)
        self.writer = begin_life(disk, self.recovery, self.settings.journal, at=at)
        self.checkpoint: Callable[[], Checkpoint] | None = None
        """Where the replica's authoritative state is to be had; without it, no snapshots."""
        self.trouble = ""
        """Why the last housekeeping did not succeed, in words; empty if it did."""
        self.dumps_skipped = 0
        """How many state dumps were left out because they came faster than they were written."""
        self._store = SnapshotStore(disk, group, replica)
        self._dump_store = SnapshotStore(disk, group, replica, name=DUMPS)
        snapshot = self.recovery.snapshot
        self._snapshot_position = 0 if snapshot is None else snapshot.position
        self._snapshot_size = 0 if snapshot is None else snapshot.size
        # What is to be read again above the snapshot counts as if it had just been written.
        above = sum(len(payload) for run in self.recovery.runs for payload in run.payloads)
        self._snapshot_at = -above
        self._dump: tuple[int, Iterator[bytes]] | None = None
        self._is_busy = False
        # Retention must not come between the storing of an adopted state and its record.
        self._adopting = threading.Lock()

    @property
    def incarnation(self) -> int:
        """The number of this life."""
        return self.writer.incarnation

    def past(self) -> Past:
        """Give what the engine is to know of earlier lives."""
        return self.recovery.past()

    # ---- turns

    def write(self, records: Sequence[Record]) -> None:
        """Write the records of one turn of this replica, all or none, and the state they adopt."""
        for record in records:
            if isinstance(record, HistoryAdopted) and record.restored:
                with self._adopting:
                    self._store_adopted(record.restored)
                    self.writer.append(records)
                return
        self.writer.append(records)

    def needs_sync(self, now: int) -> bool:
        """Say whether the driver, whose clock shows *now*, should call `sync`."""
        return self.writer.needs_sync(now)

    def sync(self) -> None:
        """Make everything written so far survive the loss of the machine."""
        self.writer.sync()

    def close(self) -> None:
        """End this life's journal in good order; no housekeeping may be going on."""
        self.writer.close()

    def _store_adopted(self, restored: int) -> None:
        if self.writer.failure is not None:
            raise self.writer.failure
        try:
            self._store_state(self._take_checkpoint(), self.writer.end, adopts=restored)
        except OSError as error:
            self.writer.fail(error, "a state taken over could not be stored")

    # ---- housekeeping

    def dump(self, position: int, chunks: Iterator[bytes]) -> None:
        """Keep the state at *position*, which this turn settles, to be dumped for the pipeline.

        Hosts call this inside a turn, at the same positions on all replicas. A dump that comes
        before the one before it was written takes its place.
        """
        if self._dump is not None:
            self.dumps_skipped += 1
            _let_go(self._dump[1])
        self._dump = (position, chunks)

    def housekeeping(self) -> Callable[[], None] | None:
        """Give what is to be done besides turns, if anything is due; between turns only.

        The work may be done in a thread of its own while turns go on; until it is done nothing
        more is given. It raises `StorageFailed` only if turns could not be synced either.
        """
        if self._is_busy or self.writer.failure is not None:
            return None
        dump = self._take_dump()
        checkpoint = self._take_checkpoint() if self._is_snapshot_due() else None
        if dump is None and checkpoint is None:
            return None
        self._is_busy = True
        end = self.writer.end

        def work() -> None:
            try:
                self._keep_house(dump, checkpoint, end)
            finally:
                self._is_busy = False

        return work

    def _is_snapshot_due(self) -> bool:
        since = self.writer.bytes_written - self._snapshot_at
        return (
            since >= max(self.settings.snapshot_bytes, self._snapshot_size)
            and self.writer.memory.settled != self._snapshot_position
            and self.checkpoint is not None
        )

    def _keep_house(
        self, dump: Checkpoint | None, checkpoint: Checkpoint | None, end: Mark
    ) -> None:
        if self.settings.journal.sync is Sync.TURN:
            # What settled the positions may not be synced yet.
            self.writer.sync()
        troubles: list[str] = []
        if dump is not None:
            with self._noting(troubles, "a state could not be dumped"):
                _write(self._dump_store, dump, end)
                self._dump_store.keep(self.settings.dumps)
        if checkpoint is not None:
            with self._noting(troubles, "no snapshot could be taken"):
                self._store_state(checkpoint, end)
            # Also where that failed: retention may make the room that was missing.
            with self._noting(troubles, "the journal could not be made shorter"), self._adopting:
                retain(self.disk, self.group, self.replica, self.settings.retention)
        self.trouble = "; ".join(troubles)

    @contextlib.contextmanager
    def _noting(self, troubles: list[str], what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            troubles.append(f"{what}: {error.strerror or error}")

    def _take_dump(self) -> Checkpoint | None:
        if self._dump is None:
            return None
        (position, chunks), self._dump = self._dump, None
        # Recovery does not look at dumps, so they need not say which entry of whom came last.
        return Checkpoint(position, self.writer.memory.version, (), chunks)

    def _take_checkpoint(self) -> Checkpoint:
        assert self.checkpoint is not None, "a keeper is told where the state is to be had"
        return self.checkpoint()

    def _store_state(self, checkpoint: Checkpoint, after: Mark, *, adopts: int = 0) -> None:
        """Store a state as a snapshot; *after* is where the journal stood when it was taken."""
        # Whatever comes of it, the next one is due only after as much again.
        self._snapshot_at = self.writer.bytes_written
        path = _write(self._store, checkpoint, after, adopts=adopts)
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
        )
        return draft.write(checkpoint.chunks)
    finally:
        _let_go(checkpoint.chunks)


def _let_go(chunks: Iterator[bytes]) -> None:
    """End the encoding of a state, wherever that is done."""
    if isinstance(chunks, Chunks):
        chunks.close()
