"""Actions and primary components: the values of **transis** that engine and journal share.

An *action* is what a user asks for. It has an identity for ever: the life of the replica that
created it, and its index along that life, without gaps. A *component* is a set of replicas that
were in touch; at most one of them at a time is *primary*, and primary components are numbered.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.kernel.decoding import COUNT_MAX, Count, Int64
from coterie.kernel.engine import Standing
from coterie.kernel.views import NO_VIEW, Member, ReplicaId, ViewId

RED = Standing.declare("RED", 4)
"""Ordered in the local component only: it has no place in the global order yet."""
YELLOW = Standing.declare("YELLOW", 5)
"""Received as a primary component ended: green elsewhere or missed elsewhere, never both."""
GREEN = Standing.declare("GREEN", 6)
"""It has its place in the global order for ever."""
WHITE = Standing.declare("WHITE", 7)
"""Green at every replica, so that nobody will ask for it again. No answer waits for that."""


WORDS_KEPT = 16
"""How many words of operators are remembered; who missed more of them begins anew."""


def part_at(one: tuple[Word, ...], other: tuple[Word, ...]) -> int | None:
    """Give up to which position two histories can be one; None if no word parts them."""
    return min((word.position for word in {*one} ^ {*other}), default=None)


class ActionId(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """The name of an action."""

    creator: Member
    index: Count

    def __str__(self) -> str:
        return f"{self.creator}:{self.index}"


class Action(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica was asked for, and when in Lamport's time."""

    creator: Member
    index: Count
    time: Count
    """Above that of every action its creator knew when it created this one."""
    command: bytes

    @property
    def id(self) -> ActionId:
        """Its name."""
        return ActionId(self.creator, self.index)


class Word(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """That a component was installed on an operator's word, and what else there was is given up."""

    number: Count
    """How many words the history of that component rests on."""
    attempt: ViewId
    position: Int64
    """How many actions were green there: other ones above that were given up."""


class Component(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A primary component: its number, the view that was it, and who took part.

    Members are replicas, not lives: a replica that comes back is still one of them.
    """

    index: Count
    attempt: ViewId
    members: Annotated[tuple[ReplicaId, ...], msgspec.Meta(min_length=1)]
    """In the order of the configuration: the first one decides a tie."""
    words: tuple[Word, ...] = ()
    """The last words of operators on which it rests."""

    @property
    def rank(self) -> tuple[int, int, ViewId]:
        """How late it is: later than all that operators gave up, whatever number these had."""
        return (self.words[-1].number if self.words else 0, self.index, self.attempt)

    def after_word(self, position: int, attempt: ViewId) -> tuple[Word, ...]:
        """Give the words of the component that follows on an operator's word."""
        word = Word(min(self.rank[0] + 1, COUNT_MAX), attempt, position)
        return (*self.words, word)[-WORDS_KEPT:]

    def __str__(self) -> str:
        return f"{self.index}({self.attempt}{{{','.join(self.members)}}})"


class Vulnerable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """That this replica tried to install a primary component, and may not know what came of it.

    It is on disk before the replica says that it is ready, and stays valid while the component
    lasts: who crashes there does not know what the others have made green meanwhile.
    """

    index: Count
    """The number of the primary component that the attempt was made from."""
    attempt: ViewId
    members: tuple[ReplicaId, ...]
    """Who was to take part."""
    seen: tuple[ReplicaId, ...] = ()
    """Which of them are known to hold this very record, with all that they made green by it. The
    holder is one of them, unless its machine was lost there with what was not synced."""

    def is_same(self, other: Vulnerable | None) -> bool:
        """Say whether another record speaks of the same attempt."""
        return other is not None and self.key == other.key

    @property
    def key(self) -> tuple[int, ViewId, tuple[ReplicaId, ...]]:
        """What the record speaks of, whoever has seen it."""
        return (self.index, self.attempt, self.members)


class Yellow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Actions that may be green elsewhere: they have the positions from `start` + 1 on."""

    start: Int64
    actions: tuple[ActionId, ...] = ()

    @property
    def end(self) -> int:
        """The position of the last one."""
        return self.start + len(self.actions)

    def above(self, position: int) -> Yellow:
        """Give what lies above *position*."""
        if position <= self.start:
            return self
        return Yellow(position, self.actions[position - self.start :])


class Promises(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica must never forget, forced to disk wherever **transis** forces it."""

    prim: Component
    """The last primary component that it knows."""
    vulnerable: Vulnerable | None = None
    yellow: Yellow | None = None
    """None where it is invalid: the replica cannot say what may be green elsewhere."""
    is_zombie: bool = False
    """Whether its disk was lost, and it has not been in a primary component since."""
    words: tuple[Word, ...] = ()
    """Those on which its green actions rest; they may be ahead of its component."""


class ServerMemory(msgspec.Struct, frozen=True, array_like=True):
    """All that a replica knows beside the state of its object, as of one moment."""

    promises: Promises
    position: Int64 = 0
    """How many actions are green."""
    greens: tuple[tuple[Member, Int64], ...] = ()
    """Which: for every creator, the index of its last one."""
    actions: tuple[Action, ...] = ()
    """All that are not green, yellow or red, in the order in which they are shown."""
    lines: tuple[tuple[ReplicaId, Int64], ...] = ()
    """For every replica, how many actions are known to be green there."""
    time: Count = 0
    view_number: Int64 = 0
    """The highest number of a view it took part in."""


def no_component(members: tuple[ReplicaId, ...]) -> Component:
    """Give the component that a group begins with: all, before anything was installed."""
    return Component(0, NO_VIEW, members)
