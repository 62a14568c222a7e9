"""Backups: the state of a group at a settled position, in one file that needs nothing beside it.

A file holds a head, then the chunks of the state, each with its length and a checksum that goes
on from the one before, and an end that says how many there were. So a file that is cut off, or of
which something is altered by accident, is told from a whole one before anything is founded on it.

It is written under a draft's name and synced before it gets its own: what bears the name is whole.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from coterie.journal.disk import DRAFT, FileDisk
from coterie.journal.format import encode_fixed, read_fixed
from coterie.journal.life import NUMBER_MAX
from coterie.kernel.configuration import take_off
from coterie.kernel.decoding import Decoder, Int64
from coterie.kernel.engine import Version
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_MAGIC = b"COTBACK\n"
_CHUNK = struct.Struct("!II")  # length, CRC-32 begun with that of the chunk before
_CHUNK_BYTES_MAX = 1 << 30
_WHAT = "backup"
_encoder = msgspec.msgpack.Encoder()


class BadBackup(CoterieError):
    """A file is no backup, or is not whole; the message says what is wrong with it."""


class BackupHead(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a backup says of itself."""

    group: str
    replica: str
    """Whose state it is; all replicas have the same at one position."""
    position: Int64
    """The state is that after the entry at this position, which was settled."""
    version: Version
    """How advanced the replica's history was."""
    taken_at: Int64
    """When it was taken, in microseconds on the clock of that machine."""
    given: dict[str, Any]
    """What the configuration of the group said of it: its class, its stack, and so on."""


_decoder = Decoder(BackupHead)


def write_backup(path: Path, head: BackupHead, chunks: Iterable[bytes]) -> int:
    """Write a backup to a new file that only its owner can read; give how long it is.

    Raises `OSError`; then there is no file of that name.
    """
    draft = path.with_name(path.name + DRAFT)
    draft.unlink(missing_ok=True)
    # Where others can write, too, it is no link of theirs, nor a file that they have open.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(draft, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(encode_fixed(_MAGIC, _encoder.encode(head)))
            check = count = 0
            for chunk in chunks:
                check = crc32(chunk, check)
                file.write(_CHUNK.pack(len(chunk), check))
                file.write(chunk)
                count += 1
            file.write(_CHUNK.pack(0, crc32(count.to_bytes(8, "big"), check)))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        _give_its_name(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return size


def _give_its_name(draft: Path, path: Path) -> None:
    """Name what is whole; raises `OSError` if there is something of that name."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        draft.rename(path)


class Backup:
    """A backup that is there; raises `BadBackup` if it is none, or is of another release."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            disk = FileDisk(path.resolve().parent)
            body, self._chunks_at, _ = read_fixed(disk, path.name, _MAGIC, _WHAT)
            self.head = head = _decoder.decode(body)
        except (OSError, ValueError, msgspec.DecodeError, CoterieError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadBackup(f"{path} cannot be used: {reason}") from None
        for number in (head.position, head.version.position, head.version.view.number):
            if not 0 <= number <= NUMBER_MAX:
                raise BadBackup(f"{path} cannot be used: {number} is no place in a history")

    def check(self) -> None:
        """Read it to the end; raises `BadBackup` if it is not whole."""
        try:
            _, state = take_off(self.chunks())
        except msgspec.DecodeError as error:
            raise BadBackup(f"{self.path} says of its members what cannot be: {error}") from None
        for _ in state:
            pass

    def chunks(self) -> Iterator[bytes]:
        """Give the state; raises `BadBackup` where the file is not what was written."""
        check = count = 0
        with self.path.open("rb") as file:
            file.seek(self._chunks_at)
            while True:
                head = file.read(_CHUNK.size)
                if len(head) < _CHUNK.size:
                    raise BadBackup(f"{self.path} is cut off: it was not copied to its end")
                length, expected = _CHUNK.unpack(head)
                if not length:
                    break
                chunk = file.read(length) if length <= _CHUNK_BYTES_MAX else b""
                check = crc32(chunk, check)
                if len(chunk) < length or check != expected:
                    raise BadBackup(f"{self.path} is damaged in its chunk {count + 1}, or cut off")
                count += 1
                yield chunk
            if crc32(count.to_bytes(8, "big"), check) != expected or file.read(1):
                raise BadBackup(f"{self.path} does not end as it should")
