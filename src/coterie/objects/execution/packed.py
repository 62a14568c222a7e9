"""Executing an entry that holds several calls of one method.

A busy client packs its calls, and one entry then carries the calls of one session and method with
consecutive numbers. What a call by itself costs most, its own record in the order, is paid once
for all of them. Each is still an update of its own: executed once, with an outcome of its own,
undone by itself if it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.objects.classes.definition import NUMBER_MAX
from coterie.objects.classes.encodable import encode
from coterie.objects.classes.methods import decode_parts
from coterie.objects.errors import ResultTooLarge, UnknownMethod
from coterie.objects.execution.outcomes import (
    SESSION_EVICTED,
    AllDone,
    AlreadyForgotten,
    Answer,
    Done,
    Failed,
    Outcome,
    WindowFull,
)
from coterie.objects.execution.sessions import SMALL, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from coterie.objects.answering import Answering
    from coterie.objects.classes.methods import Method
    from coterie.objects.execution.commands import Calls
    from coterie.objects.execution.machine import Failures, StateMachine
    from coterie.objects.execution.sessions import Session

_NONE = encode(None)


def execute_calls(  # noqa: PLR0913 -- what an entry needs
    machine: StateMachine,
    command: Calls,
    to_number: int,
    answering: Answering | None,
    known_failures: Failures | None,
    *,
    is_mine: bool,
) -> list[bytes]:
    """Execute an entry at the machine's position; give the results for the checksum over all."""
    entry = Entry(machine, command, to_number, known_failures)
    outcomes = entry.execute()
    if answering is None:
        return entry.results
    standing, asked_at = answering.standing, command.asked_at
    if is_mine and entry.all_done is not None:
        answering.answers.append(
            Answer(command.session, command.first, entry.all_done, standing, asked_at)
        )
    elif is_mine or answering.watched:
        for request, found in enumerate(outcomes, start=command.first):
            if is_mine or (command.session, request) in answering.watched:
                outcome = found.of(request) if isinstance(found, AllDone) else found
                answering.answers.append(
                    Answer(command.session, request, outcome, standing, asked_at)
                )
    return entry.results


class Entry:
    """The calls of one entry, while they are executed."""

    def __init__(
        self,
        machine: StateMachine,
        command: Calls,
        to_number: int,
        known_failures: Failures | None,
    ) -> None:
        self._machine = machine
        self._command = command
        self._to_number = to_number
        self._known_failures = known_failures or {}
        self._method = machine.update(command.method)
        self.view = machine.running_view
        self.number = machine.position + to_number
        self.results: list[bytes] = []
        self.all_done: AllDone | None = None
        """The outcome of all calls together, if all were news and answered briefly."""
        self.why_not: Callable[[], Failed | None] | None = None
        """Says of news that they are not to be executed; then there is one call."""
        machine.packed = self.results

    def execute(self) -> list[Outcome]:
        """Execute all calls; give their outcomes in order."""
        machine, command, method = self._machine, self._command, self._method
        calls = self._read_whole(method)
        if calls is None:
            # Some leave defaults out, or are of another release of the class.
            try:
                parts = decode_parts(command.arguments)
            except msgspec.DecodeError as error:
                machine.note(f"the entry at {machine.position} holds no calls: {error}")
                return []
            count = len(parts)
        else:
            parts, count = None, len(calls)
        session = machine.sessions.table.get(command.session)
        if session is None and not machine.sessions.is_ordered:
            session = machine.sessions.open(command.session, machine.position)
        if session is None:
            return [SESSION_EVICTED] * count
        session.used = machine.position
        machine.sessions.raise_lowest(session, command.lowest)
        outcomes: list[Outcome] = []
        if calls is not None and method is not None and self._are_news(session, count):
            outcomes = self._execute_news(session, method, calls)
        if len(outcomes) < count:
            if parts is None:
                parts = decode_parts(command.arguments)
            for index in range(len(outcomes), count):
                outcomes.append(self._execute_one(session, parts, index))
        machine.packed = ()
        return outcomes

    def _read_whole(self, method: Method | None) -> list[tuple[Any, ...]] | None:
        """Read the arguments of all calls at once; None where that cannot be."""
        if method is None:
            return None
        try:
            return method.decode_many(self._command.arguments)
        except msgspec.DecodeError:
            return None

    def _are_news(self, session: Session, count: int) -> bool:
        """Say whether none was executed or forgotten before, and all outcomes can be kept."""
        first = self._command.first
        if self.why_not is not None:
            return False
        if first < session.lowest or session.bytes or self._has_failures():
            return False
        window = self._machine.settings.window_requests_max
        if len(session.outcomes) + count > window:
            self._machine.sessions.sweep(session)
        return len(session.outcomes) + count <= window and session.outcomes.keys().isdisjoint(
            range(first, first + count)
        )

    def _execute_news(  # noqa: C901, PLR0912, PLR0915 -- one loop on purpose: the hot path
        self, session: Session, method: Method, calls: list[tuple[Any, ...]]
    ) -> list[Outcome]:
        """Execute calls up to the first that fails or answers at length: the hot path."""
        machine = self._machine
        definition = machine.definition
        function, encode_result = method.function, method.encode_result
        plain_result, is_brief = method.plain_result, method.is_brief
        touched, checked, number = method.touched, method.checked, method.checked_number
        keeps_all = touched is None
        takes_one = method.count == 1
        number_max, number_min = NUMBER_MAX, -NUMBER_MAX
        replicated = machine.object
        state = kept = vars(replicated)
        old: object = None
        results = self.results
        append = results.append
        failure: BaseException | None = None
        large: bytes | None = None
        try:
            for arguments in calls:
                if keeps_all:
                    kept = state.copy()
                elif touched:
                    old = state[touched]
                # Written out, because a call with a star is much slower.
                if takes_one:
                    answer = function(replicated, arguments[0])
                else:
                    answer = function(replicated, *arguments)
                if type(answer) is plain_result:
                    result = encode_result(answer)
                else:
                    result = _NONE if answer is None else encode_result(answer)
                    method.check_result(result)
                if not is_brief and len(result) > SMALL:
                    self._check_size(result)
                    large = result
                if number:
                    # What it left is looked at; nearly always it is a number.
                    value = state.get(number)
                    if type(value) is not int or not number_min <= value <= number_max:
                        definition.check_assigned(checked, state)  # type: ignore[arg-type]
                elif checked is None:
                    definition.check_change(state, kept)
                elif checked:
                    definition.check_assigned(checked, state)
                if large is not None:
                    break
                append(result)
        except BaseException as error:  # noqa: BLE001 -- an answer, too
            failure = error
            if touched is not None:
                kept = {touched: old} if touched else {}
        first, count = self._command.first, len(results)
        answered = AllDone(machine.position, self.view, self.number, first, results.copy())
        session.outcomes.update(dict.fromkeys(range(first, first + count), answered))
        outcomes: list[Outcome] = [answered] * count
        if failure is not None:
            outcomes.append(self._fail(failure, session, calls, count, kept))
        elif large is not None:
            # It has a weight of its own, so it is kept by itself.
            done = Done(machine.position, self.view, self.number, large)
            outcomes.append(self._keep(session, first + count, done))
        else:
            self.all_done = answered
        return outcomes

    def _execute_one(self, session: Session, parts: Sequence[msgspec.Raw], index: int) -> Outcome:
        """Execute one call by all the rules, as if it came alone."""
        machine, method = self._machine, self._method
        request = self._command.first + index
        if request < session.lowest:
            return AlreadyForgotten(session.lowest)
        outcome = session.outcome(request)
        if outcome is not None:
            return outcome
        if not machine.sessions.has_room(session):
            return WindowFull(session.lowest)
        known = self._known_failures.get((machine.position, index))
        if known is None and self.why_not is not None:
            known = self.why_not()
        if known is not None:
            return self._keep(session, request, known)
        machine.packed = range(index)
        kept = vars(machine.object).copy()
        try:
            if method is None:
                raise UnknownMethod(self._command.method)  # noqa: TRY301 -- an answer, too
            answer = method.function(machine.object, *method.read(parts[index]))
            result = _NONE if answer is None else method.encode_result(answer)
            method.check_result(result)
            self._check_size(result)
            if machine.definition.transactional:
                machine.definition.check_change(vars(machine.object), kept)
        except BaseException as error:  # noqa: BLE001 -- an answer, too
            calls = [] if method is None else [method.read(part) for part in parts[:index]]
            return self._fail(error, session, calls, index, kept)
        return self._keep(session, request, Done(machine.position, self.view, self.number, result))

    def _has_failures(self) -> bool:
        position = self._machine.position
        return any(where[0] == position for where in self._known_failures)

    def _check_size(self, result: bytes) -> None:
        limit = self._machine.settings.result_bytes_max
        if len(result) > limit:
            raise ResultTooLarge(f"{len(result)} bytes; result_bytes_max is {limit}")

    def _fail(
        self,
        error: BaseException,
        session: Session,
        calls: Sequence[tuple[Any, ...]],
        index: int,
        kept: dict[str, object],
    ) -> Failed:
        """Undo a call that raised; the object may have to be built anew for that."""
        machine, command, method = self._machine, self._command, self._method
        replicated = machine.object
        failed = machine.fail(error, method, kept, self.view, self._to_number, index)
        if machine.object is not replicated:
            # It is as it was before the whole entry: do again what the earlier calls did.
            assert method is not None
            for earlier in range(index):
                outcome = session.outcome(command.first + earlier)
                if isinstance(outcome, Done) and outcome.position == machine.position:
                    machine.packed = range(earlier)
                    method.function(machine.object, *calls[earlier])
        self._keep(session, command.first + index, failed)
        return failed

    def _keep(self, session: Session, request: int, outcome: Done | Failed) -> Done | Failed:
        """Remember how a call ended."""
        if isinstance(outcome, Done):
            self.results.append(outcome.result)
        else:
            self.results.append(outcome.error.encode())
        self._remember(session, request, outcome)
        return outcome

    def _remember(self, session: Session, request: int, outcome: Done | Failed) -> None:
        session.outcomes[request] = outcome
        weight = weigh(outcome)
        if weight:
            self._machine.sessions.add_weight(session, weight)
