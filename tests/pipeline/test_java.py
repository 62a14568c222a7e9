"""Java from wherever there is one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coterie.pipeline.java import bundled_home, java_home, version_of


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
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n", encoding="utf-8")
    old.chmod(0o755)
    assert version_of(old) == 8
    assert version_of(tmp_path / "nothing") == 0
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(old.parent) + ":/bin:/usr/bin/none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = java_home()
    assert home.is_relative_to(tmp_path / "cache")
    assert version_of(home / "bin" / "java") >= 17
