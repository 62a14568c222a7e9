"""Recordings: the history of one life of one process, as a file.

A recording is a head of 8 bytes and then records, each as

    body length u32 | CRC-32 of the body u32 | body        (big endian)

The head is the magic "COTREC" and a version (u16). A body is one record of
`coterie.kernel.records` in MessagePack, as `encode_record` gives it; the records of all groups
that the process hosts follow each other in the order in which they were reported.

Writers append whole turns with one write(2), so what was written survives the death of the
process at any moment; it does not survive the loss of the machine. A file may be read while it
grows. What does not add up at its end (a record cut off, a checksum that does not fit) is the
*torn tail*: readers give everything before it and say where it begins and why. Nothing after it
can be trusted, because the length that would lead there is part of what is torn.

There is one file for each life, never continued by the next one, so nobody ever writes after a
torn tail. The files of a folder also count the lives: the next incarnation is one above the
highest that has a file, which needs no clock.
"""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from coterie.kernel.errors import DECODE_ERRORS, CoterieError
from coterie.kernel.records import decode_record, encode_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from coterie.kernel.records import Record

RECORDING_VERSION = 1
RECORD_BYTES_MAX = 1 << 24
"""No record is larger; a length above it is damage, not a record still to come."""

_MAGIC = b"COTREC"
_FILE_HEAD = struct.Struct("!6sH")
_RECORD_HEAD = struct.Struct("!II")
_FILE_NAME = re.compile(r"(?P<id>.+)-(?P<incarnation>\d{6,})\.recording")


class RecordingError(CoterieError):
    """A file is no recording, or none that this release can read or write."""


class TornTail(NamedTuple):
    """The end of a recording that cannot be read: where it begins, and what is wrong with it."""

    path: Path
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is torn at byte {self.offset}: {self.reason}"


# ---- writing


class RecordingWriter:
    """Appends the records of one life to a new file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._write(_FILE_HEAD.pack(_MAGIC, RECORDING_VERSION))
        # The name counts this life: it must outlast even the machine, or a later life would
        # take the same number again.
        os.fsync(self._file)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def append(self, records: Sequence[Record]) -> None:
        """Write records; when this returns, the death of the process cannot lose them."""
        self._write(encode_records(records))

    def close(self) -> None:
        """Close the file; the recording ends as it is."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        written = os.write(self._file, data)
        while written < len(data):  # a full disk, or a limit: the next call says which
            written += os.write(self._file, data[written:])


def encode_records(records: Iterable[Record]) -> bytes:
    """Give the bytes that a recording holds for *records*."""
    parts: list[bytes] = []
    for record in records:
        body = encode_record(record)
        parts += (_RECORD_HEAD.pack(len(body), crc32(body)), body)
    return b"".join(parts)


# ---- reading


class RecordingReader:
    """Reads a recording from its beginning, and goes on from there when the file has grown."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        """Everything before this byte has been read."""
        self.tail: TornTail | None = None
        """What is wrong behind the last record given; the rest may still be on its way."""

    def read(self) -> Iterator[Record]:
        """Give the records that are complete and were not given before."""
        self.tail = None
        with self.path.open("rb") as file:
            file.seek(self.offset)
            if self.offset == 0 and not self._read_head(file.read(_FILE_HEAD.size)):
                return
            while head := file.read(_RECORD_HEAD.size):
                if len(head) < _RECORD_HEAD.size:
                    self._tear("the head of a record is cut off")
                    return
                length, checksum = _RECORD_HEAD.unpack(head)
                if length > RECORD_BYTES_MAX:
                    self._tear(f"a record of {length} bytes is over the limit {RECORD_BYTES_MAX}")
                    return
                body = file.read(length)
                if len(body) < length:
                    self._tear(f"a record of {length} bytes has only {len(body)}")
                    return
                if crc32(body) != checksum:
                    self._tear("a record does not fit its checksum")
                    return
                try:
                    record = decode_record(body)
                except DECODE_ERRORS as error:
                    self._tear(f"a record cannot be understood: {error}")
                    return
                self.offset += _RECORD_HEAD.size + length
                yield record

    def _read_head(self, head: bytes) -> bool:
        if len(head) < _FILE_HEAD.size:
            self._tear("the head of the file is cut off")
            return False
        magic, version = _FILE_HEAD.unpack(head)
        if magic != _MAGIC:
            raise RecordingError(f"{self.path} is not a recording of Coterie")
        if version != RECORDING_VERSION:
            raise RecordingError(
                f"{self.path} is a recording of version {version}, and this release reads "
                f"version {RECORDING_VERSION}: read it with the release that wrote it"
            )
        self.offset = _FILE_HEAD.size
        return True

    def _tear(self, reason: str) -> None:
        self.tail = TornTail(self.path, self.offset, reason)


def read_recordings(paths: Iterable[Path]) -> tuple[list[Record], list[TornTail]]:
    """Read several recordings: all records, each file's in its order, and the torn tails."""
    records: list[Record] = []
    tails: list[TornTail] = []
    for path in paths:
        reader = RecordingReader(path)
        records += reader.read()
        if reader.tail is not None:
            tails.append(reader.tail)
    return records, tails


# ---- the lives in a folder


def recording_path(folder: Path, id: str, incarnation: int) -> Path:
    """Give the place of the recording of one life."""
    return folder / f"{id}-{incarnation:06}.recording"


def recordings(folder: Path) -> list[Path]:
    """Give all recordings in a folder, by replica and life."""
    return [path for _, path in sorted(_lives(folder))]


def next_incarnation(folder: Path, id: str) -> int:
    """Give the number of the next life of a replica: one above the highest recorded here."""
    return 1 + max((life for (name, life), _ in _lives(folder) if name == id), default=0)


def _lives(folder: Path) -> Iterator[tuple[tuple[str, int], Path]]:
    for path in folder.iterdir():
        match = _FILE_NAME.fullmatch(path.name)
        if match is not None:
            yield (match["id"], int(match["incarnation"])), path
