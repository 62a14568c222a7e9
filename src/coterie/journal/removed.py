"""A note of what was removed from a journal on purpose, so that readers can tell it from loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.journal.disk import replace_file
from coterie.journal.format import VersionUnknown, encode_fixed, folder_of, read_fixed

if TYPE_CHECKING:
    from coterie.journal.disk import Disk

_MAGIC = b"COTRMVD\n"
_NAME = "removed"
_encoder = msgspec.msgpack.Encoder()

Ranges = tuple[tuple[int, int], ...]


class _Removed(msgspec.Struct, frozen=True, array_like=True):
    """What the file holds: for each life, ranges of records, first and last."""

    lives: dict[int, Ranges]


_decoder = msgspec.msgpack.Decoder(_Removed)


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


def note_removed(disk: Disk, group: str, replica: str, lives: dict[int, Ranges]) -> None:
    """Replace the note of what was removed."""
    body = _encoder.encode(_Removed(lives))
    replace_file(disk, folder_of(group, replica), _NAME, encode_fixed(_MAGIC, body))


def with_range(ranges: Ranges, first: int, last: int) -> Ranges:
    """Add a range, and join those that touch."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((*ranges, (first, last))):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return tuple(joined)
