"""Snapshots: the object's state at a settled position, as a file.

A snapshot is written under a draft's name, synced, and only then given its own name, so whatever
has a snapshot's name is whole; checksums find what has gone bad since. With the snapshot and the
entries above its position a replica has its whole history back.

A state that was taken over from another replica is stored in the same way, *before* the
`HistoryAdopted` record that speaks of it is written: it then says which position it `adopts`, and
recovery uses it only if it finds that record. Its own position may be higher than that one.

The state of a cohort has no position. It is that right after the record at which it says it was
taken, and names its `history` instead. One that was taken over from a primary is stored before the
turn with its `StateTaken` is written, under the number that the last record of that turn will have:
if the turn was never written, nothing leads to that number, and it means nothing.

A state dump, for the pipeline, is the same thing under another name: `DUMPS`.
"""

from __future__ import annotations

import re
import struct
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from coterie.journal.disk import DRAFT
from coterie.journal.format import (
    Finding,
    JournalDamaged,
    Kind,
    Mark,
    VersionUnknown,
    encode_fixed,
    folder_of,
    read_fixed,
)
from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Version
from coterie.kernel.views import Member, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coterie.journal.disk import Disk, DiskFile
    from coterie.journal.facts import Facts

SNAPSHOTS = "snapshots"
DUMPS = "dumps"
CHUNK_BYTES_MAX = 1 << 30
_MAGIC = b"COTSNAP\n"
_CHUNK_HEAD = struct.Struct("!II")  # length, CRC-32 begun with that of the chunk before
_NAME = re.compile(r"(\d{6,})-(\d{15,})-(\d{15,})")
_encoder = msgspec.msgpack.Encoder()


class SnapshotHead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a snapshot says of itself."""

    group: str
    replica: str
    incarnation: int
    sequence: int
    """The life that took it, and the last record of that life at the time."""
    position: int
    """The state is that after the entry at this position, which was settled."""
    version: Version
    """How advanced the replica's history was at the time."""
    origins: tuple[tuple[Member, int], ...] = ()
    """For every origin, the number of its last entry up to `position`."""
    adopts: int = 0
    """The `restored` of the `HistoryAdopted` record it belongs to; 0 if it is our own state."""
    history: tuple[Viewstamp, ...] = ()
    """Where entries are numbered by views: how many of each view the state reflects."""


_decoder = Decoder(SnapshotHead)


class Snapshot:
    """A snapshot on disk."""

    def __init__(self, disk: Disk, path: str, head: SnapshotHead, chunks_at: int) -> None:
        self.path = path
        self.head = head
        self._disk = disk
        self._chunks_at = chunks_at
        self._read: tuple[bytes, ...] | None = None

    def __repr__(self) -> str:
        return f"Snapshot({self.path!r})"

    @property
    def position(self) -> int:
        """Where in the group's order the state stands."""
        return self.head.position

    @property
    def size(self) -> int:
        """The length of the file."""
        return self._disk.size(self.path)

    def chunks(self) -> Iterator[bytes]:
        """Give the state, chunk by chunk; raise `JournalDamaged` where it has gone bad."""
        disk, path = self._disk, self.path
        offset = self._chunks_at
        check = 0
        while True:
            head = disk.read(path, offset, _CHUNK_HEAD.size)
            if len(head) < _CHUNK_HEAD.size:
                raise self._damage(offset, "the snapshot is cut off")
            length, expected = _CHUNK_HEAD.unpack(head)
            if length > CHUNK_BYTES_MAX:
                raise self._damage(offset, "the head of a chunk is damaged")
            chunk = disk.read(path, offset + _CHUNK_HEAD.size, length)
            check = crc32(chunk, crc32(head[:4], check))
            if check != expected:
                raise self._damage(offset, "a chunk does not fit its checksum")
            if length == 0:
                return
            yield chunk
            offset += _CHUNK_HEAD.size + length

    def take_chunks(self) -> tuple[bytes, ...]:
        """Give the whole state: what `check` has read is not read again, nor kept any longer."""
        read, self._read = self._read, None
        return tuple(self.chunks()) if read is None else read

    def check(self) -> Finding | None:
        """Read all of it; give what is wrong, if anything is."""
        try:
            self._read = tuple(self.chunks())
        except JournalDamaged as error:
            return error.finding
        return None

    def _damage(self, offset: int, reason: str) -> JournalDamaged:
        return JournalDamaged(
            Finding(kind=Kind.DAMAGED, path=self.path, offset=offset, reason=reason)
        )


class SnapshotDraft:
    """A snapshot that is being written; it is nothing until `finish`.

    Another thread than the journal's may write it.
    """

    def __init__(self, disk: Disk, folder: str, head: SnapshotHead) -> None:
        self._disk = disk
        self._folder = folder
        self._name = f"{head.incarnation:06}-{head.sequence:015}-{head.position:015}"
        self._draft = f"{folder}/{self._name}{DRAFT}"
        self._check = 0
        if f"{self._name}{DRAFT}" in disk.names(folder):
            disk.remove(self._draft)
        self._file: DiskFile | None = disk.create(self._draft)
        self._file.write(encode_fixed(_MAGIC, _encoder.encode(head)))

    def write(self, chunks: Iterable[bytes]) -> str:
        """Write the whole state and finish; give the path."""
        try:
            for chunk in chunks:
                self.add(chunk)
            return self.finish()
        finally:
            self.abandon()

    def add(self, chunk: bytes) -> None:
        """Write the next chunk of the state; empty ones mean nothing and are left out."""
        if chunk:
            self._write(chunk)

    def finish(self) -> str:
        """Make it a snapshot; give its path."""
        self._write(b"")
        assert self._file is not None
        self._file.sync()
        self._close()
        path = f"{self._folder}/{self._name}"
        self._disk.rename(self._draft, path)
        self._disk.sync_folder(self._folder)
        return path

    def abandon(self) -> None:
        """Remove what was written; do nothing after `finish`."""
        if self._file is not None:
            self._close()
            self._disk.remove(self._draft)

    def _write(self, chunk: bytes) -> None:
        assert self._file is not None, "the snapshot is finished"
        length = len(chunk).to_bytes(4, "big")
        self._check = crc32(chunk, crc32(length, self._check))
        self._file.write(length + self._check.to_bytes(4, "big"))
        if chunk:
            self._file.write(chunk)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class SnapshotStore:
    """The snapshots of one replica; with `DUMPS` as *name*, its state dumps."""

    def __init__(self, disk: Disk, group: str, replica: str, *, name: str = SNAPSHOTS) -> None:
        self._disk = disk
        self._group = group
        self._replica = replica
        self.folder = f"{folder_of(group, replica)}/{name}"

    def begin(  # noqa: PLR0913 -- all by name
        self,
        position: int,
        version: Version,
        *,
        after: Mark,
        origins: Iterable[tuple[Member, int]] = (),
        adopts: int = 0,
        history: tuple[Viewstamp, ...] = (),
    ) -> SnapshotDraft:
        """Begin a snapshot of the state at *position*.

        *after* is where the journal stands (`JournalWriter.end`). The turn that settled
        *position* must have been written, and with `Sync.TURN` synced, before `finish`.
        """
        assert position >= adopts, "a state taken over cannot be older than what it adopts"
        head = SnapshotHead(
            group=self._group,
            replica=self._replica,
            incarnation=after.incarnation,
            sequence=after.sequence,
            position=position,
            version=version,
            origins=tuple(origins),
            adopts=adopts,
            history=history,
        )
        return SnapshotDraft(self._disk, self.folder, head)

    def all(self) -> tuple[list[Snapshot], list[Finding]]:
        """Give the snapshots whose heads can be read, newest first, and what is wrong."""
        snapshots: list[Snapshot] = []
        findings: list[Finding] = []
        for name in self.names():
            path = f"{self.folder}/{name}"
            try:
                snapshots.append(self._open(path))
            except (ValueError, VersionUnknown) as error:
                findings.append(Finding(kind=Kind.DAMAGED, path=path, offset=0, reason=str(error)))
        return snapshots, findings

    def names(self) -> list[str]:
        """Give the file names of all snapshots, newest first."""
        found = [
            (int(match[1]), int(match[2]), int(match[3]), name)
            for name in self._disk.names(self.folder)
            if (match := _NAME.fullmatch(name))
        ]
        return [name for *_, name in sorted(found, reverse=True)]

    def keep(self, count: int) -> list[str]:
        """Remove what is older than the *count* newest snapshots of our own state.

        States that were taken over do not count, since one may belong to an adoption that never
        was. Drafts that were never finished go, too, so this is not to be called while a snapshot
        is being written. Gives the names removed.
        """
        gone = [name for name in self._disk.names(self.folder) if name.endswith(DRAFT)]
        names = self.names()
        if len(names) > count:
            # Heads are read up to the first that may go, and not where nothing has to.
            own = (place for place, name in enumerate(names) if self._is_own(name))
            newest = list(islice(own, count + 1))
            if len(newest) > count:
                gone += names[newest[count - 1] + 1 :]
        for name in gone:
            self._disk.remove(f"{self.folder}/{name}")
        return gone

    def _is_own(self, name: str) -> bool:
        """Say whether a snapshot can be read, and is of our own state."""
        try:
            return not self._open(f"{self.folder}/{name}").head.adopts
        except (ValueError, VersionUnknown):
            return False

    def _open(self, path: str) -> Snapshot:
        body, size, _ = read_fixed(self._disk, path, _MAGIC, "snapshot")
        try:
            head = _decoder.decode(body)
        except msgspec.DecodeError as error:
            raise ValueError(f"the head of the snapshot cannot be understood: {error}") from None
        if (head.group, head.replica) != (self._group, self._replica):
            raise ValueError(f"it belongs to replica {head.replica} of group {head.group}")
        return Snapshot(self._disk, path, head, size)


class Snapshots:
    """The snapshots of a replica, checked when they are needed."""

    def __init__(self, disk: Disk, group: str, replica: str, findings: list[Finding]) -> None:
        self.all, damaged = SnapshotStore(disk, group, replica).all()
        """The snapshots whose heads can be read, newest first."""
        self._findings = findings
        self._findings.extend(damaged)
        self._is_good: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def incarnation(self) -> int:
        """The highest life that took one."""
        return max((snapshot.head.incarnation for snapshot in self.all), default=0)

    def never_adopted(self, end: tuple[int, int]) -> list[str]:
        """Give the states stored for an adoption that was never recorded, as the journal ends."""
        return [
            snapshot.path
            for snapshot in self.all
            if snapshot.head.adopts and mark_of(snapshot) >= end
        ]

    def good(self) -> Iterator[Snapshot]:
        """Give those that are whole, newest first."""
        return (snapshot for snapshot in self.all if self._check(snapshot))

    def own(self, facts: Facts) -> Snapshot | None:
        """Give the newest good snapshot of the replica's own state that is of use at *facts*."""
        return self._newest(
            lambda head: (
                (head.adopts == 0 and (head.incarnation, head.sequence) >= facts.rebased)
                or (head.incarnation, head.sequence, head.position) == facts.base
            )
        )

    def adopted(self, restored: int, *, before: tuple[int, int]) -> Snapshot | None:
        """Give the newest good snapshot that belongs to an adoption recorded at *before*."""
        return self._newest(
            lambda head: head.adopts == restored and (head.incarnation, head.sequence) < before
        )

    def _newest(self, is_wanted: Callable[[SnapshotHead], bool]) -> Snapshot | None:
        wanted = (snapshot for snapshot in self.all if is_wanted(snapshot.head))
        return next((snapshot for snapshot in wanted if self._check(snapshot)), None)

    def _check(self, snapshot: Snapshot) -> bool:
        is_good = self._is_good.get(snapshot.path)
        if is_good is None:
            finding = snapshot.check()
            is_good = self._is_good[snapshot.path] = finding is None
            if finding is not None:
                self._findings.append(finding)
        return is_good


def mark_of(snapshot: Snapshot) -> tuple[int, int]:
    """Give the life and the record after which a snapshot was taken."""
    return (snapshot.head.incarnation, snapshot.head.sequence)
