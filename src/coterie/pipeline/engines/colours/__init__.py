"""Replication over a partitioned network: what the journals of coloured actions tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.pipeline.engines.colours.checks import CHECKS
from coterie.pipeline.engines.colours.columns import TABLES
from coterie.pipeline.read.schemas import HISTORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Case, Row, Wanted
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures


class ColoursFamily:
    """What the pipeline knows of **transis**; what takes long to import is imported when needed."""

    name = "colours"
    tables = TABLES
    histories = {"history": HISTORY}  # noqa: RUF012 -- never changed
    checks = CHECKS

    def owns(self, stack: str) -> bool:
        """Say whether a group is over a partitioned network: by its top layer."""
        return stack.upper().startswith("COLOURS:")

    def open(
        self, lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
    ) -> Case:
        """Read what the journals of some groups say as a whole, once."""
        from coterie.pipeline.engines.colours.case import open_case  # noqa: PLC0415 -- see above

        del spark
        return open_case(lake, groups, wanted)

    def views(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give what happened to views: one is confirmed where it is a primary component."""
        from coterie.pipeline.engines.colours.figures import component_views  # noqa: PLC0415

        return component_views(lake, group)

    def settlements(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give when actions became green."""
        from coterie.pipeline.engines.colours.figures import green_moments  # noqa: PLC0415

        return green_moments(lake, group)

    def outcomes(self, tables: Path) -> dict[str, dict[str, int]]:
        """Count nothing: there are no transactions."""
        del tables
        return {}

    def figures(self, lake: Lake, group: str) -> dict[str, Any]:
        """Give the colours over time."""
        from coterie.pipeline.engines.colours.figures import colours_of  # noqa: PLC0415

        return colours_of(lake, group)

    def chapter(self, figures: Figures) -> str:
        """Show the colours over time."""
        from coterie.pipeline.engines.colours.figures import chapter  # noqa: PLC0415

        return chapter(figures)


FAMILY = ColoursFamily()
