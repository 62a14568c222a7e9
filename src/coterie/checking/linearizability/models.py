"""Models of common objects: register, key-value store, counter, queue, lock.

Each is a few commands, small frozen records, and one function from state and command to the next
state and the result. Where an object can refuse (a compare-and-set, a lock that is held) the
refusal is a result: the command took its place in the order and found the state against it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from coterie.checking.linearizability.model import Deterministic
from coterie.checking.linearizability.queue_foresight import (
    NOT_A_PUT,
    QueueForesight,
    QueueReading,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.checking.linearizability.agenda import Agenda
    from coterie.checking.linearizability.foresight import Foresight
    from coterie.checking.linearizability.history import Unseen

__all__ = [
    "Acquire",
    "Add",
    "Append",
    "CompareAndSet",
    "CounterCommand",
    "CounterModel",
    "Delete",
    "Dequeue",
    "Enqueue",
    "Get",
    "Holder",
    "KeyValue",
    "KeyValueCommand",
    "Lock",
    "LockCommand",
    "NumberedQueueModel",
    "Put",
    "QueueCommand",
    "QueueModel",
    "ReadRegister",
    "Register",
    "RegisterCommand",
    "Release",
    "Total",
    "WriteRegister",
]

S = TypeVar("S")
R = TypeVar("R")


class _Command:
    """A command of the objects below, with a readable form: the verb, then the arguments."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    verb: ClassVar[str]
    answers: ClassVar[bool] = True
    """Whether the result says anything; if not, it is None and is not shown."""
    reads: ClassVar[bool] = False
    """Whether the command changes nothing, whatever it answers."""
    refusals: ClassVar[tuple[object, ...]] = ()
    """The results that say that the command changed nothing."""

    def __post_init__(self) -> None:
        try:
            hash(self)
        except TypeError:
            raise ValueError(
                f"{self} has a value that can be changed: write lists as tuples, and dictionaries"
                " as tuples of pairs"
            ) from None

    def __str__(self) -> str:
        return " ".join((self.verb, *(repr(getattr(self, name)) for name in self.__match_args__)))


@dataclass(frozen=True, slots=True)
class _OfOwner(_Command):
    """A command that has an owner."""

    owner: Hashable

    def __post_init__(self) -> None:
        _Command.__post_init__(self)
        if self.owner is None:
            raise ValueError(f"{self.verb} needs an owner that is not None, which means nobody")


B = TypeVar("B", bound=_Command)


@dataclass(frozen=True, slots=True)
class _Object(Deterministic[S, B, R]):
    """What the objects below share: a state to start from, and how their operations are shown."""

    start: S
    commands: ClassVar[tuple[type[_Command], ...]] = ()

    def why_not(self, command: object) -> str:
        """Name the commands there are, if this is none of them."""
        if isinstance(command, self.commands):
            return ""
        verbs = ", ".join(each.verb for each in self.commands)
        return f"{type(self).__name__} has no command {command}; it has {verbs}"

    def initial(self) -> S:
        """Begin at the start, which need not be the empty one: a history may be a part."""
        return self.start

    def is_read(self, command: B, result: R | Unseen) -> bool:
        """Whether it is a read, or was refused."""
        return command.reads or any(result is each for each in command.refusals)

    def describe(self, command: B, result: R | Unseen) -> str:
        """Show the verb, the arguments, and the result if it says anything."""
        if result is None and not command.answers:
            return str(command)
        return Deterministic.describe(self, command, result)


@dataclass(frozen=True, slots=True)
class ReadRegister(_Command):
    """Answers the value of the register."""

    verb = "read"
    reads = True


@dataclass(frozen=True, slots=True)
class WriteRegister(_Command):
    """Replaces the value of the register."""

    verb = "write"
    answers = False
    value: Hashable


@dataclass(frozen=True, slots=True)
class CompareAndSet(_Command):
    """Writes *new* if the value is *expected*; answers whether it was."""

    verb = "cas"
    refusals = (False,)
    expected: Hashable
    new: Hashable


RegisterCommand: TypeAlias = ReadRegister | WriteRegister | CompareAndSet


@dataclass(frozen=True, slots=True)
class Register(_Object[Hashable, RegisterCommand, Hashable]):
    """One value that is read, written, and compared and set; absent (None) at first.

    A compare-and-set that answered False *did* happen: it saw another value. One that failed before
    it was ordered is left out of the history like any failed operation.
    """

    commands = (ReadRegister, WriteRegister, CompareAndSet)
    start: Hashable = None

    def apply(self, state: Hashable, command: RegisterCommand) -> tuple[Hashable, Hashable]:
        """Read, write, or compare and set."""
        match command:
            case ReadRegister():
                return state, state
            case WriteRegister(value):
                return value, None
            case CompareAndSet(expected, new):
                return (new, True) if state == expected else (state, False)


@dataclass(frozen=True, slots=True)
class Get(_Command):
    """Answers the value of the key; if the key is missing, what the object starts with."""

    verb = "get"
    reads = True
    key: Hashable


@dataclass(frozen=True, slots=True)
class Put(_Command):
    """Replaces the value of the key."""

    verb = "put"
    answers = False
    key: Hashable
    value: Hashable


@dataclass(frozen=True, slots=True)
class Append(_Command):
    """Lengthens the value of the key."""

    verb = "append"
    answers = False
    key: Hashable
    suffix: str


@dataclass(frozen=True, slots=True)
class Delete(_Command):
    """Takes the key away; answers whether it was there."""

    verb = "delete"
    refusals = (False,)
    key: Hashable


KeyValueCommand: TypeAlias = Get | Put | Append | Delete


@dataclass(frozen=True, slots=True)
class KeyValue(_Object[Hashable, KeyValueCommand, Hashable]):
    """Values by key. A state is the value of one key, since keys are checked one by one.

    `start` is what a get of a missing key answers: the empty string, or None.
    """

    commands = (Get, Put, Append, Delete)
    start: Hashable = ""

    def key_of(self, command: KeyValueCommand) -> Hashable:
        """Every command touches one key."""
        return command.key

    def apply(self, state: Hashable, command: KeyValueCommand) -> tuple[Hashable, Hashable]:
        """Get, put, append or delete."""
        match command:
            case Get():
                return state, state
            case Put(_, value):
                return value, None
            case Append(_, suffix):
                return f"{'' if state is None else state}{suffix}", None
            case Delete():
                return self.start, state != self.start


@dataclass(frozen=True, slots=True)
class Add(_Command):
    """Adds *amount*; answers the new total."""

    verb = "add"
    amount: int


@dataclass(frozen=True, slots=True)
class Total(_Command):
    """Answers the total."""

    verb = "total"
    reads = True


CounterCommand: TypeAlias = Add | Total


@dataclass(frozen=True, slots=True)
class CounterModel(_Object[int, CounterCommand, int]):
    """A number. Where adding answers nothing, record the result as `UNSEEN`."""

    commands = (Add, Total)
    start: int = 0

    def apply(self, state: int, command: CounterCommand) -> tuple[int, int]:
        """Add, or tell the total."""
        match command:
            case Add(amount):
                return state + amount, state + amount
            case Total():
                return state, state


@dataclass(frozen=True, slots=True)
class Enqueue(_Command):
    """Puts *item*, which is not None, at the end."""

    verb = "enqueue"
    answers = False
    item: Hashable


@dataclass(frozen=True, slots=True)
class Dequeue(_Command):
    """Takes and answers the item at the front; None if the queue is empty."""

    verb = "dequeue"
    refusals = (None,)


QueueCommand: TypeAlias = Enqueue | Dequeue


@dataclass(frozen=True, slots=True)
class QueueModel(_Object[tuple[Hashable, ...], QueueCommand, Hashable]):
    """First in, first out; empty at first."""

    commands = (Enqueue, Dequeue)
    start: tuple[Hashable, ...] = ()

    def apply(
        self, state: tuple[Hashable, ...], command: QueueCommand
    ) -> tuple[tuple[Hashable, ...], Hashable]:
        """Put at the end, or take from the front."""
        match command:
            case Enqueue(item):
                return (*state, item), None
            case Dequeue():
                return (state[1:], state[0]) if state else ((), None)

    def foresee(
        self,
        agenda: Agenda[Any, Hashable],
        starts: Sequence[tuple[Hashable, ...]],
        plain: Callable[[Any], QueueCommand],
    ) -> Foresight[tuple[Hashable, ...], Any, Hashable]:
        """Say what was put before what, from the order in which it was taken."""
        return QueueForesight(self, agenda, starts, plain, _QUEUE)


def _put_by(command: QueueCommand) -> Hashable:
    return command.item if isinstance(command, Enqueue) else NOT_A_PUT


def _itself(state: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    return state


_QUEUE = QueueReading(_put_by, _itself)

NumberedQueue: TypeAlias = tuple[int, tuple[Hashable, ...]]
"""The last number that was given out, and what is in the queue."""


@dataclass(frozen=True, slots=True)
class NumberedQueueModel(_Object[NumberedQueue, QueueCommand, Hashable]):
    """A queue that numbers what is put, from 1, and answers the number."""

    commands = (Enqueue, Dequeue)
    start: NumberedQueue = (0, ())

    def apply(self, state: NumberedQueue, command: QueueCommand) -> tuple[NumberedQueue, Hashable]:
        """Put at the end, or take from the front."""
        last, items = state
        match command:
            case Enqueue(item):
                return (last + 1, (*items, item)), last + 1
            case Dequeue():
                return ((last, items[1:]), items[0]) if items else (state, None)

    def foresee(
        self,
        agenda: Agenda[Any, Hashable],
        starts: Sequence[NumberedQueue],
        plain: Callable[[Any], QueueCommand],
    ) -> Foresight[NumberedQueue, Any, Hashable]:
        """Say what was put before what, from the numbers and from the order of taking."""
        return QueueForesight(self, agenda, starts, plain, _NUMBERED_QUEUE)


_NUMBERED_QUEUE: QueueReading[NumberedQueue, QueueCommand] = QueueReading(
    _put_by, itemgetter(1), itemgetter(0)
)


@dataclass(frozen=True, slots=True)
class Acquire(_OfOwner):
    """Takes the lock if it is free; answers whether it was. An owner cannot take it twice."""

    verb = "acquire"
    refusals = (False,)


@dataclass(frozen=True, slots=True)
class Release(_OfOwner):
    """Frees the lock if *owner* holds it; answers whether it did."""

    verb = "release"
    refusals = (False,)


@dataclass(frozen=True, slots=True)
class Holder(_Command):
    """Answers the owner; None if the lock is free."""

    verb = "holder"
    reads = True


LockCommand: TypeAlias = Acquire | Release | Holder


@dataclass(frozen=True, slots=True)
class Lock(_Object[Hashable, LockCommand, Hashable]):
    """A lock with an owner, which is not None; free at first.

    A blocking acquire is one that answers True or is lost.
    """

    commands = (Acquire, Release, Holder)
    start: Hashable = None

    def apply(self, state: Hashable, command: LockCommand) -> tuple[Hashable, Hashable]:
        """Acquire, release, or tell who holds it."""
        match command:
            case Acquire(owner):
                return (owner, True) if state is None else (state, False)
            case Release(owner):
                return (None, True) if state == owner else (state, False)
            case Holder():
                return state, state
