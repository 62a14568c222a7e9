"""The views of cohorts as a report lays them out: views that are installed and confirmed at once.

A cohort that promises a later view leaves the one it is in, and stands between the two until it is
active again. What a primary has forced is what clients were answered from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Row = dict[str, Any]

PROMISED = "promised"


def cohort_views(rows: Iterable[Row]) -> Iterator[Row]:
    """Give rows of `cohorts` that tell of views, as rows of `views`."""
    for row in rows:
        match row["event"]:
            case "started" | "members":
                yield {**row, "event": "installed"}
                yield {**row, "event": "confirmed"}
            case "invited" | "accepted":
                yield {**row, "event": PROMISED}
            case _:
                pass


def cohort_standings(rows: Iterable[Row]) -> Iterator[Row]:
    """Give rows of `cohorts` that tell what was forced, as rows of `standings`."""
    return ({**row, "event": "settled"} for row in rows if row["event"] == "forced")
