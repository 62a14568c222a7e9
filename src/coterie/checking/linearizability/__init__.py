"""Linearizability: concurrent operations look as if they had run one after the other.

    from coterie.checking.linearizability import Operation, Read, Register, Write, check

    history = [
        Operation(process="a", command=Write(1), result=None, called=0, returned=10),
        Operation(process="b", command=Read(), result=None, called=20, returned=30),
    ]
    print(check(history, Register()))

prints, since the read came after the write and missed it:

    Not linearizable: the history (operations: 2).
    All that returned earlier (1) fit; read → None by b does not fit as well.
    These 2 contradict each other:

      a  write 1      ├─┤
      b  read → None      ├─┤

    The order that gets furthest, from None:

      a  write 1      leaves 1
      b  read → None  does not fit

This is a search, for histories in which only the clients' view is known. Where the journals give
each operation its position, the order is known and only has to be confirmed, which is linear.

The chapters: `history` (operations and their intervals), `model` and `models` (what an object may
answer), `agenda`, `foresight` and `search` (looking for an order), `evidence` and `rendering`
(explaining that there is none), `checker` (the verdict).
"""

from coterie.checking.linearizability.checker import (
    Linearizable,
    NotLinearizable,
    Unknown,
    Verdict,
    check,
)
from coterie.checking.linearizability.evidence import Evidence
from coterie.checking.linearizability.history import (
    UNSEEN,
    Called,
    Event,
    Lost,
    NeverHappened,
    Operation,
    Returned,
    Unseen,
    from_events,
)
from coterie.checking.linearizability.model import At, Deterministic, Model, PerKey
from coterie.checking.linearizability.models import (
    Acquire,
    Add,
    Append,
    CompareAndSet,
    CounterModel,
    Delete,
    Dequeue,
    Enqueue,
    Get,
    Holder,
    KeyValue,
    Lock,
    NumberedQueueModel,
    Put,
    QueueModel,
    ReadRegister,
    Register,
    Release,
    Total,
    WriteRegister,
)
from coterie.checking.linearizability.search import Placed

__all__ = [
    "UNSEEN",
    "Acquire",
    "Add",
    "Append",
    "At",
    "Called",
    "CompareAndSet",
    "CounterModel",
    "Delete",
    "Dequeue",
    "Deterministic",
    "Enqueue",
    "Event",
    "Evidence",
    "Get",
    "Holder",
    "KeyValue",
    "Linearizable",
    "Lock",
    "Lost",
    "Model",
    "NeverHappened",
    "NotLinearizable",
    "NumberedQueueModel",
    "Operation",
    "PerKey",
    "Placed",
    "Put",
    "QueueModel",
    "ReadRegister",
    "Register",
    "Release",
    "Returned",
    "Total",
    "Unknown",
    "Unseen",
    "Verdict",
    "WriteRegister",
    "check",
    "from_events",
]
