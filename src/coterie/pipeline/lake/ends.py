"""How journals end: on purpose, in a crash, or not yet.

What stands at the end of a journal is all there is only if its replica stopped on purpose, or
synced every turn and then died with its process or its machine. Otherwise the end may lack
something: it is still being written; it is torn; or it was never synced, and the machine on which
it was written is gone. And a journal that just ends, as that of a killed process does, looks like
one whose end somebody cut off: whoever would be accused only by what is not there is not.
"""

from __future__ import annotations

import enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from coterie.journal import Kind, Sync
from coterie.pipeline.lake.sources import sources_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]
_COLUMNS = ["replica", "incarnation", "first", "is_over", "sync", "boot_id"]


class End(enum.Enum):
    """What may be missing at the end of a journal."""

    OPEN = "it is still being written"
    LOST = "its end may be lost with its machine: it is torn, or was not synced"
    UNSTOPPED = "it does not say that it is the end"
    """Nothing is missing if all went as it should; but it cannot be seen that nothing is."""


def ends_of(lake: Lake, group: str) -> dict[str, End]:
    """Say of whose journals more may have been written than is at hand."""
    last: dict[str, Row] = {}
    open_: set[str] = set()
    segments = lake.table("segments", group).select(_COLUMNS).to_pylist()
    for row in sorted(segments, key=lambda row: (row["incarnation"], row["first"])):
        if not row["is_over"]:
            open_.add(row["replica"])  # the head of a segment that has just begun may be on its way
        if row["sync"] is not None:  # or its head cannot be read, which is a finding
            last[row["replica"]] = row
    stopped = stopped_lives(lake, group)
    read_under = {row["replica"]: row["boot_id"] for row in sources_of(lake, group)}
    torn = {
        (row["replica"], row["incarnation"])
        for row in lake.table("findings", group).to_pylist()
        if row["kind"] == Kind.TORN_TAIL.value
    }
    found = dict.fromkeys(open_, End.OPEN)
    for replica, row in last.items():
        life = (replica, row["incarnation"])
        if replica in open_ or life in stopped:
            continue
        # A journal that is read in the same run of the machine lost nothing but its process.
        is_lost = row["sync"] != Sync.TURN.value and (
            not row["boot_id"] or row["boot_id"] != read_under.get(replica)
        )
        found[replica] = End.LOST if is_lost or life in torn else End.UNSTOPPED
    return found


def stopped_lives(lake: Lake, group: str) -> set[tuple[str, int]]:
    """Give the lives that ended on purpose: what they wrote is all there is."""
    lives = lake.table("lives", group).filter(pc.field("event") == "stopped")
    return {(row["replica"], row["incarnation"]) for row in lives.to_pylist()}


def lost_writes(segments: Iterable[Row], stopped: set[tuple[str, int]]) -> list[Row]:
    """Give the segments of one replica before which unsynced records went with a machine."""
    return [
        other
        for one, other in pairwise(segments)
        if one["sync"] != Sync.TURN
        and one["boot_id"] != other["boot_id"]
        and (one["replica"], one["incarnation"]) not in stopped
    ]
