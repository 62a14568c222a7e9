"""What is wrong with the journals, in sentences that come before any verdict.

A verdict can only speak of what was read. Where the journal of a replica is missing, cannot be
read, or belongs to another group, checks go on with what there is and call undecided what they
cannot tell; this module says the reason once, first, and in words.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coterie.journal import Kind
from coterie.journal.format import HARMLESS
from coterie.pipeline.findings import findings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.pipeline.lake import Lake

_PASSED_OVER = {kind.value for kind in (*HARMLESS, Kind.TORN_TAIL)}
"""What needs no sentence: a torn tail is what a crash leaves, and loses nothing promised."""


def problems_of(lake: Lake) -> list[str]:
    """Say all that is wrong with the journals in a lake, a sentence each."""
    return [
        sentence
        for group in lake.groups()
        for sentence in (*_about_members(lake, group), *_about_files(lake, group))
    ]


def _about_members(lake: Lake, group: str) -> Iterator[str]:
    """Say who should have a journal and has none, and who belongs to another group."""
    lives = lake.table("lives", group).to_pylist()
    found: dict[int, dict[tuple[str, ...], set[str]]] = {}
    for row in lives:
        if row["event"] == "started":
            claims = found.setdefault(row["configuration"], {})
            claims.setdefault(tuple(row["replicas"]), set()).add(row["replica"])
    if not found:
        return
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


def _about_files(lake: Lake, group: str) -> Iterator[str]:
    """Say which files are damaged, misplaced or of another format: one sentence for each kind."""
    rows = [row for row in findings_of(lake, group).to_pylist() if row["kind"] not in _PASSED_OVER]
    counts = Counter((row["replica"], row["kind"]) for row in rows)
    for row in rows:
        count = counts.pop((row["replica"], row["kind"]), 0)
        if count:
            more = f" ({count:,} such findings in all)" if count > 1 else ""
            yield f"group {group}: {row['path']}: {row['kind']}: {row['reason']}{more}"


def _listed(names: tuple[str, ...] | set[str] | list[str]) -> str:
    return ", ".join(sorted(names))
