"""The results of `coterie bench order`, for people and for programs."""

from __future__ import annotations

import csv
import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.paper import PAPER, PAPER_FIGURES, PAPER_MEMBERS
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.bench.order import Report, Result

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


BUSY = 0.25
"""Which part of the cores other work may take before the report says so."""


class PlotError(CoterieError):
    """There is nothing to draw with."""


def table(report: Report) -> str:
    """Give the results as aligned text, for a terminal and as Markdown."""
    rows = [COLUMNS, *(_row(result) for result in report.results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    rule = [
        ("-" * width if column == 0 else "-" * (width - 1) + ":")
        for column, width in enumerate(widths)
    ]
    lines.insert(1, "| " + " | ".join(rule) + " |")
    return "\n".join(lines)


def _row(result: Result) -> tuple[str, ...]:
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


def setting(report: Report) -> str:
    """Say on what and how it was measured, in one paragraph."""
    machine, plan = report.machine, report.plan
    cores = int(machine["cores"])
    notes = ""
    if max(plan.members) > cores:
        notes += " There are more members than cores, so members wait for each other."
    if float(machine["load_average"]) > cores * BUSY:
        notes += (
            " The machine was busy with other work (load average "
            f"{machine['load_average']} before the run), so it can do better than this."
        )
    return (
        f"{cores} cores of {machine['processor']}, {machine['system']}, {machine['python']}, "
        f"{machine['loop']}, Coterie {machine['coterie']}; members are processes on loopback, with "
        f"recordings. Medians of {plan.repeats} times {plan.rounds} rounds after {plan.warm_up} to "
        f"warm up; {report.message_bytes}-byte messages; latency with 1 message for each member "
        f"and round, throughput with {report.burst}. Raw TCP round trip in the same run: "
        f"{report.echo_ms * 1000:.0f} us.{notes}"
    )


def markdown(report: Report) -> str:
    """Give the results as a page."""
    return (
        "# Order: latency and throughput in rounds\n\n"
        f"{setting(report)}\n\n{table(report)}\n\n"
        "*ms a round*: until every member has the messages of all. *x echo*: the same in raw TCP "
        "round trips, each measured right before. *us CPU*: processor time of a member for each "
        f"message it delivers. *paper*: {PAPER}, as far as its text gives figures.\n"
    )


def comma_separated(report: Report) -> str:
    """Give the results as CSV."""
    text = io.StringIO()
    names = [name for name in report.results[0].__struct_fields__ if not name.endswith("_repeats")]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for result in report.results:
        writer.writerow([getattr(result, name) for name in names])
    return text.getvalue()


def write_files(report: Report, folder: Path, *, plot: bool) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    folder.mkdir(parents=True, exist_ok=True)
    json = msgspec.json.format(msgspec.json.encode(report), indent=2)
    texts = {
        "order.json": json.decode() + "\n",
        "order.csv": comma_separated(report),
        "order.md": markdown(report),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    files = [folder / name for name in texts]
    if plot:
        files.append(folder / "order.png")
        draw(report, files[-1])
    return files


def check_can_plot() -> None:
    """Refuse before the measurement, not after it."""
    if find_spec("matplotlib") is None:
        raise PlotError(
            "the plot needs matplotlib: pip install 'coterie[bench]', or give --no-plot"
        )


COLOURS = {"VSYNC": "#0072b2", "DYNSEQ:VSYNC": "#d55e00", "TOKEN:VSYNC": "#009e73"}


def draw(report: Report, path: Path) -> None:
    """Draw latency and throughput over the number of members, with the paper's figures."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- it is an extra
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter  # noqa: PLC0415

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for stack in report.plan.stacks:
        results = [result for result in report.results if result.stack == stack]
        sizes = [result.members for result in results]
        colour = COLOURS.get(stack)
        measured = {"marker": "o", "color": colour, "label": stack}
        left.plot(sizes, [result.latency_ms for result in results], **measured)
        right.plot(sizes, [result.messages_per_member for result in results], **measured)
        paper = PAPER_FIGURES.get(stack)
        if paper is not None:
            reported = {
                "marker": "s",
                "markersize": 5,
                "markerfacecolor": "white",
                "linestyle": ":",
                "linewidth": 1,
                "color": colour,
                "label": f"{paper.name}, paper",
            }
            left.plot(PAPER_MEMBERS, paper.latency_ms, **reported)
            right.plot(PAPER_MEMBERS, paper.messages_per_member, **reported)
    left.axhline(report.echo_ms, color="grey", linewidth=1, linestyle="--")
    left.annotate(
        f"raw TCP round trip, {report.echo_ms * 1000:.0f} us",
        (0.98, report.echo_ms),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        xytext=(0, 4),
        ha="right",
        color="grey",
        fontsize=8,
    )
    left.set_title("Latency of a round, 1 message from each member")
    left.set_ylabel("milliseconds")
    right.set_title(f"Throughput, {report.burst} messages from each member a round")
    right.set_ylabel("messages per member and second")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("members")
        axes.grid(visible=True, which="major", alpha=0.4)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(report.plan.stacks))
    machine = report.machine
    figure.suptitle(
        f"{report.message_bytes}-byte messages, {machine['cores']} cores, {machine['python']}, "
        f"{machine['loop']}; paper: Sparc 10/20, 10 Mbit/s Ethernet",
        fontsize=10,
    )
    figure.savefig(path, dpi=120)
