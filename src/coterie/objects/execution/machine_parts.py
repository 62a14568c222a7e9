"""A machine in parts, for snapshots, and from parts again.

What travels of a machine is one `Head`, its sessions in an order that all replicas share, and the
fields of the object in pieces of bounded size; how parts become bytes is for
`coterie.objects.execution.snapshots`. A state says of which version of the class it is: the
receiver must have that very class, as its latest version or as an earlier one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.objects.announcements import Announcements
from coterie.objects.errors import BadSnapshot, StateNotEncodable
from coterie.objects.execution.group_time import GroupTime
from coterie.objects.execution.machine import StateMachine
from coterie.objects.execution.outcomes import AllDone
from coterie.objects.execution.sessions import Session
from coterie.objects.execution.snapshots import FORMAT, FieldPart, Head, RecordsPart, SessionPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.objects.classes.definition import Definition
    from coterie.objects.settings import HostSettings

PIECE_BYTES = 64 << 10
"""The size aimed at for one piece of a field."""
OUTCOMES_PER_PART = 256
"""Outcomes in one record of a snapshot."""


def parts_of(machine: StateMachine) -> Iterator[Head | SessionPart | FieldPart | RecordsPart]:
    """Give the state of a machine in parts."""
    yield Head(
        FORMAT,
        machine.definition.name,
        machine.position,
        machine.view,
        machine.number,
        machine.seed,
        machine.results,
        machine.next_digest,
        machine.weight,
        machine.sessions.evicted,
        machine.time.value,
        machine.time.to_clocks(),
        machine.definition.version,
        machine.definition.fingerprint,
        machine.announcements.to_list(),
        machine.majority,
    )
    for session in machine.sessions.in_order():
        outcomes = [
            (number, outcome.of(number) if isinstance(outcome, AllDone) else outcome)
            for number, outcome in session.outcomes.items()
        ]
        for start in range(0, len(outcomes) or 1, OUTCOMES_PER_PART):
            some = outcomes[start : start + OUTCOMES_PER_PART]
            yield SessionPart(session.id, session.used, session.lowest, some)
    yield from records_of(machine)
    for name, data in machine.definition.pieces(machine.object, PIECE_BYTES):
        yield FieldPart(name, data)


def records_of(machine: StateMachine) -> Iterator[RecordsPart]:
    """Give what is on record of clients that know nothing of replication, in parts."""
    records, forgotten = machine.records.to_list(), machine.records.forgotten
    for start in range(0, len(records) or bool(forgotten), OUTCOMES_PER_PART):
        yield RecordsPart(records[start : start + OUTCOMES_PER_PART], forgotten)


def machine_from_parts(
    definition: Definition,
    settings: HostSettings,
    parts: Iterator[Head | SessionPart | FieldPart | RecordsPart],
    *,
    majority: int,
    is_ordered: bool = True,
) -> StateMachine:
    """Make a machine from its parts; raise `BadSnapshot` if that cannot be."""
    head = next(parts, None)
    if not isinstance(head, Head):
        raise BadSnapshot("a state begins without a head: it is none of ours")
    if head.format > FORMAT:
        raise BadSnapshot(f"a state has format {head.format}; this release reads {FORMAT}")
    if head.class_name != definition.name:
        raise BadSnapshot(f"a state is of {head.class_name}, not of {definition.name}")
    if 0 < head.next_digest < head.position:
        # Who waits for a position that is past never gets there.
        raise BadSnapshot(
            f"a state of position {head.position} has its next digest at {head.next_digest}"
        )
    majority = head.majority or majority
    machine = StateMachine(
        definition, settings, seed=head.seed, majority=majority, is_ordered=is_ordered
    )
    machine.position = head.position
    machine.view = head.view
    machine.number = head.number
    machine.results = head.results
    machine.next_digest = head.next_digest
    machine.weight = head.weight
    machine.sessions.evicted = head.evicted
    machine.time = GroupTime.from_clocks(settings.leap, majority, head.time, head.clocks)
    present = _present(definition, head)
    machine.announcements = Announcements(head.announced)
    try:
        machine.run_as(present, present.assemble(_take_sessions(machine, parts)))
    except (msgspec.DecodeError, TypeError, ValueError, StateNotEncodable) as error:
        raise BadSnapshot(f"a state of {definition.name} cannot be read: {error}") from error
    return machine


def _take_sessions(
    machine: StateMachine, parts: Iterator[Head | SessionPart | FieldPart | RecordsPart]
) -> Iterator[tuple[str, bytes]]:
    """Take the sessions in, and give the pieces of the object that follow."""
    for part in parts:
        if isinstance(part, SessionPart):
            session = Session(part.id, part.used, part.lowest)
            machine.sessions.take(session, part.outcomes)
        elif isinstance(part, RecordsPart):
            machine.records.forgotten = part.forgotten
            for record in part.records:
                machine.records.take(*record)
        elif isinstance(part, FieldPart):
            yield part.name, part.data


def _present(latest: Definition, head: Head) -> Definition:
    """Give the version of the class that a state is of."""
    present = latest.of_version(head.version)
    if present is None:
        known = ", ".join(str(each.version) for each in latest.versions())
        if head.version > latest.version:
            advice = "start this replica with a release that has it"
        else:
            advice = f"keep the class of version {head.version} as previous, until all have changed"
        raise BadSnapshot(
            f"a state is of version {head.version} of {latest.name}, and here is only {known}:"
            f" {advice}"
        )
    if head.fingerprint not in {0, present.fingerprint}:
        raise BadSnapshot(
            f"a state is of another class than {latest.name} of version {present.version} here,"
            f" whose methods or fields differ: give the changed class version ="
            f" {present.version + 1} and keep the old one as previous"
        )
    return present
