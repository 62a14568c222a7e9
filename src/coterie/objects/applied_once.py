"""Copies of a class whose updates commute, over a partitioned network: applied once, never undone.

Where updates commute, what is executed before its place in the order is known need not be taken
back when others turn out to come before it. So the *dirty* copy executes every entry once, red or
green, in the order in which it comes, and is never rolled back: when a partition ends, what was
executed here is not executed again, however much it is.

The *authoritative* copy executes the entries in their order, each once, when they are green. It is
there only while something is red, and it is what makes the rest simple: which sessions there are,
what a request is answered for good, snapshots and digests are functions of the order, as for any
other class. Without it sessions could never be forgotten, and a state taken over would have to name
the red entries in it. Once nothing is red the dirty copy goes, and there is one again.

The dirty copy goes by the sessions of groups without order (`coterie.objects.execution.sessions`):
a call may come there before the opening of its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from coterie.kernel.engine import Run
from coterie.kernel.transfer import TakeSnapshot, encode_now
from coterie.objects.copies import Copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coterie.kernel.engine import Standing
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member
    from coterie.objects.answering import Answering
    from coterie.objects.execution.machine import Failures, StateMachine
    from coterie.objects.execution.outcomes import Done, Failed


class AppliedOnce(Copies):
    """While something is red, `machine` is the dirty copy; otherwise the only one."""

    def __init__(
        self,
        machine: StateMachine,
        context: Context,
        take_snapshot: TakeSnapshot = encode_now,
        digested: Callable[[int, bytes], None] | None = None,
    ) -> None:
        # What the dirty copy has executed that is not green yet, in that order.
        self._red: dict[tuple[Member, int], Run] = {}
        self._failed: Failures = {}
        """How updates failed on the dirty copy, by their positions there."""
        super().__init__(machine, context, take_snapshot, digested)

    # ---- executing

    def execute(self, runs: list[Run], answering: Answering, standing: Standing) -> None:
        """Execute what is green on both copies, and what is red on the dirty one: each once."""
        if not standing.is_final:
            self._execute_red(runs, answering)
        elif self.authoritative is None:
            super().execute(runs, answering, standing)
        else:
            self._execute_green(self.authoritative, runs, answering)
        for machine in (self.machine, self.authoritative):
            if machine is not None:
                self._take_faults(machine)

    def _execute_red(self, runs: Iterable[Run], answering: Answering) -> None:
        if self.authoritative is None:
            self._make_dirty()
        for run in _one_by_one(runs):
            # What was executed is shown again wherever another class would be rolled back.
            if self._is_news(run):
                self._red[_name(run)] = self._on_dirty(run, answering)

    def _execute_green(
        self, green: StateMachine, runs: Iterable[Run], answering: Answering
    ) -> None:
        for run in _one_by_one(runs):
            # First on the dirty copy: what failed there is undone from the other one, as of before.
            if self._is_news(run):
                self._on_dirty(run, None)
            self.settled = run.last_position
            self._keep_for_undo([run], green)
            self._execute_with_digests(green, [run], answering)
            self._red.pop(_name(run), None)
        if not self._red:
            self.machine, self.authoritative = green, None
            self._failed.clear()

    def _is_news(self, run: Run) -> bool:
        return _name(run) not in self._red

    def _on_dirty(self, run: Run, answering: Answering | None) -> Run:
        """Execute an entry on the dirty copy, at the next position that this has."""
        machine = self.machine
        run = Run(
            *(run.view, run.number, machine.position + 1),
            *(run.origin, run.first, run.payloads),
        )
        machine.execute([run], answering)
        return run

    def _make_dirty(self) -> None:
        green = self.machine
        dirty = green.copy()
        dirty.sessions = green.sessions.without_order()
        if dirty.needs_undoing:
            dirty.rebuild, dirty.failures = self._rebuild_dirty, self._failed
        self.machine, self.authoritative = dirty, green

    def roll_back(self, position: int) -> None:
        """Do nothing: what was executed stays, wherever it comes in the order."""
        assert position >= self.settled, "what is settled is never rolled back"

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        super().restore(chunks, position)
        self._red.clear()
        self._failed.clear()

    def outcome_of(self, session: int, request: int) -> Done | Failed | None:
        """Say how a request ended: at a position that is settled only if the request is."""
        green = self.authoritative
        if green is None:
            return super().outcome_of(session, request)
        known = green.sessions.outcome_of(session, request)
        if known is None:
            known = super().outcome_of(session, request)
            if known is not None:
                known = replace(known, position=max(known.position, self.settled + 1))
        return known

    # ---- undoing

    def _rebuild(self, position: int) -> object:
        """Give the object of the authoritative copy as it was at *position*."""
        self._context.count("host.rebuilt")
        assert self.start is not None, "the log has a beginning"
        return self._replay(self.start.make(), position).object

    def _rebuild_dirty(self, position: int) -> object:
        """Give the object of the dirty copy as it was at *position*: before what is running."""
        self._context.count("host.rebuilt")
        assert self.authoritative is not None, "there are two copies"
        twin = self.authoritative.copy()
        twin.sessions = twin.sessions.without_order()
        for run in self._red.values():
            at = twin.position + 1
            # What failed is not executed again: there is nothing to undo it with.
            failed = {
                (at, index): failure
                for (place, index), failure in self._failed.items()
                if place == run.position
            }
            there = Run(run.view, run.number, at, run.origin, run.first, run.payloads)
            twin.execute([there], None, failed)
        assert twin.position == position, "all but what is running"
        return twin.object


def _one_by_one(runs: Iterable[Run]) -> Iterator[Run]:
    for run in runs:
        for offset, payload in enumerate(run.payloads):
            yield Run(
                *(run.view, run.number + offset, run.position + offset),
                *(run.origin, run.first + offset, [payload]),
            )


def _name(run: Run) -> tuple[Member, int]:
    return run.origin, run.first
