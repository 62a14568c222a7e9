"""The results of `coterie bench objects`, for people and for programs."""

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

    from coterie.bench.suites.objects import ObjectsReport

LEGEND = (
    "*one client*: one call after the other; *consistent queries*: one of those after the other, "
    "each confirmed by a majority. *multiplexed*: sessions with one call outstanding "
    "each share a few connections; *connections*: clients with one connection and one call "
    "outstanding each; *packed*: sessions whose calls are made together. *journal*: on, and left "
    "to the system; synced before the frames of every turn leave. *x echo*: a call in raw TCP "
    "round trips, measured right before, or how many calls are answered in the time of one. "
    "*us CPU*: processor time of all replicas together for each call; *us client*: that of "
    "the process of all clients. "
    "*fail-over*: the replica that puts calls into order is killed. *PySyncObj*: the same "
    "object in memory, called inside its leader's process, because it has no clients apart "
    "from its nodes.\n"
)


def tables(report: ObjectsReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    return figures_table(report.figures)


def setting(report: ObjectsReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    plan = report.plan
    pysyncobj = f" PySyncObj is {report.pysyncobj}." if report.pysyncobj else ""
    peers = "".join(
        f" {name}: an answered write is {promise}." for name, promise in report.peers.items()
    )
    (few, sessions), (_, packed, calls) = plan.multiplexed, plan.packed
    return (
        f"{machine_words(report.machine)}. Replicas and clients are processes on loopback. Stack "
        f"{plan.stack}; {plan.timing}; {sessions} sessions on {few} connections if multiplexed, "
        f"{packed} with up to {calls} calls made together if packed. "
        f"{disk_words(report.disk, report.sync_ms)}{pysyncobj} {report.echoes}{peers}"
        f"{busy_note(report.machine, report.busy_cores)}"
        f"{troubles_note(report.troubles)}"
    )


def markdown(report: ObjectsReport) -> str:
    """Give the results as a page."""
    return (
        "# Objects: calls over the network, fail-over, memory\n\n"
        f"{setting(report)}\n\n{tables(report)}\n\n{LEGEND}"
    )


def write_files(report: ObjectsReport, folder: Path, *, plot: bool) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    about = f"{report.plan.stack}, {machine_line(report.machine)}"
    return write_forms(
        "objects",
        report,
        folder,
        rows=comma_separated(report.figures),
        page=markdown(report),
        draw=rates_drawing(report.figures, "Calls over the network", about, 7) if plot else None,
    )
