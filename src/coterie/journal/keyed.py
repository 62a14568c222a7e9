"""Keyed digests: how those who have a key tell what a replica wrote from what others put there.

Checksums find accidents. Whoever may write to the disk can make them fit; what they cannot make
without the key is a keyed digest (BLAKE2b with a key). A journal that is written with a key has one

- at the end of each segment's head, over all that the head says: whose and which life's it is,
  where it begins, and which chained digest it goes on from;
- at the end of each turn, as its last record, over the digest of the segment's head, the numbers
  in the head of the block, and the records.

So a turn or a segment that is altered, put elsewhere or made up does not fit, and where one is
missing, the number at which the next one begins is proof of it. Each turn can be checked without
the others: damage to one does not cast doubt on those behind it.

The note of what retention removed has a digest, too: otherwise who removes segments could claim
that retention did. `coterie.journal.tampering` reads all of this.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from coterie.kernel.records.base import Record, register

if TYPE_CHECKING:
    from coterie.journal.disk import Buffer

SEAL_BYTES = 32
EMPTY_SEAL = bytes(SEAL_BYTES)
"""What stands in the place of a digest while it is computed."""
_NUMBERS = struct.Struct("!IQQ")  # count of records, number of the first, last one synced
_KEY_BYTES_MIN = 16


class Seal(Record, tag=65, frozen=True, kw_only=True):
    """The last record of a turn that was written with a key: nothing that the replica did."""

    digest: bytes
    """The last bytes of the turn, over everything before them."""


register(Seal)


class SealKey:
    """Computes and compares keyed digests.

    Of several *secrets* the first is written with, and all are accepted: so that a key can be
    replaced. Raises `ValueError` for one that is too short.
    """

    def __init__(self, *secrets: bytes) -> None:
        if not secrets or min(map(len, secrets)) < _KEY_BYTES_MIN:
            raise ValueError(f"a seal key has at least {_KEY_BYTES_MIN} bytes")
        self._keys = [_derived(secret) for secret in secrets]

    def __repr__(self) -> str:
        return f"SealKey({len(self._keys)} not shown)"

    def of_head(self, said: Buffer) -> bytes:
        """Give the digest for the head of a segment."""
        return _digest(self._keys[0], b"coterie head", said)

    def of_note(self, said: Buffer) -> bytes:
        """Give the digest for a note of what was removed."""
        return _digest(self._keys[0], b"coterie note", said)

    def find(self, said: Buffer, digest: bytes) -> TurnSeals | None:
        """Give what checks the turns of a segment; None if its head is not sealed with the key."""
        for key in self._keys:
            if hmac.compare_digest(_digest(key, b"coterie head", said), digest):
                return TurnSeals(key, digest)
        return None

    def is_note(self, said: Buffer, digest: bytes) -> bool:
        """Say whether a note of what was removed is sealed with the key."""
        return any(
            hmac.compare_digest(_digest(key, b"coterie note", said), digest) for key in self._keys
        )

    def seals_behind(self, head_digest: bytes) -> TurnSeals:
        """Give what seals the turns of a segment whose head has this digest."""
        return TurnSeals(self._keys[0], head_digest)


class TurnSeals:
    """The digests of the turns of one segment."""

    def __init__(self, key: bytes, head_digest: bytes) -> None:
        self._key = key
        self._head = head_digest

    def of_turn(self, body: Buffer, *, count: int, first: int, synced: int) -> bytes:
        """Give the digest for a turn; *body* is all of its records but the digest itself."""
        numbers = _NUMBERS.pack(count, first, synced)
        return _digest(self._key, b"coterie turn", self._head, numbers, body)

    def is_turn(self, body: memoryview, *, count: int, first: int, synced: int) -> bool:
        """Say whether a whole turn, which ends with its digest, is sealed with the key."""
        digest = self.of_turn(body[:-SEAL_BYTES], count=count, first=first, synced=synced)
        return hmac.compare_digest(digest, bytes(body[-SEAL_BYTES:]))


def without_seal(records: list[Record]) -> list[Record]:
    """Leave out the seal, which says nothing of what the replica did."""
    if records and type(records[-1]) is Seal:
        records.pop()
    return records


def _derived(secret: bytes) -> bytes:
    return blake2b(secret, person=b"coterie seal key", digest_size=SEAL_BYTES).digest()


def _digest(key: bytes, purpose: bytes, *parts: Buffer) -> bytes:
    hashing = blake2b(key=key, person=purpose, digest_size=SEAL_BYTES)
    for part in parts:
        hashing.update(part)
    return hashing.digest()


def sealed(records: Sequence[Record]) -> list[Record]:
    """Give the records of a turn with room for its digest behind them."""
    last = records[-1]
    return [*records, Seal(last.group, last.member, last.at, digest=EMPTY_SEAL)]
