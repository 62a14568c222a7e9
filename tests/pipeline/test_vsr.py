"""Groups of cohorts in the pipeline: every check fires where it must, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broken.cohort_variants import COHORT_BROKEN
from tests.broken.server_variants import (
    LocksNotKept,
    LostCallsPass,
    PreparesWithoutForce,
    ReadsWithoutLocks,
)
from tests.broken.test_server_variants import (
    change_views_under_a_lock,
    checks,
    lose_one_call_of_two,
    skew,
    vote_and_die,
)
from tests.pipeline.here import edit, seal_here, tables_here
from tests.vsr.bank_world import BankWorld
from tests.vsr.chain import run_chain

from coterie.checking.serializability import CommittedTransaction, check_serializable
from coterie.kernel.clock import seconds
from coterie.kernel.views import NO_VIEW, Configuration, ViewId, Viewstamp
from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.engines.vsr import case
from coterie.pipeline.engines.vsr import events as format_
from coterie.pipeline.engines.vsr.checks import CHECKS
from coterie.pipeline.engines.vsr.event_ranges import event_ranges, read_range, tabulate_events
from coterie.pipeline.engines.vsr.group_checks import check_cohorts
from coterie.pipeline.engines.vsr.history import CohortGroup, Walk, read_group
from coterie.pipeline.engines.vsr.serial import NOTHING, Steps, _steps, has_circle
from coterie.pipeline.history.results import Results
from coterie.pipeline.history.verify import verify_alone
from coterie.pipeline.jobs import run_pipeline
from coterie.pipeline.lake.lake import Lake
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.vsr.trial import TransactionOptions
from coterie.simulation.world.export import write_journals
from coterie.vsr.commit import events
from coterie.vsr.commit.psets import Aid, Pair
from coterie.vsr.commit.server import Server

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

Row = dict[str, Any]


@pytest.fixture(scope="session")
def _sealed_bank(bank_journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed bank") / "lake"
    seal_here(bank_journals, folder)
    return folder


@pytest.fixture
def bank_lake(_sealed_bank: Path, tmp_path: Path) -> Lake:
    """A lake that the test may change."""
    return Lake.open(copytree(_sealed_bank, tmp_path / "bank lake"))


FOUNDED = [(Viewstamp(NO_VIEW, 0), Configuration(1, ("a", "b", "c")))]


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
        assert set(results.counts) == set(CHECKS)
        unchecked = {name for name, count in results.counts.items() if not count.checked}
        assert unchecked <= {"equal states", "forced events survive"}


def test_the_history_is_what_was_forced(bank_lake: Lake) -> None:
    for group in bank_lake.groups():
        found = read_group(bank_lake, group)
        rows = [
            row
            for task in event_ranges(bank_lake, found)
            for row in tabulate_events(read_range(task, {group: found}, Results(group))).to_pylist()
        ]
        assert len(rows) > bank_lake.width, "more than one range"
        positions = [row["position"] for row in rows if row["position"] is not None]
        assert positions == list(range(1, len(positions) + 1))
        majority = [row for row in rows if len(row["known_by"]) >= 2]
        forced = [row for row in rows if row["standing"] == "authoritative"]
        assert forced
        assert {row["kind"] for row in forced} >= {"call", "installed"}
        assert all(row["aid"] for row in rows)
        assert len(majority) <= len(rows)
        last = max(found.forced)
        for row in rows:
            if row["standing"] == "rolled back":
                assert row["view"]["number"] < last.number


def test_transactions_are_rows(bank_lake: Lake) -> None:
    rows = tables_here(bank_lake, "transactions")
    assert {row["outcome"] for row in rows} >= {"committed", "aborted"}
    for row in rows:
        assert row["coordinator"] in {"bank0", "bank1", "bank2"}
        if row["outcome"] == "committed":
            assert row["groups"]
            assert (row["writes"] == 0) == (row["reason"] == "it has only read")
            assert row["ended_at"] is not None
        if row["outcome"] == "aborted":
            assert row["reason"]


def test_a_history_that_spans_configurations_is_judged_by_who_counted(tmp_path: Path) -> None:
    faults = ("kill", "partition", "join", "remove", "replace")
    options = TransactionOptions(
        duration=seconds(12), faults=faults, groups=2, journals=str(tmp_path / "journals")
    )
    run = run_seed(5, options)
    assert run.violations == []
    lake = seal_here(tmp_path / "journals" / "5", tmp_path / "lake")
    assert broken(lake) == set()
    groups = [read_group(lake, group) for group in lake.groups()]
    most = max(groups, key=lambda found: len(found.configurations))
    numbers = [each.number for _, each in most.configurations]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 4, "members came and went"
    # If others had counted in the end, too few of them knew what was called forced.
    at, _ = most.configurations[-1]
    most.configurations[-1] = at, Configuration(9, ("x", "y", "z"))
    found = check_cohorts(most).counts
    assert {name for name, count in found.items() if count.found} == {"forced majority"}


# ---- checks that fire on edited journals


def lower(row: Row) -> Row:
    return {**row, "view": {**row["view"], "number": 0}}


def other_primary(row: Row) -> Row:
    return {**row, "primary_member": {"id": "somebody", "incarnation": 1}}


def knows_more(row: Row) -> Row:
    history = [dict(each) for each in row["history"]]
    history[0] = {**history[0], "number": history[0]["number"] + 1000}
    return {**row, "history": history}


def last_of(lake: Lake, table: str, is_wanted: Callable[[Row], bool]) -> tuple[str, str, int, int]:
    """The place of the last row that is wanted, in the first group that has one."""
    for group in lake.groups():
        rows = [row for row in lake.table(table, group).to_pylist() if is_wanted(row)]
        if rows:
            row = max(rows, key=lambda row: (row["view"]["number"], row["sequence"]))
            return place(row)
    pytest.fail("no such row")


def place(row: Row) -> tuple[str, str, int, int]:
    return row["group_name"], row["replica"], row["incarnation"], row["sequence"]


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
        for group in bank_lake.groups()
        for view, claim in read_group(bank_lake, group).forced.items()
    }

    def forget(row: Row) -> Row:
        if row["event"] != "started":
            return row
        history = [
            {**each, "number": max(each["number"] - 1, 0)}
            if (row["group_name"], ViewId(**each["view"])) in forced
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
    found = CohortGroup("bank", FOUNDED, set())
    view = {"number": 1, "proposer": "a", "incarnation": 1}
    rows = [
        {"replica": "a", "incarnation": life, "sequence": 2, "view": view, **what}
        for life, what in (
            (1, {"event": "known", "number": 1, "count": 3}),
            (2, {"event": "known", "number": 9, "count": 1}),
        )
    ]
    Walk(found, torn, set()).read(iter(rows))
    assert len(found.gaps) == gaps


@pytest.mark.parametrize(
    ("torn", "cut", "gaps"),
    [
        (set(), set(), 1),
        ({("a", 2)}, set(), 0),  # nothing is left of a life between the two
        ({("b", 2)}, set(), 1),
        (set(), {("a", 1)}, 0),  # the end of the life before was cut off
        (set(), {("a", 3)}, 1),
    ],
)
def test_what_lives_before_have_lost_accuses_nobody(
    torn: set[tuple[str, int]], cut: set[tuple[str, int]], gaps: int
) -> None:
    """Damage by chance made a cohort seem to lead what it did not know."""
    found = CohortGroup("g", FOUNDED, set())
    view = {"number": 1, "proposer": "a", "incarnation": 1}
    rows = [
        {"replica": "a", "incarnation": life, "sequence": 2, "view": view, **what}
        for life, what in (
            (1, {"event": "known", "number": 1, "count": 3}),
            (3, {"event": "known", "number": 9, "count": 1}),
        )
    ]
    Walk(found, torn, cut).read(iter(rows))
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
        write_journals(world.machines.values(), place / "journals")
        lake = seal_here(place / "journals", place / "lake")
        assert broken(lake) >= expected
        assert bool(broken(lake)) == bool(expected)


@pytest.mark.slow  # as many runs as the variants survive
@pytest.mark.parametrize("name", ["no stable storage", "the paper's stable storage"])
def test_broken_stable_storage_is_caught_by_its_journals(tmp_path: Path, name: str) -> None:
    [variant] = [each for each in COHORT_BROKEN if each.name == name]
    for seed in range(30):
        world = run_chain(seed, kind=variant.kind, prepare=variant.prepare, duration=seconds(8))
        folder = tmp_path / str(seed)
        write_journals(world.machines.values(), folder / "journals")
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
            [events.ObjectRead("x", stamp), events.ObjectRead("y", None)],
            [events.ObjectWritten("x", b"1"), events.ObjectWritten("z", None)],
            b"reply",
            False,  # noqa: FBT003 -- a field
            (Pair("us", stamp),),
        ),
        events.CallsGivenUp(aid, ("1", "2.1")),
        events.Committing(aid, [events.GroupCalls("us", (stamp,))]),
        events.DecisionKnown(aid),
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
    assert decided.parts == [format_.JournalPart("us", (stamp,))]
    assert isinstance(installed, format_.Installed)
    assert (installed.calls, installed.is_read_only) == ((stamp,), True)
    assert isinstance(aborted, format_.JournalAborted)
    assert aborted.reason == "because"
    assert format_.read_event(b"nothing of ours") is None


# ---- with Spark


def test_the_pipeline_runs_groups_of_both_kinds_together(
    spark: SparkSession, bank_journals: Path, counter_journals: Path, tmp_path: Path
) -> None:
    outcome = run_pipeline(spark, [bank_journals, counter_journals], tmp_path / "out")
    assert outcome.groups == ["bank0", "bank1", "bank2", "group"]
    assert outcome.is_kept, outcome.violations
    checked = {(row["group_name"], row["check_name"]): row["verdict"] for row in outcome.verdicts}
    assert checked["bank0", "atomic"] == "kept"
    assert checked["bank1", "serializable"] == "kept"
    assert checked["group", "global ordering"] == "kept"
    assert ("group", "atomic") not in checked
    assert ("bank0", "global ordering") not in checked
    told = spark.read.parquet(str(tmp_path / "out" / "tables" / "transactions"))
    counted = {row["outcome"]: row["count"] for row in told.groupBy("outcome").count().collect()}
    assert counted["committed"] == sum(
        each.get("committed", 0) for each in outcome.transactions.values()
    )
    forced = spark.read.parquet(str(tmp_path / "out" / "tables" / "forced"))
    assert forced.where("standing = 'authoritative'").count() > 0
    assert outcome.report is not None
    page = outcome.report.read_text(encoding="utf-8")
    assert "Group bank0" in page
    assert "committed" in page


# ---- in parts


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share out transactions and objects among many tasks, as only large journals need it."""
    monkeypatch.setattr(case, "PART_EVENTS", 40)


def told_of(lake: Lake) -> dict[str, Any]:
    found = verify_alone(lake)
    return {
        group: (results.counts, sorted(map(str, results.violations)))
        for group, results in found.items()
    }


def test_in_parts_it_is_the_same(bank_lake: Lake, request: pytest.FixtureRequest) -> None:
    """Transactions and objects shared out among tasks come to what one task says."""
    lost = last_of(bank_lake, "event_records", lambda row: row["number"] == 3)
    assert edit(bank_lake, "event_records", lambda row: None if place(row) == lost else row)
    whole = told_of(bank_lake), tables_here(bank_lake, "transactions")
    request.getfixturevalue("in_parts")
    groups = bank_lake.groups()
    assert case.open_case(bank_lake, groups, Wanted("")).parts > 5
    parts = told_of(bank_lake), tables_here(bank_lake, "transactions")
    assert parts[0] == whole[0]
    assert sorted(map(str, parts[1])) == sorted(map(str, whole[1]))


@pytest.mark.parametrize(
    ("kind", "story", "caught_by"),
    [
        (LocksNotKept, change_views_under_a_lock, "locks kept"),
        (ReadsWithoutLocks, skew, "serializable"),
    ],
)
def test_in_parts_a_broken_server_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Server],
    story: Callable[[BankWorld], None],
    caught_by: str,
) -> None:
    monkeypatch.setattr(case, "PART_EVENTS", 1)
    world = BankWorld(server_kind=kind)
    story(world)
    write_journals(world.machines.values(), tmp_path / "journals")
    lake = seal_here(tmp_path / "journals", tmp_path / "lake")
    assert caught_by in broken(lake)


# ---- who comes before whom, in columns


def steps(*pairs: tuple[int, int, int, int]) -> Steps:
    return Steps(*(np.array(column, np.int64) for column in zip(*pairs, strict=True)))


def test_a_circle_is_looked_for_only_where_one_is_possible() -> None:
    forward = steps((1, 10, 2, 20), (2, 20, 3, 30), (1, 10, 3, 30))
    assert not forward.is_backward().any()
    assert not has_circle([forward])
    # Clocks of two primaries differ: a step leads back, and there is no circle.
    assert not has_circle([forward, steps((9, 25, 8, 15))])
    assert has_circle([forward, steps((3, 30, 1, 10))])
    # A circle over two shares of the objects, of transactions that ended at one moment.
    assert has_circle([steps((1, 10, 2, 10)), steps((2, 10, 1, 10))])


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_a_circle_is_found_whatever_the_clocks_say(
    pairs: list[tuple[int, int]], times: list[int]
) -> None:
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    if not pairs:
        return
    sorter = TopologicalSorter[int]()
    for one, other in pairs:
        sorter.add(other, one)
    try:
        sorter.prepare()
        is_circular = False
    except CycleError:
        is_circular = True
    timed = [(one, times[one], other, times[other]) for one, other in pairs]
    assert has_circle([steps(*timed)]) == is_circular


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), unique=True, max_size=8),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(-1, 8)), max_size=8),
    st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
def test_columns_clear_no_history_that_is_not_serializable(
    written: list[tuple[int, int]], read: list[tuple[int, int, int]], times: list[int]
) -> None:
    """Random histories: whatever the whole checker calls broken, columns call possible."""
    # Who wrote which object, in the order of positions; who read which version, or nothing.
    who = [CommittedTransaction(str(each)) for each in range(5)]
    orders: dict[str, list[str]] = {}
    for position, (id_, object_) in enumerate(written):
        orders.setdefault(str(object_), []).append(str(position))
        who[id_].writes.append((str(object_), str(position)))
    for id_, object_, version in read:
        who[id_].reads.append((str(object_), None if version < 0 else str(version)))

    def columns(rows: list[tuple[int, int, int]]) -> dict[str, NDArray[np.int64]]:
        ids, objects, firsts = np.array(rows, np.int64).reshape(-1, 3).T
        at = np.array(times, np.int64)[ids]
        return {"id": ids, "base": objects << 41, "first": firsts, "time": at}

    # Positions begin with 1: 0 is before all of them.
    by_position = [(id_, object_, at + 1) for at, (id_, object_) in enumerate(written)]
    versions = [
        (id_, object_, NOTHING if version < 0 else version + 1) for id_, object_, version in read
    ]
    share = _steps(columns(by_position), columns(versions))
    is_suspected = share.is_unwritten or has_circle([share.steps])
    assert is_suspected == bool(check_serializable(who, orders))
