"""What a lake was made from: the folders of all replicas, as they were when last looked at.

    <lake>/sources/group_name=<group>/sources.parquet

One row for each replica: which lives there are and which there should be, what was removed on
purpose, whether it was still being written; and what could not be read at all, or is no longer as
it was sealed. It is written last of all, whenever journals were looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.pipeline.lake.lake import folder_of, value_of
from coterie.pipeline.read.schemas import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.read.planning import Survey

Row = dict[str, Any]
_FOLDER = "sources"

SOURCES = pa.schema(
    [
        ("group_name", pa.string()),
        ("replica", pa.string()),
        ("root", pa.string()),
        ("claimed", pa.int64()),
        ("lives", pa.list_(pa.int64())),
        ("removed", pa.list_(pa.list_(pa.int64()))),
        ("is_open", pa.bool_()),
        ("boot_id", pa.string()),
        ("sealed", pa.list_(pa.string())),
        ("findings", pa.list_(pa.struct(list(FINDINGS)))),
    ]
)
"""What the folder of each replica said, which segments of it are sealed, and what was wrong."""


def sources_of(lake: Lake, group: str) -> list[Row]:
    """Give what the folders of a group's replicas said; nothing if nobody looked."""
    path = lake.path(_file(group))
    return lake.read_file(path, SOURCES).to_pylist() if path.exists() else []


def groups_looked_at(lake: Lake) -> list[str]:
    """Give the groups of which the folders say anything."""
    return sorted(value_of(each.parent) for each in lake.path(_FOLDER).glob("*/*.parquet"))


def write_sources(
    before: Lake, looked: Survey, segments: Iterable[Row], found: Iterable[Row]
) -> None:
    """Remember what the folders said, and what else was *found* to be wrong with them.

    *before* is the lake as it was, and *segments* are the rows of all that is sealed now.
    """
    rows: dict[tuple[str, str], Row] = {}
    for source in looked.sources:
        rows[source.group, source.replica] = {
            "group_name": source.group,
            "replica": source.replica,
            "root": source.root,
            "claimed": source.claimed,
            "lives": source.lives,
            "removed": [list(each) for each in source.removed],
            "is_open": source.is_open,
            "boot_id": source.boot_id,
        }
    for finding in (*looked.findings, *found):
        key = (finding["group_name"], finding["replica"])
        row = rows.setdefault(key, _nothing(*key))
        row.setdefault("findings", []).append(finding)
    for row in sorted(segments, key=lambda row: (row["incarnation"], row["first"])):
        key = (row["group_name"], row["replica"])
        known = rows.setdefault(key, _nothing(*key))
        known.setdefault("sealed", []).append(row["path"])
    by_group: dict[str, list[Row]] = {group: [] for group in groups_looked_at(before)}
    for (group, _), row in sorted(rows.items()):
        by_group.setdefault(group, []).append(row)
    for group, mine in by_group.items():
        table = pa.Table.from_pylist(mine, schema=SOURCES)
        if table.to_pylist() != sources_of(before, group):
            before.write_whole(_file(group), table)


def _nothing(group: str, replica: str) -> Row:
    return {"group_name": group, "replica": replica, "lives": [], "removed": []}


def _file(group: str) -> str:
    return f"{_FOLDER}/{folder_of(group)}/{_FOLDER}.parquet"
