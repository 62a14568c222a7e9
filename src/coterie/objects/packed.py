"""Executing an entry that holds several calls of one method.

A busy client packs its calls, and one entry then carries the calls of one session and method with
consecutive numbers. What a call by itself costs most, its own record in the order, is paid once
for all of them. Each is still an update of its own: executed once, with an outcome of its own,
undone by itself if it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.objects.encodable import encode
from coterie.objects.errors import ResultTooLarge, UnknownMethod
from coterie.objects.methods import decode_parts
from coterie.objects.outcomes import (
    SESSION_EVICTED,
    AllDone,
    AlreadyForgotten,
    Answer,
    Done,
    Failed,
    Outcome,
    WindowFull,
)
from coterie.objects.sessions import SMALL, weigh

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from coterie.objects.commands import Calls
    from coterie.objects.machine import Failures, Machine, Place
    from coterie.objects.methods import Method
    from coterie.objects.sessions import Session

_NONE = encode(None)


def execute_calls(  # noqa: PLR0913 -- what an entry needs
    machine: Machine,
    command: Calls,
    to_number: int,
    place: Place | None,
    known_failures: Failures | None,
    *,
    is_mine: bool,
) -> list[bytes]:
    """Execute an entry at the machine's position; give the results for the checksum over all."""
    entry = _Entry(machine, command, to_number, known_failures)
    outcomes = entry.execute()
    if place is None:
        return entry.results
    standing, asked_at = place.standing, command.asked_at
    if is_mine and entry.all_done is not None:
        place.answers.append(
            Answer(command.session, command.first, entry.all_done, standing, asked_at)
        )
    elif is_mine or place.watched:
        for request, found in enumerate(outcomes, start=command.first):
            if is_mine or (command.session, request) in place.watched:
                outcome = found.of(request) if isinstance(found, AllDone) else found
                place.answers.append(Answer(command.session, request, outcome, standing, asked_at))
    return entry.results


class _Entry:
    """The calls of one entry, while they are executed."""

    def __init__(
        self,
        machine: Machine,
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
        machine.packed = self.results

    def execute(self) -> list[Outcome]:
        """Execute all calls; give their outcomes in order."""
        machine, command, method = self._machine, self._command, self._method
        try:
            parts = decode_parts(command.arguments)
        except msgspec.DecodeError as error:
            machine.note(f"the entry at {machine.position} holds no calls: {error}")
            return []
        session = machine.sessions.table.get(command.session)
        if session is None:
            return [SESSION_EVICTED] * len(parts)
        session.used = machine.position
        machine.sessions.raise_lowest(session, command.lowest)
        outcomes: list[Outcome] = []
        if method is not None and self._are_news(session, len(parts)):
            try:
                calls = method.decode_many(command.arguments)
            except msgspec.DecodeError:
                pass  # some leave defaults out, or are of another release of the class
            else:
                outcomes = self._execute_news(session, method, calls)
        for index in range(len(outcomes), len(parts)):
            outcomes.append(self._execute_one(session, parts, index))
        machine.packed = ()
        return outcomes

    def _are_news(self, session: Session, count: int) -> bool:
        """Say whether none was executed or forgotten before, and all outcomes can be kept."""
        first = self._command.first
        if first < session.lowest or session.bytes or self._has_failures():
            return False
        window = self._machine.settings.window_requests_max
        if len(session.outcomes) + count > window:
            self._machine.sessions.sweep(session)
        return len(session.outcomes) + count <= window and session.outcomes.keys().isdisjoint(
            range(first, first + count)
        )

    def _execute_news(
        self, session: Session, method: Method, calls: list[tuple[Any, ...]]
    ) -> list[Outcome]:
        """Execute calls up to the first that fails or answers at length: the hot path."""
        machine = self._machine
        keeps_fields = machine.definition.transactional
        function, encode_result = method.function, method.encode_result
        plain_result = method.plain_result
        replicated = machine.object
        state = kept = vars(replicated)
        results = self.results
        failure: BaseException | None = None
        large: bytes | None = None
        try:
            for arguments in calls:
                if keeps_fields:
                    kept = state.copy()
                answer = function(replicated, *arguments)
                result = _NONE if answer is None else encode_result(answer)
                if type(answer) is not plain_result:
                    method.check_result(result)
                if len(result) > SMALL:
                    self._check_size(result)
                    large = result
                    break
                results.append(result)
        except BaseException as error:  # noqa: BLE001 -- an answer, too
            failure = error
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
        except BaseException as error:  # noqa: BLE001 -- an answer, too
            calls = [] if method is None else [method.read(part) for part in parts[:index]]
            return self._fail(error, session, calls, index, kept)
        return self._keep(session, request, Done(machine.position, self.view, self.number, result))

    def _has_failures(self) -> bool:
        position = self._machine.position
        return any(place[0] == position for place in self._known_failures)

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
