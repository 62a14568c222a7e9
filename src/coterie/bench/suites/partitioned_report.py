"""The results of `coterie bench partitioned`, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.bench.harness.plots import new_figure
from coterie.bench.harness.tables import (
    aligned,
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
    from collections.abc import Callable
    from pathlib import Path

    from coterie.bench.harness.figures import Figure
    from coterie.bench.suites.partitioned import PartitionedReport

LEGEND = (
    "*green*: calls in a primary component, beside the stack in which a majority acknowledges. "
    "*syncs*: forced writes of all replicas while one client calls, by a trace of their system "
    "calls. *two-phase*: slides 14 and 33. *slide 19*: from the moment a message is handed over to "
    "its delivery, the middle over all members; *safe*: once all members have it. *distance*: "
    "slide 4; packets between the sites take so long each way. *groups in a process*: peers "
    "are given three seconds before they are suspected, as in all parts, and these count. "
    "*merge*: one process, from the end "
    "of the cut. *second copy*: what is red is executed on a copy of the object. *x echo*: in raw "
    "TCP round trips, measured right before, or how many are done in the time of one.\n"
)
SLIDE_19: dict[tuple[int, float, str], float] = {
    **{(size, 100, "agreed"): ms for size, ms in ((6, 4), (10, 6), (18, 10))},
    **{(size, 100, "safe"): ms for size, ms in ((6, 16), (10, 24), (18, 40))},
    **{(size, 400, "agreed"): ms for size, ms in ((6, 6), (10, 10), (18, 18))},
    **{(size, 400, "safe"): ms for size, ms in ((6, 24), (10, 40), (18, 72))},
}
"""The slide's milliseconds, by members, messages a second and delivery: ring, 1994, a real net."""


def tables(report: PartitionedReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    slides = [figure for figure in report.figures if figure.section == "slide 19"]
    others = [figure for figure in report.figures if figure.section != "slide 19"]
    parts = [figures_table(others)] if others else []
    if slides:
        parts.append(_slides_table(slides))
    return "\n\n".join(parts)


def _slides_table(figures: list[Figure]) -> str:
    head = ("slide 19: 1 KB", "members", "p50", "the slide, 1994")
    return aligned([head, *(_slide_row(figure) for figure in figures)])


def _slide_row(figure: Figure) -> tuple[str, ...]:
    _, pace, delivery = figure.what.split(", ")
    slide = SLIDE_19.get((figure.replicas, float(pace.split()[0]), delivery))
    return (
        figure.what,
        str(figure.replicas),
        figure.shown,
        f"{slide:g} ms" if slide is not None else "",
    )


def setting(report: PartitionedReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    plan = report.plan
    return (
        f"{machine_words(report.machine)}. Replicas, members and clients are processes on one "
        f"machine; {plan.timing}; {plan.sessions} sessions. "
        f"{disk_words(report.disk, report.sync_ms)} {report.echoes}"
        f"{busy_note(report.machine, report.busy_cores)}{troubles_note(report.troubles)}"
    )


def markdown(report: PartitionedReport) -> str:
    """Give the results as a page."""
    return (
        "# Replication over a partitioned network\n\n"
        f"{setting(report)}\n\n{tables(report)}\n\n{LEGEND}"
    )


def write_files(report: PartitionedReport, folder: Path, *, plot: bool) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    return write_forms(
        "partitioned",
        report,
        folder,
        rows=comma_separated(report.figures),
        page=markdown(report),
        draw=_drawing(report) if plot else None,
    )


def _drawing(report: PartitionedReport) -> Callable[[Path], None] | None:
    alone = [f for f in report.figures if f.section == "green, one client" and "p50" in f.what]
    slides = [figure for figure in report.figures if figure.section == "slide 19"]
    if not alone and not slides:
        return None

    def draw(path: Path) -> None:
        canvas = new_figure(11, 4.5)
        left, right = canvas.subplots(1, 2)
        names = [f"{f.what.removesuffix(', p50')}\n{f.replicas}, {f.journal}" for f in alone]
        left.barh(range(len(alone)), [f.value for f in alone], color="#009e73", height=0.7)
        left.set_yticks(range(len(alone)), names, fontsize=6)
        left.invert_yaxis()
        left.set_title("A green call of one client, p50")
        left.set_xlabel("microseconds")
        for what in dict.fromkeys(figure.what for figure in slides):
            ours = [figure for figure in slides if figure.what == what]
            sizes = [figure.replicas for figure in ours]
            right.plot(sizes, [figure.value for figure in ours], marker="o", label=what)
        for delivery, pace in (("agreed", 400.0), ("safe", 400.0)):
            found = [(s, ms) for (s, p, d), ms in SLIDE_19.items() if (p, d) == (pace, delivery)]
            label = f"slide 19, {pace:g} messages/s, {delivery}"
            right.plot(*zip(*found, strict=True), marker="s", linestyle=":", label=label)
        right.set_yscale("log")
        right.set_title("Delivery, 1 KB messages")
        right.set_xlabel("members")
        right.set_ylabel("milliseconds")
        right.legend(fontsize=6)
        canvas.suptitle(machine_line(report.machine), fontsize=10)
        canvas.savefig(path, dpi=120)

    return draw
