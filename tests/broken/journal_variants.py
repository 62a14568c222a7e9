"""Deliberately broken ways to keep a journal; see `variants.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broken.variants import FORGETTING, Broken

from coterie.journal import replay
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.format import Sync
from coterie.journal.stable import Stable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from coterie.journal.family import Adoption
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


def _always(boot_id_then: str, boot_id_now: str) -> bool:
    del boot_id_then, boot_id_now
    return True


class BootIdIgnored(JournalKeeper):
    """Takes the loss of the machine for the death of the process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        rule = replay.is_whole_after_process_death
        replay.is_whole_after_process_death = _always
        try:
            super().__init__(*arguments, **options)
        finally:
            replay.is_whole_after_process_death = rule


class AdoptedStateForgotten(JournalKeeper):
    """Writes that a state was taken over, and does not store it."""

    def _store_adopted(self, adoption: Adoption) -> None:
        pass


JOURNAL_BROKEN = (
    Broken(FramesBeforeJournal, STACK, ("memory",)),
    Broken(SyncForgotten, STACK, ("memory",)),
    Broken(RecoveryBitForgotten, STACK, ("memory",), sync=Sync.NONE, faults=FORGETTING),
    Broken(BootIdIgnored, STACK, ("memory",), first_seed=5, sync=Sync.NONE, faults=FORGETTING),
    Broken(AdoptedStateForgotten, STACK, ("convergence",), first_seed=10),
)
