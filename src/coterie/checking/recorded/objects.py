"""Which objects histories are judged as, and how the calls of a file become their operations.

For each there is a model, and for each function that a file may name a way to make its command. A
model of one's own is a class of a Python file: its commands are `RecordedCommand(name, value)`,
unless it has a method `command(name, value)` that makes others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.checking.linearizability import (
    UNSEEN,
    Acquire,
    Add,
    Append,
    At,
    CompareAndSet,
    CounterModel,
    Delete,
    Dequeue,
    Enqueue,
    Get,
    Holder,
    KeyValue,
    Lock,
    Model,
    NumberedQueueModel,
    Operation,
    PerKey,
    Put,
    QueueModel,
    ReadRegister,
    Register,
    Release,
    Total,
    WriteRegister,
)
from coterie.checking.recorded.errors import NoHistory
from coterie.checking.recorded.reading import MISSING, CallEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from coterie.checking.recorded.reading import RecordedCall

    Verb = Callable[[RecordedCall], tuple[Any, Any]]
    """Gives the command and the result of a call that returned."""

__all__ = ["OBJECTS", "Recorded", "RecordedCommand", "of_own_model", "operations_of"]

AnyModel = Model[Any, Any, Any]


class RecordedCommand(NamedTuple):
    """A command to a model of one's own: the function and the value of a line."""

    name: str
    value: Any

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name} {self.value!r}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A kind of object: its model, from the state at the beginning, and its functions."""

    about: str
    model: Callable[[Any], AnyModel]
    verbs: Mapping[str, Verb] | None
    start: Hashable = None
    has_keys: bool = False
    """Whether the object itself has keys; others are one for each key that is named."""


def _answer(call: RecordedCall) -> Any:  # noqa: ANN401 -- of any model
    """What the call answered: the result by name, or what it ended with."""
    if call.result is not MISSING:
        return call.result
    return UNSEEN if call.ended_with is MISSING else call.ended_with


def _told(call: RecordedCall, otherwise: object) -> Any:  # noqa: ANN401 -- of any model
    """What the call answered where ending is an answer, too: `ok` says that it worked."""
    return otherwise if call.result is MISSING else call.result


def _pair(call: RecordedCall) -> tuple[Any, Any]:
    if not isinstance(call.value, tuple) or len(call.value) != 2:  # noqa: PLR2004 -- a pair
        raise NoHistory(f"{call.name} takes two values, [expected, new]", call.lines[0])
    return call.value


def _text(call: RecordedCall) -> str:
    if not isinstance(call.value, str):
        raise NoHistory(f"{call.name} takes a text, not {call.value!r}", call.lines[0])
    return call.value


def _amount(call: RecordedCall) -> int:
    if isinstance(call.value, bool) or not isinstance(call.value, int):
        raise NoHistory(f"{call.name} takes a whole number, not {call.value!r}", call.lines[0])
    return call.value


def _key(call: RecordedCall) -> Hashable:
    if call.key is MISSING:
        raise NoHistory(
            f"{call.name} names no `key` (if values are pairs of key and value: --independent)",
            call.lines[0],
        )
    return call.key


def _owner(call: RecordedCall) -> Hashable:
    return call.process if call.value is None else call.value


REGISTER: dict[str, Verb] = {
    "read": lambda call: (ReadRegister(), _answer(call)),
    "write": lambda call: (WriteRegister(call.value), None),
    "cas": lambda call: (CompareAndSet(*_pair(call)), _told(call, otherwise=True)),
}
STORE: dict[str, Verb] = {
    "get": lambda call: (Get(_key(call)), _answer(call)),
    "put": lambda call: (Put(_key(call), call.value), None),
    "append": lambda call: (Append(_key(call), _text(call)), None),
    "delete": lambda call: (Delete(_key(call)), _told(call, UNSEEN)),
}
STORE |= {"read": STORE["get"], "write": STORE["put"]}
COUNTER: dict[str, Verb] = {
    "add": lambda call: (Add(_amount(call)), _told(call, UNSEEN)),
    "read": lambda call: (Total(), _answer(call)),
}
QUEUE: dict[str, Verb] = {
    "enqueue": lambda call: (Enqueue(call.value), None),
    "dequeue": lambda call: (Dequeue(), _answer(call)),
}
NUMBERED_QUEUE: dict[str, Verb] = {
    "enqueue": lambda call: (Enqueue(call.value), _told(call, UNSEEN)),
    "dequeue": lambda call: (Dequeue(), _answer(call)),
}
LOCK: dict[str, Verb] = {
    "acquire": lambda call: (Acquire(_owner(call)), _told(call, otherwise=True)),
    "release": lambda call: (Release(_owner(call)), _told(call, otherwise=True)),
    "holder": lambda call: (Holder(), _answer(call)),
}

OBJECTS: dict[str, Recorded] = {
    "register": Recorded("read, write, cas: one value", Register, REGISTER),
    "kv": Recorded("get, put, append, delete: values by key", KeyValue, STORE, has_keys=True),
    "counter": Recorded("add, read: a number", CounterModel, COUNTER, start=0),
    "queue": Recorded("enqueue, dequeue: first in, first out", QueueModel, QUEUE, start=()),
    "numbered-queue": Recorded(
        "a queue whose enqueue answers 1, 2, 3 …",
        lambda items: NumberedQueueModel((0, items)),
        NUMBERED_QUEUE,
        start=(),
    ),
    "lock": Recorded("acquire, release, holder: one owner at a time", Lock, LOCK),
}
"""The objects that `coterie check` knows by name."""


def of_own_model(kind: type) -> Recorded:
    """Make a kind of object of a class that derives from `Model`."""
    if not issubclass(kind, Model):
        raise NoHistory(
            f"{kind.__name__} is no model: derive it from"
            " coterie.checking.linearizability.Deterministic, or from Model"
        )

    def make(start: object) -> AnyModel:
        del start
        model: AnyModel = kind()
        return model

    return Recorded(f"{kind.__name__}, of your own", make, None, has_keys=True)


def operations_of(
    calls: Iterable[RecordedCall], recorded: Recorded, start: Hashable
) -> tuple[AnyModel, dict[int, tuple[Operation[Any, Any], RecordedCall]]]:
    """Give the model, and each operation with its call, by the operation's identity.

    What never happened constrains nothing and is left out. Raises `NoHistory`, with the line.
    """
    model = recorded.model(start)
    has_keys = not recorded.has_keys and any(call.key is not MISSING for call in calls)
    found: dict[int, tuple[Operation[Any, Any], RecordedCall]] = {}
    for call in calls:
        command, result = _command(call, recorded, model)
        if has_keys:
            if call.key is MISSING:
                raise NoHistory(f"{call.name} names no `key`, but other calls do", call.lines[0])
            command = At(call.key, command)
        if call.outcome is CallEnd.FAILED:
            continue
        is_lost = call.outcome is CallEnd.LOST
        operation: Operation[Any, Any] = Operation(
            process=call.process,
            command=command,
            result=UNSEEN if is_lost else result,
            called=call.called,
            returned=None if is_lost else call.returned,
        )
        found[id(operation)] = operation, call
    return (PerKey(model) if has_keys else model), found


def _command(call: RecordedCall, recorded: Recorded, model: AnyModel) -> tuple[Any, Any]:
    if recorded.verbs is None:
        make = getattr(model, "command", RecordedCommand)
        try:
            return make(call.name, call.value), _answer(call)
        except Exception as error:
            raise NoHistory(
                f"the model's command({call.name!r}, {call.value!r}) raises {error!r}",
                call.lines[0],
            ) from error
    verb = recorded.verbs.get(call.name)
    if verb is None:
        known = ", ".join(recorded.verbs)
        raise NoHistory(f"this object has no {call.name}; it has {known}", call.lines[0])
    try:
        return verb(call)
    except NoHistory:
        raise
    except ValueError as error:
        raise NoHistory(str(error), call.lines[0]) from None
