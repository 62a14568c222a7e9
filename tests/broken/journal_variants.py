"""Deliberately broken ways to keep a journal; see `variants.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broken.variants import Broken

from coterie.journal.format import Sync
from coterie.journal.keeper import JournalKeeper
from coterie.journal.stable import Stable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from coterie.kernel.records import Record

STACK = "SAFE:DYNSEQ:PVSYNC"


class FramesBeforeJournal(JournalKeeper):
    """Writes a turn down only when the next one comes: its frames have left long before."""

    late: Sequence[Record] = ()

    def write(self, records: Sequence[Record]) -> None:
        late, self.late = self.late, records
        super().write(late)


class SyncForgotten(JournalKeeper):
    """Says that every turn is synced, and syncs none."""

    def needs_sync(self, now: int) -> bool:
        del now
        return False

    def sync(self) -> None:
        pass


class RecoveryBitForgotten(JournalKeeper):
    """Does not note on stable storage that the replica has been in a primary view."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self.writer._stable = _Forgetful(self.disk, self.group, self.replica)


class _Forgetful(Stable):
    def set_been_primary(self) -> None:
        pass


class BootIdIgnored(JournalKeeper):
    """Takes the loss of the machine for the death of the process."""

    def __init__(self, disk: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(_SameBoot(disk), *arguments, **options)


class _SameBoot:
    boot_id = "always the same"

    def __init__(self, disk: Any) -> None:  # noqa: ANN401
        self._disk = disk

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._disk, name)


class AdoptedStateAsOwn(JournalKeeper):
    """Stores a state taken over as if it were the replica's own, before its record is there."""

    def _store_adopted(self, restored: int) -> None:
        del restored
        self._store_state(self._take_checkpoint(), self.writer.end)


class AdoptedStateForgotten(JournalKeeper):
    """Writes that a state was taken over, and does not store it."""

    def _store_adopted(self, restored: int) -> None:
        pass


JOURNAL_BROKEN = (
    Broken(FramesBeforeJournal, STACK, ("memory",)),
    Broken(SyncForgotten, STACK, ("memory",)),
    Broken(RecoveryBitForgotten, STACK, ("memory",), sync=Sync.NONE),
    Broken(BootIdIgnored, STACK, ("memory",), sync=Sync.NONE),
    Broken(AdoptedStateAsOwn, STACK, ("memory",)),
    Broken(AdoptedStateForgotten, STACK, ("convergence",)),
)
