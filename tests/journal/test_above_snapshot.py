"""A snapshot and the records behind it: what was written before its place, and what is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from coterie.journal.above_snapshot import AboveSnapshot
from coterie.journal.engines.colours import ColoursHistory
from coterie.journal.engines.llft import LlftHistory
from coterie.journal.engines.vsr import _CohortHistory
from coterie.journal.facts import Facts, Memory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.journal.snapshots import Snapshot
    from coterie.kernel.records import Record


class Turns(Memory, AboveSnapshot):
    """Knows how many turns it took."""

    def __init__(self, base: Snapshot | None) -> None:
        Memory.__init__(self, Facts())
        AboveSnapshot.__init__(self, base)
        self.taken = 0

    def take_base(self, base: Snapshot) -> None:
        del base
        self.taken = 100

    def forget(self) -> None:
        self.taken = 0

    def apply(self, records: Iterable[Record]) -> None:
        self.reach_base()
        self.taken += 1
        super().apply(records)


def with_base(life: int, sequence: int) -> Turns:
    head = SimpleNamespace(incarnation=life, sequence=sequence)
    return Turns(cast("Snapshot", SimpleNamespace(head=head)))


def read(history: Turns, *turns: tuple[int, int]) -> None:
    for turn in turns:
        history.apply(())
        history.reached = turn


def test_what_is_missing_before_a_snapshot_is_in_it() -> None:
    history = with_base(1, 5)
    read(history, (1, 2))
    history.break_off("records 3 and 4 are gone")
    read(history, (1, 5), (1, 6))
    assert (history.is_at_base, history.lost, history.taken) == (True, "", 101)


def test_what_is_missing_right_behind_a_snapshot_is_missed() -> None:
    history = with_base(1, 5)
    read(history, (1, 2), (1, 5))
    history.break_off("record 6 is gone")
    read(history, (1, 7))
    assert (history.is_at_base, history.lost) == (True, "record 6 is gone")


def test_a_fresh_life_rests_on_nothing() -> None:
    history = with_base(1, 5)
    read(history, (1, 2))
    history.break_off("all else is gone")
    history.place = (2, 0)
    history.begin_life(Facts(is_fresh=True))
    read(history, (2, 1))
    assert (history.is_at_base, history.lost, history.taken) == (True, "", 1)


def test_a_fresh_life_rests_on_the_snapshots_that_it_took() -> None:
    """They were dropped: whoever had joined by a whole state was a zombie when it restarted."""
    history = with_base(2, 5)
    read(history, (1, 2))
    history.place = (2, 0)
    history.begin_life(Facts(is_fresh=True))
    read(history, (2, 2), (2, 5), (2, 6))
    assert (history.is_at_base, history.lost, history.taken) == (True, "", 101)


@pytest.mark.parametrize("history", [ColoursHistory, LlftHistory, _CohortHistory])
def test_all_families_with_snapshots_alone_go_by_these_rules(history: type) -> None:
    assert issubclass(history, AboveSnapshot)
    assert {"break_off", "reach_base"}.isdisjoint(vars(history))
