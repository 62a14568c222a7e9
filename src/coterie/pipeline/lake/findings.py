"""All that is wrong with the journals in a lake: what segments say alone, and next to each other.

A segment names the digest of what it continues. Two segments that do not fit were swapped, or come
from different copies of a disk; that shows only where both are known.

That a life existed is said by others, too: by the stable values of its replica, and by every view
in which somebody met it. A last life that is gone is missed only so, as nothing follows it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.journal import Kind, Mark
from coterie.pipeline.lake.sources import sources_of
from coterie.pipeline.read.schemas import FINDINGS, MEMBER
from coterie.pipeline.read.tables import journal_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]

INCOMPLETE = frozenset(
    kind.value for kind in (Kind.DAMAGED, Kind.MISSING, Kind.UNREADABLE, Kind.MISPLACED)
)
"""Findings after which a journal may lack records that the replica once wrote."""


def findings_of(lake: Lake, group: str) -> pa.Table:
    """Give everything that should be said of a group's journals."""
    segments = lake.table("segments", group).to_pylist()
    sources = sources_of(lake, group)
    rows = [
        *unlinked_segments(segments),
        *_absent_lives(lake, group, segments, sources),
        *_lost_ends(lake, group, segments, lake.table("findings", group).to_pylist()),
        *(finding for row in sources for finding in row["findings"] or ()),
    ]
    found = pa.Table.from_pylist(rows, schema=FINDINGS)
    return pa.concat_tables([lake.table("findings", group), found])


def lives_met(lake: Lake, group: str) -> dict[str, set[int]]:
    """Give the lives that members of views met, by replica."""
    met: dict[str, set[int]] = {}
    for name, table in journal_tables().items():
        if table.is_positioned or "members" not in table.schema.names:
            continue
        if table.schema.field("members").type != pa.list_(MEMBER):
            continue
        members = lake.table(name, group)["members"].combine_chunks().flatten()
        pairs = pa.table({"id": members.field("id"), "life": members.field("incarnation")})
        for row in pairs.group_by(["id", "life"]).aggregate([]).to_pylist():
            if row["id"] is not None:
                met.setdefault(row["id"], set()).add(row["life"])
    return met


def _absent_lives(lake: Lake, group: str, segments: list[Row], sources: list[Row]) -> Iterator[Row]:
    """Say which lives came after the last one that is there."""
    present: dict[str, int] = {}
    for row in segments:
        present[row["replica"]] = max(present.get(row["replica"], 0), row["incarnation"])
    for row in segments:
        if not row["is_over"]:
            present.pop(row["replica"], None)  # what comes next may be on its way
    claimed = {row["replica"]: row["claimed"] or 0 for row in sources}
    removed = {row["replica"]: {each[0] for each in row["removed"]} for row in sources}
    met = lives_met(lake, group)
    for replica, last in sorted(present.items()):
        named = {life: "others met it in views" for life in met.get(replica, ()) if life > last}
        if claimed.get(replica, 0) > last:
            said = "its stable values say that it was begun"
            named[claimed[replica]] = (
                f"{said}, and others met it in views" if claimed[replica] in named else said
            )
        for life, reason in sorted(named.items()):
            if life not in removed.get(replica, ()):
                yield {
                    "group_name": group,
                    "replica": replica,
                    "incarnation": life,
                    "path": f"{replica}, life {life}",
                    "byte_offset": 0,
                    "kind": Kind.MISSING.value,
                    "reason": f"life {life} of {replica} is not there: {reason}",
                    "first": 1,
                    "last": 0,
                }


def _lost_ends(lake: Lake, group: str, segments: list[Row], known: list[Row]) -> Iterator[Row]:
    """Say whose journals end before something that others have from them.

    Who proposes a view, and who accepts a primary one, writes it down before saying so.
    """
    ends: dict[str, Row] = {}
    for row in sorted(segments, key=lambda row: (row["incarnation"], row["first"])):
        ends[row["replica"]] = row
    views = lake.table("views", group).select(
        ["replica", "incarnation", "event", "view", "members"]
    )
    told: dict[tuple[str, int], tuple[Any, ...]] = {}
    said: dict[tuple[str, int], tuple[Any, ...]] = {}
    for row in views.to_pylist():
        view = tuple(row["view"].values())
        life = (row["replica"], row["incarnation"])
        told[life] = max(told.get(life, view), view)
        sources = [(view[1], view[2])]
        if row["event"] == "confirmed":
            sources += [(each["id"], each["incarnation"]) for each in row["members"]]
        for source in sources:
            said[source] = max(said.get(source, view), view)
    for replica, end in sorted(ends.items()):
        life = (replica, end["incarnation"])
        latest = said.get(life, (0,))
        is_known = any(
            (row["replica"], row["incarnation"]) == life and row["kind"] in INCOMPLETE
            for row in known
        )
        if end["is_over"] and not is_known and latest > told.get(life, (0,)):
            reason = f"others have view {latest[0]}.{latest[1]} from it, and it ends before that"
            yield segment_finding(end, reason, Kind.MISSING) | {
                "first": end["last"] + 1,
                "last": 0,
            }


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
            yield segment_finding(other, "it does not continue the segment before it")
    for row in in_order:
        end = ends.get((row["replica"], row["follows_incarnation"]))
        if row["first"] > 1 or end is None or end["last"] != row["follows_sequence"]:
            continue
        if not _fits(row, end):
            yield segment_finding(end, f"it is not what life {row['incarnation']} went on from")


def _counts(row: Row) -> bool:
    return bool(row["is_whole"]) and (row["last_valid"] < 0 or row["first"] <= row["last_valid"])


def _fits(row: Row, before: Row) -> bool:
    """Say whether a segment can be the continuation of another."""
    if not before["is_whole"] or row["follows_digest"] is None or before["digest"] is None:
        return True
    mark = Mark(row["follows_incarnation"], row["follows_sequence"], row["follows_digest"])
    return not mark.contradicts(before["digest"])


def segment_finding(row: Row, reason: str, kind: Kind = Kind.MISPLACED) -> Row:
    """Give a finding about a whole segment."""
    return {
        "group_name": row["group_name"],
        "replica": row["replica"],
        "incarnation": row["incarnation"],
        "path": row["path"],
        "byte_offset": 0,
        "kind": kind.value,
        "reason": reason,
        "first": row["first"],
        "last": row["last"],
    }
