"""States from the history, and from dumps alone."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.here import edit, history_here, seal_here, verify_here
from tests.pipeline.journals import COUNTER, copy_group, make_group, storm

from coterie.journal import FileDisk
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import seconds
from coterie.kernel.views import ViewId, Viewstamp
from coterie.pipeline.history import gathering
from coterie.pipeline.history.dumps import agreed, digest_of, list_dumps, load
from coterie.pipeline.history.replay import CannotReplay, Program
from coterie.pipeline.history.states import state_at
from coterie.pipeline.history.verify import verify
from coterie.pipeline.lake.lake import Lake
from coterie.ready import Counter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coterie.objects.execution.machine import StateMachine


def value(machine: StateMachine) -> int:
    assert isinstance(machine.object, Counter)
    return int(machine.object.value)


def end_of(lake: Lake) -> int:
    rows = history_here(lake)
    return max(int(row["position"]) for row in rows if row["standing"] == "authoritative")


def test_the_state_at_any_place_follows_from_the_history(counter_lake: Lake) -> None:
    testimony = gathering.testimony_of(counter_lake, "group")
    row = next(row for row in history_here(counter_lake) if row["position"] == 42)
    stamp = Viewstamp(ViewId(**row["view"]), row["number"])
    by_position = state_at(counter_lake, testimony, COUNTER, 42)
    by_stamp = state_at(counter_lake, testimony, COUNTER, stamp)
    assert by_position.position == by_stamp.position == 42
    assert by_position.digest() == by_stamp.digest()
    last = state_at(counter_lake, testimony, COUNTER, end_of(counter_lake))
    assert value(last) > value(by_position)


def test_there_is_no_state_behind_the_end_nor_behind_a_gap(counter_lake: Lake) -> None:
    testimony = gathering.testimony_of(counter_lake, "group")
    with pytest.raises(CannotReplay, match="the history at hand ends at"):
        state_at(counter_lake, testimony, COUNTER, 10**6)
    edit(counter_lake, "entries", lambda row: None if row["position"] == 30 else row)
    with pytest.raises(CannotReplay, match="no authoritative entry is known at 30"):
        state_at(counter_lake, testimony, COUNTER, 42)
    [results] = verify_here(counter_lake, {"group": COUNTER}).values()
    assert "known at 30" in results.count("replicated state machine").remark


def test_a_class_that_is_not_there_is_named() -> None:
    for name in ("coterie.ready:Nothing", "nowhere:Counter", "coterie"):
        with pytest.raises(CannotReplay, match=f"there is no class '{name}'"):
            Program(name=name).load()


def test_dumps_alone_give_the_authoritative_state(
    spark: SparkSession, counter_journals: Path, counter_lake: Lake, tmp_path: Path
) -> None:
    """5.2: the disk images of all dumped states are compared to each other."""
    folder = tmp_path / "journals"
    for dump in list_dumps([counter_journals])[0]:
        place = folder / dump.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((counter_journals / dump.path).read_bytes())
        (folder / "group" / dump.replica / "000001").mkdir(exist_ok=True)
    newest, *older = agreed(spark, [folder])
    assert older
    assert len(newest.replicas) >= 2
    testimony = gathering.testimony_of(counter_lake, "group")
    machine = load(newest, COUNTER, testimony.configuration.majority)
    assert machine.position == newest.position
    run = state_at(counter_lake, testimony, COUNTER, newest.position)
    assert machine.digest() == run.digest()
    end = end_of(counter_lake)
    gone_on = state_at(counter_lake, testimony, COUNTER, end, begin=machine)
    assert gone_on.digest() == state_at(counter_lake, testimony, COUNTER, end).digest()


def test_a_history_without_its_beginning_is_run_from_a_dump(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Retention removed the first entries everywhere before the lake was made."""
    keeper = KeeperSettings(
        journal=JournalSettings(segment_bytes=3_000),
        retention=Retention(journal_bytes_max=0),
        snapshot_bytes=3_000,
    )
    group = make_group(seed=4, keeper=keeper, has_object=True)
    storm(group, duration=seconds(8))
    journals = tmp_path / "journals"
    copy_group(group, journals)
    lake = seal_here(journals, tmp_path / "lake")
    programs = {"group": COUNTER}

    def verdict(roots: list[Path]) -> tuple[str, str]:
        rows = verify(spark, lake, programs=programs, roots=roots).verdicts
        [row] = [row for row in rows if row["check_name"] == "replicated state machine"]
        return row["verdict"], row["remark"]

    word, remark = verdict([])
    assert word == "undecided"
    assert "no authoritative entry is known at" in remark
    word, remark = verdict([journals])
    assert word == "kept"
    # Which dump that is depends on how the engine runs the seed; that it is not the first does not.
    said = re.fullmatch(r"from (\d+) on, with a dumped state: the beginning was removed", remark)
    assert said is not None, remark
    assert int(said[1]) > 1


def test_a_minority_of_dumps_decides_nothing(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    dump = list_dumps([counter_journals])[0][0]
    place = tmp_path / dump.path
    place.parent.mkdir(parents=True)
    place.write_bytes((counter_journals / dump.path).read_bytes())
    (tmp_path / "group" / dump.replica / "000001").mkdir()
    assert agreed(spark, [tmp_path], {"group": lambda _: ["a", "b", "c"]}) == []
    assert len(agreed(spark, [tmp_path], {"group": lambda _: [dump.replica]})) == 1


def test_a_damaged_dump_is_left_out(counter_journals: Path, tmp_path: Path) -> None:
    dump = list_dumps([counter_journals])[0][0]
    place = tmp_path / dump.path
    place.parent.mkdir(parents=True)
    place.write_bytes((counter_journals / dump.path).read_bytes()[:-5])
    (tmp_path / "group" / dump.replica / "000001").mkdir()
    [damaged] = list_dumps([tmp_path])[0]
    assert digest_of(damaged) is None
    assert FileDisk(tmp_path).size(dump.path) > 0
    rmtree(tmp_path / "group")
