"""The results of `coterie bench vsr`, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.bench.harness.plots import rates_drawing
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

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.bench.suites.vsr import VsrReport

LEGEND = (
    "*one client*: one after the other. *many clients*: each on an account of its own, so that "
    "nobody waits for a lock. *one cohort*: the same class without replication, in the same "
    "processes; *put into order*: the same class under the stack. *claim*: the paper expects calls "
    "inside a transaction to take no longer with replication than without, and prepare mostly not "
    "to wait for backups. *x echo*: in raw TCP round trips, measured right before, or how many are "
    "done in the time of one. *us CPU*: processor time of all processes together for each; *us "
    "client*: that of the clients' process. *fail-over*: the process of the primary is killed.\n"
)


def tables(report: VsrReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    return figures_table(report.figures)


def setting(report: VsrReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    plan = report.plan
    return (
        f"{machine_words(report.machine)}. Cohorts and clients are processes on loopback, journals "
        f"are left to the system. Compared with {plan.stack}; {plan.timing}; {plan.together} "
        f"transactions at a time. {disk_words(report.disk, report.sync_ms)} {report.echoes}"
        f"{busy_note(report.machine, report.busy_cores)}{troubles_note(report.troubles)}"
    )


def markdown(report: VsrReport) -> str:
    """Give the results as a page."""
    return (
        "# Viewstamped replication: calls, transactions, fail-over\n\n"
        f"{setting(report)}\n\n{tables(report)}\n\n{LEGEND}"
    )


def write_files(report: VsrReport, folder: Path, *, plot: bool) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    about = f"beside {report.plan.stack}, {machine_line(report.machine)}"
    return write_forms(
        "vsr",
        report,
        folder,
        rows=comma_separated(report.figures),
        page=markdown(report),
        draw=rates_drawing(report.figures, "Transactions over the network", about, 5)
        if plot
        else None,
    )
