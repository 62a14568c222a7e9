"""DuckDB finds what we find: promises recomputed in SQL from the tables, and from nothing else.

The queries know none of our code. They read the tables of the lake as anybody would, decide again
which entries are authoritative, and look for what must not be.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from tests.pipeline.here import edit, judge_lake, seal_here
from tests.pipeline.journals import OPTIMISTIC, copy_group, make_group, storm

from coterie.kernel.clock import seconds
from coterie.kernel.components import GREEN
from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]
Change = Callable[[Row], Row | None]

ACCEPTED = """
    -- What each replica holds at each position: what it accepted last, unless it gave that up
    -- later for a history that ends before it, or for a state that was sent to it.
    create view accepted as
    select distinct on (replica, position) replica, position, fingerprint, stamp
    from entries
    where not exists (
        from standings
        where standings.replica = entries.replica
        and (standings.incarnation, standings.sequence) > (entries.incarnation, entries.sequence)
        and (
            (event = 'rolled back' and standings.position < entries.position)
            or (event = 'adopted' and standings.position < entries.position)
        )
    )
    order by replica, position, incarnation desc, sequence desc
"""
REACHED = """
    -- How far each replica called its history authoritative, and had it from others as a state.
    create view reached as
    select
        replica,
        max(position) filter (event = 'settled') as settled,
        coalesce(max(restored) filter (event = 'adopted'), 0) as restored
    from standings group by replica
"""
AUTHORITATIVE = """
    -- What a majority of the configuration has accepted, by itself or in a state.
    create view authoritative as
    with members as (
        select len(replicas) as size from lives where event = 'started'
        order by configuration desc limit 1
    )
    select position, fingerprint, stamp
    from (select distinct replica, position, fingerprint, stamp from entries) entries
    group by position, fingerprint, stamp
    having count(*) + (select count(*) from reached where restored >= position and not exists (
        from entries other where other.replica = reached.replica
        and other.position = any_value(entries.position)
        and other.fingerprint = any_value(entries.fingerprint)
    )) > (select size // 2 from members)
"""
ONE_ENTRY = """
    -- No two replicas call different entries at one position authoritative.
    select position from accepted join reached using (replica)
    where position <= settled
    group by position having count(distinct fingerprint) > 1
"""
EXACTLY_ONCE = """
    -- All final answers to a request name one place and one result.
    select session, request from replies
    where standing & 2 <> 0 and session <> 0
    group by session, request, "count"
    having count(distinct (position, digest)) > 1
"""
ACKNOWLEDGED = """
    -- What a client was told to be final is authoritative, at that place.
    select position from replies
    where standing & 2 <> 0 and position > 0
    and not exists (
        from authoritative
        where authoritative.position = replies.position and authoritative.stamp = replies.stamp
    )
"""
PROMISES = {
    "one authoritative entry": ONE_ENTRY,
    "exactly once": EXACTLY_ONCE,
    "acknowledged means authoritative": ACKNOWLEDGED,
}
ONE_EVENT = """
    -- Cohorts that know the event at a viewstamp know the same one.
    select view, number from event_records
    group by view, number having count(distinct digest) > 1
"""


def found_in_sql(lake: Lake, group: str) -> dict[str, int]:
    """How often each promise is broken, by the tables alone."""
    with duckdb.connect() as connection:
        for table in ("entries", "replies", "standings", "lives"):
            files = f"{lake.root}/{table}/**/*.parquet"
            connection.execute(
                f"create view {table} as from read_parquet('{files}', hive_partitioning = true, "
                f"hive_types = {{'group_name': VARCHAR}}) where group_name = '{group}'"
            )
        for view in (ACCEPTED, REACHED, AUTHORITATIVE):
            connection.execute(view)
        return {name: len(connection.execute(query).fetchall()) for name, query in PROMISES.items()}


def found_by_us(lake: Lake, group: str) -> dict[str, int]:
    rows = [row for row in judge_lake(lake).verdicts if row["group_name"] == group]
    return {row["check_name"]: row["violations"] for row in rows if row["check_name"] in PROMISES}


def agree(lake: Lake, group: str = "group") -> dict[str, bool]:
    """Which promises are broken, if both say the same."""
    ours, theirs = found_by_us(lake, group), found_in_sql(lake, group)
    assert set(ours) == set(theirs) == set(PROMISES)
    said = {name: bool(count) for name, count in ours.items()}
    assert said == {name: bool(count) for name, count in theirs.items()}, (ours, theirs)
    return said


@pytest.mark.parametrize(
    ("stack", "seed"), [("SAFE:TOKEN:PVSYNC", 4), (OPTIMISTIC, 13), ("SAFE:DYNSEQ:PVSYNC", 14)]
)
def test_sound_journals_in_sql(stack: str, seed: int, tmp_path: Path) -> None:
    group = make_group(seed=seed, stack=stack, names="abc", has_object=True)
    storm(group, duration=seconds(8))
    copy_group(group, tmp_path / "journals")
    lake = seal_here(tmp_path / "journals", tmp_path / "lake")
    assert not any(agree(lake).values())


def _at(position: int, *replicas: str) -> Callable[[Row], bool]:
    return lambda row: row["position"] == position and (not replicas or row["replica"] in replicas)


def _once(is_wanted: Callable[[Row], bool], **values: object) -> Change:
    done: list[Row] = []

    def change(row: Row) -> Row:
        if done or not is_wanted(row):
            return row
        done.append(row)
        return {**row, **values}

    return change


def _fork(lake: Lake) -> None:
    other = {"fingerprint": 5}
    assert edit(lake, "entries", lambda row: {**row, **other} if _at(30, "b")(row) else row)


def _answer_again(lake: Lake) -> None:
    rows = [row for row in lake.table("replies", "group").to_pylist() if row["session"]]
    first, last = rows[0], rows[-1]
    same = {name: first[name] for name in ("session", "request", "count")}
    assert edit(lake, "replies", lambda row: {**row, **same} if row == last else row) == 1


def _answer_too_early(lake: Lake) -> None:
    assert edit(lake, "replies", _once(_at(30), stamp=5)) == 1


BROKEN: dict[str, Callable[[Lake], None]] = {
    "one authoritative entry": _fork,
    "exactly once": _answer_again,
    "acknowledged means authoritative": _answer_too_early,
}


@pytest.mark.parametrize("promise", BROKEN)
def test_a_violation_is_one_in_sql_as_well(promise: str, counter_lake: Lake) -> None:
    if promise == "one authoritative entry":
        assert not any(agree(counter_lake).values())
    BROKEN[promise](counter_lake)
    assert agree(counter_lake)[promise]


# ---- other families

ONE_ACTION = """
    -- No position of the order has two actions.
    select position from greens group by position having count(distinct fingerprint) > 1
"""
TOLD_RIGHT = """
    -- A final answer speaks of what is green at that place.
    select position from replies
    where standing & 2 <> 0 and position > 0
    and not exists (
        from greens where greens.position = replies.position and greens.stamp = replies.stamp
    )
"""
ONE_PRIMARY = """
    -- A view has one primary.
    select view from cohorts where event = 'started'
    group by view having count(distinct primary_member) > 1
"""
RELEASED_ONCE = """
    -- Every byte of a connection left once, and in order.
    select conn from (
        select conn, byte_offset, coalesce(lag(byte_offset + length) over (
            partition by conn order by incarnation, sequence, byte_offset
        ), 0) as expected from released
    ) where byte_offset <> expected
"""


class Other(NamedTuple):
    """A promise of another family, and a change of the tables that breaks it."""

    journals: str
    group: str
    check: str
    query: str
    table: str
    change: Callable[[Row], Change]


def _differently(**values: object) -> Callable[[Row], Change]:
    """Change the first row that is like a given one."""
    return lambda wanted: _once(lambda row: row == wanted, **values)


OTHERS = {
    "one event": Other(
        "bank_journals", "bank0", "one event", ONE_EVENT, "event_records", _differently(digest=1)
    ),
    "one primary": Other(
        *("bank_journals", "bank0", "one primary", ONE_PRIMARY, "cohorts"),
        _differently(primary_member={"id": "x", "incarnation": 1}),
    ),
    "global total order": Other(
        *("colours_journals", "group", "global total order", ONE_ACTION, "greens"),
        _differently(fingerprint=1),
    ),
    "told right": Other(
        "colours_journals", "group", "told right", TOLD_RIGHT, "replies", _differently(stamp=1)
    ),
    "exactly once": Other(
        *("colours_journals", "group", "exactly once", EXACTLY_ONCE, "replies"),
        lambda _: lambda row: {**row, "session": 1, "request": 1, "count": 1},
    ),
    "released once": Other(
        *("program_journals", "counter", "released once", RELEASED_ONCE, "released"),
        _differently(byte_offset=77),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_families_in_sql(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Sound journals keep the promise here and there; a change of one row breaks it in both."""
    case = OTHERS[name]
    lake = seal_here(request.getfixturevalue(case.journals), tmp_path / "lake")

    def both() -> tuple[bool, bool]:
        rows = [row for row in judge_lake(lake).verdicts if row["group_name"] == case.group]
        ours = any(row["violations"] for row in rows if row["check_name"] == case.check)
        with duckdb.connect() as connection:
            for table in ("event_records", "cohorts", "greens", "replies", "released"):
                files = f"{lake.root}/{table}/**/*.parquet"
                if any(lake.path(table).rglob("*.parquet")):
                    connection.execute(
                        f"create view {table} as from read_parquet('{files}', "
                        "hive_partitioning = true, hive_types = {'group_name': VARCHAR}) "
                        f"where group_name in ('{case.group}', '{case.group}@edge')"
                    )
            return ours, bool(connection.execute(case.query).fetchall())

    assert both() == (False, False)
    group = f"{case.group}@edge" if case.table == "released" else case.group
    rows = lake.table(case.table, group).to_pylist()
    wanted = next(row for row in rows if _is_telling(case, row))
    assert edit(lake, case.table, case.change(wanted))
    assert both() == (True, True)


def _is_telling(case: Other, row: Row) -> bool:
    if case.table == "cohorts":
        return bool(row["event"] == "started")
    if case.table == "replies":
        return bool(row["standing"] == GREEN and row["position"] > 0)
    return bool(case.table != "released" or row["byte_offset"] > 0)
