"""Histories: what the clients of one object saw, from outside.

A history is a collection of operations. Each has the process (client) that called it, the command,
the result, and the interval from call to return in which it must have taken effect, at one instant
(Herlihy and Wing, "Linearizability", 1990). Three endings are told apart:

- *returned*: it took effect between its call and its return, and gave this result;
- *lost* (`returned` is None): it took effect at some time after its call, or never;
- *failed*: it surely did not take effect. It constrains nothing and is left out of the history.

A result may also be `UNSEEN` although the operation returned: it took effect, but nobody wrote down
what it answered.

Times are numbers of any unit; only their order matters. `a` comes before `b` when `a` returned
*before* `b` was called; at equal times they are concurrent, since neither saw the other end.
Recordings without times, such as Jepsen's, are a sequence of events: `from_events` pairs them and
takes each event's place in the sequence as its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

__all__ = [
    "UNSEEN",
    "Called",
    "Event",
    "Lost",
    "NeverHappened",
    "Operation",
    "Returned",
    "Unseen",
    "from_events",
]

C = TypeVar("C")
R = TypeVar("R")
# A history of one kind of command is also a history of a wider kind.
C_co = TypeVar("C_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class Unseen(Enum):
    """The type of `UNSEEN`, so that it can stand in annotations."""

    UNSEEN = "unseen"

    def __repr__(self) -> str:
        return "?"


UNSEEN: Final = Unseen.UNSEEN
"""Stands for a result that nobody saw. It is not None, which is a result like any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[C_co, R_co]):
    """One command of one process, with its interval and its result.

    `returned=None` means that the outcome is unknown; the result is then `UNSEEN`.
    """

    process: Hashable
    command: C_co
    result: R_co | Unseen = UNSEEN
    called: float
    returned: float | None = None

    def __post_init__(self) -> None:
        if self.returned is None:
            if self.result is not UNSEEN:
                raise ValueError(f"{self.command} has a result but no time of return")
        elif self.returned < self.called:
            raise ValueError(f"{self.command} returned at {self.returned}, before its call")


@dataclass(frozen=True, slots=True)
class Called(Generic[C_co]):
    """The process sent the command."""

    process: Hashable
    command: C_co


@dataclass(frozen=True, slots=True)
class Returned(Generic[R_co]):
    """The process received the result of its outstanding command."""

    process: Hashable
    result: R_co | Unseen


@dataclass(frozen=True, slots=True)
class NeverHappened:
    """The outstanding command of the process surely did not happen."""

    process: Hashable


@dataclass(frozen=True, slots=True)
class Lost:
    """The process gave up waiting; its outstanding command may still happen, at any time."""

    process: Hashable


Event: TypeAlias = Called[C] | Returned[R] | NeverHappened | Lost


def from_events(events: Iterable[Event[C, R]]) -> tuple[Operation[C, R], ...]:
    """Turn events in their order of happening into operations, in the order of their calls.

    A command without an ending is lost. A process has one outstanding command at a time; it may
    call again after a lost one.
    """
    operations: dict[int, Operation[C, R]] = {}
    outstanding: dict[Hashable, Operation[C, R]] = {}
    for time, event in enumerate(events):
        process = event.process
        if isinstance(event, Called):
            if process in outstanding:
                raise ValueError(f"event {time}: process {process} has a command outstanding")
            called: Operation[C, R] = Operation(process=process, command=event.command, called=time)
            operations[time] = outstanding[process] = called
            continue
        pending = outstanding.pop(process, None)
        if pending is None:
            raise ValueError(f"event {time}: process {process} has no command outstanding")
        if isinstance(event, Returned):
            operations[int(pending.called)] = Operation(
                process=process,
                command=pending.command,
                result=event.result,
                called=pending.called,
                returned=time,
            )
        elif isinstance(event, NeverHappened):
            del operations[int(pending.called)]
    return tuple(operations.values())
