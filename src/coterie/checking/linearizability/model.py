"""What a model is: the sequential specification against which a history is judged.

`Model` is the general form: from a state, a command and the result that was seen, it gives every
state that may follow, and none if the result is impossible. Most objects are deterministic; for
those, `Deterministic` asks only for the state and the result that a command leads to, and does the
comparison. `PerKey` makes many independent copies of any model.

Histories are checked key by key. Linearizability is local (Herlihy and Wing, theorem 1): a history
is linearizable if and only if its part for each object is. So a model whose commands touch one key
each says so in `key_of`, and one search becomes many small ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coterie.checking.linearizability.foresight import Foresight
from coterie.checking.linearizability.history import UNSEEN, Unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from coterie.checking.linearizability.agenda import Agenda

__all__ = ["At", "Deterministic", "Model", "PerKey"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")
C_co = TypeVar("C_co", covariant=True)


class Model(ABC, Generic[S, C, R]):
    """A sequential specification: states `S`, commands `C`, results `R`.

    States are never changed in place. They are hashable, or `fingerprint` gives a hashable value
    that is equal exactly for states that behave alike.
    """

    @abstractmethod
    def initial(self) -> S:
        """The state before the first command (of each key, if there are keys)."""

    @abstractmethod
    def step(self, state: S, command: C, result: R | Unseen) -> Iterable[S]:
        """Every state that *command* may lead to from *state* with *result*; none if impossible.

        With `UNSEEN`, every state that any result may lead to.
        """

    def why_not(self, command: object) -> str:
        """Why *command* is none of this object, in a sentence; nothing if it is one."""
        del command
        return ""

    def key_of(self, command: C) -> Hashable:
        """The independent part of the object that *command* touches; the whole if there is one."""
        del command
        return None

    def is_read(self, command: C, result: R | Unseen) -> bool:
        """Whether *command*, when it gives *result*, leaves every state as it is.

        A hint that makes the search much faster; False is never wrong.
        """
        del command, result
        return False

    def fingerprint(self, state: S) -> Hashable:
        """A hashable stand-in for *state*."""
        return state

    def foresee(
        self, agenda: Agenda[Any, R], starts: Sequence[S], plain: Callable[[Any], C]
    ) -> Foresight[S, Any, R]:
        """What the agenda as a whole says, for a search that begins at one of *starts*.

        `plain(command)` gives a command of this model, where it is one copy among others.
        """
        del starts
        return Foresight(self, agenda, plain)

    def describe(self, command: C, result: R | Unseen) -> str:
        """One short line for the evidence."""
        return f"{command} → {result!r}"


class Deterministic(Model[S, C, R]):
    """A model in which a state and a command decide the next state and the result.

    class Seats(Deterministic[int, str, bool]):
        def initial(self) -> int:
            return 2

        def apply(self, state: int, command: str) -> tuple[int, bool]:
            return (state - 1, True) if state else (state, False)
    """

    @abstractmethod
    def apply(self, state: S, command: C) -> tuple[S, R]:
        """The next state and the result."""

    def step(self, state: S, command: C, result: R | Unseen) -> Iterable[S]:
        """The one next state, if the result is the right one or was not seen."""
        following, expected = self.apply(state, command)
        return (following,) if result is UNSEEN or result == expected else ()


@dataclass(frozen=True, slots=True)
class At(Generic[C_co]):
    """A command to the copy of the object named by *key*."""

    key: Hashable
    command: C_co


@dataclass(frozen=True, slots=True)
class PerKey(Model[S, At[C], R]):
    """Independent copies of one object, by key: `PerKey(Register())`, `At("x", Write(3))`."""

    each: Model[S, C, R]

    def initial(self) -> S:
        """Begin each copy alike."""
        return self.each.initial()

    def step(self, state: S, command: At[C], result: R | Unseen) -> Iterable[S]:
        """Ask the model of one copy, with the command that was for it."""
        return self.each.step(state, command.command, result)

    def why_not(self, command: object) -> str:
        """Ask for the key, and leave the rest to the copy."""
        if not isinstance(command, At):
            return f"{command} names no key: write At(key, command)"
        return self.each.why_not(command.command)

    def key_of(self, command: At[C]) -> Hashable:
        """Name the copy, and the part of it."""
        # The copies may have keys of their own, for instance a key-value store for each tenant.
        part = self.each.key_of(command.command)
        return command.key if part is None else (command.key, part)

    def is_read(self, command: At[C], result: R | Unseen) -> bool:
        """Ask the model of one copy, with the command that was for it."""
        return self.each.is_read(command.command, result)

    def foresee(
        self, agenda: Agenda[Any, R], starts: Sequence[S], plain: Callable[[Any], At[C]]
    ) -> Foresight[S, Any, R]:
        """Ask the model of one copy, to which all commands of an agenda are."""
        return self.each.foresee(agenda, starts, lambda command: plain(command).command)

    def fingerprint(self, state: S) -> Hashable:
        """Give the fingerprint of one copy's state."""
        return self.each.fingerprint(state)

    def describe(self, command: At[C], result: R | Unseen) -> str:
        """Leave out the key, which stands above the whole evidence."""
        return self.each.describe(command.command, result)
