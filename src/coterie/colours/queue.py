"""The actions queue: what is known here, and in which colour (**transis** slides 29-31).

Green actions have dense positions and are kept in a log, as far as somebody may still ask for them.
The others are kept with their commands, in the order in which they are shown to the object: yellow
ones first, then red ones as they came.

The *red cut* says, for every creator, up to which index its actions are here. An action is taken
only if it is the next one of its creator, so the cut names exactly what is here, two cuts can be
compared, and the global order is first in, first out for every creator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.components import Action, ActionId
from coterie.kernel.configuration import is_change
from coterie.kernel.engine import Run
from coterie.kernel.past_lives import (
    ALL,
    fold,
    is_before,
    is_past_lives,
    number_of,
    past_lives_in,
)
from coterie.replication.log import NOBODY, Log
from coterie.replication.vectors import Vector, last_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.kernel.views import Configuration, Member, ViewId


class GreenLog(Log):
    """Green actions, from the oldest that is kept on."""

    def discard(self, position: int) -> int:
        """Drop what is white; say how many actions went."""
        before, gone = self.start, 0
        for end in self._ends:
            if end > position:
                break
            gone += 1
        for run in self._runs[:gone]:
            self.count_in(self.forgotten, run)
        if gone:
            self.start = self._ends[gone - 1]
            self._bytes -= sum(self._sizes[:gone])
            del self._runs[:gone], self._ends[:gone], self._sizes[:gone]
        return self.start - before

    def append(self, run: Run, size: int | None = None) -> None:
        """Add actions at the end."""
        super().append(run, size)
        if len(run.payloads) == 1:
            fold(self.contained, past_lives_in(run.payloads[0]))

    def count_in(self, vector: Vector, run: Run) -> None:
        """Put a run into a vector; an action that says lives to be over takes these out."""
        super().count_in(vector, run)
        if len(run.payloads) == 1:
            fold(vector, past_lives_in(run.payloads[0]))


class ActionsQueue:
    """All actions that are known here."""

    def __init__(self, *, bytes_max: int, configuration: Configuration = NOBODY) -> None:
        self.log = GreenLog(bytes_max=bytes_max, configuration=configuration)
        self.red_cut: Vector = {}
        self.time = 0
        """The latest Lamport time of an action seen here."""
        self.yellow: list[ActionId] = []
        """The actions that are yellow, in order; they follow the last green one."""
        self.bytes = 0
        """How much the commands take that are not green."""
        self.epoch = 0
        """Changes whenever what is shown has to be shown anew, because it did not just grow."""
        self._actions: dict[ActionId, Action] = {}
        self._shown: list[Action] = []
        self._shown_epoch = 0

    def __len__(self) -> int:
        return len(self._actions)

    def __contains__(self, id: ActionId) -> bool:
        return id in self._actions

    def is_green(self, id: ActionId) -> bool:
        """Say whether an action has its place in the global order."""
        return id.index <= number_of(self.log.contained, id.creator)

    # ---- red

    def has_seen(self, action: Action) -> bool:
        """Say whether an action came here before."""
        return action.index <= number_of(self.red_cut, action.creator)

    def follows(self, action: Action) -> bool:
        """Say whether an action is the next one of its creator."""
        return action.index == number_of(self.red_cut, action.creator) + 1

    def learn(self, action: Action) -> bool:
        """Mark an action red if it is the next one of its creator; say whether it was."""
        self.time = max(self.time, action.time)
        if not self.follows(action):
            return False
        self.red_cut[action.creator] = action.index
        self._actions[action.id] = action
        self.bytes += len(action.command)
        if self._shown_epoch == self.epoch:
            self._shown.append(action)
        return True

    @property
    def reds(self) -> list[Action]:
        """The actions that are neither green nor yellow, in the order in which they came."""
        yellow = frozenset(self.yellow)
        return [action for id, action in self._actions.items() if id not in yellow]

    def beyond(self, cut: Vector, *, bytes_max: int) -> list[Action]:
        """Give actions that are not green and not within a cut, about *bytes_max* of them.

        In the order in which they can be learned.
        """
        found: list[Action] = []
        size = 0
        for action in sorted(self._actions.values(), key=lambda each: (each.creator, each.index)):
            if size > bytes_max:
                break
            if action.index > number_of(cut, action.creator):
                found.append(action)
                size += len(action.command) + 32
        return found

    # ---- yellow

    def mark_yellow(self, id: ActionId) -> None:
        """Mark an action yellow, behind those that are."""
        assert id in self._actions, "an action is known before it is yellow"
        self.yellow.append(id)
        self.epoch += 1

    def set_yellow(self, ids: Iterable[ActionId]) -> None:
        """Have exactly these actions be yellow, in this order; the others are red."""
        yellow = list(ids)
        if yellow != self.yellow:
            self.yellow = yellow
            self.epoch += 1

    # ---- green

    def mark_green(self, ids: Sequence[ActionId], view: ViewId, number: int) -> list[Run]:
        """Give actions the next positions, with viewstamps from *number* on in *view*."""
        runs: list[Run] = []
        for id in ids:
            action = self._actions.pop(id)
            self.bytes -= len(action.command)
            last = runs[-1] if runs else None
            if (
                last is not None
                and last.origin == id.creator
                and last_number(last) + 1 == id.index
                and not _stands_alone(last.payloads[-1])
                and not _stands_alone(action.command)
            ):
                last.payloads.append(action.command)
            else:
                position = self.log.end + 1 + sum(len(run.payloads) for run in runs)
                runs.append(
                    Run(
                        *(view, number, position),
                        *(id.creator, id.index, [action.command]),
                    )
                )
            number += 1
        self._append(runs)
        return runs

    def take_green(self, run: Run) -> None:
        """Take green actions that another server gave us, which follow the last green one."""
        for index in range(run.first, last_number(run) + 1):
            action = self._actions.pop(ActionId(run.origin, index), None)
            if action is not None:
                self.bytes -= len(action.command)
        self.red_cut[run.origin] = max(number_of(self.red_cut, run.origin), last_number(run))
        self._append([run])

    def _append(self, runs: Sequence[Run]) -> None:
        for run in runs:
            end = number_of(self.log.contained, run.origin)
            assert run.first == end + 1, "first in, first out"
            self.log.append(run)
            if len(run.payloads) == 1:
                self._forget_lives(past_lives_in(run.payloads[0]))
        if runs:
            self.log.settle(self.log.end)
            self._after_green()

    def reset(
        self, position: int, greens: Vector, configuration: Configuration | None = None
    ) -> None:
        """Begin anew above a state that was taken over whole; what is not in it stays red.

        What was green here and is not in it cannot be red, for it is here no more: then what its
        creator did since has to be learned again.
        """
        for creator, index in self.log.contained.items():
            if index > number_of(greens, creator):
                self._unlearn(creator)
        self.log.reset(position, greens, configuration)
        for creator, index in greens.items():
            if index != ALL:
                self.red_cut[creator] = max(number_of(self.red_cut, creator), index)
        fold(self.red_cut, [creator for creator, index in greens.items() if index == ALL])
        for id in [id for id in self._actions if self.is_green(id)]:
            self.bytes -= len(self._actions.pop(id).command)
        self._after_green()

    def _unlearn(self, creator: Member) -> None:
        for life in [life for life in self.red_cut if is_before(life, creator)]:
            if life == creator or number_of(self.log.contained, life) == ALL:
                del self.red_cut[life]
        for id in [id for id in self._actions if id.creator not in self.red_cut]:
            self.bytes -= len(self._actions.pop(id).command)

    def _forget_lives(self, lives: Sequence[Member]) -> None:
        """Name lives that are over no longer; all that they did is green."""
        if not lives:
            return
        fold(self.red_cut, lives)
        # Nobody has anything else of them, or somebody has lied.
        for id in [id for id in self._actions if self.is_green(id)]:
            self.bytes -= len(self._actions.pop(id).command)

    def _after_green(self) -> None:
        self.yellow = [id for id in self.yellow if not self.is_green(id)]
        self.epoch += 1

    # ---- what the object is shown

    def shown(self) -> list[Action]:
        """Give all that is not green in the order in which the object is shown it."""
        if self._shown_epoch != self.epoch:
            self._shown = [*(self._actions[id] for id in self.yellow), *self.reds]
            self._shown_epoch = self.epoch
        return self._shown


def in_lamport_order(actions: Iterable[Action]) -> list[Action]:
    """Give red actions in the order in which a primary component makes them green.

    Everybody derives the same one, and it respects what creators knew: not the order of arrival,
    which differs, and not that of names alone, which could put an effect before its cause.
    """
    return sorted(actions, key=lambda each: (each.time, each.creator, each.index))


def _stands_alone(command: bytes) -> bool:
    """Say whether an action must be a run of its own, because the history itself looks at it."""
    return is_change(command) or is_past_lives(command)


def within(cut: Vector, creator: Member, index: int) -> bool:
    """Say whether an action is within a cut."""
    return index <= cut.get(creator, 0)
