"""What checks find out: gathered in tasks, added up where the job was started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.pipeline.schemas import VIOLATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.pipeline.checks import Check

VIOLATIONS_MAX = 100
"""Of each check, in each task and in all: more evidence of the same is no more evidence."""

RESULTS = pa.schema(
    [
        *VIOLATIONS,
        ("checked", pa.int64()),
        ("found", pa.int64()),
        ("undecided", pa.int64()),
        ("remark", pa.string()),
        ("range", pa.int64()),
        ("earliest_end", pa.int64()),
        ("latest_start", pa.int64()),
    ]
)
"""Violations, and rows without evidence that hold counts."""

Place = tuple[str, int, int]
"""Replica, incarnation, sequence."""


@dataclass(slots=True)
class Count:
    """How a check went."""

    checked: int = 0
    found: int = 0
    undecided: int = 0
    remark: str = ""

    def add(self, other: Count) -> None:
        """Take what another task counted."""
        self.checked += other.checked
        self.found += other.found
        self.undecided += other.undecided
        self.remark = self.remark or other.remark


def verdict_row(
    group: str, check: Check, count: Count, verdict: str, remark: str
) -> dict[str, Any]:
    """Give the row of a verdict on one promise to one group."""
    return {
        "group": group,
        "check": check.name,
        "paper": check.paper,
        "promise": check.promise,
        "verdict": verdict,
        "checked": count.checked,
        "violations": count.found,
        "remark": remark,
    }


@dataclass(slots=True)
class Results:
    """What the checks of one task found in one group."""

    group: str
    counts: dict[str, Count] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)
    extents: list[tuple[int, int, int]] = field(default_factory=list)
    """For ranges of positions: when the first answer was given, and the last request made."""

    def count(self, check: str) -> Count:
        """Give the count of a check, to be raised."""
        return self.counts.setdefault(check, Count())

    def checked(self, check: str, rows: int) -> None:
        """Learn that a check looked at *rows*."""
        self.count(check).checked += rows

    def undecided(self, check: str, rows: int, remark: str) -> None:
        """Learn that a check cannot say anything about *rows*, and why."""
        if rows:
            self.count(check).undecided += rows
            self.count(check).remark = remark

    def violate(  # noqa: PLR0913 -- a violation has these parts
        self,
        check: str,
        evidence: str,
        *,
        position: int | None = None,
        view: dict[str, Any] | None = None,
        replicas: Iterable[str] = (),
        rows: Sequence[Place] = (),
    ) -> None:
        """Learn of a broken promise."""
        count = self.count(check)
        count.found += 1
        if count.found > VIOLATIONS_MAX:
            return
        named = replicas or sorted({replica for replica, _, _ in rows})
        self.violations.append(
            {
                "group": self.group,
                "check": check,
                "position": position,
                "view": view,
                "replicas": list(named),
                "evidence": evidence,
                "rows": [
                    {"replica": replica, "incarnation": incarnation, "sequence": sequence}
                    for replica, incarnation, sequence in rows
                ],
            }
        )

    def batch(self) -> pa.RecordBatch:
        """Give everything as rows."""
        summaries = [
            {
                "group": self.group,
                "check": check,
                "checked": count.checked,
                "found": count.found,
                "undecided": count.undecided,
                "remark": count.remark,
            }
            for check, count in self.counts.items()
        ]
        extents = [
            {"group": self.group, "range": number, "earliest_end": end, "latest_start": start}
            for number, end, start in self.extents
        ]
        return pa.RecordBatch.from_pylist([*summaries, *extents, *self.violations], schema=RESULTS)


def gather(rows: Iterable[dict[str, Any]]) -> dict[str, Results]:
    """Add up what tasks found, by group."""
    found: dict[str, Results] = {}
    for row in rows:
        results = found.setdefault(row["group"], Results(row["group"]))
        if row["range"] is not None:
            results.extents.append((row["range"], row["earliest_end"], row["latest_start"]))
        elif row["evidence"] is None:
            results.count(row["check"]).add(
                Count(row["checked"], row["found"], row["undecided"], row["remark"] or "")
            )
        else:
            results.violations.append({name: row[name] for name in VIOLATIONS.names})
    return found
