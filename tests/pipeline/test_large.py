"""One wrong entry among very many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.by_hand import MEMBERS, NAMES, VIEW, begin, entries, settled, write
from tests.pipeline.here import history_here, seal_here, verify_here

from coterie.kernel.records import Record
from coterie.pipeline.history.results import Results
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.read.columns import base_of, fingerprints, stamps
from coterie.pipeline.read.schemas import ENTRIES, MEMBER, TIME, stored
from coterie.pipeline.read.schemas import VIEW as VIEW_TYPE


def assert_flip_is_found(results: Results, first: int) -> None:
    """Two neighbours changed places at one replica: both places are named, and nothing else."""
    for check in ("one authoritative entry", "global ordering"):
        found = [row for row in results.violations if row["check_name"] == check]
        assert [row["position"] for row in found] == [first, first + 1]
        assert all({place["replica"] for place in row["rows"]} == set(NAMES) for row in found)


def test_a_flipped_order_among_thousands_in_journals(tmp_path: Path) -> None:
    size, flipped = 20_000, 12_345
    payloads = [b"%d" % number for number in range(1, size + 1)]
    told: dict[str, list[Record]] = {}
    for name in NAMES:
        mine = list(payloads)
        if name == "b":
            mine[flipped - 1 : flipped + 1] = reversed(mine[flipped - 1 : flipped + 1])
        runs = [
            entries("g", name, start + 1, mine[start : start + 500])
            for start in range(0, size, 500)
        ]
        told[name] = [*begin("g", name), *runs, settled("g", name, size)]
    write(tmp_path / "journals", "g", told)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=5_000)
    assert_flip_is_found(verify_here(lake)["g"], flipped)
    assert sum(row["standing"] == "authoritative" for row in history_here(lake)) == size


def write_entries(lake: Lake, name: str, size: int, flipped: int) -> None:
    """Write the entries of a replica straight into the lake."""
    positions = np.arange(1, size + 1, dtype=np.int64)
    identities = positions.copy()
    if flipped:
        identities[flipped - 1], identities[flipped] = flipped + 1, flipped
    stamped = stamps(np.full(size, base_of(VIEW), np.uint64), positions)
    prints = fingerprints(
        stamped,
        np.full(size, base_of(MEMBERS[0]), np.uint64),
        identities,
        np.zeros(size, np.uint64),
    )
    columns = {
        "position": pa.array(positions),
        "view": pa.repeat(pa.scalar(_fields(VIEW), VIEW_TYPE), size),
        "number": pa.array(positions),
        "origin": pa.repeat(pa.scalar(_fields(MEMBERS[0]), MEMBER), size),
        "identity": pa.array(identities),
        "payload": pa.repeat(pa.scalar(b"", pa.binary()), size),
        "stamp": pa.array(stamped.view(np.int64)),
        "fingerprint": pa.array(prints.view(np.int64)),
        "replica": pa.repeat(pa.scalar(name), size),
    }
    constants = {"incarnation": 1, "sequence": 6, "recorded_at": 1}
    for column, constant in constants.items():
        columns[column] = pa.repeat(pa.scalar(constant, pa.int64()), size)
    columns["recorded_at"] = columns["recorded_at"].cast(TIME)
    schema = stored(ENTRIES)
    table = pa.table([columns[field.name] for field in schema], schema=schema)
    ranges = positions // lake.width
    for number in range(int(ranges[-1]) + 1):
        inside = np.flatnonzero(ranges == number)
        path = lake.path(lake.file("entries", "g", f"{name}-000001-000000000000001", number))
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.slice(int(inside[0]), len(inside)), path, compression="zstd")


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__struct_fields__}  # type: ignore[attr-defined]


@pytest.mark.slow  # a million entries at each of three replicas
def test_a_flipped_order_among_a_million_entries(tmp_path: Path) -> None:
    size, flipped = 1_000_000, 777_777
    told = {name: [*begin("g", name), settled("g", name, size)] for name in NAMES}
    write(tmp_path / "journals", "g", told)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=1 << 18)
    for name in NAMES:
        write_entries(lake, name, size, flipped if name == "b" else 0)
    results = verify_here(lake)["g"]
    assert results.count("one authoritative entry").checked == 3 * size
    assert_flip_is_found(results, flipped)
