"""Recorders: where the records of a turn go before its frames leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.disk import FileDisk
from coterie.journal.engines.stack import recover
from coterie.journal.format import Sync
from coterie.journal.life import begin_life
from coterie.journal.writer import JournalSettings
from coterie.runtime.port import Syncing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coterie.kernel.records import Record
    from coterie.kernel.views import ReplicaId


class _NeverSynced:
    """What the recorders here have in common: the system writes to the disk when it likes."""

    def may_follow(self, records: Sequence[Record]) -> bool:  # noqa: ARG002 -- as they come
        return False

    def syncing(self, now: int) -> Syncing:  # noqa: ARG002 -- never
        return Syncing.NOT_NOW

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class NoRecorder(_NeverSynced):
    """Keeps nothing, for processes whose history nobody will ask for."""

    def record(self, records: Sequence[Record]) -> None:
        pass


class MemoryRecorder(_NeverSynced):
    """Keeps all records in a list: for tests, and for short lives, as it has no limit."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, records: Sequence[Record]) -> None:
        self.records.extend(records)


class FileRecorder(_NeverSynced):
    """Writes the journal of a member of one group, so that its history outlives the process.

    Making one begins a life, with a number above that of all lives in the folder. Raises
    `StorageFailed` if the journal cannot be begun.
    """

    def __init__(self, folder: Path, group: str, id: ReplicaId) -> None:
        disk = FileDisk(folder)
        found = recover(disk, group, id)
        self._writer = begin_life(disk, found, JournalSettings(sync=Sync.NONE))

    @property
    def incarnation(self) -> int:
        """The number of the life."""
        return self._writer.incarnation

    def record(self, records: Sequence[Record]) -> None:
        self._writer.append(records)

    def close(self) -> None:
        self._writer.close()
