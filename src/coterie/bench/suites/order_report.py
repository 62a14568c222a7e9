"""The results of `coterie bench order`, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.bench.harness.plots import new_figure, plot_rounds
from coterie.bench.harness.tables import (
    aligned,
    busy_note,
    comma_separated,
    machine_words,
    write_forms,
)
from coterie.bench.suites.paper_figures import PAPER, PAPER_FIGURES, PAPER_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coterie.bench.suites.order import OrderReport, RoundsResult

COLUMNS = (
    "stack",
    "members",
    "ms a round",
    "x echo",
    "messages/s each",
    "in all",
    "us CPU",
    "paper: ms",
    "messages/s each",
)


def table(report: OrderReport) -> str:
    """Give the results as aligned text, for a terminal and as Markdown."""
    return rounds_table(report.results)


def rounds_table(results: Sequence[RoundsResult]) -> str:
    """Give results of rounds, beside what the paper reports."""
    return aligned([COLUMNS, *map(_row, results)])


def _row(result: RoundsResult) -> tuple[str, ...]:
    paper = PAPER_FIGURES.get(result.stack)
    latency = rate = "-"
    if paper is not None and result.members in PAPER_MEMBERS:
        place = PAPER_MEMBERS.index(result.members)
        latency = f"{paper.latency_ms[place]:.1f}"
        rate = f"{paper.messages_per_member[place]:,}"
    return (
        result.stack,
        str(result.members),
        f"{result.latency_ms:.3f}",
        f"{result.echo_ratio:.1f}",
        f"{result.messages_per_member:,.0f}",
        f"{result.messages_in_all:,.0f}",
        f"{result.cpu_us_per_delivery:.2f}",
        latency,
        rate,
    )


def setting(report: OrderReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    plan = report.plan
    notes = busy_note(report.machine)
    if max(plan.members) > int(report.machine["cores"]):
        notes = f" There are more members than cores, so members wait for each other.{notes}"
    return (
        f"{machine_words(report.machine)}; members are processes on loopback, with "
        f"journals. Medians of {plan.repeats} times {plan.rounds} rounds after {plan.warm_up} to "
        f"warm up; {report.message_bytes}-byte messages; latency with 1 message for each member "
        f"and round, throughput with {report.burst}. {report.echoes}"
        f"{notes}"
    )


def markdown(report: OrderReport) -> str:
    """Give the results as a page."""
    return (
        "# Order: latency and throughput in rounds\n\n"
        f"{setting(report)}\n\n{table(report)}\n\n"
        "*ms a round*: until every member has the messages of all. *x echo*: the same in raw TCP "
        "round trips, each measured right before. *us CPU*: processor time of a member for each "
        f"message it delivers. *paper*: {PAPER}, as far as its text gives figures.\n"
    )


def write_files(report: OrderReport, folder: Path, *, plot: bool) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    return write_forms(
        "order",
        report,
        folder,
        rows=comma_separated(report.results),
        page=markdown(report),
        draw=(lambda path: draw(report, path)) if plot else None,
    )


def draw(report: OrderReport, path: Path) -> None:
    """Draw latency and throughput over the number of members, with the paper's figures."""
    figure = new_figure(11, 5.2)
    left, right = figure.subplots(1, 2)
    plot_rounds(left, right, report.results, report.echo_ms, report.burst)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(report.plan.stacks))
    machine = report.machine
    figure.suptitle(
        f"{report.message_bytes}-byte messages, {machine['cores']} cores, {machine['python']}, "
        f"{machine['loop']}; paper: Sparc 10/20, 10 Mbit/s Ethernet",
        fontsize=10,
    )
    figure.savefig(path, dpi=120)
