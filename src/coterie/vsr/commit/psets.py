"""Names of transactions, and the viewstamps of their calls (section 3.1, 3.2)."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.errors import BadMessage
from coterie.kernel.views import ViewId, Viewstamp
from coterie.vsr.views.log import covers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CallId = str
"""Names one call of a transaction. The calls that a call makes have its name and a dot in front,
so that giving up a call gives up what it called."""


class Aid(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """The name of a transaction: who coordinates it, the view it began in, and a number."""

    group: str
    view: ViewId
    number: int

    def __str__(self) -> str:
        return f"{self.group}/{self.view}/{self.number}"


class CallsProgress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a client has come with the calls of a transaction when it sends one of them."""

    begun: int
    """How many it has begun; they are numbered from 1."""
    running: tuple[int, ...] = ()
    """Which of these have no answer yet, and are not given up."""

    def is_over(self, number: int) -> bool:
        """Say whether a call is known to be over, with all that it called."""
        return number <= self.begun and number not in self.running


class Pair(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """An element of a pset: a group ran a call of the transaction, and gave it this viewstamp."""

    group: str
    vs: Viewstamp


Pset = tuple[Pair, ...]


_OWNER_BITS = 28
_OWNER = (1 << _OWNER_BITS) - 1
_CREDENTIAL = re.compile(r"@([0-9a-f]{7})\.")
"""How the names begin of clients that have a credential (`coterie.protocol.messages`)."""


def number_for(client: str, count: int) -> int:
    """Give the number of the transaction that a client is the next to begin.

    That of a guest says whose it is, so that groups which only take part know it as well; those
    that came earlier have smaller numbers still.
    """
    return count << _OWNER_BITS | _owner_of(client) if client.startswith("@") else count


def is_of(aid: Aid, client: str) -> bool:
    """Say whether a client may speak in a transaction; a number without an owner is anybody's."""
    owner = aid.number & _OWNER if aid.number > _OWNER else None
    return owner is None or not client.startswith("@") or owner == _owner_of(client)


def _owner_of(client: str) -> int:
    # Who has a credential cannot be called as somebody with another one is: the port sees to that.
    named = _CREDENTIAL.match(client)
    if named is not None:
        return int(named[1], 16)
    return int.from_bytes(blake2b(client.encode(), digest_size=4).digest()) & _OWNER


def of_group(pset: Iterable[Pair], group: str) -> tuple[Viewstamp, ...]:
    """Give the calls that one group ran, in order."""
    return tuple(sorted(pair.vs for pair in pset if pair.group == group))


def participants(pset: Iterable[Pair]) -> tuple[str, ...]:
    """Give the groups that ran calls, each once, in a fixed order."""
    return tuple(sorted({pair.group for pair in pset}))


def compatible(pset: Iterable[Pair], group: str, history: Sequence[Viewstamp]) -> bool:
    """Say whether a state with this history reflects every call that *group* ran.

    A viewstamp of a view that is not in the history at all is one of a view that was lost with
    everything in it; read as "for all", the paper's formula would let it pass.
    """
    return all(covers(history, pair.vs) for pair in pset if pair.group == group)


def vs_max(pset: Iterable[Pair], group: str) -> Viewstamp:
    """Give the latest call that *group* ran; there must be one."""
    return max(pair.vs for pair in pset if pair.group == group)


def is_within(call: CallId, given_up: CallId) -> bool:
    """Say whether a call is, or was made by, one that was given up.

    `1.` gives up what call 1 has called, and not call 1.
    """
    return call == given_up or call.startswith(f"{given_up.removesuffix('.')}.")


_DIGITS_MAX = 15


def number_of(call: CallId) -> int:
    """Give the number of the client's call that a call is, or is a part of."""
    head = call.partition(".")[0]
    if not head.isdecimal() or len(head) > _DIGITS_MAX:
        raise BadMessage("calls are numbered")
    return int(head)
