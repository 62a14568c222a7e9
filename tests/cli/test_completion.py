"""`coterie completion`: the script knows every command and option, and completes them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from coterie.cli import main as cli

if TYPE_CHECKING:
    from pathlib import Path


def script_for(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_known(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = script_for(shell, capsys)
    assert all(name in script for name in cli.COMMANDS)
    assert "accept-loss" in script
    assert "%(" not in script


def complete(script: str, state: Path, *words: str) -> list[str]:
    """Ask bash, as it would ask when the user presses the tab key."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    ask = (
        f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; "
        '_coterie; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", f"{script}\n{ask}"],
        env={"XDG_STATE_HOME": str(state), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "coterie" / "seats").mkdir(parents=True)
    script = script_for("bash", capsys)
    assert complete(script, tmp_path, "coterie", "re") == [
        "recover",
        "remove",
        "replace",
        "replica",
        "restore",
    ]
    assert complete(script, tmp_path, "coterie", "serve", "--st") == ["--stack"]
    assert complete(script, tmp_path, "coterie", "serve", "--sync", "t") == ["turn"]
    assert complete(script, tmp_path, "coterie", "status", "s") == ["seats"]
    assert complete(script, tmp_path / "gone", "coterie", "status", "s") == []


def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("there is no fish here")
    (tmp_path / "script").write_text(script_for("fish", capsys))
    ask = f"source {tmp_path}/script; complete -C 'coterie call --dead'"
    done = subprocess.run(
        [fish, "--no-config", "-c", ask],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "--deadline\thow long to try (default: 5)\n"
