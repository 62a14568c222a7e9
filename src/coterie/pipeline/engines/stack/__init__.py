"""Stacks of layers: engines that deliver entries in an order, and every replica executes them.

It is also the family of groups whose journals do not say what they are of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.pipeline.engines.stack.checks import CHECKS
from coterie.pipeline.engines.stack.columns import TABLES
from coterie.pipeline.read.schemas import HISTORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Case, Row, Wanted
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures


class StackFamily:
    """What the pipeline knows of stacks; what takes long to import is imported when needed."""

    name = "stack"
    tables = TABLES
    histories = {"history": HISTORY}  # noqa: RUF012 -- never changed
    checks = CHECKS

    def owns(self, stack: str) -> bool:
        """Say whether a group is one of a stack: the lowest layer is its membership."""
        return stack.upper().endswith("VSYNC")

    def open(
        self, lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
    ) -> Case:
        """Build the testimonies of some groups, once."""
        from coterie.pipeline.engines.stack.case import open_case  # noqa: PLC0415 -- see above

        return open_case(lake, groups, wanted, spark)

    def views(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give what happened to views."""
        rows: list[Row] = lake.table("views", group).to_pylist()
        return rows

    def settlements(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give when entries became authoritative."""
        rows: list[Row] = lake.table("standings", group).to_pylist()
        return rows

    def outcomes(self, tables: Path) -> dict[str, dict[str, int]]:
        """Count nothing: there are no transactions."""
        del tables
        return {}

    def figures(self, lake: Lake, group: str) -> dict[str, Any]:
        """Give no figures beside those of all groups."""
        del lake, group
        return {}

    def chapter(self, figures: Figures) -> str:
        """Show nothing beside what is shown of all groups."""
        del figures
        return ""


FAMILY = StackFamily()
