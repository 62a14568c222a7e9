"""Ready-made objects: plain classes, written as any user would write them.

    async with coterie.local(Dictionary, replicas=3) as dictionary:
        await dictionary.put("colour", "blue", expires_in=60)

`docs/use/ready-made.md` says what each promises, under which stack, and in a partition without a
majority. Limits are class attributes; whoever needs others inherits:

    class Prices(Dictionary[int]):
        items_max = 10_000

They are part of what replicas compute, so they must be the same on all replicas of a group.
"""

from coterie.ready.both_sides import Bag, LatestDictionary, LatestSet
from coterie.ready.counter import Counter
from coterie.ready.dictionary import Dictionary, Found
from coterie.ready.election import Election, Term
from coterie.ready.limits import Full
from coterie.ready.locks import Holding, Locks
from coterie.ready.queues import Claimed, Queue, QueueCounts
from coterie.ready.rate_limiter import RateLimiter, Verdict
from coterie.ready.sequence import Block, Sequence
from coterie.ready.sets import Set

__all__ = [
    "Bag",
    "Block",
    "Claimed",
    "Counter",
    "Dictionary",
    "Election",
    "Found",
    "Full",
    "Holding",
    "LatestDictionary",
    "LatestSet",
    "Locks",
    "Queue",
    "QueueCounts",
    "RateLimiter",
    "Sequence",
    "Set",
    "Term",
    "Verdict",
]
