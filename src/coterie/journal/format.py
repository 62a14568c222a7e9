"""The bytes of a journal, and the names of its files.

`docs/internals/journal-format.md` specifies both.

A journal is a folder of *segments*. A segment is a head and then *blocks*; a block holds the
records of one turn, so that a turn counts as a whole or not at all. Heads and bodies have
checksums of their own, so damage in a body does not hide where the next block begins, and the
checksum of a block's head is begun with that of its segment: bytes that belong elsewhere are never
taken for a block of this segment, even where a payload happens to contain a journal.
"""

from __future__ import annotations

import enum
import hashlib
import re
import struct
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

import msgspec

from coterie.journal.facts import Facts
from coterie.journal.keyed import EMPTY_SEAL, SEAL_BYTES, without_seal
from coterie.kernel.decoding import Decoder, Int64
from coterie.kernel.errors import CoterieError
from coterie.kernel.records import KINDS, decode_record, decode_records, is_essential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.keyed import SealKey
    from coterie.kernel.records import Record

JOURNAL_VERSION = 1

# ---- names


def folder_of(group: str, replica: str) -> str:
    """Give the folder of one replica's journal."""
    return f"{_file_name(group)}/{_file_name(replica)}"


def life_folder(folder: str, incarnation: int) -> str:
    """Give the folder of one life in the folder of a replica."""
    return f"{folder}/{incarnation:06}"


def segment_path(folder: str, incarnation: int, first: int) -> str:
    """Give the place of the segment of one life that begins with record *first*."""
    return f"{life_folder(folder, incarnation)}/{first:015}.segment"


def _file_name(name: str) -> str:
    """Make any name a file name; two different names never become the same."""
    if not name:
        raise ValueError("a group and a replica need names of at least one character")
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted


def name_of(file_name: str) -> str:
    """Give the group or replica whose folder has this name."""
    return unquote(file_name)


LIFE_NAME = re.compile(r"\d{6,}")
SEGMENT_NAME = re.compile(r"(\d{15,})\.segment")
SPARE_NAME = "spare"


# ---- findings and errors


class Kind(enum.Enum):
    """What can be wrong with a journal, or worth saying about it."""

    TORN_TAIL = "torn tail"
    """The end of a life cannot be read, and nothing that can follows it: the usual trace of a
    crash in the middle of a write."""
    DAMAGED = "damaged"
    """Something cannot be read, and readable records follow it."""
    MISSING = "missing"
    """Records are not there at all."""
    REMOVED = "removed"
    """Records are not there, because retention removed them on purpose."""
    MISPLACED = "misplaced"
    """A file is not what its place says: of another replica, or not the continuation."""
    UNREADABLE = "unreadable"
    """Undamaged bytes that make no sense to this release."""
    VOID = "void"
    """Readable records that the next life did not take over."""
    CONTRADICTION = "contradiction"
    """Records that cannot all be true."""
    TAMPERED = "tampered"
    """What no accident does: whole, with checksums that fit, and not what the replica wrote. Only
    who has the seal key can tell."""
    UNSEALED = "not sealed"
    """Written without the seal key: nothing proves who wrote it."""
    ALTERED = "altered"
    """What was read and remembered once is no longer there as it was."""


HARMLESS = frozenset({Kind.REMOVED, Kind.VOID})
"""Kinds that strict readers accept: nothing is wrong."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something a reader could not read, or should say: which file, where, and why."""

    kind: Kind
    path: str
    offset: int
    reason: str
    incarnation: int = 0
    first: int = 0
    """The first record concerned, where that is known."""
    last: int = 0
    """The last record concerned, where that is known."""

    def __str__(self) -> str:
        records = ""
        if self.first:
            records = f" (records {self.first} to {self.last})" if self.last else ""
        return f"{self.path} at byte {self.offset}: {self.kind.value}: {self.reason}{records}"


class JournalError(CoterieError):
    """Something is wrong with a journal."""


class JournalDamaged(JournalError):
    """A strict reader met damage; `finding` says what and where."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class WrongJournal(JournalError):
    """What is on the disk belongs to another engine or another configuration of the group."""


class VersionUnknown(JournalError):
    """A journal was written by a release whose format this one does not know."""


# ---- marks


NO_DIGEST = bytes(16)


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A place between two records: behind record `sequence` of life `incarnation`.

    `digest` is the chained digest of everything before it; all zeros where that is not known.
    """

    incarnation: Int64 = 0
    sequence: Int64 = 0
    digest: bytes = NO_DIGEST

    def contradicts(self, digest: bytes | None) -> bool:
        """Say whether *digest*, if known, cannot be that of this place."""
        return digest is not None and self.digest not in {NO_DIGEST, digest}


class Sync(enum.StrEnum):
    """When what a turn wrote is made to survive the loss of the machine."""

    TURN = "turn"
    """Before the turn's frames leave. A replica comes back with all it promised."""
    PRIMARY = "primary"
    """Before the turn's frames leave, but only where a cohort adds events as primary in the turn
    (**vsr** 4.2): a backup that loses its machine has lost its state, a primary has not."""
    INTERVAL = "interval"
    """Every so often. A replica is a zombie after the loss of its machine."""
    NONE = "none"
    """When the system pleases. The same."""


# ---- segment heads


class SegmentHead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a segment says of itself, so that it can be understood alone."""

    group: str
    replica: str
    incarnation: Int64
    first: Int64
    """The number of its first record; records are counted from 1 in each life."""
    follows: Mark
    """What it continues: the segment before, or what this life took over of an earlier one."""
    boot_id: str
    """The run of the machine in which it was written."""
    sync: Sync
    facts: Facts
    """What the replica remembered at its beginning, so that recovery can begin here."""
    kinds: Int64
    """How many kinds of record the writer knew ..."""
    fields: Int64
    """... and how many fields all of them have together. Both only ever grow."""
    seal: bytes = b""
    """Where the journal is written with a key, the keyed digest of all before it."""


_SEGMENT_MAGIC = b"COTJRNL\n"
_FIXED_HEAD = struct.Struct("!8sHHII")  # magic, version, reserved, length, CRC-32
_FIXED_CHECKED = slice(8, 16)
_HEAD_BYTES_USUAL = 4096
_HEAD_BYTES_MAX = 1 << 24
_encoder = msgspec.msgpack.Encoder()
_head_decoder = Decoder(SegmentHead)


class Sealed(NamedTuple):
    """A head with the bytes it has on disk."""

    head: SegmentHead
    size: int
    """Where what follows it begins."""
    seed: int
    """What the checksums of the blocks begin with."""


def encode_fixed(magic: bytes, body: bytes) -> bytes:
    """Give a file head: magic, version, length, checksum, body."""
    prefix = _FIXED_HEAD.pack(magic, JOURNAL_VERSION, 0, len(body), 0)
    check = crc32(body, crc32(prefix[_FIXED_CHECKED]))
    return prefix[:-4] + check.to_bytes(4, "big") + body


def read_fixed(disk: Disk, path: str, magic: bytes, what: str) -> tuple[bytes, int, int]:
    """Read the head of a file: its body, its whole size and its checksum.

    Raises `ValueError` if it is damaged and `VersionUnknown` if it is of another version.
    """
    data = disk.read(path, 0, _HEAD_BYTES_USUAL)
    if len(data) < _FIXED_HEAD.size:
        raise ValueError(f"the head of the {what} is cut off")
    found, version, _, length, check = _FIXED_HEAD.unpack_from(data)
    if found != magic:
        raise ValueError(f"it does not begin as a {what}")
    size = _FIXED_HEAD.size + length
    if len(data) < size <= _HEAD_BYTES_MAX:
        data = disk.read(path, 0, size)
    body = data[_FIXED_HEAD.size : size]
    if len(body) < length:
        raise ValueError(f"the head of the {what} is cut off")
    if crc32(body, crc32(data[_FIXED_CHECKED])) != check:
        raise ValueError(f"the head of the {what} does not fit its checksum")
    if version != JOURNAL_VERSION:
        raise VersionUnknown(
            f"a {what} of version {version}, and this release knows version {JOURNAL_VERSION}: "
            "use the release that wrote it"
        )
    return body, size, check


def encode_segment_head(head: SegmentHead) -> tuple[bytes, int]:
    """Give the bytes with which a segment begins, and the seed of its blocks' checksums."""
    return with_seed(encode_fixed(_SEGMENT_MAGIC, encode_said(head)))


def encode_said(head: SegmentHead) -> bytes:
    """Give what a head says; a seal, if there is one, is the last of its bytes."""
    fields = msgspec.structs.astuple(head)
    return _encoder.encode(fields if head.seal else fields[:-1])


def seal_segment_head(head: SegmentHead, key: SealKey) -> tuple[bytes, int, bytes]:
    """Give what `encode_segment_head` does for a head that is sealed, and the seal."""
    said = encode_said(msgspec.structs.replace(head, seal=EMPTY_SEAL))[:-SEAL_BYTES]
    seal = key.of_head(said)
    return *with_seed(encode_fixed(_SEGMENT_MAGIC, said + seal)), seal


def with_seed(data: bytes) -> tuple[bytes, int]:
    """Give the head of a segment together with what its blocks' checksums begin with."""
    return data, _FIXED_HEAD.unpack_from(data)[4]


def read_segment_head(disk: Disk, path: str) -> Sealed:
    """Read the head of a segment; raise `ValueError` or `VersionUnknown` if it cannot be."""
    return read_said(disk, path)[0]


def read_said(disk: Disk, path: str) -> tuple[Sealed, bytes]:
    """Read the head of a segment as `read_segment_head` does; give its bytes as well."""
    body, size, check = read_fixed(disk, path, _SEGMENT_MAGIC, "segment")
    try:
        head = _head_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"the head of the segment cannot be understood: {error}") from None
    return Sealed(head, size, check), body


# ---- blocks

BLOCK_MARK = b"\xc0\x7eBK"
BLOCK_HEAD = struct.Struct("!4sIIIIQQI")
"""Mark, check of the head, check of the body, length of the body, count of records, number of
the first record, number of the last record known to be synced, reserved."""
_HEAD_START = struct.Struct("!4sI")
_HEAD_CHECKED = struct.Struct("!IIIQQI")
"""The two parts of it: the second is what the check of the head is of."""
BLOCK_HEAD_BYTES = BLOCK_HEAD.size
HEAD_CHECKED_FROM = 8
BLOCK_BYTES_MAX = 1 << 30
"""No block is larger; a length above it is damage."""


class BlockHead(NamedTuple):
    """A checked head of a block."""

    check: int
    length: int
    records: int
    first: int
    synced: int

    @property
    def last(self) -> int:
        """The number of the last record."""
        return self.first + self.records - 1


def seal_block(buffer: bytearray, *, seed: int, count: int, first: int, synced: int) -> bytes:
    """Put a head before the body that begins at `BLOCK_HEAD_BYTES` of *buffer*; give the head."""
    check = crc32(memoryview(buffer)[BLOCK_HEAD_BYTES:])
    length = len(buffer) - BLOCK_HEAD_BYTES
    checked = _HEAD_CHECKED.pack(check, length, count, first, synced, 0)
    head = buffer[:BLOCK_HEAD_BYTES] = _HEAD_START.pack(BLOCK_MARK, crc32(checked, seed)) + checked
    return head


def decode_block_head(data: bytes, offset: int, seed: int) -> BlockHead | None:
    """Read the head at *offset*; None if there is no whole and valid head of this segment."""
    end = offset + BLOCK_HEAD_BYTES
    if len(data) < end:
        return None
    mark, head_check, check, length, count, first, synced, _ = BLOCK_HEAD.unpack_from(data, offset)
    if mark != BLOCK_MARK or crc32(data[offset + HEAD_CHECKED_FROM : end], seed) != head_check:
        return None
    if length > BLOCK_BYTES_MAX or max(first + count, synced) >= 1 << 63:
        return None
    return BlockHead(check, length, count, first, synced)


_records_encoder = msgspec.msgpack.Encoder()
_raw_decoder = Decoder(list[msgspec.Raw])
_any_decoder = Decoder()


def encode_body(records: Sequence[Record], buffer: bytearray) -> None:
    """Put records into *buffer*, behind room for the head of a block."""
    _records_encoder.encode_into(records, buffer, BLOCK_HEAD_BYTES)


class Skipped:
    """Counts what a reader met and does not know, because a later release wrote it."""

    def __init__(self) -> None:
        self.records: dict[int, int] = {}
        """Records of unknown kinds, by tag."""
        self.fields = 0
        """Fields behind the last one known, in records of known kinds."""
        self.essential = 0
        """How many of the skipped records recovery would have to understand."""

    def skip_record(self, tag: int) -> None:
        """Count a record of an unknown kind."""
        self.records[tag] = self.records.get(tag, 0) + 1
        if is_essential(tag):
            self.essential += 1


def decode_body(body: bytes | memoryview, *, is_newer: bool, skipped: Skipped) -> list[Record]:
    """Give the records of a block; what is unknown is left out and counted.

    *is_newer* says that the segment's writer knew kinds or fields that we do not.
    Raises `msgspec.DecodeError` if the bytes make no sense.
    """
    if not is_newer:
        return without_seal(decode_records(body))
    records: list[Record] = []
    for raw in _raw_decoder.decode(body):
        values = _any_decoder.decode(raw)
        if not isinstance(values, list) or not values or not isinstance(values[0], int):
            raise msgspec.DecodeError("a record is an array that begins with its kind")
        kind = KINDS.get(values[0])
        if kind is None:
            skipped.skip_record(values[0])
            continue
        skipped.fields += max(0, len(values) - 1 - len(kind.__struct_fields__))
        records.append(decode_record(raw))
    return without_seal(records)


class Chain:
    """The chained digest of a segment: over what it follows and the heads of its blocks."""

    def __init__(self, follows: Mark) -> None:
        self._before = follows.digest
        self._hash = hashlib.blake2b(follows.digest, digest_size=16)
        self._is_empty = True

    def add(self, head: bytes) -> None:
        """Take the head of the next block."""
        self._hash.update(head)
        self._is_empty = False

    def digest(self) -> bytes:
        """Give the digest of everything so far; without blocks it is that of what came before."""
        return self._before if self._is_empty else self._hash.digest()
