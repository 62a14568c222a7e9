"""Viewstamped replication: what the journals of cohorts tell, and what must hold of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.pipeline.engines.vsr.checks import CHECKS
from coterie.pipeline.engines.vsr.columns import TABLES
from coterie.pipeline.read.schemas import FORCED, TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Case, Row, Wanted
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures

STACK = "VSR"
"""What cohorts call their stack in `lives`."""


class VsrFamily:
    """What the pipeline knows of cohorts; what takes long to import is imported when needed."""

    name = "vsr"
    tables = TABLES
    histories = {"forced": FORCED, "transactions": TRANSACTIONS}  # noqa: RUF012 -- never changed
    checks = CHECKS

    def owns(self, stack: str) -> bool:
        """Say whether a group is one of cohorts."""
        return stack == STACK

    def open(
        self, lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
    ) -> Case:
        """Read what the journals of some groups say as a whole, once."""
        from coterie.pipeline.engines.vsr.case import open_case  # noqa: PLC0415 -- see above

        del spark
        return open_case(lake, groups, wanted)

    def views(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give what happened to views: they are installed and confirmed at once."""
        from coterie.pipeline.engines.vsr.figures import cohort_views  # noqa: PLC0415 -- see above

        return cohort_views(lake.table("cohorts", group).to_pylist())

    def settlements(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give when events were forced."""
        from coterie.pipeline.engines.vsr.figures import cohort_standings  # noqa: PLC0415

        return cohort_standings(lake.table("cohorts", group).to_pylist())

    def outcomes(self, tables: Path) -> dict[str, dict[str, int]]:
        """Count how transactions ended, by the group that coordinated them."""
        from coterie.pipeline.engines.vsr.figures import count_outcomes  # noqa: PLC0415

        return count_outcomes(tables / "transactions")

    def figures(self, lake: Lake, group: str) -> dict[str, Any]:
        """Give no figures beside those of all groups."""
        del lake, group
        return {}

    def chapter(self, figures: Figures) -> str:
        """Show nothing beside what is shown of all groups."""
        del figures
        return ""


FAMILY = VsrFamily()
