"""The pipeline's side: what is checked from the journals of toys, and how that is reported.

Its records are those of the stacks, so it has no tables of its own. Of its promises there are two,
checked range by range of positions, in columns: no task looks at more than one range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.engines.family import Check
from coterie.pipeline.history.results import Count, Results, verdict_row
from coterie.pipeline.lake.ranges import Range, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Row, Table, Wanted
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures

ONE_HISTORY = Check("one history", "toy", "no position has two entries")
BY_MAJORITY = Check("settled by a majority", "toy", "a majority stored what anybody settled")


@dataclass
class ToyCase:
    """All groups of toys in one lake."""

    lake: Lake
    groups: Sequence[str]
    has_checks: bool
    rounds: int = 1

    def items(self, number: int) -> list[Range]:
        """Give a task for each range of positions."""
        del number
        return ranges_of(self.lake, self.groups) if self.has_checks else []

    def work(self, item: Range) -> Iterator[Results]:
        """Compare all replicas over one range."""
        results = Results(item.group)
        columns = ["position", "fingerprint", "replica"]
        entries = pa.concat_tables([pq.read_table(file, columns=columns) for file in item.entries])
        positions = entries["position"].to_numpy()
        prints = entries["fingerprint"].to_numpy()
        results.checked(ONE_HISTORY.name, len(positions))
        order = np.lexsort((prints, positions))
        is_same = np.diff(positions[order]) == 0
        for place in np.flatnonzero(is_same & (np.diff(prints[order]) != 0)):
            position = int(positions[order][place])
            results.violate(
                ONE_HISTORY.name, f"position {position} has two entries", position=position
            )
        self._check_majority(results, positions, entries["replica"])
        yield results

    def _check_majority(
        self, results: Results, positions: NDArray[np.int64], replicas: pa.ChunkedArray
    ) -> None:
        names = replicas.dictionary_encode().combine_chunks().indices.to_numpy()
        pairs = np.unique(np.stack([positions, names]), axis=1)  # who stored twice counts once
        stored, holders = np.unique(pairs[0], return_counts=True)
        standings = self.lake.table("standings", results.group).to_pylist()
        settled = max(
            (row["position"] for row in standings if row["event"] == "settled"), default=0
        )
        lives = self.lake.table("lives", results.group).to_pylist()
        size = max(len(row["replicas"]) for row in lives if row["replicas"])
        results.checked(BY_MAJORITY.name, int((stored <= settled).sum()))
        for place in np.flatnonzero((stored <= settled) & (2 * holders <= size)):
            position = int(stored[place])
            evidence = f"{position} is settled, and {holders[place]} of {size} stored it"
            results.violate(BY_MAJORITY.name, evidence, position=position)

    def conclude(self, found: dict[str, Results], spark: SparkSession | None) -> None:
        """There is nothing that needs all ranges."""

    def verdicts(self, results: Results) -> Iterator[Row]:
        """Give a verdict on every promise to one group."""
        for check in FAMILY.checks.values():
            count = results.counts.get(check.name, Count())
            verdict = "broken" if count.found else "kept" if count.checked else "not checked"
            yield verdict_row(results.group, check, count, verdict, count.remark)


class VerifiedToys:
    """What the pipeline knows of toys."""

    name = "toy"
    tables: Mapping[str, Table] = {}
    histories: Mapping[str, pa.Schema] = {}
    checks: Mapping[str, Check] = {check.name: check for check in (ONE_HISTORY, BY_MAJORITY)}

    def owns(self, stack: str) -> bool:
        """Say whether replicas that call their stack so are toys."""
        return stack == "TOY"

    def open(
        self, lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
    ) -> ToyCase:
        """Begin with some groups."""
        del spark
        return ToyCase(lake, groups, wanted.has_checks)

    def views(self, lake: Lake, group: str) -> list[Row]:
        """Give what happened to views: there is one."""
        del lake, group
        return []

    def settlements(self, lake: Lake, group: str) -> list[Row]:
        """Give when answers became final."""
        rows: list[Row] = lake.table("standings", group).to_pylist()
        return rows

    def outcomes(self, tables: Path) -> dict[str, dict[str, int]]:
        """Count nothing: there are no transactions."""
        del tables
        return {}

    def figures(self, lake: Lake, group: str) -> dict[str, Any]:
        """Give nothing beside what is told of all groups."""
        del lake, group
        return {}

    def chapter(self, figures: Figures) -> str:
        """Give nothing beside what is told of all groups."""
        del figures
        return ""


FAMILY = VerifiedToys()
