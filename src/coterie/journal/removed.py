"""A note of what was removed from a journal on purpose, so that readers can tell it from loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.journal.disk import replace_file
from coterie.journal.format import VersionUnknown, encode_fixed, folder_of, read_fixed
from coterie.kernel.decoding import Decoder

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.keyed import SealKey

_MAGIC = b"COTRMVD\n"
_NAME = "removed"
_encoder = msgspec.msgpack.Encoder()

Ranges = tuple[tuple[int, int], ...]


class _Removed(msgspec.Struct, frozen=True, array_like=True):
    """What the file holds: for each life, ranges of records, first and last."""

    lives: dict[int, Ranges]
    seal: bytes = b""
    """Where the journal is written with a key, the keyed digest of the note."""


_decoder = Decoder(_Removed)


def read_removed(disk: Disk, group: str, replica: str) -> dict[int, Ranges]:
    """Give which records of which lives were removed on purpose."""
    folder = folder_of(group, replica)
    if _NAME not in disk.names(folder):
        return {}
    try:
        body, _, _ = read_fixed(disk, f"{folder}/{_NAME}", _MAGIC, "note of what was removed")
        return _decoder.decode(body).lives
    except (ValueError, VersionUnknown, msgspec.DecodeError):
        # Without the note, what was removed is reported as missing: a worry, not a harm.
        return {}


def read_sealed(
    disk: Disk, group: str, replica: str, key: SealKey
) -> tuple[str, dict[int, Ranges] | None]:
    """Give where the note is, and what it says; None if it is there and not sealed with the key."""
    folder = folder_of(group, replica)
    path = f"{folder}/{_NAME}"
    if _NAME not in disk.names(folder):
        return path, {}
    try:
        body, _, _ = read_fixed(disk, path, _MAGIC, "note of what was removed")
        note = _decoder.decode(body)
    except (ValueError, VersionUnknown, msgspec.DecodeError):
        return path, None
    is_sealed = key.is_note(_said(group, replica, note.lives), note.seal)
    return path, note.lives if is_sealed else None


def note_removed(
    disk: Disk,
    group: str,
    replica: str,
    lives: dict[int, Ranges],
    key: SealKey | None = None,
) -> None:
    """Replace the note of what was removed."""
    note: tuple[object, ...] = (lives,)
    if key is not None:
        note = (lives, key.of_note(_said(group, replica, lives)))
    body = _encoder.encode(note)
    replace_file(disk, folder_of(group, replica), _NAME, encode_fixed(_MAGIC, body))


def _said(group: str, replica: str, lives: dict[int, Ranges]) -> bytes:
    return _encoder.encode((group, replica, sorted(lives.items())))


def with_range(ranges: Ranges, first: int, last: int) -> Ranges:
    """Add a range, and join those that touch."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((*ranges, (first, last))):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return tuple(joined)
