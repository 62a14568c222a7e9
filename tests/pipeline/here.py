"""Running the pipeline's tasks in the test's own process: what Spark would run, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline import witnesses
from coterie.pipeline.lake import Lake
from coterie.pipeline.planning import plan
from coterie.pipeline.ranges import ranges_of
from coterie.pipeline.reconstruct import history_of_range
from coterie.pipeline.replay import Program
from coterie.pipeline.results import Results
from coterie.pipeline.schemas import HISTORY, JOURNAL_TABLES
from coterie.pipeline.sealing import seal_segment, sweep
from coterie.pipeline.verify import CLOCK_BOUND, check_across, check_item, items_of

Row = dict[str, Any]


def seal_here(journals: Path, folder: Path, *, width: int = 100, growing: bool = False) -> Lake:
    lake = Lake.make(folder, width=width)
    for task in plan([journals], growing=growing):
        seal_segment(task, lake)
    sweep(lake)
    return lake


def history_here(lake: Lake) -> list[Row]:
    batches = [
        batch
        for group, testimony in witnesses.testimonies_of(lake).items()
        for task in ranges_of(lake, [group])
        for batch in history_of_range(task, testimony)
    ]
    rows: list[Row] = pa.Table.from_batches(batches, schema=HISTORY).to_pylist()
    return rows


def verify_here(
    lake: Lake, programs: Mapping[str, Program] | None = None, clock_bound: int = CLOCK_BOUND
) -> dict[str, Results]:
    """All checks but the one that needs a shuffle."""
    found: dict[str, Results] = {}
    testimonies = witnesses.testimonies_of(lake)
    for item in items_of(lake, testimonies, programs):
        results = check_item(item, lake, testimonies[item.group], clock_bound)
        total = found.setdefault(item.group, Results(item.group))
        for check, count in results.counts.items():
            total.count(check).add(count)
        total.violations += results.violations
        total.extents += results.extents
    for group, results in found.items():
        check_across(results, ranges_of(lake, [group]), testimonies[group], clock_bound)
    return found


def broken(lake: Lake, programs: Mapping[str, Program] | None = None) -> set[str]:
    """The names of all checks that fire."""
    return {
        check
        for results in verify_here(lake, programs).values()
        for check, count in results.counts.items()
        if count.found
    }


def edit(lake: Lake, table: str, change: Callable[[Row], Row | None]) -> int:
    """Change the rows of a table; one for which None is given is dropped. Counts the changes."""
    changed = 0
    for path in sorted(lake.path(table).rglob("*.parquet")):
        rows = pq.read_table(path, schema=JOURNAL_TABLES[table]).to_pylist()
        edited = [change(dict(row)) for row in rows]
        if edited != rows:
            changed += sum(one != other for one, other in zip(rows, edited, strict=True))
            kept = [row for row in edited if row is not None]
            pq.write_table(pa.Table.from_pylist(kept, schema=JOURNAL_TABLES[table]), path)
    return changed
