"""What a file holds, as one short value by which it is known again."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

_CHUNK_BYTES = 1 << 20


def digest_of(path: str | Path, length: int | None = None) -> bytes | None:
    """Give a digest of the first *length* bytes of a file, or of all; None if it is shorter."""
    hashed = blake2b(digest_size=16)
    left = -1 if length is None else length
    with Path(path).open("rb") as file:
        while left:
            data = file.read(_CHUNK_BYTES if left < 0 else min(left, _CHUNK_BYTES))
            if not data:
                return hashed.digest() if left < 0 else None
            hashed.update(data)
            left -= len(data) if left > 0 else 0
    return hashed.digest()
