"""Writing the journal of one life.

`append` writes the records of one turn with one write(2): when it returns, the death of the
process cannot lose them. `sync` makes everything appended survive the loss of the machine; with
`Sync.TURN` the driver calls it after every turn that appended something, before the turn's frames
leave. A driver may run `sync` in a thread of its own while it appends further turns; nothing else
may run at the same time.

A turn is one block, and counts as a whole or not at all. Segments are cut between turns.

The engine's family says which records count and how (`coterie.journal.family`). The first time a
turn holds a record that sets the recovery bit, that is done on stable storage before the turn is
written: a replica that has been counted in a primary view and later finds nothing on its disk must
know that it has lost something (**objects** appendix A).

A turn that changes what the replica *promised* is synced, and then its stable values are replaced,
before `append` returns, whatever the mode of syncing: these turns are few, and a cohort, for one,
that forgot them could help two primaries. In this order the stable values are never ahead of the
journal: where they are, the journal has lost something.

When anything fails, nothing of that turn counts as written and the writer is of no more use: the
error is a `StorageFailed`, and a replica that gets one must stop serving at once. It must not try
again in the same life, because what a failed sync left on the disk cannot be known.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from typing import TYPE_CHECKING, Never

import msgspec

from coterie.journal.facts import Facts
from coterie.journal.format import (
    BLOCK_BYTES_MAX,
    BLOCK_HEAD_BYTES,
    SPARE_NAME,
    Chain,
    JournalError,
    Mark,
    SegmentHead,
    Sync,
    encode_body,
    encode_segment_head,
    folder_of,
    life_folder,
    seal_block,
    seal_segment_head,
    segment_path,
)
from coterie.journal.keyed import SEAL_BYTES, SealKey, sealed
from coterie.kernel.clock import Duration, milliseconds
from coterie.kernel.records import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.journal.disk import Disk, DiskFile
    from coterie.journal.family import JournalFamily
    from coterie.journal.keyed import TurnSeals
    from coterie.journal.stable import Stable
    from coterie.kernel.records import Record

_BUFFER_KEPT_MAX = 4 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class StorageFailed(JournalError):
    """The journal cannot be written: this replica must stop serving at once.

    Nothing of the turn that failed counts as written. Start the replica again when the disk has
    been put right.
    """


class StorageFull(StorageFailed):
    """There is no room for the journal: this replica must stop serving at once.

    Make room, or let retention keep less, and start the replica again: nothing it promised is
    lost.
    """


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a journal is written. Sizes are bytes."""

    sync: Sync = Sync.TURN
    sync_interval: Duration = milliseconds(100)
    """With `Sync.INTERVAL`, how long what was written may stay unsynced."""
    segment_bytes: int = 64 << 20
    """Segments are about this long; a single turn that is longer has one to itself."""
    preallocate: bool = False
    """Whether `prepare` makes the next segment in advance, filled with zeros."""
    seal_key: SealKey | None = None
    """With a key, heads and turns end with a keyed digest (`coterie.journal.keyed`)."""


class LifeStart(msgspec.Struct, frozen=True, kw_only=True):
    """Which life of which replica begins, and what it goes on from."""

    group: str
    replica: str
    incarnation: int
    follows: Mark
    facts: Facts


class JournalWriter:
    """Writes the journal of one life. `begin_life` makes it from what `recover` found."""

    schema = staticmethod(schema)
    """How many kinds of record are known here, and how many fields they have together."""

    def __init__(
        self,
        disk: Disk,
        start: LifeStart,
        stable: Stable,
        settings: JournalSettings,
        family: JournalFamily,
    ) -> None:
        self.disk = disk
        self.group = start.group
        self.replica = start.replica
        self.incarnation = start.incarnation
        self.settings = settings
        self.memory = family.memory(start.facts, stable.promises)
        """What the replica remembers by the records written so far."""
        self.failure: StorageFailed | None = None
        """Why nothing more can be written, if so."""
        folder = folder_of(start.group, start.replica)
        self._folder = folder
        self._life_folder = life_folder(folder, start.incarnation)
        self._stable = stable
        self._boot_id = disk.boot_id
        self._family = family
        self._has_been_primary = stable.has_been_primary
        self._promises = self.memory.promises
        """The promises that are on stable storage."""
        # What is synced now and then whatever the mode must then be there as a whole.
        self._syncs_segments = settings.sync is not Sync.NONE or family.syncs_before_snapshots
        self._may_be_due = settings.sync not in {Sync.NONE, Sync.INTERVAL}
        """Whether there are turns that must be synced before anything of them leaves."""
        self.bytes_written = 0
        """How many bytes the turns of this life take so far."""
        self._sequence = 0
        self._synced = 0
        self._synced_at: int | None = None
        self._due_up_to = 0
        """The last record of a turn of which nothing may leave before it is synced."""
        self._buffer = bytearray()
        self._sync_lock = threading.Lock()
        self._spare: DiskFile | None = None
        self._file: DiskFile
        self._chain: Chain
        self._seals: TurnSeals | None = None
        self._has_blocks = False
        self._begin_segment(start.follows, start.facts)
        # The life must be known to the next one even if nothing else survives.
        self._sync_segment()

    # ---- where the journal stands

    @property
    def sequence(self) -> int:
        """The number of the last record written."""
        return self._sequence

    @property
    def synced(self) -> int:
        """The number of the last record that survives the loss of the machine."""
        return self._synced

    @property
    def end(self) -> Mark:
        """The place behind the last record."""
        return Mark(self.incarnation, self._sequence, self._chain.digest())

    def facts(self) -> Facts:
        """Give what the replica remembers by the records written so far."""
        return self.memory.facts()

    # ---- turns

    def append(self, records: Sequence[Record]) -> None:  # noqa: C901 -- one write, step by step
        """Write the records of one turn, all or none."""
        if self.failure is not None:
            raise self.failure
        if not records:
            return
        if not self._has_been_primary and not self._family.sets_recovery_bit.isdisjoint(
            map(type, records)
        ):
            self._set_recovery_bit()
        buffer = self._buffer
        settings = self.settings
        written = records if settings.seal_key is None else sealed(records)
        encode_body(written, buffer)
        size = len(buffer)
        if size > BLOCK_BYTES_MAX:
            self.fail(OSError(errno.EFBIG, f"it takes {size} bytes"), "a turn is too large")
        if self._has_blocks and self._offset + size > settings.segment_bytes:
            self._rotate()
        count, first = len(written), self._sequence + 1
        if self._seals is not None:
            self._seal(buffer, count, first)
        head = seal_block(buffer, seed=self._seed, count=count, first=first, synced=self._synced)
        try:
            self._file.write(buffer)
        except OSError as error:
            self._take_back()
            self.fail(error, "a turn could not be written")
        self._offset += size
        self.bytes_written += size
        self._has_blocks = True
        self._chain.add(head)
        memory = self.memory
        memory.place = (self.incarnation, first)
        memory.apply(records)
        self._sequence += count
        if size > _BUFFER_KEPT_MAX:
            self._buffer = bytearray()
        if self._may_be_due and self._family.is_due(settings.sync, memory, records):
            self._due_up_to = self._sequence
        promises = memory.promises
        if promises is not None and promises is not self._promises:
            self._store_promises(promises)

    def _seal(self, buffer: bytearray, count: int, first: int) -> None:
        """Put a keyed digest behind the records in *buffer*.

        Which segment the block belongs to is in it, as it is in the head.
        """
        assert self._seals is not None, "with a key there are seals"
        with memoryview(buffer) as view, view[BLOCK_HEAD_BYTES:-SEAL_BYTES] as body:
            seal = self._seals.of_turn(body, count=count, first=first, synced=self._synced)
        buffer[-SEAL_BYTES:] = seal

    def needs_sync(self, now: int) -> bool:
        """Say whether the driver, whose clock shows *now*, should call `sync`."""
        if self._synced == self._sequence:
            return False
        match self.settings.sync:
            case Sync.TURN | Sync.PRIMARY:
                return self._due_up_to > self._synced
            case Sync.NONE:
                return False
            case Sync.INTERVAL:
                if self._synced_at is None:
                    self._synced_at = now
                if now - self._synced_at < self.settings.sync_interval:
                    return False
                self._synced_at = now
                return True

    def sync(self) -> None:
        """Make everything appended so far survive the loss of the machine."""
        with self._sync_lock:
            if self.failure is not None:
                raise self.failure
            sequence = self._sequence
            if sequence == self._synced:
                return
            try:
                self._file.sync()
            except OSError as error:
                self.fail(error, "what was written could not be synced")
            self._synced = sequence

    def close(self) -> None:
        """End this life's journal; unless nothing is ever synced, all of it is."""
        try:
            if self.failure is None:
                if self.settings.sync is not Sync.NONE:
                    self.sync()
                self._drop_spare()
                if self._is_preallocated:
                    self._file.truncate(self._offset)
        finally:
            self._file.close()

    # ---- segments

    @property
    def wants_spare(self) -> bool:
        """Whether `prepare` would do something."""
        return self.settings.preallocate and self._spare is None and self.failure is None

    def prepare(self) -> None:
        """Make the next segment in advance; a driver may do this in a thread of its own.

        Overwriting zeros is cheaper to sync than making a file longer. Where there is no spare
        segment at the time of need, an ordinary one is begun.
        """
        if not self.wants_spare:
            return
        path = f"{self._life_folder}/{SPARE_NAME}"
        with contextlib.suppress(OSError):  # an ordinary segment will do
            spare = self.disk.create(path, zeros=self.settings.segment_bytes)
            spare.sync()
            self._spare = spare

    def _rotate(self) -> None:
        """End the segment and begin the next one."""
        with self._sync_lock:
            follows = self.end
            try:
                if self._is_preallocated:
                    self._file.truncate(self._offset)
                if self._syncs_segments and self._synced < self._sequence:
                    self._file.sync()
                    self._synced = self._sequence
                self._file.close()
            except OSError as error:
                self.fail(error, "a segment could not be ended")
            self._begin_segment(follows, self.memory.facts())
            if self._syncs_segments:
                self._sync_segment()

    def _begin_segment(self, follows: Mark, facts: Facts) -> None:
        kinds, fields = self.schema()
        head = SegmentHead(
            group=self.group,
            replica=self.replica,
            incarnation=self.incarnation,
            first=self._sequence + 1,
            follows=follows,
            boot_id=self._boot_id,
            sync=self.settings.sync,
            facts=facts,
            kinds=kinds,
            fields=fields,
        )
        key = self.settings.seal_key
        if key is None:
            data, seed = encode_segment_head(head)
        else:
            data, seed, seal = seal_segment_head(head, key)
            self._seals = key.seals_behind(seal)
        path = segment_path(self._folder, self.incarnation, head.first)
        try:
            spare, self._spare = self._spare, None
            self._is_preallocated = spare is not None
            if spare is None:
                self._file = self.disk.create(path)
            else:
                self.disk.rename(f"{self._life_folder}/{SPARE_NAME}", path)
                self._file = spare
            self._file.write(data)
        except OSError as error:
            self.fail(error, "a segment could not be begun")
        self._seed = seed
        self._offset = len(data)
        self._has_blocks = False
        self._chain = Chain(follows)

    def _sync_segment(self) -> None:
        """Make the segment and its name survive the loss of the machine."""
        try:
            self._file.sync()
            self.disk.sync_folder(self._life_folder)
        except OSError as error:
            self.fail(error, "a segment could not be synced")

    # ---- inside

    def _set_recovery_bit(self) -> None:
        try:
            if not self._stable.has_been_primary:
                self._stable.set_been_primary()
            self._has_been_primary = True
        except OSError as error:
            self.fail(error, "the recovery bit could not be set")

    def _store_promises(self, promises: msgspec.Struct) -> None:
        self.sync()
        try:
            self._stable.set_promises(promises)
        except OSError as error:
            self.fail(error, "what it promised could not be stored")
        self._promises = promises

    def _take_back(self) -> None:
        """Cut off what a failed write left; readers would ignore it anyway."""
        with contextlib.suppress(OSError):
            self._file.truncate(self._offset)

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
            with contextlib.suppress(OSError):
                path = f"{self._life_folder}/{SPARE_NAME}"
                self.disk.remove(path)

    def fail(self, error: OSError, what: str) -> Never:
        """End this life's journal: something that it rests on could not be stored."""
        kind = StorageFull if error.errno in _FULL else StorageFailed
        self.failure = kind(
            f"replica {self.replica} of group {self.group} must stop serving: {what}: "
            f"{error.strerror or error}"
        )
        raise self.failure from error
