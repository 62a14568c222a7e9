"""Beginning a life, and ending the state of a zombie by hand.

In this order: what the earlier lives left is synced, because the new life rests on it; the
incarnation is claimed on stable storage; the first segment is written and synced. A crash between
any two of these leaves at most a number that is never used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.disk import DRAFT
from coterie.journal.format import SPARE_NAME, Sync, folder_of, life_folder
from coterie.journal.recovery import recover
from coterie.journal.segments import list_lives
from coterie.journal.snapshots import DUMPS, SNAPSHOTS
from coterie.journal.stable import Stable
from coterie.journal.writer import JournalSettings, JournalWriter, LifeStart, StorageFailed
from coterie.kernel.records import Recovered
from coterie.kernel.views import NO_VIEW, Member

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.recovery import Recovery


def begin_life(
    disk: Disk, recovery: Recovery, settings: JournalSettings | None = None
) -> JournalWriter:
    """Begin the journal of the life that follows what *recovery* found.

    Raises `StorageFailed` if it cannot be: the replica must not start.
    """
    group, replica = recovery.group, recovery.replica
    try:
        _keep_for_good(disk, recovery)
        _clear_away(disk, recovery)
        stable = Stable(disk, group, replica)
        stable.claim(
            recovery.incarnation,
            has_been_primary=bool(stable.damage) or recovery.accepted != NO_VIEW,
        )
    except OSError as error:
        raise StorageFailed(
            f"replica {replica} of group {group} cannot start: its stable values cannot be "
            f"written: {error.strerror or error}"
        ) from error
    start = LifeStart(
        group=group,
        replica=replica,
        incarnation=recovery.incarnation,
        follows=recovery.end,
        facts=recovery.facts,
    )
    return JournalWriter(disk, start, stable, settings or JournalSettings())


def _keep_for_good(disk: Disk, recovery: Recovery) -> None:
    """Sync what the new life rests on."""
    for path in recovery.unsynced:
        disk.sync(path)
    for folder in sorted({path.rpartition("/")[0] for path in recovery.unsynced}):
        disk.sync_folder(folder)


def _clear_away(disk: Disk, recovery: Recovery) -> None:
    """Remove what earlier lives left unused; they are only in the way."""
    folder = folder_of(recovery.group, recovery.replica)
    useless = list(recovery.useless)
    for life in list_lives(disk, recovery.group, recovery.replica):
        place = life_folder(folder, life.incarnation)
        useless += [f"{place}/{SPARE_NAME}" for name in disk.names(place) if name == SPARE_NAME]
    for name in (SNAPSHOTS, DUMPS):
        place = f"{folder}/{name}"
        useless += [f"{place}/{file}" for file in disk.names(place) if file.endswith(DRAFT)]
    for path in useless:
        disk.remove(path)


def mark_recovered(disk: Disk, group: str, replica: str, *, at: int) -> Recovery:
    """Let the history of a zombie count again, on the word of an operator who accepts loss.

    For a replica that is not running. Writes, as a life of its own, the `Recovered` record that
    names the history; gives what the replica's next start will find. *at* is the time for the
    record. Raises `ValueError` if the replica is no zombie, since then there is nothing to accept.
    """
    recovery = recover(disk, group, replica)
    if not recovery.is_zombie:
        raise ValueError(
            f"replica {replica} of group {group} has lost nothing ({recovery.reason}): "
            "just start it"
        )
    writer = begin_life(disk, recovery, JournalSettings(sync=Sync.TURN))
    writer.append(
        [
            Recovered(
                group=group,
                member=Member(replica, recovery.incarnation),
                at=at,
                version=recovery.version,
            )
        ]
    )
    writer.sync()
    writer.close()
    return recover(disk, group, replica)
