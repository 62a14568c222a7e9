"""Programs in the pipeline: every check fires where it must, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.pipeline.here import edit, recorded_journals, seal_here

from coterie.campaign import run_and_check
from coterie.kernel.claims import Order
from coterie.kernel.clock import seconds
from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.engines.llft.checks import CHECKS
from coterie.pipeline.engines.llft.columns import encode
from coterie.pipeline.engines.llft.judging import judge_program
from coterie.pipeline.history.verify import judge_alone, verify_alone
from coterie.pipeline.jobs import run_pipeline
from coterie.pipeline.lake.lake import Lake
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.llft.trial import ProgramOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
OPTIONS = ProgramOptions(program="counter", duration=seconds(3), faults=("crash",))
SEED = 4


@pytest.fixture(scope="session")
def _sealed_program(program_journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed program") / "lake"
    seal_here(program_journals, folder)
    return folder


@pytest.fixture
def lake(_sealed_program: Path, tmp_path: Path) -> Lake:
    """A lake that the test may change."""
    return Lake.open(copytree(_sealed_program, tmp_path / "lake"))


def broken(lake: Lake) -> set[str]:
    """The names of all checks that fire."""
    return {
        check
        for results in verify_alone(lake).values()
        for check, count in results.counts.items()
        if count.found
    }


def test_a_clean_run_keeps_all_promises(lake: Lake) -> None:
    found = verify_alone(lake)
    assert list(found) == ["counter"], "the edge is judged with its program"
    assert broken(lake) == set()
    assert {name for name, count in found["counter"].counts.items() if count.checked} == set(CHECKS)


def test_the_report_is_told_of_takeovers_lag_and_branches(lake: Lake) -> None:
    _, figures = judge_program(lake, "counter", has_edge=True)
    assert figures.takeovers == 1
    assert figures.views > 2
    assert figures.discarded == 0
    remark = verify_alone(lake)["counter"].counts["one chain of primary views"].remark
    assert f"{figures.takeovers} takeovers" in remark


def last(lake: Lake, table: str, group: str, event: str = "") -> Row:
    rows = lake.table(table, group).to_pylist()
    found: Row = [row for row in rows if not event or row["event"] == event][-1]
    return found


def clock_back(row: Row) -> Row:
    orders = msgspec.msgpack.decode(row["data"], type=list[Order])
    orders[-1] = replace(orders[-1], clock=0)
    return {**row, "data": encode(orders)}


def other_claim(row: Row) -> Row:
    return {**row, "after": {**row["after"], "view": row["after"]["view"] + 7}}


BREAKS: list[tuple[str, str, str, str, Callable[[Row], Row | None]]] = [
    ("one chain of primary views", "program_views", "counter", "started", other_claim),
    (
        "one sequence of operations",
        *("executions", "counter", ""),
        lambda row: {**row, "digests": [each ^ 1 for each in row["digests"]]},
    ),
    (
        "consecutive subsequence",
        *("executions", "counter", ""),
        lambda row: {**row, "first": row["first"] + 5},
    ),
    (
        "consecutive states",
        *("program_views", "counter", "state"),
        lambda row: {**row, "digest": row["digest"] ^ 1},
    ),
    (
        "consecutive states",  # theorem 4 for backups that log: checkpoints follow each other
        *("program_views", "counter", "state"),
        lambda row: {**row, "flag": True, "count": 1, "number": 0},
    ),
    (
        "released is ordered",
        *("released", "counter@edge", ""),
        lambda row: {**row, "rests_on": row["rests_on"] + 10_000},
    ),
    (
        "released once",
        *("released", "counter@edge", ""),
        lambda row: {**row, "byte_offset": row["byte_offset"] - 1},
    ),
    ("same output", "released", "counter@edge", "", lambda row: {**row, "crc": row["crc"] ^ 1}),
    (
        "inputs consumed once",
        *("inputs_held", "counter@edge", ""),
        lambda row: {**row, "byte_offset": 0, "length": 0},
    ),
    ("group clock monotone", "order_runs", "counter@edge", "", clock_back),
    (
        "quorum held",
        *("program_views", "counter", "leads"),
        lambda row: {**row, "number": row["number"] + 1},
    ),
]


@pytest.mark.parametrize(
    ("check", "table", "group", "event", "change"),
    BREAKS,
    ids=[f"{place}: {each[0]}" for place, each in enumerate(BREAKS)],
)
def test_it_fires(  # noqa: PLR0913, PLR0917 -- what is changed where
    lake: Lake,
    check: str,
    table: str,
    group: str,
    event: str,
    change: Callable[[Row], Row | None],
) -> None:
    wanted = last(lake, table, group, event)
    assert edit(lake, table, lambda row: change(row) if row == wanted else row)
    assert check in broken(lake)


def test_every_check_is_shown_to_fire() -> None:
    assert {each[0] for each in BREAKS} == set(CHECKS)


def test_orders_that_an_edge_gave_up_are_a_broken_quorum(lake: Lake) -> None:
    wanted = last(lake, "program_views", "counter@edge", "freed")
    given_up = {"event": "discarded", "number": 3, "count": 9, "flag": True}
    claim = last(lake, "program_views", "counter@edge", "promised")["claim"]
    change = {**given_up, "claim": claim}
    assert edit(lake, "program_views", lambda row: {**row, **change} if row == wanted else row)
    assert "quorum held" in broken(lake)


def test_without_the_edges_journal_nothing_is_decided(
    program_journals: Path, tmp_path: Path
) -> None:
    copy = copytree(program_journals / "counter", tmp_path / "journals" / "counter")
    lake = seal_here(copy.parent, tmp_path / "lake")
    found = judge_alone(lake, Wanted(str(tmp_path / "scratch")))
    assert {row["verdict"] for row in found.verdicts} == {"undecided"}


@pytest.mark.parametrize(
    "changes",
    [{}, {"backups": "logged"}, {"program": "pages"}, {"program": "pages", "guard": "none"}],
    ids=["active", "logged", "pages", "pages without a guard"],
)
def test_a_campaign_checks_each_run_by_its_journals(
    changes: dict[str, str], tmp_path: Path
) -> None:
    options = replace(OPTIONS, **changes)
    row = run_and_check(SEED, options, tmp_path / "failed", run_seed)
    assert row["violations"] == []
    assert row["checked"] > 500


def test_edges_that_took_each_others_place_are_judged_one_behind_the_other(tmp_path: Path) -> None:
    lake = seal_here(recorded_journals("standby", tmp_path / "journals"), tmp_path / "lake")
    assert broken(lake) == set()
    # What the old edge had stored, and the new one does not begin with, is lost.
    begun = last(lake, "program_views", "counter@edge", "activated")
    less = {**begun, "number": begun["number"] // 2}
    assert edit(lake, "program_views", lambda row: less if row == begun else row)
    assert "quorum held" in broken(lake)


def test_spark_judges_programs(spark: SparkSession, program_journals: Path, tmp_path: Path) -> None:
    outcome = run_pipeline(spark, [program_journals], tmp_path / "out")
    assert outcome.is_kept
    assert outcome.report is not None
