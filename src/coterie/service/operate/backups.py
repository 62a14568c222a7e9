"""Backup and restore: the state of a group in a file, and a new group that begins with it.

A backup is taken by one replica while the group serves: what has settled there, at a position.
What is restored is a new group: its history begins with the state at that position, its replicas
all have it from the start, and it has no entries before. Sessions are part of the state, so a
request that was executed before is not executed again.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.backup import BackupHead, write_backup
from coterie.journal.disk import DRAFT, FileDisk, make_private_folder
from coterie.journal.engines.stack_founding import begin_with_state
from coterie.journal.format import Sync, folder_of
from coterie.journal.keeper import let_go
from coterie.journal.segments import list_journals
from coterie.kernel.configuration import take_off
from coterie.kernel.errors import CoterieError, Refused
from coterie.service.config import GroupConfig
from coterie.service.disk_marks import DiskMarks
from coterie.service.engines.family import Slot
from coterie.service.folder import open_folder

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from coterie.journal.backup import Backup
    from coterie.kernel.engine import Checkpoint
    from coterie.service.config import ClusterConfig
    from coterie.service.engines.hosted import HostedReplica


def back_up(
    hosted: HostedReplica, given: GroupConfig, replica: str, path: Path
) -> tuple[asyncio.Future[None], Callable[[], int]]:
    """Take the state of a replica in the next turn, and give what then writes it, in a thread.

    Raises `Refused` where it is not possible, and so may the future.
    """
    if hosted.members_stay:
        raise Refused(
            "only groups of stacks with one order have backups: keep the journals instead"
        )
    if not path.is_absolute() or path.exists():
        raise Refused(f"{path} is there already: give the backup a name of its own")
    taken: list[Checkpoint] = []

    def take() -> None:
        if hosted.history.is_zombie:
            raise Refused(f"replica {replica} has lost its memory: ask another one")
        taken.append(hosted.history.checkpoint())

    def write() -> int:
        [checkpoint] = taken
        head = BackupHead(
            group=hosted.group,
            replica=replica,
            position=checkpoint.position,
            version=checkpoint.version,
            taken_at=time.time_ns() // 1000,
            given=msgspec.to_builtins(given),
        )
        try:
            return write_backup(path, head, checkpoint.chunks)
        except OSError as error:
            raise CoterieError(f"{path} cannot be written: {error.strerror or error}") from None
        finally:
            let_go(checkpoint.chunks)

    return hosted.in_turn(take), write


def group_of_backup(backup: Backup) -> GroupConfig:
    """Give what the configuration said of the group when the backup was taken."""
    try:
        given = msgspec.convert(backup.head.given, GroupConfig)
    except msgspec.ValidationError as error:
        raise CoterieError(f"{backup.path} is of another release: {error}") from None
    # Where it was has no meaning in a group of other replicas.
    return msgspec.structs.replace(given, replicas=())


def begin_with_backup(backup: Backup, config: ClusterConfig, group: str, id: str) -> None:
    """Have a replica begin with a backup; raises `CoterieError` if its disk has anything of it.

    All of it is there afterwards or nothing is: a replica that is founded, and whose state is not
    there, would begin with none.
    """
    slot = Slot(config, group, id)
    head = backup.head
    folder, place = Path(config.replicas[id].dir), folder_of(group, id)
    draft = folder / f"restored{DRAFT}"
    with open_folder(folder, id, config.groups_at(id)) as disk, ExitStack() as after:
        if disk.names(place):
            raise CoterieError(
                f"{folder} holds something of replica {id} of group {group} already: a backup is "
                "restored to empty folders"
            )
        shutil.rmtree(draft, ignore_errors=True)
        after.callback(shutil.rmtree, draft, ignore_errors=True)
        drafted = FileDisk(draft)
        slot.given.family.found(drafted, slot)
        keeping = slot.keeping
        # Whatever the group promises later, this much is there when the machine is restarted.
        journal = msgspec.structs.replace(keeping.journal, sync=Sync.TURN)
        _, state = take_off(backup.chunks())  # whose members are not those of the new group
        begin_with_state(
            drafted,
            slot.given.kept_by,
            group,
            id,
            configuration=slot.configuration,
            version=msgspec.structs.replace(head.version, position=head.position),
            chunks=state,
            settings=msgspec.structs.replace(keeping, journal=journal),
        )
        marks = DiskMarks(disk, id)
        if not list_journals(disk):
            marks.draw()
        make_private_folder((folder / place).parent)
        (draft / place).rename(folder / place)
        disk.sync_folder(place.partition("/")[0])
        marks.note_founded([group])
