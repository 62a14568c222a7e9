"""A contradiction as a picture: a page that needs nothing else, for light and dark screens.

Each process has a row, each call a bar from its call to its return; a call that was lost has an
open end. Time runs to the right and is drawn to order, not to scale: whatever begins or ends has a
column, and columns are as wide as what is written needs.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Arrow", "Bar", "page", "timeline"]

_ROW_HEIGHT = 58
_BAR_HEIGHT = 14
_TOP = 26
_COLUMN_WIDTH = 26
_LETTER_WIDTH = 7.4
_NOTE_WIDTH = 6.0
_GAP = 16
_TEXT_MAX = 44


class Bar(NamedTuple):
    """One call: *kind* is `core`, `misfit` (of the core) or `other`."""

    row: str
    text: str
    begin: float
    end: float | None
    kind: str
    note: str


class Arrow(NamedTuple):
    """That one bar comes before another, and why."""

    begin: int
    end: int
    why: str


_STYLE = """
:root { color-scheme: light dark; }
svg.timeline, body {
  --ink: #1d2730; --faint: #64727d; --line: #dfe5ea; --paper: #ffffff;
  --core: #1f6fb2; --misfit: #c2362b; --other: #b6c2cc;
}
@media (prefers-color-scheme: dark) {
  svg.timeline, body {
    --ink: #e4eaef; --faint: #93a1ad; --line: #2c3841; --paper: #141b21;
    --core: #5fb0f0; --misfit: #ff7a6b; --other: #46545f;
  }
}
svg.timeline { font: 13px ui-monospace, monospace; background: var(--paper); }
svg.timeline text { fill: var(--ink); }
svg.timeline .note, svg.timeline .who { fill: var(--faint); font-size: 11px; }
svg.timeline .who { font-size: 13px; }
svg.timeline .row { stroke: var(--line); }
svg.timeline .core { fill: var(--core); }
svg.timeline .misfit { fill: var(--misfit); }
svg.timeline .other { fill: var(--other); }
svg.timeline text.label-other { fill: var(--faint); }
svg.timeline .arrow { stroke: var(--misfit); stroke-width: 1.6; fill: none; }
svg.timeline .head { fill: var(--misfit); }
svg.timeline .number { fill: var(--misfit); font-weight: bold; }
"""

_PAGE_STYLE = """
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h1 b { color: var(--misfit); } h2 { font-size: 1.05rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
table { border-collapse: collapse; font: 13px ui-monospace, monospace; }
td, th { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); }
.legend span { display: inline-block; width: 1.6em; height: .7em; margin: 0 .4em 0 1em;
  border-radius: 2px; }
small { color: var(--faint); }
"""


def timeline(bars: Sequence[Bar], arrows: Sequence[Arrow] = (), *, is_alone: bool = True) -> str:
    """Draw calls; *is_alone* for a file of its own, otherwise it stands in a page."""
    drawing = _Drawing(bars)
    parts = [*drawing.rows(), *drawing.bars(), *drawing.arrows(arrows)]
    style = f"<style>{_STYLE}</style>" if is_alone else ""
    return (
        f'<svg class="timeline" xmlns="http://www.w3.org/2000/svg" role="img"'
        f' aria-label="calls on a line of time" width="{drawing.width:.0f}"'
        f' height="{drawing.height}" viewBox="0 0 {drawing.width:.0f} {drawing.height}">'
        f'{style}<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4"'
        ' orient="auto"><path class="head" d="M0,0 L9,4 L0,8 z"/></marker></defs>'
        + "".join(parts)
        + "</svg>"
    )


class _Drawing:
    def __init__(self, bars: Sequence[Bar]) -> None:
        self._bars = bars
        self._names = list(
            dict.fromkeys(bar.row for bar in sorted(bars, key=lambda bar: bar.begin))
        )
        self._left = 24 + _LETTER_WIDTH * max((len(name) for name in self._names), default=0)
        self._x = self._columns()
        self._end = max(self._x.values(), default=0) + _COLUMN_WIDTH
        texts = [self._x[bar.begin] + _width(bar) for bar in bars]
        self.width = max([self._end, *texts]) + _GAP
        self.height = _TOP + _ROW_HEIGHT * len(self._names)

    def _columns(self) -> dict[float, float]:
        """Give each time a place, so that what is written in a row does not overlap."""
        times = {bar.begin for bar in self._bars} | {
            bar.end for bar in self._bars if bar.end is not None
        }
        places: dict[float, float] = {}
        free: dict[str, float] = {}
        last = self._left - _COLUMN_WIDTH
        for time in sorted(times):
            begun = [bar for bar in self._bars if bar.begin == time]
            last = max([last + _COLUMN_WIDTH, *(free.get(bar.row, 0.0) for bar in begun)])
            places[time] = last
            for bar in begun:
                free[bar.row] = last + _width(bar) + _GAP
        return places

    def _middle(self, bar: Bar) -> float:
        return _TOP + _ROW_HEIGHT * self._names.index(bar.row) + _ROW_HEIGHT / 2

    def _span(self, bar: Bar) -> tuple[float, float]:
        begin = self._x[bar.begin]
        end = self._end if bar.end is None else self._x[bar.end]
        return begin, max(end, begin + 4)

    def rows(self) -> list[str]:
        parts = []
        for number, name in enumerate(self._names):
            y = _TOP + _ROW_HEIGHT * number + _ROW_HEIGHT / 2
            parts.append(
                f'<line class="row" x1="{self._left - 8:.0f}" x2="{self.width:.0f}" y1="{y:.0f}"'
                f' y2="{y:.0f}"/><text class="who" x="8" y="{y + 4:.0f}">{escape(name)}</text>'
            )
        return parts

    def bars(self) -> list[str]:
        parts = []
        for bar in self._bars:
            begin, end = self._span(bar)
            y = self._middle(bar)
            label = "label-other" if bar.kind == "other" else "label"
            opacity = ' fill-opacity="0.45"' if bar.end is None else ""
            parts.append(
                f"<g><title>{escape(f'{bar.row}: {bar.text} ({bar.note})')}</title>"
                f'<rect class="{bar.kind}"{opacity} x="{begin:.0f}" y="{y - _BAR_HEIGHT / 2:.0f}"'
                f' width="{end - begin:.0f}" height="{_BAR_HEIGHT}" rx="3"/>'
                f'<text class="{label}" x="{begin:.0f}" y="{y - 11:.0f}">'
                f"{escape(_short(bar.text))}{' ✗' if bar.kind == 'misfit' else ''}</text>"
                f'<text class="note" x="{begin:.0f}" y="{y + 20:.0f}">{escape(bar.note)}</text></g>'
            )
        return parts

    def arrows(self, arrows: Sequence[Arrow]) -> list[str]:
        parts = []
        for number, arrow in enumerate(arrows, 1):
            one, other = self._bars[arrow.begin], self._bars[arrow.end]
            x1, y1 = sum(self._span(one)) / 2, self._middle(one)
            x2, y2 = sum(self._span(other)) / 2, self._middle(other)
            bend = 30 if number % 2 else -30
            mx, my = (x1 + x2) / 2 + bend, (y1 + y2) / 2 - abs(bend) / 2
            parts.append(
                f'<path class="arrow" marker-end="url(#head)" d="M{x1:.0f},{y1:.0f}'
                f' Q{mx:.0f},{my:.0f} {x2:.0f},{y2:.0f}"><title>{escape(arrow.why)}</title></path>'
                f'<text class="number" x="{(mx + (x1 + x2) / 2) / 2:.0f}"'
                f' y="{(my + (y1 + y2) / 2) / 2:.0f}">{number}</text>'
            )
        return parts


def _short(text: str) -> str:
    text = text.replace("\n", " ")
    half = _TEXT_MAX // 2
    return text if len(text) <= _TEXT_MAX else f"{text[: half - 1]}…{text[-half:]}"


def _width(bar: Bar) -> float:
    return max(_LETTER_WIDTH * (len(_short(bar.text)) + 2), _NOTE_WIDTH * 1.15 * len(bar.note))


def page(
    title: str,
    said: Sequence[str],
    drawing: str,
    rows: Sequence[Sequence[str]] = (),
    rows_title: str = "",
) -> str:
    """Make the page: the verdict, the evidence, the picture and a table, in one file."""
    paragraphs = "".join(f"<p>{escape(each)}</p>" for each in said)
    table = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    legend = (
        '<p class="legend"><small><span style="background:var(--core)"></span>contradict each other'
        '<span style="background:var(--misfit)"></span>has no place'
        '<span style="background:var(--other)"></span>others near them, whatever came of them; '
        "time runs to the right, to order and not to scale</small></p>"
    )
    figure = f'<div class="scroll">{drawing}</div>{legend}' if drawing else ""
    heading = f"<h2>{escape(rows_title)}</h2><table>{table}</table>" if rows else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{_PAGE_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{paragraphs}{figure}{heading}</body></html>\n"
    )
