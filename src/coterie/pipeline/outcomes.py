"""How a run can end, and what its verdicts rest on.

There are four ends, and none is ever taken for another: all promises were *kept*; one was
*broken*, and records prove it; journals are *damaged*, that is missing, unreadable or altered, so
that not all can be known; or the run itself *failed*, which says nothing of anybody's promises.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.pipeline.lake.findings import INCOMPLETE, findings_of, lives_met

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]


class Outcome(enum.StrEnum):
    """What came of a run, in a word."""

    KEPT = "kept"
    """No promise was found broken, and nothing was missing that could have shown it."""
    BROKEN = "broken"
    """A promise was broken: there are rows that prove it."""
    DAMAGED = "damaged"
    """No promise was found broken, but not all could be known."""
    FAILED = "failed"
    """The run did not come to an end, by an error of its own."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What verdicts on a group rest on: how much of it there is, and how much was at hand."""

    journals: int = 0
    """Journals of members that are there, and whole."""
    journals_known: int = 0
    lives: int = 0
    lives_known: int = 0
    """Lives of which anybody says that they began."""
    positions: int | None = None
    """Positions of which every member has had its say, where the family counts them."""
    positions_known: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all journals and lives were at hand."""
        return self.journals >= self.journals_known and self.lives >= self.lives_known

    def __str__(self) -> str:
        parts = [
            f"{self.journals:,} of {self.journals_known:,} journals",
            f"{self.lives:,} of {self.lives_known:,} lives",
        ]
        if self.positions is not None and self.positions_known is not None:
            parts.append(f"{self.positions:,} of {self.positions_known:,} positions")
        return ", ".join(parts)


def basis_of(lake: Lake, group: str) -> Basis:
    """Count what there is of a group's journals, and what there should be."""
    members: set[str] = set()
    latest = -1
    present: set[tuple[str, int]] = set()
    for row in lake.table("segments", group).select(["replica", "incarnation"]).to_pylist():
        present.add((row["replica"], row["incarnation"]))
    for row in lake.table("configurations", group).to_pylist():
        if row["configuration"] >= latest:
            latest, members = row["configuration"], set(row["members"])
    for row in lake.table("lives", group).to_pylist():
        if row["event"] == "started" and row["configuration"] >= latest:
            latest, members = row["configuration"], set(row["replicas"])
    members = members or {replica for replica, _ in present}
    lacking = {
        (row["replica"], row["incarnation"])
        for row in findings_of(lake, group).to_pylist()
        if row["kind"] in INCOMPLETE and row["incarnation"]
    }
    known = present | lacking
    for replica, lives in lives_met(lake, group).items():
        known |= {(replica, life) for life in lives}
    known = {(replica, life) for replica, life in known if life}
    whole = {replica for replica, _ in present} - {replica for replica, _ in lacking}
    return Basis(
        journals=len(members & whole),
        journals_known=len(members),
        lives=len(present - lacking),
        lives_known=len(known),
    )


def outcome_of(verdicts: Iterable[Row], violations: Iterable[Row], *, is_whole: bool) -> Outcome:
    """Say how a run ended that came to its end."""
    words = {row["verdict"] for row in verdicts}
    if any(True for _ in violations) or "broken" in words:
        return Outcome.BROKEN
    if not is_whole or "undecided" in words:
        return Outcome.DAMAGED
    return Outcome.KEPT


def with_basis(rows: Iterable[Row], bases: Mapping[str, Basis]) -> list[Row]:
    """Put beside each verdict what it rests on; what rests on a part is not simply kept."""
    found: list[Row] = []
    for row in rows:
        basis = bases[row["group_name"]]
        about = {
            "journals": basis.journals,
            "journals_known": basis.journals_known,
            "lives": basis.lives,
            "lives_known": basis.lives_known,
            "positions": row.get("positions"),
            "positions_known": row.get("positions_known"),
        }
        verdict, remark = row["verdict"], row["remark"]
        if verdict == "kept" and not basis.is_whole:
            verdict = "kept in part"
            remark = "; ".join(each for each in (remark, f"by {basis}") if each)
        found.append({**row, **about, "verdict": verdict, "remark": remark})
    return found
