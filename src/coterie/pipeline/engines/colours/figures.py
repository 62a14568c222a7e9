"""The colours of a group over time, as a report shows them.

Every component takes updates, so a view that is not primary is not idle: its actions are red. The
chapter shows how many actions were red at each replica, what each primary component found waiting
when it was installed, and how long what is green had been red.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from coterie.pipeline.engines.colours.over_time import OverTime
from coterie.pipeline.engines.colours.told import place_of, view_key
from coterie.pipeline.publish.charts import Line, plot
from coterie.pipeline.publish.figures import PROMISED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.pipeline.engines.colours.told import View
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures

Row = dict[str, Any]
_ROWS_MAX = 20_000_000
"""Of how many rows colours are followed; a report of more does without."""
_POINTS = 200
"""How many points a line has, about."""
_SHOWN = 50
"""How many components are listed, the last ones."""
_SECOND = 1_000_000


def component_views(lake: Lake, group: str) -> Iterator[Row]:
    """Give views as they are installed; one is confirmed once it is a primary component."""
    for row in lake.table("views", group).to_pylist():
        if row["event"] == "installed":
            yield row
    for row in lake.table("components", group).to_pylist():
        if row["event"] == "installed":
            yield {**row, "event": "confirmed", "view": row["attempt"], "members": None}
        elif row["event"] == "entered" and row["state"] in {"TransPrim", "ExchangeStates"}:
            yield {**row, "event": PROMISED, "members": None}


def green_moments(lake: Lake, group: str) -> Iterator[Row]:
    """Give when actions became green, each record of it once."""
    seen: set[tuple[str, int, int]] = set()
    columns = ["replica", "incarnation", "sequence", "recorded_at", "position"]
    for row in lake.table("greens", group).select(columns).to_pylist():
        if place_of(row) not in seen:
            seen.add(place_of(row))
            yield {**row, "event": "settled"}


def colours_of(lake: Lake, group: str) -> dict[str, Any]:
    """Give how many were red at each replica when, what components found, and how long reds waited.

    Times are microseconds.
    """
    actions, greens = lake.table("actions", group), lake.table("greens", group)
    if len(actions) + len(greens) > _ROWS_MAX:
        return {}
    followed = OverTime(actions, greens)
    components = lake.table("components", group).to_pylist()
    adopted: dict[str, list[Row]] = {}
    for row in components:
        if row["event"] == "adopted":
            adopted.setdefault(row["replica"], []).append(row)
    return {
        "red": {
            replica: _thinned(followed.red_at(replica, adopted.get(replica, ())))
            for replica in sorted(followed.replicas)
        },
        "components": list(_components(followed, components)),
        "waits": _quantiles(followed.waits),
        "still_red": followed.still_red,
    }


def _thinned(line: list[list[int]]) -> list[list[int]]:
    """Give a line with fewer points: of each stretch of time its highest."""
    step = max(1, len(line) // _POINTS)
    return [max(line[at : at + step], key=lambda each: each[1]) for at in range(0, len(line), step)]


def _components(followed: OverTime, components: list[Row]) -> Iterator[dict[str, Any]]:
    """Give every primary component, with what was red or yellow when it was first installed."""
    first: dict[View, Row] = {}
    for row in components:
        if row["event"] == "installed":
            view = view_key(row["attempt"])
            if view not in first or row["recorded_at"] < first[view]["recorded_at"]:
                first[view] = row
    installed = sorted(first.values(), key=lambda each: each["component"])
    for row, waits in zip(installed, followed.waits_of(installed), strict=True):
        yield {
            "component": row["component"],
            "at": row["recorded_at"],
            "members": row["members"],
            "position": row["position"],
            "merged": len(waits),
            "longest_wait": max(waits, default=0),
        }


def _quantiles(waits: list[int]) -> dict[str, int]:
    if not waits:
        return {}
    return {
        "count": len(waits),
        "p50": waits[len(waits) // 2],
        "p99": waits[len(waits) * 99 // 100],
        "longest": waits[-1],
    }


def chapter(figures: Figures) -> str:
    """Show all that as a part of a page."""
    more = figures.more
    if not more:
        return (
            "<h3>Colours</h3><p>There are too many actions to follow each of them: their colours "
            "over time are left out.</p>"
        )
    styles = ("one", "two")
    lines = [
        Line(replica, styles[index % 2], [(at, float(count)) for at, count in line])
        for index, (replica, line) in enumerate(more["red"].items())
    ]
    pictures = "".join(
        f"<h4>Red at {escape(line.name)}</h4>"
        f"{plot(figures, [line], 'red', f'Red actions at {line.name}', log=False)}"
        for line in lines
        if any(count for _, count in line.values)
    )
    waits = more["waits"]
    told = "No action became green."
    if waits:
        told = (
            f"{waits['count']:,} actions became green; from creation to green p50 "
            f"{_span(waits['p50'])}, p99 {_span(waits['p99'])}, longest {_span(waits['longest'])}. "
            f"{more['still_red']:,} are still red."
        )
    rows = "".join(
        f"<tr><td>{each['component']}</td><td>{_span(each['at'] - figures.start)}</td>"
        f"<td>{escape(', '.join(each['members']))}</td><td>{each['merged']:,}</td>"
        f"<td>{_span(each['longest_wait'])}</td></tr>"
        for each in more["components"][-_SHOWN:]
    )
    return (
        f"<h3>Colours</h3><p>{told}</p>{pictures}"
        "<table><thead><tr><th>primary component</th><th>after</th><th>members</th>"
        "<th>made green as it began</th><th>the longest of them was red for</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _span(microseconds: int) -> str:
    if microseconds < _SECOND:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / _SECOND:.2f} s"
