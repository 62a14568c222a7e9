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

from typing import TYPE_CHECKING

from coterie.journal.engines.vsr import CohortRecovery, recover_cohort
from coterie.journal.keeper import Keeper, KeeperSettings

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.kernel.views import Configuration


class CohortKeeper(Keeper):
    """Keeps the journal of a cohort for one life.

    Making one recovers what earlier lives left, unless that is *found* already, and begins the
    next. Raises `WrongJournal` if the cohort cannot take part, `StorageFailed` if the journal
    cannot be begun, and `VersionUnknown` if a later release wrote it: the replica must not start.
    """

    recovery: CohortRecovery

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration,
        settings: KeeperSettings | None = None,
        *,
        incarnation_min: int = 1,
        found: CohortRecovery | None = None,
    ) -> None:
        if found is None:
            found = recover_cohort(
                disk, group, replica, configuration, incarnation_min=incarnation_min
            )
        super().__init__(disk, found, settings)
