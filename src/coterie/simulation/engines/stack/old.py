"""Replicas of a stack that begin old: what is on their disks before the first life of a run.

The journal is that of a replica whose earlier lives were removed by retention: one segment that
says how far everything had come, a snapshot of the state there, and the note of what was removed.
The same code writes it that writes every journal; nothing else in the run knows that it is made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from coterie.journal.engines.stack_founding import begin_with_state
from coterie.journal.format import Mark
from coterie.journal.removed import note_removed
from coterie.kernel.engine import Version
from coterie.kernel.views import Member, ViewId
from coterie.objects.execution import snapshots
from coterie.objects.execution.machine import StateMachine
from coterie.objects.execution.machine_parts import parts_of
from coterie.objects.execution.sessions import session_id
from coterie.simulation.engines.stack.ledger import CHUNK, LedgerState, SumState
from coterie.simulation.world.age import LIVES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.journal.disk import Disk
    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.views import Configuration
    from coterie.objects import Definition, HostSettings
    from coterie.simulation.world.age import Age


def last_view(age: Age, configuration: Configuration) -> ViewId:
    """Give the primary view in which the history so far was settled."""
    return ViewId(age.view, configuration.members[0], age.lives)


def write_old_journal(  # noqa: PLR0913 -- what a journal is made of
    disk: Disk,
    stack: str,
    group: str,
    id: str,
    *,
    configuration: Configuration,
    age: Age,
    chunks: Iterable[bytes],
    settings: KeeperSettings,
) -> None:
    """Write what a founder has on disk that has come of age; *chunks* are its state."""
    begin_with_state(
        disk,
        stack,
        group,
        id,
        configuration=configuration,
        version=Version(last_view(age, configuration), age.position),
        chunks=chunks,
        settings=settings,
        origins=_origins(age, configuration),
        end=Mark(age.lives - 1, age.number),
    )
    note_removed(disk, group, id, {age.lives - 1: ((1, age.number),)})


def _origins(age: Age, configuration: Configuration) -> list[tuple[Member, int]]:
    """Give whose entries are in the history: those of hundreds of lives."""
    return [
        (Member(id, life), age.number)
        for id in sorted(configuration.members)
        for life in range(max(age.lives - LIVES, 0) + 1, age.lives + 1)
    ]


def old_ledger(age: Age, *, is_ordered: bool) -> list[bytes]:
    """Give the state of a ledger of that age; its digest begins anew, so that it can be told."""
    state = (LedgerState if is_ordered else SumState)(age.position)
    data = msgspec.msgpack.encode(state)
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def old_settings(settings: HostSettings) -> HostSettings:
    """Give limits that a group of that age has reached."""
    return replace(settings, sessions_max=8, window_requests_max=64)


def old_object(  # noqa: PLR0913 -- what a state is made of
    definition: Definition,
    settings: HostSettings,
    group: str,
    configuration: Configuration,
    age: Age,
    *,
    is_ordered: bool,
) -> list[bytes]:
    """Give the state of a new object in an old group: all sessions are taken, by clients gone."""
    machine = StateMachine(
        definition,
        settings,
        seed=group.encode()[:64],
        majority=configuration.majority,
        is_ordered=is_ordered,
    )
    machine.position = age.position
    machine.view = last_view(age, configuration)
    machine.number = age.number
    if is_ordered:
        machine.next_digest = age.position + settings.digest_interval
    for index in range(settings.sessions_max):
        origin = Member(configuration.members[0], age.lives - index)
        machine.sessions.open(session_id(origin, age.number), age.position - index)
    machine.sessions.evicted = age.number
    return list(snapshots.write(parts_of(machine), settings.chunk_bytes))
