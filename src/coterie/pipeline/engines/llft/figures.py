"""The views of programs as a report lays them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.pipeline.publish.figures import PROMISED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coterie.pipeline.engines.family import Row


def _view(row: Row) -> Row:
    claim = row["claim"]
    return {
        "number": claim["view"],
        "proposer": claim["id"],
        "incarnation": claim["incarnation"],
    }


def program_views(rows: Iterable[Row]) -> Iterator[Row]:
    """Give rows of `program_views` that tell of views, as rows of `views`."""
    for row in rows:
        match row["event"]:
            case "started":
                told = {**row, "view": _view(row), "members": row["lives"]}
                yield {**told, "event": "installed"}
                yield {**told, "event": "confirmed"}
            case "promised":
                yield {**row, "view": _view(row), "members": None, "event": PROMISED}
            case _:
                pass


def program_standings(rows: Iterable[Row]) -> Iterator[Row]:
    """Give rows of `program_views` that tell what was stored, as rows of `standings`."""
    for row in rows:
        if row["event"] == "stored":
            yield {**row, "event": "settled", "position": row["number"]}
