"""With which version of its class a group begins, and when it changes over to the next.

Which versions the replicas know is part of the replicated state (`coterie.objects.announcements`),
so every replica changes over at the same entry: the one by which the last of them announced the
next version. How a state is carried over is in `coterie.objects.classes.versions`. A replica that
does not know the version that the group runs stops (`ReplicaBroken`), and says which release it
needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.objects.classes.versions import upgrade
from coterie.objects.errors import is_of_this_machine
from coterie.objects.execution.commands import Announce, decode_command

if TYPE_CHECKING:
    from coterie.kernel.views import Configuration, ReplicaId
    from coterie.objects.execution.machine import StateMachine


def begin_with_first(machine: StateMachine, payload: bytes) -> None:
    """Have the group begin with version 1, unless its first entry announces versions."""
    try:
        is_announcement = isinstance(decode_command(payload), Announce)
    except msgspec.DecodeError:
        is_announcement = False
    if not is_announcement and machine.is_ordered:
        _begin_with(machine, 1)


def learn_versions(machine: StateMachine, announce: Announce, replica: ReplicaId) -> None:
    """Take what a replica announced, and change over if it was the last."""
    if machine.position == 1:
        _begin_with(machine, max(announce.known, default=(1, 0))[0])
    announcements = machine.announcements
    announcements.take(replica, announce.known, announce.members)
    present = machine.definition
    if not announcements.knows(replica, present.version, present.fingerprint):
        machine.note(
            f"the group runs version {present.version} of {present.name}, and {replica} has"
            " another class of that version, or none: stop it"
        )
    while True:
        version = machine.definition.version + 1
        fingerprints = announcements.fingerprints(version, announce.members)
        if len(fingerprints) > 1:
            machine.note(f"replicas have different classes as version {version} of {present.name}")
        if len(fingerprints) != 1 or not _change_over(machine, version, *fingerprints):
            return


def _begin_with(machine: StateMachine, version: int) -> None:
    """Have the group begin with a version: the latest of whoever spoke first.

    A replica whose class has versions announces them before it says anything else, so a group
    whose history begins with something else is one of version 1.
    """
    definition = machine.latest.of_version(version)
    if definition is None:
        machine.stop(
            f"the group began with version {version} of {machine.latest.name}, which is not known"
            " here: start this replica with a release that has it"
        )
    machine.run_as(definition, definition.make())


def _change_over(machine: StateMachine, version: int, fingerprint: int) -> bool:
    """Go on as the next version of the class; say whether that worked."""
    later = machine.latest.of_version(version)
    if later is None or later.fingerprint != fingerprint:
        machine.stop(
            f"the group runs version {version} of {machine.latest.name} from {machine.position} on,"
            " which is not known here: start this replica with a release that has it"
        )
    try:
        made = upgrade(later, machine.definition, machine.object)
        later.check(made)
    except BaseException as error:  # noqa: BLE001 -- a failure, the same on every replica
        if is_of_this_machine(error):
            machine.stop(
                f"the upgrade to version {version} ended in {type(error).__name__}, which"
                " others may not have met"
            )
        machine.note(
            f"the upgrade of {later.name} to version {version} at {machine.position} failed, and"
            f" the group goes on with version {machine.definition.version}: {error!r}"
        )
        return False
    machine.run_as(later, made)
    return True


def learn_members(machine: StateMachine, to: Configuration) -> None:
    """Have group time, and comparing, rest on the members that the group has from here on."""
    machine.majority = to.majority
    machine.time.count_by(to.majority)
    if machine.comparison is not None:
        machine.comparison.count_by(to.members, to.majority)
