"""Tests of one group run in one process, and all processes have work until the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE
from tests.times import Times, folder_of

ROOT = Path(__file__).parent.parent
CONFTEST = "from tests.conftest import pytest_addoption, pytest_configure"
TESTS = """
import os
from pathlib import Path
import pytest

def note(name):
    with Path("order").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], name, file=file)

def test_quick():
    note("quick")

@pytest.mark.slow
def test_slow():
    note("slow")

@pytest.mark.parametrize("number", range(6))
@pytest.mark.xdist_group("costly")
def test_costly(number):
    note("costly")
    assert number != 3
"""


@pytest.mark.slow  # starts three interpreters
def test_a_group_has_one_process_and_what_failed_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: takes long\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    words = ["-n2", "--dist=loadgroup", "--times", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env={name: value for name, value in environment.items() if "XDIST" not in name},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    noted = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    assert len({worker for worker, name in noted if name == "costly"}) == 1, ran.stdout
    elsewhere = [name for _, name in noted if name != "costly"]
    assert elsewhere == ["slow", "quick"], ran.stdout
    assert "1 failed, 7 passed" in ran.stdout
    assert "To repeat what failed: .venv/bin/pytest 'test_all.py::test_costly[3]'" in ran.stdout


def test_the_time_is_told_by_folder(pytestconfig: pytest.Config) -> None:
    times = Times(pytestconfig)
    for id, when, duration in (
        ("tests/vsr/test_a.py::test_one", "setup", 1.0),
        ("tests/vsr/test_a.py::test_one", "call", 2.0),
        ("tests/test_b.py::test_two[a/b::c]", "call", 1.0),
    ):
        times.add(pytest.TestReport(id, ("", None, ""), {}, "passed", None, when, [], duration))  # type: ignore[arg-type]
    assert times.lines()[2:5] == [
        "                   tests  seconds",
        "  vsr                  1      3.0   75%",
        "  tests                1      1.0   25%",
    ]
    assert folder_of("tests/pipeline/spark/test_c.py::test_three") == "pipeline"
