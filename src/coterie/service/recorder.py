"""Where the records of a process with journals go: each to the journal of its group.

Where groups must have something on stable storage at once, because their views change together,
they write at the same time, in threads: the disk makes one wait of many, and a process that waited
for each of hundreds of groups in turn would be silent for so long that it was taken for dead.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING

from coterie.journal.format import Sync
from coterie.runtime.port import Syncing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coterie.journal.keeper import Keeper
    from coterie.kernel.records import Record

WRITERS_MAX = 32
"""How many journals are written at the same time."""


class JournalRecorder:
    """Keeps the journals of all replicas of one process, one for each group."""

    def __init__(self, keepers: Mapping[str, Keeper]) -> None:
        self._keepers = dict(keepers)
        self._only = next(iter(keepers.values())) if len(keepers) == 1 else None
        """The keeper of the only group there is, if there is only one."""
        self._may_follow = frozenset() if self._only is None else self._only.family.may_follow
        self._threads = ThreadPoolExecutor(WRITERS_MAX, "journals") if self._only is None else None
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
        keepers = self._keepers
        forced = [group for group, mine in by_group.items() if keepers[group].is_forced(mine)]
        if len(forced) > 1:
            self._write_together({group: by_group.pop(group) for group in forced})
        for group, of_group in by_group.items():
            keepers[group].write(of_group)

    def _write_together(self, by_group: Mapping[str, Sequence[Record]]) -> None:
        self._together(
            [partial(self._keepers[group].write, mine) for group, mine in by_group.items()]
        )

    def _together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Do all of these; raise what one of them raised when all are done."""
        assert self._threads is not None, "there are several groups"
        running = [self._threads.submit(job) for job in jobs]
        wait(running)
        for each in running:
            each.result()

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
        waiting = [keeper for keeper in self._syncing if keeper.is_behind]
        if len(waiting) > 1:
            self._together([keeper.sync for keeper in waiting])
        else:
            for keeper in waiting:
                keeper.sync()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        for keeper in self._keepers.values():
            keeper.close()
