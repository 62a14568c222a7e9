"""Effects: what a call changed, for engines of the primary kind (**vsr**).

One replica executes a call and the others take over what it changed: the fields that are not what
they were, whole, together with the outcome for the session. Which fields changed is found by
encoding all of them before and after: right for any class, and slow for a large one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from coterie.objects.commands import Call, Effects, decode_command
from coterie.objects.encodable import encode
from coterie.objects.outcomes import (
    SESSION_EVICTED,
    AlreadyForgotten,
    Done,
    Outcome,
    WindowFull,
)
from coterie.objects.sessions import SWEEP, weigh

if TYPE_CHECKING:
    from coterie.kernel.engine import Run
    from coterie.objects.machine import Machine


def execute_for_effects(machine: Machine, run: Run) -> tuple[Outcome, Effects | None]:
    """Execute the one call in *run*; give how it ended, and its effects unless it is no news.

    What is no news leaves the machine as it was, for it will not be ordered.
    """
    machine.check_broken()
    command = decode_command(run.payloads[0])
    assert isinstance(command, Call), "only calls have effects"
    known = _known(machine, command)
    if known is not None:
        return known, None
    before = _encode_fields(machine)
    machine.execute([run])
    outcome = machine.sessions.table[command.session].outcome(command.request)
    assert outcome is not None, "it was just executed"
    changes = {
        name: msgspec.Raw(data)
        for name, data in _encode_fields(machine).items()
        if before[name] != data
    }
    return outcome, Effects(
        command.session, command.request, command.lowest, command.clock, outcome, changes
    )


def _known(machine: Machine, call: Call) -> Outcome | None:
    """Give the answer to a call that will not be executed, by the rules of `execute`."""
    session = machine.sessions.table.get(call.session)
    if session is None:
        return SESSION_EVICTED
    if call.request < session.lowest:
        return AlreadyForgotten(session.lowest)
    stored = session.outcome(call.request)
    if stored is None and not machine.sessions.would_have_room(session, call.lowest):
        return WindowFull(session.lowest)
    return stored


def _encode_fields(machine: Machine) -> dict[str, bytes]:
    return {name: encode(value) for name, value in machine.definition.state(machine.object).items()}


def apply_effects(machine: Machine, effects: Effects) -> None:
    """Take over what a call did elsewhere."""
    outcome = effects.outcome
    session = machine.sessions.table.get(effects.session)
    if session is not None:
        session.used = machine.position
        machine.sessions.raise_lowest(session, effects.lowest)
        session.outcomes[effects.request] = outcome
        if weigh(outcome):
            machine.sessions.add_weight(session, weigh(outcome))
        if not effects.request % SWEEP:
            machine.sessions.sweep(session)
    result = outcome.result if isinstance(outcome, Done) else outcome.error.encode()
    machine.results = crc32(result, machine.results)
    machine.definition.change(machine.object, effects.changes)
