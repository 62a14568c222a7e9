"""Beginning a life.

In this order: what the earlier lives left is synced, because the new life rests on it; the
incarnation is claimed on stable storage; the first segment is written and synced. A crash between
any two of these leaves at most a number that is never used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.journal.disk import DRAFT
from coterie.journal.format import SPARE_NAME, JournalError, folder_of, life_folder
from coterie.journal.segments import list_lives
from coterie.journal.snapshots import DUMPS, SNAPSHOTS
from coterie.journal.stable import Stable
from coterie.journal.writer import JournalSettings, JournalWriter, LifeStart, StorageFailed

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.family import LifeFound


NUMBER_MAX = 1 << 62
"""No life, view, position or record has a higher number, and none is below 0."""


def begin_life(
    disk: Disk, found: LifeFound, settings: JournalSettings | None = None, *, at: int = 0
) -> JournalWriter:
    """Begin the journal of the life that follows what a recovery *found*.

    *at* is the time for records that are written at once, if any are. Raises `StorageFailed` if
    the journal cannot be begun: the replica must not start.
    """
    settings = settings or JournalSettings()
    family, group, replica = found.family, found.group, found.replica
    if settings.sync not in family.syncs:
        known = ", ".join(repr(sync.value) for sync in sorted(family.syncs))
        raise ValueError(
            f"sync = {settings.sync.value!r} means nothing to group {group}: take one of {known}"
        )
    _check_numbers(found)
    try:
        _keep_for_good(disk, found)
        _clear_away(disk, found)
        stable = Stable(disk, group, replica)
        stable.claim(
            found.incarnation,
            has_been_primary=bool(stable.damage) or found.has_been_primary,
            promises=found.promises,
        )
    except OSError as error:
        raise StorageFailed(
            f"replica {replica} of group {group} cannot start: its stable values cannot be "
            f"written: {error.strerror or error}"
        ) from error
    start = LifeStart(
        group=group,
        replica=replica,
        incarnation=found.incarnation,
        follows=found.end,
        facts=family.first_facts(found),
    )
    writer = JournalWriter(disk, start, stable, settings, family)
    family.begun(writer, found, at=at)
    return writer


def _check_numbers(found: LifeFound) -> None:
    """Refuse to go on from numbers that nobody can have counted up to, before anything is written.

    A life that went on from one would meet the end of the numbers in the middle of a turn.
    """
    counted = (found.incarnation, found.end, found.facts, found.promises, found.counted)
    known = msgspec.to_builtins(counted)
    waiting: list[object] = [known]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, int) and not 0 <= value <= NUMBER_MAX:
            raise JournalError(
                f"replica {found.replica} of group {found.group} cannot start: its journal leads "
                f"to the number {value}, which cannot be. Start it with its own disk as it was, "
                "or with an empty one"
            )


def _keep_for_good(disk: Disk, found: LifeFound) -> None:
    """Sync what the new life rests on."""
    for path in found.unsynced:
        disk.sync(path)
    for folder in sorted({path.rpartition("/")[0] for path in found.unsynced}):
        disk.sync_folder(folder)


def _clear_away(disk: Disk, found: LifeFound) -> None:
    """Remove what earlier lives left unused; they are only in the way."""
    folder = folder_of(found.group, found.replica)
    useless = list(found.useless)
    for life in list_lives(disk, found.group, found.replica):
        place = life_folder(folder, life.incarnation)
        useless += [f"{place}/{SPARE_NAME}" for name in disk.names(place) if name == SPARE_NAME]
    for name in (SNAPSHOTS, DUMPS):
        place = f"{folder}/{name}"
        useless += [f"{place}/{file}" for file in disk.names(place) if file.endswith(DRAFT)]
    for path in useless:
        disk.remove(path)
    for place in sorted({path.rpartition("/")[0] for path in useless}):
        disk.sync_folder(place)
