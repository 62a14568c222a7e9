"""Executing requests of clients that know nothing of replication (`coterie.kernel.requests`).

Such a client does not say whether it asks or changes something; both take a place in the order, and
every replica executes both, because any of them may have to answer again. What it asked before is
on record (`coterie.objects.execution.records`); a request that is ordered a second time has no
effect and gets no answer, since whoever had the onus of the first one has answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.objects.classes.encodable import encode
from coterie.objects.errors import ResultTooLarge, UnknownMethod
from coterie.objects.execution.commands import Read
from coterie.objects.execution.outcomes import Answer, Done, Failed

if TYPE_CHECKING:
    from coterie.kernel.requests import ServiceRequest
    from coterie.kernel.views import ViewId
    from coterie.objects.answering import Answering
    from coterie.objects.execution.machine import Failures, StateMachine
    from coterie.objects.execution.outcomes import Outcome

_NONE = encode(None)


def execute_request(  # noqa: PLR0913 -- what an entry needs
    machine: StateMachine,
    request: ServiceRequest,
    to_number: int,
    answering: Answering | None,
    known_failures: Failures | None,
    *,
    is_mine: bool,
) -> list[bytes]:
    """Execute a request, unless it is on record; give what goes into the checksum of results."""
    del is_mine  # who has the onus answers, whoever proposed it
    records, now, view = machine.records, machine.time.value, machine.running_view
    outcome: Outcome | None = records.before(request)
    is_news = outcome is None
    results: list[bytes] = []
    if outcome is None:
        outcome = records.why_not(request, now)
    if outcome is None:
        known = known_failures.get((machine.position, 0)) if known_failures else None
        done = known or _execute(machine, request, view, to_number)
        records.keep(request, now, done)
        results.append(done.result if isinstance(done, Done) else done.error.encode())
        outcome = done
    if answering is not None and answering.enables is not None:
        is_ours = answering.enables(request, view)
        if is_news and is_ours:
            answering.answers.append(
                Answer(
                    request.client,
                    request.number,
                    outcome,
                    answering.standing,
                    reply_to=request.reply_to,
                )
            )
    return results


def _execute(
    machine: StateMachine, request: ServiceRequest, view: ViewId, to_number: int
) -> Done | Failed:
    method = machine.update(request.method)
    position = machine.position
    if method is None and request.method in machine.definition.methods:
        machine.view, machine.number = view, position + to_number
        found = machine.ask(Read(0, request.method, request.arguments, 0, request.clock))
        limit = machine.settings.result_bytes_max
        if isinstance(found, Done) and len(found.result) > limit:
            message = f"{len(found.result)} bytes; result_bytes_max is {limit}"
            return Failed(position, view, machine.number, ResultTooLarge.__name__, message)
        return found
    kept = vars(machine.object).copy()
    try:
        if method is None:
            raise UnknownMethod(request.method)  # noqa: TRY301 -- an answer, too
        answer = method.function(machine.object, *method.read(request.arguments))
        result = _NONE if answer is None else method.encode_result(answer)
        method.check_result(result)
        limit = machine.settings.result_bytes_max
        if len(result) > limit:
            raise ResultTooLarge(  # noqa: TRY301
                f"{len(result)} bytes; result_bytes_max is {limit}"
            )
        if machine.definition.transactional:
            machine.definition.check_change(vars(machine.object), kept)
    except BaseException as error:  # noqa: BLE001 -- an answer, too
        return machine.fail(error, method, kept, view, to_number)
    return Done(position, view, position + to_number, result)
