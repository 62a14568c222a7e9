"""Updates on condition: interactive transactions over a group (**transis**, active actions).

Somebody reads, makes up their mind, and acts on what they have read; meanwhile it may have changed.
So the call says on which answers it rests (`Condition`), and is executed only if the same queries
still give them *at its place in the order*. All replicas find the same, so it succeeds or fails the
same way everywhere, whichever side of a cut the answers came from. Nothing is locked, and nothing
is kept while somebody thinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.objects.errors import Changed
from coterie.objects.execution.commands import Calls, Read, digest_of_answer
from coterie.objects.execution.outcomes import Answer, Done, Failed
from coterie.objects.execution.packed import Entry

if TYPE_CHECKING:
    from coterie.objects.answering import Answering
    from coterie.objects.execution.commands import CallIf, Condition
    from coterie.objects.execution.machine import Failures, StateMachine

_ONE = b"\x91"
"""The head of an array of one, in MessagePack."""


def execute_call_if(  # noqa: PLR0913 -- what an entry needs
    machine: StateMachine,
    command: CallIf,
    to_number: int,
    answering: Answering | None,
    known_failures: Failures | None,
    *,
    is_mine: bool,
) -> list[bytes]:
    """Execute a call on condition; give what goes into the checksum of results."""
    session, request = command.session, command.request
    calls = Calls(
        session,
        request,
        command.method,
        msgspec.Raw(_ONE + bytes(command.arguments)),
        command.asked_at,
        command.lowest,
        command.clock,
    )
    entry = Entry(machine, calls, to_number, known_failures)
    entry.why_not = lambda: _changed(machine, command, entry.number)
    [outcome] = entry.execute()
    if answering is not None and (is_mine or (session, request) in answering.watched):
        answer = Answer(session, request, outcome, answering.standing, command.asked_at)
        answering.answers.append(answer)
    return entry.results


def _changed(machine: StateMachine, command: CallIf, number: int) -> Failed | None:
    for condition in command.conditions:
        if not _holds(machine, condition, command.clock):
            message = f"{condition.method} answers something else now: read it again"
            place = (machine.position, machine.running_view, number)
            return Failed(*place, Changed.__name__, message)
    return None


def _holds(machine: StateMachine, condition: Condition, clock: int) -> bool:
    found = machine.ask(Read(0, condition.method, condition.arguments, 0, clock))
    if isinstance(found, Failed) and found.error == MemoryError.__name__:
        machine.stop(f"{condition.method} ran out of memory, which others may not have met")
    return isinstance(found, Done) and digest_of_answer(found.result) == condition.digest
