"""Beginning a life, and ending the state of a zombie by hand.

In this order: what the earlier lives left is synced, because the new life rests on it; the
incarnation is claimed on stable storage; the first segment is written and synced. A crash between
any two of these leaves at most a number that is never used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from coterie.journal.disk import DRAFT
from coterie.journal.format import SPARE_NAME, Sync, folder_of, life_folder
from coterie.journal.recovery import recover
from coterie.journal.segments import list_lives
from coterie.journal.snapshots import DUMPS, SNAPSHOTS
from coterie.journal.stable import Stable
from coterie.journal.writer import JournalSettings, JournalWriter, LifeStart, StorageFailed
from coterie.kernel.engine import Version
from coterie.kernel.records import EntriesAccepted, HistoryAdopted, Recovered, Settled
from coterie.kernel.views import NO_VIEW, Member

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.facts import Facts
    from coterie.journal.format import Mark
    from coterie.journal.recovery import Recovery
    from coterie.kernel.cohorts import CohortViews
    from coterie.kernel.records import Record

_TURN_BYTES = 64 << 20


class Found(Protocol):
    """What a life begins with, whatever the engine."""

    @property
    def group(self) -> str: ...
    @property
    def replica(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def end(self) -> Mark: ...
    @property
    def unsynced(self) -> tuple[str, ...]: ...
    @property
    def useless(self) -> tuple[str, ...]: ...


def begin_life(
    disk: Disk, recovery: Recovery, settings: JournalSettings | None = None, *, at: int = 0
) -> JournalWriter:
    """Begin the journal of the life that follows what *recovery* found.

    *at* is the time for records that are written at once, if any are. Raises `StorageFailed` if
    the journal cannot be begun: the replica must not start.
    """
    writer = open_life(
        disk,
        recovery,
        settings or JournalSettings(),
        facts=_fresh_facts(recovery) if recovery.is_broken else recovery.facts,
        has_been_primary=recovery.accepted != NO_VIEW,
    )
    if recovery.is_broken and recovery.runs:
        _write_anew(writer, recovery, at)
    return writer


def open_life(  # noqa: PLR0913 -- all by name
    disk: Disk,
    found: Found,
    settings: JournalSettings,
    *,
    facts: Facts,
    has_been_primary: bool = False,
    views: CohortViews | None = None,
) -> JournalWriter:
    """Claim the next incarnation and begin its first segment, with these facts."""
    group, replica = found.group, found.replica
    try:
        _keep_for_good(disk, found)
        _clear_away(disk, found)
        stable = Stable(disk, group, replica)
        has_been_primary = bool(stable.damage) or has_been_primary
        stable.claim(found.incarnation, has_been_primary=has_been_primary, views=views)
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
        facts=facts,
    )
    return JournalWriter(disk, start, stable, settings)


def _fresh_facts(recovery: Recovery) -> Facts:
    """Give the facts of a life that rests on the snapshot only."""
    base = None if recovery.snapshot is None else recovery.snapshot.head
    position = 0 if base is None else base.position
    return msgspec.structs.replace(
        recovery.facts,
        version=Version(recovery.version.view, position),
        settled=position,
        restored=0,
        restored_at=(0, 0),
        rebased=(recovery.incarnation, 0),
        base=(0, 0, 0) if base is None else (base.incarnation, base.sequence, base.position),
        is_fresh=True,
    )


def _write_anew(writer: JournalWriter, recovery: Recovery, at: int) -> None:
    """Write down the entries above the snapshot, as a history adopted from ourselves."""
    group, me = recovery.group, Member(recovery.replica, recovery.incarnation)
    kept = recovery.runs[0].position - 1
    turn: list[Record] = [
        HistoryAdopted(
            group=group,
            member=me,
            at=at,
            view=recovery.version.view,
            source=me,
            version=recovery.version,
            kept=kept,
            restored=0,
        )
    ]
    size = 0
    for run in recovery.runs:
        turn.append(EntriesAccepted(group=group, member=me, at=at, run=run))
        size += sum(map(len, run.payloads))
        if size > _TURN_BYTES:
            writer.append(turn)
            turn, size = [], 0
    if recovery.settled > kept:
        turn.append(Settled(group=group, member=me, at=at, position=recovery.settled))
    writer.append(turn)
    writer.sync()


def _keep_for_good(disk: Disk, found: Found) -> None:
    """Sync what the new life rests on."""
    for path in found.unsynced:
        disk.sync(path)
    for folder in sorted({path.rpartition("/")[0] for path in found.unsynced}):
        disk.sync_folder(folder)


def _clear_away(disk: Disk, found: Found) -> None:
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
    writer = begin_life(disk, recovery, JournalSettings(sync=Sync.TURN), at=at)
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
