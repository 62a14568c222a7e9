"""Histories that span configurations: judged by who counted at each place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.pipeline.here import broken, edit, history_here, judge_here, seal_here
from tests.pipeline.journals import COUNTER, SAFE, copy_group, make_group, storm

from coterie.kernel.clock import seconds
from coterie.kernel.views import ChangedConfiguration, Configuration
from coterie.pipeline.history import witnesses as told_by
from coterie.pipeline.history.gathering import testimony_of as gather
from coterie.pipeline.outcomes import basis_of

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.pipeline.lake.lake import Lake

CHANGES = ("partition", "crash", "join", "remove", "replace")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals of all who ever belonged to a group of counters."""
    folder = tmp_path_factory.mktemp("changed")
    group = make_group(seed=5, stack=SAFE, has_object=True)
    storm(group, duration=seconds(12), faults=CHANGES)
    assert len(group.hosts) > 5
    copy_group(group, folder)
    return folder


@pytest.fixture
def lake(changed: Path, tmp_path: Path) -> Lake:
    return seal_here(changed, tmp_path / "lake")


def test_every_promise_is_kept_over_all_configurations(changed: Path, tmp_path: Path) -> None:
    outcome = judge_here(changed, tmp_path / "judged")
    assert (outcome.violations, outcome.problems) == ([], [])
    assert str(outcome.outcome) == "kept"


def test_it_can_be_run_again_on_its_class(lake: Lake) -> None:
    """Group time rests on a majority of clocks, and the majority changes with the members."""
    assert broken(lake, {"group": COUNTER}) == set()


def test_the_configurations_are_those_of_the_history(lake: Lake) -> None:
    testimony = gather(lake, "group")
    assert testimony.configuration == Configuration(1, ("a", "b", "c"))
    numbers = [each.number for _, each in testimony.changes]
    assert numbers == list(range(2, len(numbers) + 2))
    places = [position for position, _ in testimony.changes]
    assert places == sorted(places)
    standings = {row["position"]: row["standing"] for row in history_here(lake)}
    assert {standings[position] for position in places} == {"authoritative"}
    basis = basis_of(lake, "group")
    assert basis.journals == basis.journals_known == len(testimony.latest.members)


def test_without_the_changes_views_of_newcomers_are_none(lake: Lake) -> None:
    edit(lake, "configurations", lambda _: None)
    assert "confirmed chain" in broken(lake)


def test_what_too_few_accepted_is_found_behind_a_change(lake: Lake) -> None:
    """If all who ever were there counted at once, a majority of some is not enough."""
    everyone = sorted({row["replica"] for row in lake.table("lives", "group").to_pylist()})
    edit(lake, "configurations", lambda row: {**row, "members": everyone, "before": []})
    assert {"confirmed chain", "authoritative majority"} <= broken(lake)


def test_quorums_by_place() -> None:
    """Joint until it is left; and who accepts something later has what is before it."""
    joint = ChangedConfiguration(3, ("a", "b", "d"), (), ("a", "b", "c"))
    testimony = told_by.Testimony(
        "g",
        "",
        Configuration(1, ("a", "b", "c")),
        [told_by.Witness(name, [1]) for name in "abcd"],
        changes=[(10, joint), (20, ChangedConfiguration(4, ("a", "b", "d"), (), (), ("c",)))],
    )
    positions = np.array([5, 10, 20], np.int64)

    def decided(replicas: str) -> list[bool]:
        bits = sum(1 << "abcd".index(name) for name in replicas)
        found = testimony.has_quorum(np.full(3, bits, np.uint64), positions)
        return [bool(each) for each in found]

    assert decided("ab") == [True, True, True]
    assert decided("ac") == [True, False, False]
    assert decided("ad") == [True, True, True], "it holds what the last members decide about"
    assert decided("cd") == [False, False, False]
    assert [testimony.configuration_at(place).number for place in (9, 10, 30)] == [1, 3, 4]
    assert testimony.is_quorum(("a", "d"), 15)
    assert not testimony.is_quorum(("a", "c"), 15)
