"""Lives that are over, taken out of the vectors that name sets of entries.

A vector has an entry for every life that ever proposed something: each restart adds one. An ordered
entry `PastLives` says of lives that they are over, and that all they and the lives before them ever
did stands in the history before it. From its own place on their entries are one, of the last of
them, with the number `ALL`. So what a vector names is a function of the history still, and two
histories that came as far have the same one.

Whoever proposes it must know that nobody has anything of these lives that is not in that history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import COUNT_MAX, Decoder
from coterie.kernel.views import Member

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


Vector = dict[Member, int]
"""For every life, the number of its last entry that is in the set."""
ALL = COUNT_MAX
"""In a vector: all of this life, and of the lives of the same replica before it."""


class PastLives(msgspec.Struct, tag=14, frozen=True, array_like=True, gc=False):
    """These lives are over, and nothing of them and of those before them will ever come."""

    clock: int
    """Every command of an object group has one; this says that nobody looked at a clock."""
    lives: tuple[Member, ...]


_NO_CLOCK = -1
_PREFIX = b"\x93\x0e"
"""How an entry of this kind begins: an array of three, its tag first."""
_encoder = msgspec.msgpack.Encoder()
_decoder = Decoder(PastLives)


def encode_past_lives(lives: Iterable[Member]) -> bytes:
    """Give the payload of the entry."""
    return _encoder.encode(PastLives(_NO_CLOCK, tuple(lives)))


def is_past_lives(payload: bytes) -> bool:
    """Say whether an entry looks like one of these."""
    return payload.startswith(_PREFIX)


def past_lives_in(payload: bytes) -> tuple[Member, ...]:
    """Give the lives that an entry says to be over; none if it is another entry."""
    if not is_past_lives(payload):
        return ()
    try:
        return _decoder.decode(payload).lives
    except msgspec.DecodeError:
        return ()


def number_of(vector: Vector, life: Member) -> int:
    """Give up to which number the entries of a life are in the set."""
    number = vector.get(life)
    if number is not None:
        return number
    id, incarnation = life.id, life.incarnation
    for other, last in vector.items():
        if last == ALL and other.id == id and other.incarnation > incarnation:
            return ALL
    return 0


def covers(larger: Vector, smaller: Vector) -> bool:
    """Say whether everything in *smaller* is in *larger*, where lives may be past in either."""
    return all(
        larger.get(life, 0) >= number or number_of(larger, life) >= number
        for life, number in smaller.items()
    )


def fold(vector: Vector, lives: Iterable[Member]) -> None:
    """Have one entry stand for each of *lives* and all that came before it."""
    for life in lives:
        if number_of(vector, life) == ALL:
            continue
        gone = [each for each in vector if is_before(each, life)]
        for each in gone:
            del vector[each]
        vector[life] = ALL


def is_before(one: Member, other: Member) -> bool:
    """Say whether a life is another, or came before it."""
    return one.id == other.id and one.incarnation <= other.incarnation


def over(vector: Vector, present: Collection[Member]) -> list[Member]:
    """Give the lives named in a vector that are not the last ones of their replicas any more.

    *present* are lives that go on; of a replica that has none there, all are over.
    """
    now = {life.id: life.incarnation for life in present}
    return [
        life
        for life, number in vector.items()
        if number != ALL and (life.id not in now or life.incarnation < now[life.id])
    ]


def latest(lives: Iterable[Member]) -> list[Member]:
    """Give the last life of each replica."""
    last: dict[str, Member] = {}
    for life in lives:
        known = last.get(life.id)
        if known is None or life.incarnation > known.incarnation:
            last[life.id] = life
    return sorted(last.values())
