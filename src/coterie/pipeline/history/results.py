"""What checks find out: gathered in tasks, added up where the job was started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.pipeline.read.schemas import VERDICTS, VIOLATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.pipeline.engines.family import Check

VIOLATIONS_MAX = 100
"""How many violations of a check are kept, in each task and in all: more would prove no more."""

RESULTS = pa.schema(
    [
        *VIOLATIONS,
        ("checked", pa.int64()),
        ("found", pa.int64()),
        ("undecided", pa.int64()),
        ("waiting", pa.int64()),
        ("remark", pa.string()),
        ("range", pa.int64()),
        ("earliest_end", pa.int64()),
        ("latest_start", pa.int64()),
        ("events", pa.int64()),
        ("problem", pa.string()),
        ("judged", pa.struct(list(VERDICTS))),
    ]
)
"""Violations, and rows without evidence that hold counts or verdicts."""

Place = tuple[str, int, int]
"""Where a record stands: replica, incarnation, sequence."""


@dataclass(slots=True)
class Count:
    """How often a check was made, and what it found."""

    checked: int = 0
    found: int = 0
    undecided: int = 0
    """Rows of which the journals at hand cannot tell."""
    remark: str = ""
    waiting: int = 0
    """Rows of which journals could not tell yet when they ended."""

    def add(self, other: Count) -> None:
        """Take what another task counted."""
        self.checked += other.checked
        self.found += other.found
        self.undecided += other.undecided
        self.waiting += other.waiting
        self.remark = self.remark or other.remark


def verdict_row(
    group: str, check: Check, count: Count, verdict: str, remark: str
) -> dict[str, Any]:
    """Give the row of a verdict on one promise to one group."""
    return {
        "group_name": group,
        "check_name": check.name,
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
    events: int = 0
    """How many events were written."""
    problems: list[str] = field(default_factory=list)
    """Why no more of them could be written, in sentences."""
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    """Those of a task that found out all there is about a group, with what they rest on."""

    def add(self, other: Results) -> None:
        """Take what another task found in the same group."""
        for check, count in other.counts.items():
            self.count(check).add(count)
        self.violations += other.violations
        self.extents += other.extents
        self.events += other.events
        self.problems += other.problems
        self.verdicts += other.verdicts

    def count(self, check: str) -> Count:
        """Give the count of a check, to be raised."""
        found = self.counts.get(check)
        if found is None:
            found = self.counts[check] = Count()
        return found

    def checked(self, check: str, rows: int) -> None:
        """Learn that a check looked at *rows*."""
        self.count(check).checked += rows

    def undecided(self, check: str, rows: int, remark: str) -> None:
        """Learn that a check cannot say anything about *rows*, and why."""
        if rows:
            self.count(check).undecided += rows
            self.count(check).remark = remark

    def not_yet(self, check: str, rows: int, remark: str) -> None:
        """Learn that journals ended before anything could be said about *rows*."""
        if rows:
            self.count(check).waiting += rows
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
                "group_name": self.group,
                "check_name": check,
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
                "group_name": self.group,
                "check_name": check,
                "checked": count.checked,
                "found": count.found,
                "undecided": count.undecided,
                "waiting": count.waiting,
                "remark": count.remark,
            }
            for check, count in self.counts.items()
        ]
        extents = [
            {"group_name": self.group, "range": number, "earliest_end": end, "latest_start": start}
            for number, end, start in self.extents
        ]
        written = [{"group_name": self.group, "events": self.events}] if self.events else []
        problems = [{"group_name": self.group, "problem": each} for each in self.problems]
        judged = [{"group_name": self.group, "judged": each} for each in self.verdicts]
        rows = [*summaries, *extents, *written, *problems, *judged, *self.violations]
        return pa.RecordBatch.from_pylist(rows, schema=RESULTS)


def gather(rows: Iterable[dict[str, Any]], found: dict[str, Results]) -> None:
    """Add what tasks found to what is known of each group."""
    for row in rows:
        results = found.setdefault(row["group_name"], Results(row["group_name"]))
        if row["range"] is not None:
            results.extents.append((row["range"], row["earliest_end"], row["latest_start"]))
        elif row["events"] is not None:
            results.events += row["events"]
        elif row["problem"] is not None:
            results.problems.append(row["problem"])
        elif row["judged"] is not None:
            results.verdicts.append(row["judged"])
        elif row["evidence"] is None:
            results.count(row["check_name"]).add(
                Count(
                    row["checked"],
                    row["found"],
                    row["undecided"],
                    row["remark"] or "",
                    row["waiting"] or 0,
                )
            )
        else:
            results.violations.append({name: row[name] for name in VIOLATIONS.names})
