"""Running the history on a single object, as if there had never been replicas.

**objects** 4.1.1: a single process that runs the group's history passes through the very states
that the replicas had. So a replay gives the state at any viewstamp, and checks what the replicas
said on the way: the digests of their states, and their answers.

A replay needs the class, and the settings that replicas of the group had, because limits decide
what becomes of a command. Where the history at hand begins after position 1, the replay begins
with a dumped state (`coterie.pipeline.history.dumps`), if there is one.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.engine import Run, Standing
from coterie.kernel.errors import CoterieError
from coterie.kernel.views import Member, ViewId
from coterie.objects import (
    DEFAULT_HOST_SETTINGS,
    AllDone,
    Definition,
    Done,
    Failed,
    HostSettings,
    define,
)
from coterie.objects.answering import Answering
from coterie.objects.execution.machine import StateMachine
from coterie.objects.execution.starting_point import StartingPoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from coterie.kernel.requests import ServiceRequest
    from coterie.objects import Answer
    from coterie.objects.execution.machine import Failures

_UNDO_ENTRIES = 10_000
"""How many entries are executed between two states that undoing can begin with."""


class CannotReplay(CoterieError):
    """A history cannot be run; the message says why."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: a class by its name, and the limits it ran with."""

    name: str
    """`package.module:Class`; it must be importable wherever tasks run."""
    settings: HostSettings = DEFAULT_HOST_SETTINGS
    folder: str = ""
    """Where the module lies, if it is not installed; the same wherever tasks run."""

    def load(self) -> Definition:
        """Find the class and read it."""
        module, _, attribute = self.name.partition(":")
        if self.folder and self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise CannotReplay(
                f"there is no class {self.name!r} ({error}): name it as package.module:Class"
            ) from error
        except Exception as error:
            raise CannotReplay(f"the module {module!r} cannot be imported: {error!r}") from error
        return found if isinstance(found, Definition) else define(found)


@dataclass(slots=True)
class Step:
    """What some entries, executed one after the other, gave."""

    position: int
    """The position of the last of these entries."""
    digest: bytes | None = None
    """The digest of the state after that entry, where replicas would have reported one."""
    answers: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """The checksums of results, by position, session and request."""
    given: list[Answer] = field(default_factory=list)
    """All answers, to whoever asked."""


class Replay:
    """One object, and the history so far run on it."""

    def __init__(self, program: Program, group: str, majority: int) -> None:
        self.machine = StateMachine(
            program.load(), program.settings, seed=group.encode()[:64], majority=majority
        )
        self._failures: Failures = {}
        self._log: list[Run] = []
        self._start: StartingPoint | None = None
        self._prepare()

    def begin_with(self, machine: StateMachine) -> None:
        """Go on from a state that is known by other means."""
        self.machine = machine
        self._start = None
        self._prepare()

    @property
    def position(self) -> int:
        """Up to where the history was run."""
        return self.machine.position

    def run(self, runs: Iterable[Run]) -> Iterator[Step]:
        """Run entries that follow; give what came of them, in steps."""
        machine = self.machine
        for run in runs:
            rest: Run | None = run
            while rest is not None:
                due = machine.next_digest or rest.last_position
                part = rest.up_to(due)
                self._keep_for_undo(part)
                answering = Answering(
                    part.origin, Standing.AUTHORITATIVE, set(), enables=_somebody_answers
                )
                machine.execute([part], answering)
                step = Step(part.last_position, given=answering.answers)
                for answer in answering.answers:
                    outcome = answer.outcome
                    if isinstance(outcome, Done | Failed | AllDone):
                        key = (outcome.position, answer.session, answer.request)
                        step.answers[key] = outcome.digest
                if machine.next_digest and machine.position == machine.next_digest:
                    step.digest = machine.digest_if_due()
                yield step
                rest = rest.after(due) if rest.last_position > due else None

    # ---- undoing what fails half-way

    def _prepare(self) -> None:
        machine = self.machine
        self._log.clear()
        self._failures.clear()
        machine.failures = self._failures
        if machine.needs_undoing:
            machine.rebuild = self._rebuild

    def _keep_for_undo(self, run: Run) -> None:
        machine = self.machine
        if machine.rebuild is None:
            return
        begun = self._log[0].position if self._log else machine.position
        if self._start is None or machine.position - begun > _UNDO_ENTRIES:
            self._start = StartingPoint(machine)
            self._log.clear()
            self._failures.clear()
        self._log.append(run)

    def _rebuild(self, position: int) -> object:
        assert self._start is not None, "there is a state to begin with"
        twin = self._start.make()
        parts = [run.up_to(position) for run in self._log if run.position <= position]
        twin.execute(parts, None, self._failures)
        return twin.object


def _somebody_answers(request: ServiceRequest, view: ViewId) -> bool:
    """Say that a request of an unaware client is answered; by whom is for RSP-2 to look at."""
    del request, view
    return True


def runs_of(content: pa.Table) -> Iterator[Run]:
    """Give rows of the history, which follow each other, as runs."""
    columns = (content[name].to_pylist() for name in _COLUMNS)
    current: Run | None = None
    for position, view, number, origin, identity, payload in zip(*columns, strict=True):
        member = Member(**origin)
        view_id = ViewId(**view)
        if current is not None:
            size = len(current.payloads)
            if (
                current.view == view_id
                and current.origin == member
                and (current.number + size, current.first + size) == (number, identity)
                and current.position + size == position
            ):
                current.payloads.append(payload)
                continue
            yield current
        current = Run(view_id, number, position, member, identity, [payload])
    if current is not None:
        yield current


_COLUMNS = ("position", "view", "number", "origin", "identity", "payload")
