"""What a driver does with the journal of one cohort of viewstamped replication.

    found_group(disk, group, replica, configuration)             # once, when the group is new
    keeper = CohortKeeper(disk, group, replica, configuration)   # recovers, and begins a life
    ...                                      # the cohort is built with what keeper.recovery holds
    keeper.checkpoint = cohort.checkpoint    # where its state is to be had

and then as with every other keeper: `write`, `needs_sync`, `sync`, `housekeeping`, `close`.

The views a cohort promises and is active in are on stable storage when `write` returns, whatever
`sync` says. Its events are so as the group wants it (4.2): with `sync = "turn"` at every cohort
before they are acknowledged, with `"primary"` at the primary only, with `"interval"` or `"none"`
some time later. They are always written, so that the death of a process loses none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coterie.journal.cohorts import recover_cohort
from coterie.journal.format import Mark
from coterie.journal.keeper import Job, Keeper, KeeperSettings, let_go
from coterie.journal.life import open_life
from coterie.kernel.engine import Version
from coterie.kernel.records import StateTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.journal.disk import Disk
    from coterie.kernel.cohorts import CohortCheckpoint
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration


class CohortKeeper(Keeper):
    """Keeps the journal of a cohort for one life.

    Making one recovers what earlier lives left and begins the next. Raises `WrongJournal` if the
    cohort cannot take part, `StorageFailed` if the journal cannot be begun, and `VersionUnknown` if
    a later release wrote it: the replica must not start.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration,
        settings: KeeperSettings | None = None,
        *,
        incarnation_min: int = 1,
    ) -> None:
        settings = settings or KeeperSettings()
        self.recovery = found = recover_cohort(
            disk, group, replica, configuration, incarnation_min=incarnation_min
        )
        super().__init__(
            disk,
            open_life(disk, found, settings.journal, facts=found.facts, views=found.views),
            settings,
            snapshot=found.snapshot,
            bytes_above=sum(len(event) for span in found.spans for event in span.events),
        )
        self.checkpoint: Callable[[], CohortCheckpoint] | None = None
        """Where the cohort's state is to be had; without it, no snapshots."""
        self._has_state = found.has_state

    def _adopted_by(self, records: Sequence[Record]) -> Callable[[], None] | None:
        if not any(isinstance(record, StateTaken) for record in records):
            return None
        self._has_state = True
        # It is the state at the end of this turn, so it has the number of its last record.
        end = Mark(self.incarnation, self.writer.sequence + len(records))
        return partial(self._store_state, self._take_checkpoint(), end)

    def _jobs(self) -> list[Job]:
        if not self._is_enough_written() or not self._has_state or self.checkpoint is None:
            return []
        take = partial(self._store_state, self._take_checkpoint(), self.writer.end)
        return [
            ("no snapshot could be taken", take),
            # Also where that failed: retention may make the room that was missing.
            ("the journal could not be made shorter", self._retain),
        ]

    def _sync_before(self) -> None:
        # The journal must lead to the snapshot, also where turns are not synced.
        self.writer.sync()

    def _take_checkpoint(self) -> CohortCheckpoint:
        assert self.checkpoint is not None, "a keeper is told where the state is to be had"
        return self.checkpoint()

    def _store_state(self, checkpoint: CohortCheckpoint, after: Mark) -> None:
        self._snapshot_begins()
        last = checkpoint.history[-1]
        try:
            draft = self.store.begin(
                last.number,
                Version(last.view, last.number),
                after=after,
                history=checkpoint.history,
            )
            path = draft.write(checkpoint.chunks)
        finally:
            let_go(checkpoint.chunks)
        self._snapshot_size = self.disk.size(path)
