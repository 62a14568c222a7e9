"""What simulated clients do with an object, and what they must have seen.

A *kind* of object is a class, a way to draw requests at random, and a check of all that came of
them. The ready-made objects have to look like one object that does one thing at a time
(linearizability, in true time), and fencing numbers have to rise. On a stack without order there is
no such promise: there, a tally counts how often each request was executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from coterie.checking.history import Violation
from coterie.checking.linearizability import (
    Linearizable,
    NotLinearizable,
    Operation,
    Unknown,
    check,
)
from coterie.checking.linearizability.model import At, Deterministic, Model, PerKey
from coterie.checking.linearizability.models import (
    Acquire,
    Add,
    CounterModel,
    Dequeue,
    Enqueue,
    Holder,
    NumberedQueueModel,
    Release,
    Total,
)
from coterie.checking.linearizability.models import Lock as LockModel
from coterie.objects import define, query, update
from coterie.ready import Counter, Dictionary, Holding, Locks, Queue

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from random import Random

    from coterie.objects import Definition

Operations = list[Operation[Any, Any]]


class Use(NamedTuple):
    """One request, as the object and as the check see it."""

    command: Hashable
    method: str
    arguments: tuple[object, ...]
    is_read: bool = False


class ObjectKind:
    """What the clients of one run do; it may remember what they have seen."""

    definition: Definition
    look: ClassVar[str]
    """A query that gives all of the state that replicas are compared by."""

    def release(self, incarnation: int) -> Definition:
        """Give the class as a replica has it that was started so many times."""
        del incarnation
        return self.definition

    def draw(self, random: Random, label: str) -> Use:
        """Draw a request; *label* is its own for ever."""
        raise NotImplementedError

    def result(self, use: Use, answer: object) -> object:
        """Give an answer as the check sees it."""
        del use
        return answer

    def violations(self, operations: Operations, states: Sequence[object]) -> list[Violation]:
        """Check what the clients saw, and the last states of all replicas."""
        raise NotImplementedError


UNDECIDED = "linearizability undecided"
"""Under this name it is told that the search for an order came to its limit: no promise was found
broken, and none found kept."""


def _check_linearizable(operations: Operations, model: Model[Any, Any, Any]) -> list[Violation]:
    verdict = check(operations, model)
    match verdict:
        case Linearizable():
            return []
        case Unknown():
            return [Violation(UNDECIDED, verdict.reason)]
        case NotLinearizable():
            return [Violation("linearizability", str(verdict)[:2000])]


# ---- counter


class CounterKind(ObjectKind):
    """Clients add and ask for the total."""

    definition = define(Counter)
    look = "total"

    def draw(self, random: Random, label: str) -> Use:
        del label
        if random.random() < 0.3:  # noqa: PLR2004 -- some read
            return Use(Total(), "total", (), is_read=True)
        amount = random.randrange(1, 4)
        return Use(Add(amount), "add", (amount,))

    def violations(self, operations: Operations, states: Sequence[object]) -> list[Violation]:
        del states
        return _check_linearizable(operations, CounterModel())


# ---- counter, upgraded


class NotedCounter:
    """The counter's next version: keeps the last amounts as well."""

    version = 2
    previous = Counter
    value: int = 0
    last: tuple[int, ...] = ()

    @update
    def add(self, amount: int = 1) -> int:
        """Add *amount*; give the new total."""
        self.last = (*self.last[-4:], amount)
        self.value += amount
        return self.value

    @query
    def total(self) -> int:
        """Give the total."""
        return self.value


class UpgradeKind(CounterKind):
    """A counter, whose replicas come back from their first restart with its next version.

    So they change over together when the last one has been restarted, if that comes to pass.
    """

    _latest = define(NotedCounter)
    definition = _latest.oldest

    def release(self, incarnation: int) -> Definition:
        return self._latest if incarnation > 1 else self.definition


# ---- dictionary


class Words(Dictionary[str]):
    """A dictionary of texts that can be lengthened."""

    @update
    def append(self, key: str, suffix: str) -> None:
        """Lengthen a text; a missing one is empty."""
        self.put(key, (self.get(key) or "") + suffix)

    @query
    def contents(self) -> dict[str, str]:
        """Give all texts."""
        return {key: item.value for key, item in self.items.items()}


class ItemCommand(NamedTuple):
    """A command to one item; which arguments there are depends on the verb."""

    verb: str
    key: str
    value: str = ""
    expected: str | None = None

    def __str__(self) -> str:
        expected = f" if {self.expected!r}" if self.verb == "compare_and_set" else ""
        return f"{self.verb} {self.value!r}{expected}"


class ItemModel(Deterministic[str | None, ItemCommand, object]):
    """One item of a dictionary: its text, or None."""

    def initial(self) -> str | None:
        return None

    def key_of(self, command: ItemCommand) -> Hashable:
        return command.key

    def is_read(self, command: ItemCommand, result: object) -> bool:
        return command.verb == "get" or result is False

    def apply(self, state: str | None, command: ItemCommand) -> tuple[str | None, object]:
        match command.verb:
            case "get":
                return state, state
            case "put":
                return command.value, None
            case "append":
                return (state or "") + command.value, None
            case "delete":
                return None, state is not None
            case _:
                is_right = state == command.expected
                return (command.value if is_right else state), is_right


class DictionaryKind(ObjectKind):
    """Clients put, append, compare and set, delete and get, on a few keys.

    Every text is made of the labels of the requests that wrote it, so a request that was executed
    twice shows as a label that stands twice in a text.
    """

    definition = define(Words)
    look = "contents"

    def __init__(self) -> None:
        self._seen: dict[str, str | None] = {}

    def draw(self, random: Random, label: str) -> Use:
        key = random.choice("wxyz")
        verbs, weights = ("get", "put", "append", "compare_and_set", "delete"), (6, 4, 5, 4, 1)
        verb = random.choices(verbs, weights)[0]
        value = f"{label};"
        match verb:
            case "get":
                return Use(ItemCommand(verb, key), verb, (key,), is_read=True)
            case "delete":
                return Use(ItemCommand(verb, key), verb, (key,))
            case "compare_and_set":
                expected = self._seen.get(key)
                return Use(ItemCommand(verb, key, value, expected), verb, (key, expected, value))
            case _:
                return Use(ItemCommand(verb, key, value), verb, (key, value))

    def result(self, use: Use, answer: object) -> object:
        command = use.command
        assert isinstance(command, ItemCommand)
        if command.verb == "get":
            assert answer is None or isinstance(answer, str)
            self._seen[command.key] = answer
        # Putting answers a version, which is of no interest here.
        return None if command.verb == "put" else answer

    def violations(self, operations: Operations, states: Sequence[object]) -> list[Violation]:
        texts = [each.result for each in operations if isinstance(each.result, str)]
        for state in states:
            assert isinstance(state, dict)
            texts += state.values()
        doubled = [text for text in texts if len(set(labels := text.split(";"))) < len(labels)]
        twice = [Violation("once", f"a request was executed twice: {text}") for text in doubled[:3]]
        return twice + _check_linearizable(operations, ItemModel())


# ---- queue


class Labels(Queue[str]):
    """A queue of the labels of the requests that put them."""

    @query
    def contents(self) -> list[str]:
        """Give what waits, the first first."""
        return [self.items[number].value for number in sorted(self.waiting)]


class QueueKind(ObjectKind):
    """Clients put and take; labels are unique, so one that is taken twice shows."""

    definition = define(Labels)
    look = "contents"

    def draw(self, random: Random, label: str) -> Use:
        if random.random() < 0.5:  # noqa: PLR2004 -- so that it is often empty
            return Use(Enqueue(label), "put", (label,))
        return Use(Dequeue(), "take", ())

    def violations(self, operations: Operations, states: Sequence[object]) -> list[Violation]:
        del states
        return _check_linearizable(operations, NumberedQueueModel())


# ---- locks


class LocksKind(ObjectKind):
    """Clients acquire and release two locks, and ask who holds them.

    Leases outlast the run. Owners are the labels of requests, so every holding has its own; what
    became of an acquisition without an answer is found out by asking who holds the lock.
    """

    definition = define(Locks)
    look = "count"
    _LEASE = 86_400.0

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, int]] = {}
        """Owner and fence of the last holding that somebody heard of, by lock."""
        self._fences: dict[str, int] = {}
        """The fence that an owner was last heard of with, by owner."""

    def draw(self, random: Random, label: str) -> Use:
        name = random.choice("xy")
        match random.choice(("acquire", "release", "holder")):
            case "holder":
                return Use(At(name, Holder()), "holder", (name,), is_read=True)
            case "release" if name in self._held:
                owner, fence = self._held[name]
                return Use(At(name, Release(owner)), "release", (name, fence))
            case _:
                return Use(At(name, Acquire(label)), "acquire", (name, label, self._LEASE))

    def result(self, use: Use, answer: object) -> object:
        command = use.command
        assert isinstance(command, At)
        match command.command, answer:
            case Acquire(owner), int(fence):
                self._learn(str(command.key), str(owner), fence)
                return True
            case Acquire(), _:
                return False
            case Holder(), Holding(owner=owner, fence=fence):
                self._learn(str(command.key), owner, fence)
                return owner
        return answer

    def _learn(self, name: str, owner: str, fence: int) -> None:
        self._held[name] = owner, fence
        self._fences[owner] = fence

    def violations(self, operations: Operations, states: Sequence[object]) -> list[Violation]:
        del states
        return [*self._falling(operations), *_check_linearizable(operations, PerKey(LockModel()))]

    def _falling(self, operations: Operations) -> list[Violation]:
        """Find a fence that is not above that of an acquisition that had ended before."""
        acquired = [
            (each.returned, each.called, self._fences[str(each.command.command.owner)])
            for each in operations
            if isinstance(each.command.command, Acquire) and each.result is True
        ]
        return [
            Violation("fences rise", f"{later} was given after {fence}")
            for returned, _, fence in acquired
            for _, called, later in acquired
            if returned is not None and returned < called and later <= fence
        ][:3]


# ---- tally, without order


class Tally:
    """Counts how often each request was executed; counting commutes."""

    commuting: ClassVar[bool] = True
    times: dict[str, int] = {}  # noqa: RUF012 -- each object has its own copy

    @update
    def mark(self, label: str) -> None:
        """Count one execution."""
        self.times[label] = self.times.get(label, 0) + 1

    @query
    def marks(self) -> dict[str, int]:
        """Give how often everything was executed."""
        return self.times


class TallyKind(ObjectKind):
    """Every request that was acknowledged is in every state in the end, and none is there twice."""

    definition = define(Tally)
    look = "marks"

    def draw(self, random: Random, label: str) -> Use:
        del random
        return Use(label, "mark", (label,))

    def violations(self, operations: Operations, states: Sequence[object]) -> list[Violation]:
        done = {each.command for each in operations if each.returned is not None}
        found: list[Violation] = []
        for state in states:
            assert isinstance(state, dict)
            twice = sorted(label for label, times in state.items() if times > 1)
            lost = sorted(done - state.keys())
            if twice:
                found.append(Violation("once", f"executed twice: {twice[:5]}"))
            if lost:
                found.append(Violation("acknowledged means authoritative", f"lost: {lost[:5]}"))
        return found


KINDS: dict[str, type[ObjectKind]] = {
    "counter": CounterKind,
    "dictionary": DictionaryKind,
    "queue": QueueKind,
    "locks": LocksKind,
    "upgrade": UpgradeKind,
    "tally": TallyKind,
}
"""The kinds of objects, by the name that a user gives (`--object`)."""


def make_kind(name: str, *, is_ordered: bool) -> ObjectKind:
    """Make a kind of object; without order only counting is left."""
    return KINDS[name]() if is_ordered else TallyKind()
