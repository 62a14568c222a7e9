"""The views of cohorts as a report lays them out: views that are installed and confirmed at once.

A cohort that promises a later view leaves the one it is in, and stands between the two until it is
active again. What a primary has forced is what clients were answered from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from coterie.pipeline.publish.figures import PROMISED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Row = dict[str, Any]


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


def count_outcomes(folder: Path) -> dict[str, dict[str, int]]:
    """Count how the transactions of each coordinator ended, from the table of a run before."""
    counted: dict[str, dict[str, int]] = {}
    if folder.is_dir():
        table = pq.read_table(folder, columns=["coordinator", "outcome"])
        for row in (
            table.group_by(["coordinator", "outcome"]).aggregate([([], "count_all")]).to_pylist()
        ):
            counted.setdefault(row["coordinator"], {})[row["outcome"]] = row["count_all"]
    return counted
