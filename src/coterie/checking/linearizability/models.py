"""Models of common objects: register, key-value store, counter, queue, lock.

Each is a few commands, small frozen records, and one function from state and command to the next
state and the result. Where an object can refuse (a compare-and-set, a lock that is held) the
refusal is a result: the command took its place in the order and found the state against it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

from coterie.checking.linearizability.model import Deterministic

if TYPE_CHECKING:
    from coterie.checking.linearizability.history import Unseen

__all__ = [
    "Acquire",
    "Add",
    "Append",
    "CompareAndSet",
    "Counter",
    "CounterCommand",
    "Dequeue",
    "Enqueue",
    "Get",
    "Holder",
    "KeyValue",
    "KeyValueCommand",
    "Lock",
    "LockCommand",
    "Put",
    "Queue",
    "QueueCommand",
    "Read",
    "Register",
    "RegisterCommand",
    "Release",
    "Total",
    "Write",
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

    def __str__(self) -> str:
        return " ".join((self.verb, *(repr(getattr(self, name)) for name in self.__match_args__)))


B = TypeVar("B", bound=_Command)


@dataclass(frozen=True, slots=True)
class _Object(Deterministic[S, B, R]):
    """What the objects below share: a state to start from, and how their operations are shown."""

    start: S

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
class Read(_Command):
    """Answers the value of the register."""

    verb = "read"
    reads = True


@dataclass(frozen=True, slots=True)
class Write(_Command):
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


RegisterCommand: TypeAlias = Read | Write | CompareAndSet


@dataclass(frozen=True, slots=True)
class Register(_Object[Hashable, RegisterCommand, Hashable]):
    """One value that is read, written, and compared and set; absent (None) at first.

    A compare-and-set that answered False *did* happen: it saw another value. One that failed before
    it was ordered is left out of the history like any failed operation.
    """

    start: Hashable = None

    def apply(self, state: Hashable, command: RegisterCommand) -> tuple[Hashable, Hashable]:
        """Read, write, or compare and set."""
        match command:
            case Read():
                return state, state
            case Write(value):
                return value, None
            case CompareAndSet(expected, new):
                return (new, True) if state == expected else (state, False)


@dataclass(frozen=True, slots=True)
class Get(_Command):
    """Answers the value of the key; the empty string if the key is missing."""

    verb = "get"
    reads = True
    key: Hashable


@dataclass(frozen=True, slots=True)
class Put(_Command):
    """Replaces the value of the key."""

    verb = "put"
    answers = False
    key: Hashable
    value: str


@dataclass(frozen=True, slots=True)
class Append(_Command):
    """Lengthens the value of the key."""

    verb = "append"
    answers = False
    key: Hashable
    suffix: str


KeyValueCommand: TypeAlias = Get | Put | Append


@dataclass(frozen=True, slots=True)
class KeyValue(_Object[str, KeyValueCommand, str | None]):
    """Strings by key. A state is the value of one key, since keys are checked one by one."""

    start: str = ""

    def key_of(self, command: KeyValueCommand) -> Hashable:
        """Every command touches one key."""
        return command.key

    def apply(self, state: str, command: KeyValueCommand) -> tuple[str, str | None]:
        """Get, put or append."""
        match command:
            case Get():
                return state, state
            case Put(_, value):
                return value, None
            case Append(_, suffix):
                return state + suffix, None


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
class Counter(_Object[int, CounterCommand, int]):
    """A number. Where adding answers nothing, record the result as `UNSEEN`."""

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
class Queue(_Object[tuple[Hashable, ...], QueueCommand, Hashable]):
    """First in, first out; empty at first."""

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


@dataclass(frozen=True, slots=True)
class Acquire(_Command):
    """Takes the lock if it is free; answers whether it was. An owner cannot take it twice."""

    verb = "acquire"
    refusals = (False,)
    owner: Hashable


@dataclass(frozen=True, slots=True)
class Release(_Command):
    """Frees the lock if *owner* holds it; answers whether it did."""

    verb = "release"
    refusals = (False,)
    owner: Hashable


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
