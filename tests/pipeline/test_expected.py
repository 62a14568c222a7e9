"""What comes of some journals is what always came of them, row by row.

The journals are kept in `recorded/`, so that an engine that runs a seed differently changes no
expectation of the pipeline. `expected.json` was written by the pipeline as it was before ranges
were judged once and events of cohorts were read in columns (but that transactions which only read
are committed). It is recorded anew only if a promise or a table is meant to change. Columns have
got other names since, because the first ones had to be quoted.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.here import recorded_journals, seal_here, tables_here, verify_here
from tests.pipeline.journals import COUNTER

from coterie.pipeline.read.schemas import RANGE

EXPECTED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("expected.json").read_text(encoding="utf-8")
)
NEW_COLUMNS = {"forced": {"position"}}
FIRST_NAMES = {
    "group_name": "group",
    "check_name": "check",
    "recorded_at": "at",
    "executed_at": "time",
    "last_valid": "limit",
    "byte_offset": "offset",
    "primary_member": "primary",
}


def as_first_named(row: dict[str, Any]) -> dict[str, Any]:
    """Give a row as it was when folders said nothing and times were microseconds."""
    return {
        FIRST_NAMES.get(column, column): value for column, value in row.items() if column != RANGE
    }


def digest_of(rows: list[dict[str, Any]]) -> str:
    lines = sorted(repr(sorted(row.items())) for row in rows)
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


@pytest.mark.parametrize(
    ("name", "width"), [("counter", 100), ("optimistic", 500), ("bank", 100), ("bank", 7)]
)
def test_what_comes_of_journals(name: str, width: int, tmp_path: Path) -> None:
    journals = recorded_journals(name, tmp_path / "journals")
    lake = seal_here(journals, tmp_path / "lake", width=width)
    found = verify_here(lake, {"group": COUNTER} if name == "counter" else None)
    counts = {
        group: {
            check: [count.checked, count.found, count.undecided]
            for check, count in sorted(results.counts.items())
        }
        for group, results in sorted(found.items())
    }
    assert counts == EXPECTED[name]["counts"]
    for table, (size, digest) in EXPECTED[name]["tables"].items():
        new = NEW_COLUMNS.get(table, set())
        rows = [
            as_first_named({column: row[column] for column in row.keys() - new})
            for row in tables_here(lake, table)
        ]
        assert (len(rows), digest_of(rows)) == (size, digest)
