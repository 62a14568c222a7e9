"""The results of `coterie bench engine`, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.bench.harness.plots import new_figure, plot_rates, plot_rounds
from coterie.bench.harness.tables import (
    busy_note,
    comma_separated,
    disk_words,
    figures_table,
    machine_line,
    machine_words,
    troubles_note,
    write_forms,
)
from coterie.bench.suites.order import BURST
from coterie.bench.suites.order_report import rounds_table
from coterie.bench.suites.paper_figures import PAPER

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.bench.suites.engine import EngineReport

LEGEND = (
    "*packed*: the calls of a session travel as one entry; *one by one*: each is an entry. "
    "*journal*: off; on, and left to the system; synced before the frames of every turn leave. "
    "*x echo*: how many commands are committed in the time of one raw TCP round trip, measured "
    "right before. *us CPU*: processor time of all replicas together for each command. *pause*: "
    "how long a replica was kept from everything else. "
)


def tables(report: EngineReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    parts = [figures_table(report.figures)] if report.figures else []
    if report.rounds:
        parts.append(rounds_table(report.rounds))
    return "\n\n".join(parts)


def setting(report: EngineReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    plan = report.plan
    notes = busy_note(report.machine, report.busy_cores)
    if max(plan.replicas) > int(report.machine["cores"]):
        notes = f" There are more replicas than cores, so replicas wait for each other.{notes}"
    return (
        f"{machine_words(report.machine)}. Stack {plan.stack}, unless another is named; "
        f"{plan.timing}; {plan.sessions} sessions with {plan.calls} calls outstanding each if "
        f"packed (fewer of large ones), {plan.single_calls} if not. "
        f"{disk_words(report.disk, report.sync_ms)} {report.echoes}"
        f"{notes}{troubles_note(report.troubles)}"
    )


def markdown(report: EngineReport) -> str:
    """Give the results as a page."""
    return (
        "# Engine: committed commands, transfer, roll-back, rounds\n\n"
        f"{setting(report)}\n\n{tables(report)}\n\n{LEGEND}"
        f"*paper*: {PAPER}, as far as its text gives figures; without journals.\n"
    )


def write_files(report: EngineReport, folder: Path, *, plot: bool) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    return write_forms(
        "engine",
        report,
        folder,
        rows=comma_separated(report.figures),
        page=markdown(report),
        draw=(lambda path: draw(report, path)) if plot else None,
    )


def draw(report: EngineReport, path: Path) -> None:
    """Draw the rates beside their targets, and the rounds beside the paper's."""
    rates = [figure for figure in report.figures if figure.unit == "/s"]
    panels = bool(rates) + 2 * bool(report.rounds)
    if not panels:
        return
    figure = new_figure(6.5 * panels, 7)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    if rates:
        plot_rates(axes[0], rates, "Committed commands")
    if report.rounds:
        left, right = axes[-2:]
        plot_rounds(left, right, report.rounds, report.echo_ms, BURST)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    figure.suptitle(f"{report.plan.stack}, {machine_line(report.machine)}", fontsize=10)
    figure.savefig(path, dpi=120)
