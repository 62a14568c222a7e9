"""What is wrong with the journals, in sentences that come before any verdict.

A verdict can only speak of what was read. Where the journal of a replica is missing, cannot be
read, or belongs to another group, checks go on with what there is and call undecided what they
cannot tell; this module says the reason once, first, and in words.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from coterie.journal import Kind
from coterie.journal.format import HARMLESS
from coterie.pipeline.lake.findings import findings_of
from coterie.pipeline.lake.kept import kept
from coterie.pipeline.lake.sources import groups_looked_at
from coterie.pipeline.read.schemas import FINDINGS
from coterie.pipeline.spark.tasks import batches, for_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]

_PASSED_OVER = {kind.value for kind in (*HARMLESS, Kind.TORN_TAIL)}
"""What needs no sentence: a torn tail is what a crash leaves, and loses nothing promised."""


WRONG = pa.schema([("finding", pa.struct(list(FINDINGS))), ("sentence", pa.string())])
"""What is wrong with a group: a finding, or a sentence that sums up some of them."""
MANY_GROUPS = 32
"""From how many groups on tasks look at them, in batches."""
BATCH_GROUPS = 16


class Wrong(NamedTuple):
    """All that is wrong with the journals in a lake."""

    findings: list[Row]
    sentences: list[str]


def wrong_with(lake: Lake, spark: SparkSession | None = None) -> Wrong:
    """Say all that is wrong with the journals in a lake: as rows, and in sentences."""
    groups = sorted({*lake.groups(), *groups_looked_at(lake)})
    shared = batches(groups, BATCH_GROUPS)

    def work(batch: list[str]) -> Iterator[pa.RecordBatch]:
        for group in batch:
            yield _wrong_with_group(kept(lake), group)

    if spark is not None and len(groups) >= MANY_GROUPS:
        rows = for_each(spark, shared, work, WRONG).toArrow().to_pylist()
    else:
        rows = [row for batch in shared for part in work(batch) for row in part.to_pylist()]
    return Wrong(
        [row["finding"] for row in rows if row["finding"] is not None],
        [row["sentence"] for row in rows if row["sentence"] is not None],
    )


def _wrong_with_group(lake: Lake, group: str) -> pa.RecordBatch:
    found = findings_of(lake, group).to_pylist()
    sentences = [*_about_members(lake, group), *_about_files(group, found)]
    rows = [*({"finding": row} for row in found), *({"sentence": each} for each in sentences)]
    return pa.RecordBatch.from_pylist(rows, schema=WRONG)


def _about_members(lake: Lake, group: str) -> Iterator[str]:
    """Say who should have a journal and has none, and who belongs to another group."""
    lives = lake.table("lives", group).to_pylist()
    found: dict[int, dict[tuple[str, ...], set[str]]] = {}
    for row in lives:
        if row["event"] == "started" and row["configuration"]:  # 0 is whom a newcomer looks for
            claims = found.setdefault(row["configuration"], {})
            claims.setdefault(tuple(row["replicas"]), set()).add(row["replica"])
    if not found:
        return
    for row in lake.table("configurations", group).to_pylist():
        # What a life is told by its file is no news where the members have changed.
        found.pop(1, None)
        found.setdefault(row["configuration"], {}).setdefault(tuple(row["members"]), set()).add(
            row["replica"]
        )
    latest = found[max(found)]
    for claims in found.values():
        if len(claims) > 1:
            said = "; ".join(
                f"{_listed(who)} of a group of {_listed(members)}"
                for members, who in sorted(claims.items())
            )
            yield (
                f"group {group}: these are journals of different groups of one name ({said}): "
                "read each group by itself"
            )
    present = {row["replica"] for row in lives}
    if len(latest) == 1:
        [members] = latest
        absent = sorted(set(members) - present)
        if absent:
            yield (
                f"group {group}: there is no journal of {_listed(absent)}: what only its journal "
                "could tell stays undecided; add the folder that has it"
            )


def _about_files(group: str, found: list[Row]) -> Iterator[str]:
    """Say which files are damaged, misplaced or of another format: one sentence for each kind."""
    rows = [row for row in found if row["kind"] not in _PASSED_OVER]
    counts = Counter((row["replica"], row["kind"]) for row in rows)
    for row in rows:
        count = counts.pop((row["replica"], row["kind"]), 0)
        if count:
            more = f" ({count:,} such findings in all)" if count > 1 else ""
            yield f"group {group}: {row['path']}: {row['kind']}: {row['reason']}{more}"


def _listed(names: tuple[str, ...] | set[str] | list[str]) -> str:
    return ", ".join(sorted(names))
