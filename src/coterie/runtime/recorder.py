"""Recorders: where the records of a turn go before its frames leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.recording import RecordingWriter, recording_path
from coterie.runtime.port import Syncing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coterie.kernel.records import Record
    from coterie.kernel.views import ReplicaId


class _NeverSynced:
    """What the recorders here have in common: the system writes to the disk when it likes."""

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
    """Writes a recording (`coterie.journal.recording`) that outlives the process."""

    def __init__(self, folder: Path, id: ReplicaId, incarnation: int) -> None:
        self._writer = RecordingWriter(recording_path(folder, id, incarnation))

    def record(self, records: Sequence[Record]) -> None:
        self._writer.append(records)

    def close(self) -> None:
        self._writer.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._writer.path
