"""Files of a journal with something wrong inside, their checksums put right.

Random bytes end at the first checksum. So a file is taken apart as its format says (the head, the
blocks and their records, the chunks and the state in them), something is changed, and all that
checks it is worked out anew.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from tests.fuzz.mutations import NUMBERS, mutate, put_together, take_apart

from coterie.journal.format import (
    BLOCK_HEAD,
    BLOCK_HEAD_BYTES,
    BLOCK_MARK,
    decode_block_head,
    encode_fixed,
    seal_block,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_FIXED = struct.Struct("!8sHHII")
_CHUNK = struct.Struct("!II")
_LENGTH = struct.Struct("!I")
Files = dict[str, bytes]


def wrong_value(data: bytes, random: Random) -> bytes:
    """Change something in what is MessagePack."""
    return put_together(mutate(take_apart(data), random, changes=random.choice((1, 1, 1, 2, 3))))


def _fixed(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Give magic, body and what follows of a file with a head."""
    magic, _, _, length, _ = _FIXED.unpack_from(data)
    end = _FIXED.size + length
    return magic, data[_FIXED.size : end], data[end:]


def _seed(head: bytes) -> int:
    check: int = _FIXED.unpack_from(head)[4]
    return check


# ---- segments


def blocks_of(data: bytes) -> tuple[bytes, list[bytes]]:
    """Give the head of a segment and its blocks."""
    magic, body, rest = _fixed(data)
    head = encode_fixed(magic, body)
    blocks, start = [], 0
    while (found := decode_block_head(rest, start, _seed(head))) is not None:
        end = start + BLOCK_HEAD_BYTES + found.length
        blocks.append(rest[start:end])
        start = end
    return head, blocks


def _seal(block: bytes, seed: int, body: bytes | None = None, **fields: int) -> bytes:
    """Give a block that fits a segment, with another body or other fields."""
    _, _, _, _, count, first, synced, _ = BLOCK_HEAD.unpack_from(block)
    buffer = bytearray(BLOCK_HEAD_BYTES)
    buffer += block[BLOCK_HEAD_BYTES:] if body is None else body
    known = {"count": count, "first": first, "synced": synced, **fields}
    seal_block(buffer, seed=seed, **known)
    return bytes(buffer)


def wrong_segment(data: bytes, random: Random) -> bytes:
    """Change the head, a record, or the blocks of a segment."""
    head, blocks = blocks_of(data)
    kind = random.random()
    if kind < 0.2 or not blocks:
        magic, body, _ = _fixed(head)
        new = encode_fixed(magic, wrong_value(body, random))
        return new + b"".join(_seal(block, _seed(new)) for block in blocks)
    at = random.randrange(len(blocks))
    seed = _seed(head)
    if kind < 0.75:
        body = wrong_value(blocks[at][BLOCK_HEAD_BYTES:], random)
        blocks[at] = _seal(blocks[at], seed, body)
    elif kind < 0.85:
        name = random.choice(("count", "first", "synced"))
        most = 2**32 - 1 if name == "count" else 2**64 - 1
        value = min(max(random.choice(NUMBERS), 0), most)
        blocks[at] = _seal(blocks[at], seed, None, **{name: value})
    elif kind < 0.9:
        blocks.insert(random.randrange(len(blocks) + 1), blocks[at])
    elif kind < 0.95:
        del blocks[at]
    else:
        random.shuffle(blocks)
    return head + b"".join(blocks)


# ---- snapshots and dumps


def chunks_of(data: bytes) -> tuple[bytes, list[bytes]]:
    """Give the head of a snapshot and the chunks of its state."""
    magic, body, rest = _fixed(data)
    chunks: list[bytes] = []
    start = 0
    while True:
        length, _ = _CHUNK.unpack_from(rest, start)
        start += _CHUNK.size
        if not length:
            return encode_fixed(magic, body), chunks
        chunks.append(rest[start : start + length])
        start += length


def with_chunks(head: bytes, chunks: list[bytes]) -> bytes:
    """Give the file of a snapshot."""
    parts, check = [head], 0
    for chunk in (*chunks, b""):
        length = _LENGTH.pack(len(chunk))
        check = crc32(chunk, crc32(length, check))
        parts += [length, check.to_bytes(4, "big"), chunk]
    return b"".join(parts)


def wrong_snapshot(data: bytes, random: Random) -> bytes:
    """Change the head or the state of a snapshot."""
    head, chunks = chunks_of(data)
    kind = random.random()
    if kind < 0.2:
        magic, body, _ = _fixed(head)
        return with_chunks(encode_fixed(magic, wrong_value(body, random)), chunks)
    if kind < 0.3:
        random.shuffle(chunks)
        return with_chunks(head, chunks[: random.randrange(len(chunks) + 1)])
    try:
        state = wrong_state(b"".join(chunks), random)
    except msgspec.DecodeError:  # each chunk is a value of its own, or part of a state behind it
        at = random.randrange(len(chunks))
        chunks[at] = wrong_chunk(chunks[at], random)
        return with_chunks(head, [chunk for chunk in chunks if chunk])
    cut = random.randrange(len(state) + 1)
    return with_chunks(head, [part for part in (state[:cut], state[cut:]) if part])


def wrong_chunk(chunk: bytes, random: Random) -> bytes:
    """Change one chunk."""
    try:
        return wrong_state(chunk, random)
    except msgspec.DecodeError:
        return _damaged(chunk, random)


def wrong_state(state: bytes, random: Random) -> bytes:
    """Change a state: a stream of records with lengths, or one value."""
    records = _records_of(state)
    if records is None:
        return wrong_value(state, random)
    *parts, _ = records
    kind = random.random()
    at = random.randrange(len(parts))
    if kind < 0.85:
        parts[at] = wrong_value(parts[at], random)
    elif kind < 0.9:
        parts.insert(random.randrange(len(parts) + 1), parts[at])
    elif kind < 0.95:
        del parts[at]
    else:
        random.shuffle(parts)
    checksum = 0
    for part in parts:
        checksum = crc32(part, checksum)
    end = msgspec.msgpack.encode([4, len(parts), checksum])
    if random.random() < 0.03:
        end = wrong_value(end, random)
    return b"".join(_LENGTH.pack(len(part)) + part for part in (*parts, end))


def _records_of(state: bytes) -> list[bytes] | None:
    """Give the records of a stream; None if it is none."""
    records, start = [], 0
    while start < len(state):
        if len(state) - start < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(state, start)
        start += _LENGTH.size
        if length > len(state) - start:
            return None
        records.append(state[start : start + length])
        start += length
    return records if len(records) > 1 else None


def wrong_stable(data: bytes, random: Random) -> bytes:
    """Change a stable value."""
    magic, body, _ = _fixed(data)
    return encode_fixed(magic, wrong_value(body, random))


# ---- files as a whole


def _damaged(data: bytes, random: Random) -> bytes:
    """What a bad disk makes of a file: no checksum is put right."""
    kind = random.randrange(5)
    at = random.randrange(len(data) + 1)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + bytes(random.randrange(100)) + random.randbytes(random.randrange(100))
    if kind == 2:
        return data[:at] + BLOCK_MARK + data[at:]
    changed = bytearray(data)
    if kind == 3 and changed:
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    else:
        end = min(len(changed), at + random.randrange(600))
        changed[at:end] = bytes(end - at)
    return bytes(changed)


def wrong_file(
    files: Files, path: str, random: Random, change: Callable[[bytes, Random], bytes]
) -> Files:
    """Give the files of a disk with one of them wrong: inside, in its place, or gone."""
    kind = random.random()
    data = files[path]
    if kind < 0.8:
        return {**files, path: change(data, random)}
    if kind < 0.9:
        return {**files, path: _damaged(data, random)}
    if kind < 0.93:
        return {other: each for other, each in files.items() if other != path}
    siblings = [each for each in files if each.rpartition(".")[2] == path.rpartition(".")[2]]
    if kind < 0.97:
        return {**files, random.choice(siblings): data}
    folder, _, name = path.rpartition("/")
    digits = [at for at, letter in enumerate(name) if letter.isdigit()]
    if not digits:
        return {**files, f"{folder}/{name}x": data}
    at = random.choice(digits)
    other = f"{folder}/{name[:at]}{random.randrange(10)}{name[at + 1 :]}"
    return {**files, other: data}
