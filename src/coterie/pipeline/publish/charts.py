"""Drawings for the report, as SVG inside the page: nothing has to be fetched to look at them."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING, NamedTuple

from coterie.pipeline.publish.figures import DOWN, PRIMARY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.pipeline.publish.figures import Figures

WIDTH = 960
LEFT = 70
RIGHT = 16
ROW = 30
_TICKS = 8
_VIEW_HUES = 12


class Line(NamedTuple):
    """A row of values over time."""

    name: str
    style: str
    values: Sequence[tuple[int, float]]


def _scale(start: int, end: int) -> Callable[[int], float]:
    width = WIDTH - LEFT - RIGHT
    span = max(end - start, 1)
    return lambda at: LEFT + (at - start) / span * width


def _time_axis(start: int, end: int, bottom: float) -> str:
    """Draw seconds since the start."""
    place = _scale(start, end)
    step = _nice((end - start) / 1e6 / _TICKS)
    parts: list[str] = []
    tick = 0.0
    while tick <= (end - start) / 1e6 + 1e-9:
        x = place(start + int(tick * 1e6))
        parts.append(
            f'<line class="grid" x1="{x:.1f}" y1="8" x2="{x:.1f}" y2="{bottom:.1f}"/>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 16:.1f}">{tick:g} s</text>'
        )
        tick += step
    return "".join(parts)


def _nice(step: float) -> float:
    """Give a round number that is not below *step*."""
    if step <= 0:
        return 1.0
    power = 10.0 ** floor(log10(step))
    for factor in (1, 2, 5, 10):
        if factor * power >= step:
            return factor * power
    return 10 * power


def timeline(figures: Figures) -> str:
    """Draw which view every replica was in; replicas of one view have one colour."""
    place = _scale(figures.start, figures.end)
    bottom = 8 + ROW * len(figures.replicas)
    hues = {
        view: index % _VIEW_HUES * (360 // _VIEW_HUES)
        for index, view in enumerate(
            dict.fromkeys(span.view for span in sorted(figures.spans, key=lambda each: each.start))
        )
    }
    bars: list[str] = []
    for row, replica in enumerate(figures.replicas):
        y = 8 + ROW * row
        bars.append(f'<text class="name" x="{LEFT - 10}" y="{y + 19}">{escape(replica)}</text>')
        for span in figures.spans:
            if span.replica != replica:
                continue
            x, width = place(span.start), max(place(span.end) - place(span.start), 0.8)
            seconds = (span.end - span.start) / 1e6
            if span.state == DOWN:
                about = f"{replica}: down, or silent, for {seconds:.2f} s"
                style = 'class="down"'
            else:
                kind = "primary view" if span.state == PRIMARY else "view without a majority yet"
                about = f"{replica}: {kind} {span.view} of {span.members}, {seconds:.2f} s"
                light = "55%" if span.state == PRIMARY else "86%"
                style = f'style="fill:hsl({hues[span.view]} 55% {light})"'
            bars.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}" rx="2" '
                f"{style}><title>{escape(about)}</title></rect>"
            )
    axis = _time_axis(figures.start, figures.end, bottom)
    return _svg(bottom + 24, axis + "".join(bars), "Views of every replica over time")


def plot(figures: Figures, lines: Sequence[Line], unit: str, about: str, *, log: bool) -> str:
    """Draw values over time, with a scale that begins at nothing or is logarithmic."""
    height, top = 180, 8
    bottom = top + height
    values = [value for line in lines for _, value in line.values if value > 0]
    highest = max(values, default=1.0)
    lowest = min(values, default=1.0)
    x_of = _scale(figures.start, figures.end)
    if log:
        floor_, roof = floor(log10(lowest)), max(ceil(log10(highest)), floor(log10(lowest)) + 1)
        marks = [10.0**power for power in range(floor_, roof + 1)]

        def y_of(value: float) -> float:
            return bottom - (log10(max(value, 10.0**floor_)) - floor_) / (roof - floor_) * height
    else:
        step = _nice(highest / 4)
        marks = [step * index for index in range(ceil(highest / step) + 1)]

        def y_of(value: float) -> float:
            return bottom - value / marks[-1] * height

    parts = [_time_axis(figures.start, figures.end, bottom)]
    for mark in marks:
        y = y_of(mark)
        parts.append(
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
            f'<text class="mark" x="{LEFT - 8}" y="{y + 4:.1f}">{_short(mark)}</text>'
        )
    for line in lines:
        # A line from a point to itself, with round ends, is a dot: a single value is seen, too.
        drawn = [*line.values, *line.values] if len(line.values) == 1 else line.values
        points = " ".join(
            f"{x_of(min(max(at, figures.start), figures.end)):.1f},{y_of(value):.1f}"
            for at, value in drawn
        )
        parts.append(
            f'<polyline class="{line.style}" points="{points}">'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    legend = " · ".join(
        f'<tspan class="{line.style}">{escape(line.name)}</tspan>' for line in lines
    )
    parts.append(f'<text class="legend" x="{LEFT}" y="{bottom + 34}">{legend} ({unit})</text>')
    return _svg(bottom + 42, "".join(parts), about)


def _short(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{suffix}"
    return f"{value:g}"


def _svg(height: float, content: str, about: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(about)}">'
        f"{content}</svg>"
    )
