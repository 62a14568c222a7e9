"""A family of one's own, as the pipeline needs it: replicas count, and say now and then how far.

It has one kind of record, one table and one promise; `test_families.py` registers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.kernel.records.base import Record, register
from coterie.pipeline.engines.family import Check, Row, Table, Wanted
from coterie.pipeline.history.reconstruct import write_file
from coterie.pipeline.history.results import Count, Results, verdict_row
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.read.schemas import TIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coterie.pipeline.publish.figures import Figures

STACK = "TALLY"


class Counted(Record, tag=900, frozen=True, kw_only=True):
    """The replica has counted up to here."""

    total: int


register(Counted)

TALLIES = pa.schema(
    [
        ("group_name", pa.string()),
        ("replica", pa.string()),
        ("incarnation", pa.int64()),
        ("sequence", pa.int64()),
        ("recorded_at", TIME),
        ("total", pa.int64()),
    ]
)
RISES = Check("tallies rise", "nowhere", "who counts never counts back")


@dataclass(frozen=True, slots=True)
class TallyCase:
    """Groups that count; one task each."""

    lake: Lake
    groups: tuple[str, ...]
    wanted: Wanted
    rounds: int = 1

    def items(self, number: int) -> Sequence[str]:
        del number
        return self.groups

    def work(self, item: str) -> Iterator[Results]:
        table = self.lake.table("tallies", item)
        if self.wanted.tables:
            write_file(table, f"{self.wanted.tables}/tallies/{item}.parquet")
        results = Results(item)
        results.checked(RISES.name, len(table))
        reached: dict[str, Row] = {}
        for row in table.to_pylist():
            before = reached.get(row["replica"])
            if before is not None and row["total"] < before["total"]:
                places = [
                    (each["replica"], each["incarnation"], each["sequence"])
                    for each in (before, row)
                ]
                told = f"{row['replica']} counted {before['total']} and then {row['total']}"
                results.violate(RISES.name, told, rows=places)
            reached[row["replica"]] = row
        yield results

    def conclude(self, found: dict[str, Results], spark: SparkSession | None) -> None:
        pass

    def verdicts(self, results: Results) -> Iterator[Row]:
        count = results.counts.get(RISES.name, Count())
        yield verdict_row(results.group, RISES, count, "broken" if count.found else "kept", "")


class TallyFamily:
    name = "tally"
    tables = {"tallies": Table(TALLIES, {Counted: lambda record: {"total": record.total}})}  # noqa: RUF012
    histories = {"tallies": TALLIES}  # noqa: RUF012
    checks = {RISES.name: RISES}  # noqa: RUF012

    def owns(self, stack: str) -> bool:
        return stack == STACK

    def open(
        self, lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
    ) -> TallyCase:
        del spark
        return TallyCase(lake, tuple(groups), wanted)

    def views(self, lake: Lake, group: str) -> Iterable[Row]:
        del lake, group
        return ()

    def settlements(self, lake: Lake, group: str) -> Iterable[Row]:
        del lake, group
        return ()

    def outcomes(self, tables: Path) -> dict[str, dict[str, int]]:
        del tables
        return {}

    def figures(self, lake: Lake, group: str) -> dict[str, Any]:
        del lake, group
        return {}

    def chapter(self, figures: Figures) -> str:
        del figures
        return ""


FAMILY = TallyFamily()
