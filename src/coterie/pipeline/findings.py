"""All that is wrong with the journals in a lake: what segments say alone, and next to each other.

A segment names the digest of what it continues. Two segments that do not fit were swapped, or come
from different copies of a disk; that shows only where both are known.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.journal import Kind, Mark
from coterie.pipeline.schemas import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.pipeline.lake import Lake

Row = dict[str, Any]


def findings_of(lake: Lake, group: str) -> pa.Table:
    """Give everything that should be said of a group's journals."""
    segments = lake.table("segments", group).to_pylist()
    unlinked = pa.Table.from_pylist(list(unlinked_segments(segments)), schema=FINDINGS)
    return pa.concat_tables([lake.table("findings", group), unlinked])


def unlinked_segments(segments: list[Row]) -> Iterator[Row]:
    """Say which segments do not continue what they say they continue."""
    in_order = sorted(segments, key=lambda row: (row["replica"], row["incarnation"], row["first"]))
    ends: dict[tuple[str, int], Row] = {}
    for row in in_order:
        if _counts(row):
            ends[row["replica"], row["incarnation"]] = row
    for one, other in pairwise(in_order):
        same_life = (one["replica"], one["incarnation"]) == (other["replica"], other["incarnation"])
        if same_life and one["last"] + 1 == other["first"] and not _fits(other, one):
            yield _finding(other, "it does not continue the segment before it")
    for row in in_order:
        end = ends.get((row["replica"], row["follows_incarnation"]))
        if row["first"] > 1 or end is None or end["last"] != row["follows_sequence"]:
            continue
        if not _fits(row, end):
            yield _finding(end, f"it is not what life {row['incarnation']} went on from")


def _counts(row: Row) -> bool:
    return bool(row["is_whole"]) and (row["limit"] < 0 or row["first"] <= row["limit"])


def _fits(row: Row, before: Row) -> bool:
    """Say whether a segment can be the continuation of another."""
    if not before["is_whole"] or row["follows_digest"] is None or before["digest"] is None:
        return True
    mark = Mark(row["follows_incarnation"], row["follows_sequence"], row["follows_digest"])
    return not mark.contradicts(before["digest"])


def _finding(row: Row, reason: str) -> Row:
    return {
        "group": row["group"],
        "replica": row["replica"],
        "incarnation": row["incarnation"],
        "path": row["path"],
        "offset": 0,
        "kind": Kind.MISPLACED.value,
        "reason": reason,
        "first": row["first"],
        "last": row["last"],
    }
