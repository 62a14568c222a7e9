"""The notebook runs from its first cell to its last, and draws something."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "history.ipynb"


def cells() -> list[dict[str, Any]]:
    book = json.loads(NOTEBOOK.read_text("utf-8"))
    assert book["nbformat"] == 4
    found: list[dict[str, Any]] = book["cells"]
    return found


def test_it_is_kept_without_what_a_run_leaves_in_it() -> None:
    code = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_it_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the session of the tests, which is the one that `make_session` gives."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mpl.use("Agg")
    names: dict[str, Any] = {}
    for cell in cells():
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)  # noqa: S102 -- ours
    assert names["spark"] is spark or names["spark"].version == spark.version
    assert names["outcome"].outcome == "kept"
    picture = (names["folder"] / "history.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000, "there is something to see"
    names["plt"].close("all")
