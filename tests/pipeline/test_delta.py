"""Tables as Delta Lake: the rows of the results, replaced at once, with their past."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.pipeline.here import publish_here
from tests.pipeline.journals import COUNTER

from coterie.cli import exits
from coterie.cli.main import main
from coterie.pipeline.publish.delta import NoDelta, write_delta
from coterie.pipeline.publish.manifest import NoResults, read_manifest

deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")


def test_every_table_is_a_delta_table(
    counter_journals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, target = tmp_path / "out", tmp_path / "delta"
    publish_here(counter_journals, out)
    first = write_delta(out, str(target))
    assert set(first) == set(read_manifest(out).tables)
    # Nothing new: nothing is written.
    assert write_delta(out, str(target)) == first
    before = deltalake.DeltaTable(target / "events")
    assert before.to_pyarrow_table().num_rows == 0

    publish_here(counter_journals, out, {"group": COUNTER})
    assert main(["pipeline", "delta", str(target), "--out", str(out), "--json"]) == exits.DONE
    versions = json.loads(capsys.readouterr().out)["versions"]
    assert versions["events"] == first["events"] + 1
    assert versions["update_counter_add"] == 0
    manifest = read_manifest(out)
    for name, table in manifest.tables.items():
        found = deltalake.DeltaTable(target / name)
        rows = found.to_pyarrow_table()
        assert rows.num_rows == table.rows, name
        assert set(rows.schema.names) == set(table.columns), name
    events = deltalake.DeltaTable(target / "events")
    assert events.metadata().partition_columns == ["group_name"]
    expected = pq.read_table(out / "tables" / "events").to_pylist()
    found_rows = events.to_pyarrow_table().to_pylist()
    key = ("position", "index", "arguments", "executed_at")
    assert sorted(tuple(row[each] for each in key) for row in found_rows) == sorted(
        tuple(row[each] for each in key) for row in expected
    )
    # Time travel.
    earlier = deltalake.DeltaTable(target / "events", version=first["events"])
    assert earlier.to_pyarrow_table().num_rows == 0


def test_what_cannot_be_written_is_a_sentence(
    counter_journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoResults, match="there are no results"):
        write_delta(tmp_path, str(tmp_path / "delta"))
    publish_here(counter_journals, tmp_path / "out")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(NoDelta, match="cannot be written"):
        write_delta(tmp_path / "out", str(tmp_path / "file"))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(NoDelta, match=r"pip install .coterie\[delta\]"):
        write_delta(tmp_path / "out", str(tmp_path / "delta"))
