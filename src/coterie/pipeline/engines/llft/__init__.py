"""Leader and followers for programs: what the journals of replicas and edges tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.pipeline.engines.llft.checks import CHECKS
from coterie.pipeline.engines.llft.columns import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Row, Wanted
    from coterie.pipeline.engines.llft.case import LlftCase
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures

STACK = "LLFT"
"""How the names of their stacks begin in `lives`."""


class JudgedPrograms:
    """What the pipeline knows of programs; what takes long to import is imported when needed."""

    name = "llft"
    tables = TABLES
    histories: Mapping[str, pa.Schema] = {}
    checks = CHECKS

    def owns(self, stack: str) -> bool:
        """Say whether a group is a program, or the edge of one."""
        return stack.startswith(STACK)

    def open(
        self, lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
    ) -> LlftCase:
        """Begin with some programs, and the edges among the groups."""
        from coterie.pipeline.engines.llft.case import LlftCase  # noqa: PLC0415 -- see above

        del spark
        return LlftCase.of(lake, groups, wanted)

    def views(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give what happened to views: who has executed a VIEW order is in its view."""
        from coterie.pipeline.engines.llft.figures import program_views  # noqa: PLC0415

        return program_views(lake.table("program_views", group).to_pylist())

    def settlements(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give when orders were stored, from which clients are answered."""
        from coterie.pipeline.engines.llft.figures import program_standings  # noqa: PLC0415

        return program_standings(lake.table("program_views", group).to_pylist())

    def outcomes(self, tables: Path) -> dict[str, dict[str, int]]:
        """Count nothing: there are no transactions."""
        del tables
        return {}

    def figures(self, lake: Lake, group: str) -> dict[str, Any]:
        """Give no figures beside those of all groups: takeovers and lag stand with the verdicts."""
        del lake, group
        return {}

    def chapter(self, figures: Figures) -> str:
        """Show nothing beside what is shown of all groups."""
        del figures
        return ""


FAMILY = JudgedPrograms()
