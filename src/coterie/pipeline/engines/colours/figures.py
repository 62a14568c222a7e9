"""The colours of a group over time, as a report shows them.

Every component takes updates, so a view that is not primary is not idle: its actions are red. The
chapter shows how many actions were red at each replica, what each primary component found waiting
when it was installed, and how long what is green had been red.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from coterie.kernel.past_lives import ALL
from coterie.pipeline.engines.colours.told import name_of, place_of, view_key
from coterie.pipeline.publish.charts import Line, plot
from coterie.pipeline.publish.figures import PROMISED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.pipeline.engines.colours.told import Name, View
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures

Row = dict[str, Any]
_ROWS_MAX = 500_000
"""Of how many rows colours are followed action by action; a report of more does without."""
_POINTS = 200
"""How many points a line has, about."""
_SHOWN = 50
"""How many components are listed, the last ones."""
_SECOND = 1_000_000
_KNOWN, _GREEN, _ADOPTED = range(3)


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
    actions = lake.table("actions", group).drop_columns(["payload"])
    greens = lake.table("greens", group)
    if len(actions) + len(greens) > _ROWS_MAX:
        return {}
    known, marked = actions.to_pylist(), greens.to_pylist()
    components = lake.table("components", group).to_pylist()
    created: dict[Name, int] = {}
    for row in known:
        if row["creator"] == {"id": row["replica"], "incarnation": row["incarnation"]}:
            created.setdefault(name_of(row), row["recorded_at"])
    became: dict[Name, int] = {}
    for row in marked:
        name = name_of(row)
        became[name] = min(became.get(name, row["recorded_at"]), row["recorded_at"])
    waits = {name: max(0, at - created[name]) for name, at in became.items() if name in created}
    return {
        "red": _red_counts(known, marked, components),
        "components": list(_components(marked, components, waits)),
        "waits": _quantiles(sorted(waits.values())),
        "still_red": len({name_of(row) for row in known} - set(became)),
    }


def _red_counts(known: list[Row], marked: list[Row], components: list[Row]) -> dict[str, Any]:
    """Follow each replica: which actions it knows that are not green there."""
    events: dict[str, list[tuple[tuple[int, int], int, Row]]] = {}
    adopted = [row for row in components if row["event"] == "adopted"]
    for kind, rows in ((_KNOWN, known), (_GREEN, marked), (_ADOPTED, adopted)):
        for row in rows:
            place = (row["incarnation"], row["sequence"])
            events.setdefault(row["replica"], []).append((place, kind, row))
    counts: dict[str, Any] = {}
    for replica, mine in sorted(events.items()):
        red: set[Name] = set()
        line: list[list[int]] = []
        for _, kind, row in sorted(mine, key=lambda each: each[:2]):
            if kind == _KNOWN:
                red.add(name_of(row))
            elif kind == _GREEN:
                red.discard(name_of(row))
            else:
                ends = {name_of(id)[:2]: id["index"] for id in row["greens"]}
                past = {id: life for (id, life), index in ends.items() if index == ALL}
                red = {
                    name
                    for name in red
                    if name[2] > ends.get(name[:2], 0) and name[1] > past.get(name[0], -1)
                }
            if line and line[-1][0] == row["recorded_at"]:
                line[-1][1] = len(red)
            else:
                line.append([row["recorded_at"], len(red)])
        counts[replica] = _thinned(line)
    return counts


def _thinned(line: list[list[int]]) -> list[list[int]]:
    """Give a line with fewer points: of each stretch of time its highest."""
    step = max(1, len(line) // _POINTS)
    return [max(line[at : at + step], key=lambda each: each[1]) for at in range(0, len(line), step)]


def _components(
    marked: list[Row], components: list[Row], waits: dict[Name, int]
) -> Iterator[dict[str, Any]]:
    """Give every primary component, with what was red or yellow when it was first installed."""
    first: dict[View, Row] = {}
    for row in components:
        if row["event"] == "installed":
            view = view_key(row["attempt"])
            if view not in first or row["recorded_at"] < first[view]["recorded_at"]:
                first[view] = row
    found: dict[View, list[int]] = {view: [] for view in first}
    for row in marked:
        view = view_key(row["view"])
        by = first.get(view)
        # What an installation makes green is marked in the very turn.
        if (
            by is not None
            and (row["replica"], row["incarnation"]) == (by["replica"], by["incarnation"])
            and row["recorded_at"] == by["recorded_at"]
        ):
            found[view].append(waits.get(name_of(row), 0))
    for view, row in sorted(first.items(), key=lambda each: each[1]["component"]):
        yield {
            "component": row["component"],
            "at": row["recorded_at"],
            "members": row["members"],
            "position": row["position"],
            "merged": len(found[view]),
            "longest_wait": max(found[view], default=0),
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
