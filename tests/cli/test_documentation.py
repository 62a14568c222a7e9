"""The tutorial runs as it is written, and the page on operations says what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from coterie.cli import exits
from coterie.cli.main import COMMANDS
from coterie.service.config import GroupConfig, ReplicaConfig, parse_config
from coterie.service.operate import supervisor
from coterie.service.operate.control import Look, give_order
from coterie.service.state_folder import CONFIG, read_config

DOCS = Path(__file__).parent.parent.parent / "docs"
TUTORIAL = (DOCS / "use" / "tutorial.md").read_text(encoding="utf-8")
OPERATIONS = (DOCS / "operate" / "operations.md").read_text(encoding="utf-8")


def blocks(page: str, kind: str) -> list[tuple[str, str]]:
    """Give the blocks of a kind, each with the name of the file it is, if it is one."""
    return re.findall(rf"```{kind}(?: file=(\S+))?\n(.*?)```", page, re.DOTALL)


class Reader:
    """Someone who does what the tutorial says, in a folder and with a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self._script("coterie", f'exec "{sys.executable}" -m coterie.cli "$@"')
        self._script("python", f'exec "{sys.executable}" "$@"')
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}",
        }

    def _script(self, name: str, line: str) -> None:
        script = self.folder / "bin" / name
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(0o755)

    @property
    def place(self) -> Path:
        return self.folder / "state" / "coterie" / "seats"

    def do(self, command: str) -> str:
        """Run a command, with the addresses and process ids of this machine; give its output."""
        if "127.0.0.1:20171" in command:
            address = read_config(self.place).replicas["b"].clients
            command = command.replace("127.0.0.1:20171", address)
        if "4711" in command:
            [_, b, _] = give_order(self.place, Look()).processes
            command = command.replace("4711", str(b.pid))
        done = subprocess.run(  # noqa: S602 -- our own page
            command,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.stdout


@pytest.mark.slow  # starts real processes
def test_the_tutorial_runs_as_it_is_written(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for name, text in blocks(TUTORIAL, "python"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    try:
        for _, session in blocks(TUTORIAL, "console"):
            for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
                command, _, expected = step.partition("\n")
                pattern = re.escape(expected.rstrip()).replace("…", ".*")
                printed = reader.do(command).rstrip()
                assert re.fullmatch(pattern, printed), f"$ {command}\n{printed}"
    finally:
        reader.do("coterie stop seats")


def test_the_deployment_of_the_tutorial_is_a_good_one() -> None:
    [(_, text)] = blocks(TUTORIAL, "toml")
    config = parse_config(text, source=CONFIG)
    assert config.ids == ("a", "b", "c")


def test_every_setting_and_status_is_documented() -> None:
    words = set(re.findall(r"`(\w+)`", OPERATIONS))
    fields = {*GroupConfig.__struct_fields__, *ReplicaConfig.__struct_fields__}
    assert {field.rstrip("_") for field in fields} <= words
    in_help = {int(number) for number in re.findall(r"^ +(\d+) ", exits.TABLE, re.MULTILINE)}
    on_page = {int(number) for number in re.findall(r"^\| (\d+) \|", OPERATIONS, re.MULTILINE)}
    assert in_help == on_page
    named = {value for name, value in vars(exits).items() if name.isupper() and name != "TABLE"}
    assert in_help == named - {exits.READER_GONE}


def test_the_supervisor_does_what_the_page_says() -> None:
    assert f"after {supervisor.PAUSE_FIRST:g} s" in OPERATIONS
    assert f"up to\n{supervisor.PAUSE_MAX:g} s" in OPERATIONS
    assert f"every\n{supervisor.PAUSE_STORAGE:g} s" in OPERATIONS
    assert supervisor.USELESS_MAX == 8
    assert "eight times in a row" in OPERATIONS


def test_commands_that_are_named_exist() -> None:
    for page in (TUTORIAL, OPERATIONS):
        named = set(re.findall(r"(?<!from )coterie ([a-z]+)", page))
        assert named <= {*COMMANDS}, named - {*COMMANDS}
