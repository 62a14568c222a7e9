"""The plots of the benchmarks; matplotlib is an extra, and imported only to draw."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from coterie.bench.suites.paper_figures import PAPER_FIGURES, PAPER_MEMBERS
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from coterie.bench.harness.figures import Figure
    from coterie.bench.suites.order import RoundsResult

COLOURS = {
    "VSYNC": "#0072b2",
    "DYNSEQ:VSYNC": "#d55e00",
    "TOKEN:VSYNC": "#009e73",
    "PVSYNC": "#0072b2",
    "DYNSEQ:PVSYNC": "#d55e00",
    "TOKEN:PVSYNC": "#009e73",
    "SAFE:DYNSEQ:PVSYNC": "#cc79a7",
    "SAFE:TOKEN:PVSYNC": "#e69f00",
}


class PlotError(CoterieError):
    """There is nothing to draw with."""


def check_can_plot() -> None:
    """Refuse before the measurement, not after it."""
    if find_spec("matplotlib") is None:
        raise PlotError(
            "the plot needs matplotlib: pip install 'coterie[bench]', or give --no-plot"
        )


def new_figure(width: float, height: float) -> Canvas:
    """Begin a picture of some inches."""
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 -- it is an extra

    return Canvas(figsize=(width, height), layout="constrained")


def plot_rounds(
    left: Axes, right: Axes, results: Sequence[RoundsResult], echo_ms: float, burst: int
) -> None:
    """Draw latency and throughput over the number of members, with the paper's figures."""
    for stack in dict.fromkeys(result.stack for result in results):
        _plot_stack(left, right, stack, [result for result in results if result.stack == stack])
    left.axhline(echo_ms, color="grey", linewidth=1, linestyle="--")
    left.annotate(
        f"raw TCP round trip, {echo_ms * 1000:.0f} us",
        (0.98, echo_ms),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        xytext=(0, 4),
        ha="right",
        color="grey",
        fontsize=8,
    )
    left.set_title("Latency of a round, 1 message from each member")
    left.set_ylabel("milliseconds")
    right.set_title(f"Throughput, {burst} messages from each member a round")
    right.set_ylabel("messages per member and second")
    for axes in (left, right):
        _use_log_scale(axes)
        axes.set_xlabel("members")


def _plot_stack(left: Axes, right: Axes, stack: str, results: Sequence[RoundsResult]) -> None:
    sizes = [result.members for result in results]
    colour = COLOURS.get(stack)
    left.plot(
        sizes, [result.latency_ms for result in results], marker="o", color=colour, label=stack
    )
    right.plot(
        sizes,
        [result.messages_per_member for result in results],
        marker="o",
        color=colour,
        label=stack,
    )
    paper = PAPER_FIGURES.get(stack)
    if paper is None:
        return
    for axes, values in ((left, paper.latency_ms), (right, paper.messages_per_member)):
        axes.plot(
            PAPER_MEMBERS,
            values,
            marker="s",
            markersize=5,
            markerfacecolor="white",
            linestyle=":",
            linewidth=1,
            color=colour,
            label=f"{paper.name}, paper",
        )


def _use_log_scale(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter  # noqa: PLC0415

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, which="major", alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)


def rates_drawing(
    figures: Sequence[Figure], title: str, subtitle: str, height: float
) -> Callable[[Path], None] | None:
    """Give what draws all rates of a report into a file; None if it has none."""
    rates = [figure for figure in figures if figure.unit == "/s"]
    if not rates:
        return None

    def draw(path: Path) -> None:
        canvas = new_figure(8, height)
        plot_rates(canvas.subplots(), rates, title)
        canvas.suptitle(subtitle, fontsize=10)
        canvas.savefig(path, dpi=120)

    return draw


def plot_rates(axes: Axes, figures: Sequence[Figure], title: str) -> None:
    """Draw rates as bars, one below the other, with the targets as marks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    names = [str(figure).partition(":")[2].rpartition(":")[0].strip() for figure in figures]
    places = range(len(figures))
    values = [max(figure.value, 1.0) for figure in figures]
    axes.barh(places, values, color="#56b4e9", height=0.7)
    for place, figure in zip(places, figures, strict=True):
        axes.annotate(
            f"{figure.value:,.0f}",
            (figure.value, place),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
            fontsize=7,
        )
        if figure.target is not None:
            axes.plot([figure.target.limit] * 2, [place - 0.45, place + 0.45], color="#d55e00")
    axes.set_yticks(places, names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    targets = [figure.target.limit for figure in figures if figure.target is not None]
    axes.set_xlim(left=min(values) / 3, right=max(values + targets) * 4)
    axes.set_title(title)
    axes.set_xlabel("commands per second; marks: targets")
    axes.grid(visible=True, axis="x", alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
