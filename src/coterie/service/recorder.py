"""Where the records of a process with journals go: each to the journal of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.format import Sync
from coterie.runtime.port import Syncing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coterie.journal.keeper import Keeper
    from coterie.kernel.records import Record


class JournalRecorder:
    """Keeps the journals of all replicas of one process, one for each group."""

    def __init__(self, keepers: Mapping[str, Keeper]) -> None:
        self._keepers = dict(keepers)
        self._only = next(iter(keepers.values())) if len(keepers) == 1 else None
        """The keeper of the only group there is, if there is only one."""
        self._may_follow = frozenset() if self._only is None else self._only.family.may_follow
        self._syncing = [
            keeper for keeper in keepers.values() if keeper.settings.journal.sync is not Sync.NONE
        ]

    def record(self, records: Sequence[Record]) -> None:
        if self._only is not None:
            self._only.write(records)
            return
        by_group: dict[str, list[Record]] = {}
        for record in records:
            of_group = by_group.get(record.group)
            if of_group is None:
                by_group[record.group] = [record]
            else:
                of_group.append(record)
        for group, of_group in by_group.items():
            self._keepers[group].write(of_group)

    def may_follow(self, records: Sequence[Record]) -> bool:
        if self._only is not None:
            return self._may_follow.issuperset(map(type, records))
        return all(self._keepers[record.group].may_follow((record,)) for record in records)

    def syncing(self, now: int) -> Syncing:
        if not self._syncing:
            return Syncing.NOT_NOW
        needed = Syncing.NOT_NOW
        for keeper in self._syncing:
            if keeper.needs_sync(now):
                if keeper.settings.journal.sync in {Sync.TURN, Sync.PRIMARY}:
                    return Syncing.BEFORE_FRAMES
                needed = Syncing.BESIDE_TURNS
        return needed

    def sync(self) -> None:
        for keeper in self._syncing:
            keeper.sync()

    def close(self) -> None:
        for keeper in self._keepers.values():
            keeper.close()
