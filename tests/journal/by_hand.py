"""The journal's bytes made from the words of docs/internals/journal-format.md alone.

Nothing of `coterie.journal` is used here, so an agreement of both is an agreement on the document.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from zlib import crc32

import msgspec

ZEROS = bytes(16)
Facts = list[object]
NO_FACTS: Facts = [
    [[0, "", 0], 0],  # version
    *(0, 0),  # settled, highest view number
    [0, "", 0],  # accepted
    *(0, [0, 0], [0, 0], [0, 0, 0]),  # restored and where, rebased, base
    *(False, False, False),  # zombie, adopting, fresh
]


def file_head(magic: bytes, value: object, *, version: int = 1) -> bytes:
    body = msgspec.msgpack.encode(value)
    checked = struct.pack(">HHI", version, 0, len(body))
    return magic + checked + struct.pack(">I", crc32(checked + body)) + body


def segment_head(  # noqa: PLR0913 -- the fields of the document
    *,
    group: str = "g",
    replica: str = "a",
    incarnation: int = 1,
    first: int = 1,
    follows: tuple[int, int, bytes] = (0, 0, ZEROS),
    boot_id: str = "boot-1",
    sync: str = "turn",
    facts: Facts = NO_FACTS,
    kinds: int = 16,
    fields: int = 100,
    version: int = 1,
) -> bytes:
    value = [
        *(group, replica, incarnation, first),
        list(follows),
        *(boot_id, sync, facts, kinds, fields),
    ]
    return file_head(b"COTJRNL\n", value, version=version)


def block(records: list[object], *, head: bytes, first: int, synced: int = 0) -> bytes:
    """One turn; *head* is that of the segment."""
    body = msgspec.msgpack.encode(records)
    (seed,) = struct.unpack(">I", head[16:20])
    rest = struct.pack(">IIIQQI", crc32(body), len(body), len(records), first, synced, 0)
    return b"\xc0\x7eBK" + struct.pack(">I", crc32(rest, seed)) + rest + body


def digest(before: bytes, *blocks: bytes) -> bytes:
    """The chained digest behind some blocks."""
    return blake2b(before + b"".join(data[:40] for data in blocks), digest_size=16).digest()


def stopped(at: int) -> list[object]:
    """A small record of a known kind."""
    return [2, "g", ["a", 1], at]
