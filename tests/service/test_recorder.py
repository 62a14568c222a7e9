"""The journals of several groups in one process: what waits for the disk is written together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest
from tests.patience import PATIENCE

from coterie.journal.engines.colours import COLOURS
from coterie.journal.format import Sync
from coterie.journal.writer import JournalSettings, StorageFailed
from coterie.kernel.clock import Instant
from coterie.kernel.components import Promises, no_component
from coterie.kernel.records import ComponentState, GreenLines
from coterie.kernel.views import Member, ViewId
from coterie.service.recorder import JournalRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.journal.keeper import Keeper
    from coterie.kernel.records import Record

ME, VIEW = Member("a", 1), ViewId(1, "a", 1)


class Journal:
    """One keeper; whoever meets others at the barrier writes at the same time as they do."""

    def __init__(self, meeting: threading.Barrier | None = None, error: str = "") -> None:
        self.written: list[Record] = []
        self.settings = self
        self.journal = JournalSettings(sync=Sync.TURN)
        self.is_behind = False
        self.is_closed = False
        self._meeting = meeting
        self._error = error

    def is_forced(self, records: Sequence[Record]) -> bool:
        return not COLOURS.forced.isdisjoint(map(type, records))

    def needs_sync(self, now: int) -> bool:
        del now
        return self.is_behind

    def write(self, records: Sequence[Record]) -> None:
        if self._error:
            raise StorageFailed(self._error)
        if self._meeting is not None and self.is_forced(records):
            self._meeting.wait(PATIENCE)
        self.written += records
        self.is_behind = True

    def sync(self) -> None:
        if self._meeting is not None:
            self._meeting.wait(PATIENCE)
        self.is_behind = False

    def close(self) -> None:
        self.is_closed = True


def recorder(journals: dict[str, Journal]) -> JournalRecorder:
    return JournalRecorder(cast("dict[str, Keeper]", journals))


def forced(group: str) -> ComponentState:
    promises = Promises(no_component(("a", "b")))
    return ComponentState(
        group=group, member=ME, at=Instant(1), view=VIEW, promises=promises, position=0
    )


def plain(group: str) -> GreenLines:
    return GreenLines(group=group, member=ME, at=Instant(1), lines=(), white=0)


def test_groups_that_wait_for_the_disk_wait_together() -> None:
    """One after the other, hundreds of groups would be silent for so long as to be suspected."""
    meeting = threading.Barrier(3)
    journals = {each: Journal(meeting) for each in ("one", "two", "three")} | {"four": Journal()}
    kept = recorder(journals)
    records = [forced(each) for each in ("one", "two", "three")]
    kept.record([*records, plain("four"), plain("one")])
    assert journals["one"].written == [records[0], plain("one")]
    assert [len(each.written) for each in journals.values()] == [2, 1, 1, 1]
    journals["four"].is_behind = False
    kept.sync()
    assert not any(each.is_behind for each in journals.values())
    kept.close()
    assert all(each.is_closed for each in journals.values())


def test_what_one_journal_fails_with_is_raised_when_the_others_are_written() -> None:
    journals = {"one": Journal(error="the disk is gone"), "two": Journal()}
    kept = recorder(journals)
    with pytest.raises(StorageFailed, match="the disk is gone"):
        kept.record([forced("one"), forced("two")])
    assert len(journals["two"].written) == 1
    kept.close()
