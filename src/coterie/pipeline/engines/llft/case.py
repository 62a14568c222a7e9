"""What is to be found out about programs, as tasks: one for each program, with its edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.pipeline.engines.llft.checks import CHECKS
from coterie.pipeline.engines.llft.judging import EDGE, judge_program
from coterie.pipeline.history.results import Count, Results, verdict_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Row, Wanted
    from coterie.pipeline.lake.lake import Lake


@dataclass(slots=True)
class LlftCase:
    """Programs in one lake."""

    lake: Lake
    groups: Sequence[str]
    """Programs; an edge is judged with its program."""
    edges: Sequence[str]
    has_checks: bool
    rounds: int = 1

    @classmethod
    def of(cls, lake: Lake, groups: Sequence[str], wanted: Wanted) -> LlftCase:
        """Sort programs from edges."""
        edges = [group for group in groups if group.endswith(EDGE)]
        programs = [group for group in groups if not group.endswith(EDGE)]
        programs += [
            program for edge in edges if (program := edge.removesuffix(EDGE)) not in programs
        ]
        return cls(lake, programs, edges, wanted.has_checks)

    def items(self, number: int) -> list[str]:
        """Give a task for each program."""
        del number
        return list(self.groups) if self.has_checks else []

    def work(self, item: str) -> Iterator[Results]:
        """Check every promise to one program."""
        results, figures = judge_program(self.lake, item, has_edge=item + EDGE in self.edges)
        said = (
            f"{figures.views} views entered, {figures.takeovers} takeovers "
            f"({figures.alone} without the edge), {figures.lag} orders behind at most, "
            f"{figures.branches} branches given up"
        )
        if figures.discarded:
            said += f", with {figures.discarded} orders that the edge had stored"
        results.count("one chain of primary views").remark = said
        yield results

    def conclude(self, found: dict[str, Results], spark: SparkSession | None) -> None:
        """Add nothing: a task has found out all there is about its program."""

    def verdicts(self, results: Results) -> Iterator[Row]:
        """Give a verdict on every promise to one program."""
        for check in CHECKS.values():
            count = results.counts.get(check.name, Count())
            if count.found:
                verdict = "broken"
            elif count.undecided:
                verdict = "undecided"
            elif count.waiting:
                verdict = "not yet"
            else:
                verdict = "kept" if count.checked else "not checked"
            remark = count.remark or ("" if count.checked else "no record speaks of it")
            yield verdict_row(results.group, check, count, verdict, remark)
