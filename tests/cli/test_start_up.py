"""What is imported before anything is done: a replica that comes back should not wait for more.

Importing is most of what a start costs, so it is counted, not timed.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE

from coterie.cli.main import COMMANDS
from coterie.journal.format import Sync
from coterie.service.config import GroupConfig
from coterie.service.operate.founding import make_config
from coterie.service.state_folder import CONFIG, write_config

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import sys
from coterie.cli.main import main
try:
    main()
except SystemExit:
    pass
print("\\n" + "\\n".join(sys.modules))
"""
CLIENT = 'import sys, coterie; coterie.connect; print("\\n".join(sys.modules))'
HEAVY = {"numpy", "pandas", "pyarrow", "pyspark", "matplotlib"}
OF_CLIENTS = {"client", "kernel", "objects", "protocol", "ready", "runtime"}
OF_REPLICAS = OF_CLIENTS | {
    *(
        "assembly",
        "bypass",
        "cli",
        "colours",
        "journal",
        "membership",
        "ordering",
        "replication",
        "service",
    ),
    "stacks",  # where all layers are named, those of partitioned networks included
}
OF_HELP = {"cli", "kernel", "service", "simulation"}
"""The last two for the names of engine families only."""


def imported(script: str, *words: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", script, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return set(ran.stdout.split())


def folders(modules: set[str]) -> set[str]:
    """The parts of the package that modules are of."""
    return {name.split(".")[1] for name in modules if name.startswith("coterie.")}


def commands(modules: set[str]) -> set[str]:
    prefix = "coterie.cli.commands."
    return {name.removeprefix(prefix) for name in modules if name.startswith(prefix)}


@pytest.mark.slow  # starts a real process
def test_a_replica_imports_what_it_serves_with(tmp_path: Path) -> None:
    group = GroupConfig(class_="coterie.ready:Counter", stack="SAFE:DYNSEQ:PVSYNC", sync=Sync.NONE)
    write_config(tmp_path, make_config(tmp_path, "g", groups={"g": group}, replicas=1))
    options = ("--config", str(tmp_path / CONFIG), "--id", "a", "--found", "--until-eof")
    modules = imported(SCRIPT, "replica", *options)
    assert "coterie.service.engines.stack_family" in modules, "it has served"
    assert not modules & HEAVY
    assert folders(modules) == OF_REPLICAS
    assert commands(modules) & set(COMMANDS) == {"replica"}


def test_a_client_imports_no_replica() -> None:
    modules = imported(CLIENT)
    assert not modules & HEAVY
    assert folders(modules) == OF_CLIENTS


@pytest.mark.parametrize("words", [["--help"], ["completion", "bash"]], ids="/".join)
def test_help_imports_nothing_that_does_anything(words: list[str]) -> None:
    modules = imported(SCRIPT, *words)
    assert not modules & (HEAVY | {"asyncio", "msgspec", "dataclasses", "ssl"})
    assert folders(modules) == OF_HELP
    assert commands(modules) >= set(COMMANDS)


def test_a_named_command_is_imported_alone() -> None:
    modules = imported(SCRIPT, "version")
    assert commands(modules) == {"version"}
