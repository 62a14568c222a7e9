"""Transactions by columns: they say what following each one says, and nothing odd is plain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.here import seal_here

from coterie.bench.workloads.transactions import write_transactions
from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.engines.vsr.case import VsrCase, open_case
from coterie.pipeline.engines.vsr.events import Completed, Decided, Installed, JournalAborted
from coterie.pipeline.engines.vsr.plain import read_plain
from coterie.pipeline.engines.vsr.serial import as_rows
from coterie.pipeline.engines.vsr.traces import CODES
from coterie.pipeline.engines.vsr.transaction_checks import check_transactions
from coterie.pipeline.engines.vsr.transactions import TransactionLedger
from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]


def handed_on(lake: Lake, folder: Path) -> VsrCase:
    """A case after its first round."""
    case = open_case(lake, lake.groups(), Wanted(str(folder)))
    for item in case.items(0):
        list(case.work(item))
    return case


@pytest.mark.parametrize("kind", ["bank", "made"])
def test_columns_say_what_following_each_says(
    kind: str, bank_journals: Path, tmp_path: Path
) -> None:
    journals = bank_journals
    if kind == "made":
        journals = tmp_path / "journals"
        write_transactions(journals, 500)
    case = handed_on(seal_here(journals, tmp_path / "lake"), tmp_path / "scratch")
    folder = f"{tmp_path}/scratch/events"
    known = case.told.values()
    for part in range(case.parts):
        parts = range(part, part + 1)
        plain = read_plain(sorted(case.told), folder, part)
        whole = TransactionLedger(known, folder, parts)
        others = TransactionLedger(known, folder, parts, without=plain.ids)
        assert not any(each.outcome == "committed" for each in others.transactions.values())
        assert len(plain.ids) + len(others.transactions) == len(whole.transactions)
        rows = pa.concat_tables([plain.rows(), others.rows()])
        rows = rows.sort_by([("began_at", "ascending"), ("aid", "ascending")])
        assert rows.to_pylist() == whole.rows().to_pylist()
        counted: dict[tuple[str, str], int] = {}
        for each in (*plain.results(), *check_transactions(others)):
            for check, count in each.counts.items():
                key = each.group, check
                counted[key] = counted.get(key, 0) + count.checked
        for results in check_transactions(whole):
            for check, count in results.counts.items():
                assert counted.pop((results.group, check)) == count.checked
        assert not any(counted.values())
        # But for the numbers of transactions, which only have to differ.
        first = len(others.transactions)
        touches = [*as_rows(others.touches(0)), *plain.touches(folder, part, first)]
        expected = as_rows(whole.touches(0))
        assert sorted(tuple(row[:5]) for row in touches) == sorted(
            tuple(row[:5]) for row in expected
        )
        ids = {tuple(row[:5]): row[5] for row in touches}
        pairs = {(ids[tuple(row[:5])], row[5]) for row in expected}
        assert len({one for one, _ in pairs}) == len({other for _, other in pairs})


CALL, DECIDED, INSTALLED, ABORTED = (
    CODES[kind] for kind in (Completed, Decided, Installed, JournalAborted)
)


def of_kind(kind: int, change: Row) -> Callable[[Row], Row | None]:
    return lambda row: {**row, **change} if row["kind"] == kind else row


ODDITIES: dict[str, Callable[[Row], Row | None]] = {
    "an installation of other calls": of_kind(INSTALLED, {"sign": 7}),
    "an installation of fewer calls": of_kind(INSTALLED, {"calls": 0}),
    "a decision for other calls": of_kind(DECIDED, {"sign": 7}),
    "a decision for more groups": of_kind(DECIDED, {"parts": 3}),
    "a decision that names what is not there": of_kind(DECIDED, {"is_odd": True}),
    "an abortion": of_kind(INSTALLED, {"kind": ABORTED}),
    "a call that did not survive": of_kind(CALL, {"standing": 1}),
    "a decision that is not known to be forced": of_kind(DECIDED, {"standing": 2}),
    "no decision": lambda row: None if row["kind"] == DECIDED else row,
    "no installation": lambda row: None if row["kind"] == INSTALLED else row,
    "no call": lambda row: None if row["kind"] == CALL else row,
    "an installation before the call": of_kind(INSTALLED, {"position": 0}),
    "one that has only read, and was decided": of_kind(INSTALLED, {"parts": 1}),
}


@pytest.mark.parametrize("name", ODDITIES)
def test_nothing_odd_is_plain(name: str, tmp_path: Path) -> None:
    write_transactions(tmp_path / "journals", 3)
    case = handed_on(seal_here(tmp_path / "journals", tmp_path / "lake"), tmp_path / "scratch")
    folder = f"{tmp_path}/scratch/events"
    groups = sorted(case.told)
    odd = read_plain(groups, folder, 0).ids[0]
    for path in Path(folder).rglob("*.parquet"):
        table = pq.ParquetFile(path).read()
        rows = [
            ODDITIES[name](row) if row["transaction"] == odd else row for row in table.to_pylist()
        ]
        kept = [row for row in rows if row is not None]
        pq.write_table(pa.Table.from_pylist(kept, table.schema), path)
    left = read_plain(groups, folder, 0).ids.tolist()
    assert len(left) == 2
    assert odd not in left
