"""Values of leader and followers (**llft**) that the engine, its records and its checks share.

A *claim* is what a replica leads by. Claims are totally ordered, and the higher wins: first the
number of the primary view, then the precedence, then the life, so that no two are equal even where
two branches gave the same precedence. A *roster* lists lives, not names: a replica that starts
again is somebody new. An *order* is one operation of the program with its result, as the primary
met it; (claim, number) names an order and, with it, all before it, because one life makes the
orders of a claim, one after the other.
"""

from __future__ import annotations

import enum

import msgspec

from coterie.kernel.decoding import COUNT_MAX, Count, Int64
from coterie.kernel.views import Member


class PrimaryClaim(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """The right to lead a primary view."""

    view: Count
    precedence: Count
    life: Member

    def __str__(self) -> str:
        return f"{self.view}.{self.precedence}.{self.life}"


NO_CLAIM = PrimaryClaim(0, 0, Member("", 0))
"""Below every real claim."""


class RosterLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a roster."""

    member: Member
    precedence: Count
    """Given once, when it joins: who joins later has a higher one."""
    is_whole: bool
    """Whether it has the state; until then it learns, and does not stand in line to lead."""


class Roster(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The lives that belong to a group, by precedence."""

    lives: tuple[RosterLine, ...]
    next_precedence: Count
    """What the next that joins is given; never given twice."""

    def find(self, member: Member) -> RosterLine | None:
        """Give the line of a life."""
        return next((life for life in self.lives if life.member == member), None)

    def named(self, id: str) -> RosterLine | None:
        """Give the line of a replica's last life."""
        return next((life for life in reversed(self.lives) if life.member.id == id), None)

    @property
    def whole(self) -> list[Member]:
        """Those who have the state."""
        return [life.member for life in self.lives if life.is_whole]

    def rank(self, id: str, primary: str) -> int:
        """Give a backup's place in the succession, from 2 on; the primary's is 1."""
        line = [life.member.id for life in self.lives if life.member.id != primary]
        return line.index(id) + 2 if id in line else len(self.lives) + 2

    def joined(self, member: Member) -> Roster:
        """Have a life join, in the place of an earlier life of the same replica."""
        kept = tuple(life for life in self.lives if life.member.id != member.id)
        joiner = RosterLine(member, self.next_precedence, is_whole=False)
        return Roster((*kept, joiner), min(self.next_precedence + 1, COUNT_MAX))

    def completed(self, member: Member) -> Roster:
        """Count a joiner as one who has the state."""
        lives = tuple(
            RosterLine(life.member, life.precedence, life.is_whole or life.member == member)
            for life in self.lives
        )
        return Roster(lives, self.next_precedence)

    def without(self, member: Member) -> Roster:
        """Remove a life."""
        lives = tuple(life for life in self.lives if life.member != member)
        return Roster(lives, self.next_precedence)


class OrderKind(enum.IntEnum):
    """What is ordered: the group's own two, and the operations of programs."""

    VIEW = 0
    """A primary view begins: its virtual synchrony point."""
    ROSTER = 1
    """A backup joins, has become whole, or is removed."""
    TOOK = 2
    """A thread consumed input of a connection."""
    ENDED = 3
    """A thread met the end of a connection."""
    SENT = 4
    """A thread wrote to a connection."""
    LOCK = 5
    """A thread took a lock."""
    CLOCK = 6
    """A thread read the group's clock."""
    CHANCE = 7
    """A thread drew a number."""
    TIMEOUT = 8
    """A thread's time, on the group's clock, has come."""
    AGAIN = 9
    """A thread that does not wait could neither read nor write."""
    CLOSED = 10
    """A thread closed a connection: the program uses it no more."""
    RAN = 11
    """A real program went on: the data are its own entries (`coterie.program.entries`), the value
    is the number of the last input that it could have met."""
    TOLD = 12
    """A real program told its edge something, behind all its output so far: the value is what
    (`coterie.program.wire`)."""


class Order(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One operation: which thread, which one, and what came of it."""

    kind: OrderKind
    thread: Int64 = 0
    value: Int64 = 0
    conn: str = ""
    data: bytes = b""
    clock: Count = 0
    """The group's clock at this order."""


class OrderRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive orders of one claim."""

    claim: PrimaryClaim
    first: Int64
    orders: list[Order]
    after: PrimaryClaim
    """The claim of the order before the first: with it a run fits one history only."""

    @property
    def last(self) -> int:
        """The number of the last."""
        return self.first + len(self.orders) - 1


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes for the program, or the end of a connection, under the edge's next number."""

    number: Int64
    conn: str
    offset: Int64
    data: bytes
    is_end: bool = False
    is_reset: bool = False
    """Whether what was not read before this end is void: it belonged to a branch given up."""

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.data)


class Output(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes from the program, which may leave when the order they rest on is stored."""

    conn: str
    offset: Int64
    data: bytes
    rests_on: Int64

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.data)


class ProgramState(msgspec.Struct, frozen=True, array_like=True):
    """A replica's state after an order: a virtual synchrony point that can be sent and kept."""

    number: Int64
    claim: PrimaryClaim
    """Of that order."""
    program: bytes
    consumed: dict[str, Int64]
    ended: tuple[str, ...]
    produced: dict[str, Int64]
    clock: Count
    roster: Roster
    view: PrimaryClaim
    """The primary view that was entered last."""
    back: Int64
    """All inputs up to this number are consumed."""
    digest: Int64
    """Over all orders and outputs so far."""
    closed: tuple[str, ...] = ()
    """Of those that have ended: which the program has closed and uses no more."""
    finished: tuple[str, ...] = ()
    """Of those that have ended: of which no input ever comes again."""
