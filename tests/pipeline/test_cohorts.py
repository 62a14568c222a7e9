"""Groups of cohorts in the pipeline: every check fires where it must, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.here import edit, seal_here
from tests.vsr.bank_world import BankWorld
from tests.vsr.broken_cohorts import BROKEN
from tests.vsr.broken_servers import (
    LocksNotKept,
    LostCallsPass,
    PreparesWithoutForce,
    ReadsWithoutLocks,
)
from tests.vsr.chain import run_chain
from tests.vsr.test_broken_servers import (
    change_views_under_a_lock,
    checks,
    lose_one_call_of_two,
    skew,
    vote_and_die,
)

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.views import Configuration, ViewId, Viewstamp
from coterie.pipeline import transaction_events as format_
from coterie.pipeline.checks import COHORT_CHECKS
from coterie.pipeline.cohort_history import CohortGroup, Walk, cohort_groups, read_group
from coterie.pipeline.jobs import run_pipeline
from coterie.pipeline.lake import Lake
from coterie.pipeline.transactions import Ledger, tabulate_events
from coterie.pipeline.verify import verify_alone
from coterie.simulation.export import write_journals
from coterie.simulation.transaction_campaign import TransactionOptions, run_transactions
from coterie.vsr import events
from coterie.vsr.psets import Aid, Pair
from coterie.vsr.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
SEED = 4


@pytest.fixture(scope="session")
def bank_journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three groups of three cohorts each, with machines that were lost."""
    folder = tmp_path_factory.mktemp("bank")
    faults = ("crash", "restart", "partition", "kill")
    options = TransactionOptions(
        duration=seconds(4), interval=milliseconds(60), faults=faults, journals=str(folder)
    )
    run = run_transactions(SEED, options)
    assert run.violations == []
    assert run.committed > 3
    assert run.views > 5
    return folder / str(SEED)


@pytest.fixture(scope="session")
def _sealed_bank(bank_journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed bank") / "lake"
    seal_here(bank_journals, folder)
    return folder


@pytest.fixture
def bank_lake(_sealed_bank: Path, tmp_path: Path) -> Lake:
    """A lake that the test may change."""
    return Lake.open(copytree(_sealed_bank, tmp_path / "bank lake"))


def broken(lake: Lake) -> set[str]:
    """The names of all checks that fire."""
    return {
        check
        for results in verify_alone(lake).values()
        for check, count in results.counts.items()
        if count.found
    }


# ---- a clean run


def test_a_clean_run_keeps_all_promises(bank_lake: Lake) -> None:
    found = verify_alone(bank_lake)
    assert sorted(found) == ["bank0", "bank1", "bank2"]
    assert broken(bank_lake) == set()
    for results in found.values():
        assert set(results.counts) == set(COHORT_CHECKS)
        unchecked = {name for name, count in results.counts.items() if not count.checked}
        assert unchecked <= {"equal states", "forced events survive"}


def test_the_history_is_what_was_forced(bank_lake: Lake) -> None:
    for group in cohort_groups(bank_lake):
        rows = [row for batch in tabulate_events(bank_lake, group) for row in batch.to_pylist()]
        majority = [row for row in rows if len(row["known_by"]) >= 2]
        forced = [row for row in rows if row["standing"] == "authoritative"]
        assert forced
        assert {row["kind"] for row in forced} >= {"call", "installed"}
        assert all(row["aid"] for row in rows)
        assert len(majority) <= len(rows)
        last = max(read_group(bank_lake, group).forced)
        for row in rows:
            if row["standing"] == "rolled back":
                assert row["view"]["number"] < last.number


def test_transactions_are_rows(bank_lake: Lake) -> None:
    rows = Ledger(bank_lake, cohort_groups(bank_lake)).rows().to_pylist()
    assert {row["outcome"] for row in rows} >= {"committed", "aborted"}
    for row in rows:
        assert row["coordinator"] in {"bank0", "bank1", "bank2"}
        if row["outcome"] == "committed":
            assert row["groups"]
            assert row["writes"] > 0
            assert row["ended_at"] is not None
        if row["outcome"] == "aborted":
            assert row["reason"]


# ---- checks that fire on edited journals


def lower(row: Row) -> Row:
    return {**row, "view": {**row["view"], "number": 0}}


def other_primary(row: Row) -> Row:
    return {**row, "primary": {"id": "somebody", "incarnation": 1}}


def knows_more(row: Row) -> Row:
    history = [dict(each) for each in row["history"]]
    history[0] = {**history[0], "number": history[0]["number"] + 1000}
    return {**row, "history": history}


def last_of(lake: Lake, table: str, is_wanted: Callable[[Row], bool]) -> tuple[str, str, int, int]:
    """The place of the last row that is wanted, in the first group that has one."""
    for group in cohort_groups(lake):
        rows = [row for row in lake.table(table, group).to_pylist() if is_wanted(row)]
        if rows:
            row = max(rows, key=lambda row: (row["view"]["number"], row["sequence"]))
            return place(row)
    pytest.fail("no such row")


def place(row: Row) -> tuple[str, str, int, int]:
    return row["group"], row["replica"], row["incarnation"], row["sequence"]


def change_last(
    lake: Lake, table: str, is_wanted: Callable[[Row], bool], change: Callable[[Row], Row]
) -> None:
    wanted = last_of(lake, table, is_wanted)
    assert edit(lake, table, lambda row: change(row) if place(row) == wanted else row)


@pytest.mark.parametrize(
    ("event", "change", "check"),
    [
        ("accepted", lower, "viewids ordered"),
        ("started", other_primary, "one primary"),
        ("forced", lambda row: {**row, "number": row["number"] + 1000}, "forced majority"),
        ("started", knows_more, "crashed cohorts count for nothing"),
        ("state", lambda row: {**row, "digest": bytes(16)}, "equal states"),
    ],
)
def test_a_check_of_cohorts_fires(
    bank_lake: Lake, event: str, change: Callable[[Row], Row], check: str
) -> None:
    change_last(bank_lake, "cohorts", lambda row: row["event"] == event, change)
    assert check in broken(bank_lake)


def test_forced_events_that_do_not_survive_are_found(bank_lake: Lake) -> None:
    """The view that came last began without an event that was forced before."""
    forced = {
        (group, view): claim.number
        for group in cohort_groups(bank_lake)
        for view, claim in read_group(bank_lake, group).forced.items()
    }

    def forget(row: Row) -> Row:
        if row["event"] != "started":
            return row
        history = [
            {**each, "number": max(each["number"] - 1, 0)}
            if (row["group"], ViewId(**each["view"])) in forced
            else each
            for each in row["history"]
        ]
        return {**row, "history": history}

    assert edit(bank_lake, "cohorts", forget)
    assert "forced events survive" in broken(bank_lake)


def test_different_events_at_one_viewstamp_are_found(bank_lake: Lake) -> None:
    change_last(
        bank_lake,
        "event_records",
        lambda row: row["number"] == 1,
        lambda row: {**row, "digest": row["digest"] ^ 1} if row["number"] == 1 else row,
    )
    assert "one event" in broken(bank_lake)


def test_a_gap_in_what_a_cohort_knows_is_found(bank_lake: Lake) -> None:
    wanted = last_of(bank_lake, "event_records", lambda row: row["number"] == 1)
    assert edit(bank_lake, "event_records", lambda row: None if place(row) == wanted else row)
    assert "known in order" in broken(bank_lake)


def test_without_a_journal_nothing_is_called_broken(bank_journals: Path, tmp_path: Path) -> None:
    journals = copytree(bank_journals, tmp_path / "journals")
    group = journals / "bank1"
    rmtree(min(group.iterdir()))
    lake = seal_here(journals, tmp_path / "lake")
    assert broken(lake) == set()


@pytest.mark.parametrize(("torn", "gaps"), [(set(), 1), ({("a", 2)}, 0)])
def test_a_life_that_lost_its_first_record_is_no_gap(torn: set[tuple[str, int]], gaps: int) -> None:
    """Machines that are lost tear what was not synced, also that a cohort began without a state."""
    found = CohortGroup("bank", Configuration(1, ("a", "b", "c")), set())
    view = {"number": 1, "proposer": "a", "incarnation": 1}
    rows = [
        {"replica": "a", "incarnation": life, "sequence": 2, "view": view, **what}
        for life, what in (
            (1, {"event": "known", "number": 1, "count": 3}),
            (2, {"event": "known", "number": 9, "count": 1}),
        )
    ]
    Walk(found, torn).read(iter(rows))
    assert len(found.gaps) == gaps


# ---- checks that fire on journals of broken variants


@pytest.mark.parametrize(
    ("kind", "story", "caught_by"),
    [
        (PreparesWithoutForce, vote_and_die, "atomic"),
        (LostCallsPass, lose_one_call_of_two, "lost calls abort"),
        (LocksNotKept, change_views_under_a_lock, "locks kept"),
        (ReadsWithoutLocks, skew, "serializable"),
    ],
)
def test_a_broken_server_is_caught_by_its_journals(
    tmp_path: Path, kind: type[Server], story: Callable[[BankWorld], None], caught_by: str
) -> None:
    for variant, expected in ((Server, set()), (kind, {caught_by})):
        world = BankWorld(server_kind=variant)
        story(world)
        checks(world)
        place = tmp_path / variant.__name__
        write_journals(world.hosts.values(), place / "journals")
        lake = seal_here(place / "journals", place / "lake")
        assert broken(lake) >= expected
        assert bool(broken(lake)) == bool(expected)


@pytest.mark.slow  # as many runs as the variants survive
@pytest.mark.parametrize("name", ["no stable storage", "the paper's stable storage"])
def test_broken_stable_storage_is_caught_by_its_journals(tmp_path: Path, name: str) -> None:
    [variant] = [each for each in BROKEN if each.name == name]
    for seed in range(30):
        world = run_chain(seed, kind=variant.kind, prepare=variant.prepare, duration=seconds(8))
        folder = tmp_path / str(seed)
        write_journals(world.hosts.values(), folder / "journals")
        if broken(seal_here(folder / "journals", folder / "lake")) & set(variant.caught_by):
            return
    pytest.fail(f"{name} was not caught by its journals")


# ---- the format of events


def test_events_are_read_by_their_format() -> None:
    view = ViewId(3, "a", 2)
    aid = Aid("eu", view, 7)
    stamp = Viewstamp(view, 4)
    written: list[events.Event] = [
        events.CompletedCall(
            aid,
            "1.2",
            [events.Read("x", stamp), events.Read("y", None)],
            [events.Write("x", b"1"), events.Write("z", None)],
            b"reply",
            False,  # noqa: FBT003 -- a field
            (Pair("us", stamp),),
        ),
        events.CallsGivenUp(aid, ("1", "2.1")),
        events.Committing(aid, [events.Part("us", (stamp,))]),
        events.Done(aid),
        events.Committed(aid, (stamp,), True),  # noqa: FBT003 -- a field
        events.Aborted(aid, "because"),
    ]
    read = [format_.read_event(events.encode_event(each)) for each in written]
    assert {type(each) for each in read} == set(format_.WORDS)
    for one, other in zip(written, read, strict=True):
        assert other is not None
        assert str(one.aid) == str(other.aid)
    call, _, decided, _, installed, aborted = read
    assert isinstance(call, format_.Completed)
    assert [(each.name, each.version) for each in call.reads] == [("x", stamp), ("y", None)]
    assert [(each.name, each.value) for each in call.writes] == [("x", b"1"), ("z", None)]
    assert isinstance(decided, format_.Decided)
    assert decided.parts == [format_.Part("us", (stamp,))]
    assert isinstance(installed, format_.Installed)
    assert (installed.calls, installed.is_read_only) == ((stamp,), True)
    assert isinstance(aborted, format_.Aborted)
    assert aborted.reason == "because"
    assert format_.read_event(b"nothing of ours") is None


# ---- with Spark


def test_the_pipeline_runs_groups_of_both_kinds_together(
    spark: SparkSession, bank_journals: Path, counter_journals: Path, tmp_path: Path
) -> None:
    outcome = run_pipeline(spark, [bank_journals, counter_journals], tmp_path / "out")
    assert outcome.groups == ["bank0", "bank1", "bank2", "group"]
    assert outcome.is_kept, outcome.violations
    checked = {(row["group"], row["check"]): row["verdict"] for row in outcome.verdicts}
    assert checked["bank0", "atomic"] == "kept"
    assert checked["bank1", "serializable"] == "kept"
    assert checked["group", "global ordering"] == "kept"
    assert ("group", "atomic") not in checked
    assert ("bank0", "global ordering") not in checked
    told = spark.read.parquet(str(tmp_path / "out" / "transactions"))
    counted = {row["outcome"]: row["count"] for row in told.groupBy("outcome").count().collect()}
    assert counted["committed"] == sum(
        each.get("committed", 0) for each in outcome.transactions.values()
    )
    forced = spark.read.parquet(str(tmp_path / "out" / "forced"))
    assert forced.where("standing = 'authoritative'").count() > 0
    assert outcome.report is not None
    page = outcome.report.read_text(encoding="utf-8")
    assert "Group bank0" in page
    assert "committed" in page
