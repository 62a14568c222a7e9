"""`coterie replica`: one process of a deployment, and the exit status of everything it may meet."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE

from coterie.cli import main as cli
from coterie.journal.format import Sync
from coterie.service.config import GroupConfig
from coterie.service.folder import open_folder
from coterie.service.operate.control import Look, Recover, give_order
from coterie.service.operate.founding import make_config
from coterie.service.state_folder import CONFIG, write_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.service.config import ClusterConfig

slow = pytest.mark.slow  # starts a real process
START = "import sys; from coterie.cli.main import main; sys.exit(main())"


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    made = make_config(
        tmp_path,
        "g",
        groups={
            "g": GroupConfig(
                class_="coterie.ready:Counter", stack="SAFE:DYNSEQ:PVSYNC", sync=Sync.NONE
            )
        },
        replicas=1,
    )
    write_config(tmp_path, made)
    return made


def words(folder: Path, *options: str) -> list[str]:
    return ["replica", "--config", str(folder / CONFIG), "--id", "a", *options]


@contextmanager
def running(folder: Path, *options: str, script: str = START) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words(folder, *options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def events_until(process: subprocess.Popen[str], is_last: str) -> list[dict[str, object]]:
    """Read the log up to the first line with a text in it."""
    assert process.stderr is not None
    events = []
    for line in process.stderr:
        events.append(json.loads(line))
        if is_last in line:
            return events
    raise AssertionError(f"it ended without {is_last!r}: {events}")


@slow
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "the end of its input"])
def test_it_serves_until_told_to_stop(config: ClusterConfig, tmp_path: Path, how: str) -> None:
    with running(tmp_path, "--found", "--until-eof") as process:
        events = events_until(process, '"primary"')
        assert events[0]["log"] == "started"
        assert events[0]["clients_at"] == config.replicas["a"].clients
        assert all(isinstance(event["at"], float) for event in events)
        refused = give_order(Path(config.replicas["a"].dir), Recover("g"))
        assert "nothing has to be recovered" in refused.text
        unknown = give_order(Path(config.replicas["a"].dir), Recover("h"))
        assert unknown.text == "there is no group 'h' here"
        other = give_order(Path(config.replicas["a"].dir), Look())
        assert "does not take the order Look" in other.text
        if how == "the end of its input":
            stdin, process.stdin = process.stdin, None
            assert stdin is not None
            stdin.close()
        else:
            process.send_signal(getattr(signal, how))
        last = events_until(process, '"stopped"')
        assert last[-1]["log"] == "stopped"
        assert process.wait(PATIENCE) == 0


@slow
def test_a_full_disk_is_said_to_be(config: ClusterConfig, tmp_path: Path) -> None:
    del config
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300)); {START}"
    )
    with running(tmp_path, "--found", script=script) as process:
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 74
    assert err.splitlines()[-1].startswith("coterie: ")
    assert "Traceback" not in err
    # Nothing that it promised is lost: it starts again when there is room.
    with running(tmp_path) as process:
        events = events_until(process, '"primary"')
        assert not any("zombie" in event for event in events)


def test_a_folder_in_use(
    config: ClusterConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_folder(Path(config.replicas["a"].dir), "a", ["g"]):
        assert cli.main(words(tmp_path)) == 69
    assert "a replica 'a' is running already" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["listen", "clients"])
def test_a_port_in_use(
    config: ClusterConfig, tmp_path: Path, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host, _, port = getattr(config.replicas["a"], which).rpartition(":")
    with socket.create_server((host, int(port))):
        assert cli.main(words(tmp_path)) == 69
    err = capsys.readouterr().err
    assert f"{host}:{port}" in err or f"port={port}" in err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('"g"', '"g'), "is not valid TOML"),
        (("coterie.ready:Counter", "coterie.ready:Cuonter"), "has no class 'Cuonter'; it has"),
        (("coterie.ready:Counter", "builtins:int"), "int"),
        (("SAFE:DYNSEQ:PVSYNC", "SAFE:DYNSEK:PVSYNC"), "names no layer 'DYNSEK'"),
        (('"a"]', '"b"]'), "there is no replica 'a' in the configuration; it has b"),
    ],
)
def test_a_configuration_that_cannot_be_used(
    config: ClusterConfig,
    tmp_path: Path,
    change: tuple[str, str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del config
    file = tmp_path / CONFIG
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change))
    assert cli.main(words(tmp_path)) == 2
    assert sentence in capsys.readouterr().err


@slow
def test_the_journal_of_another_group(
    config: ClusterConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del config
    file = tmp_path / CONFIG
    text = file.read_text()
    with running(tmp_path, "--found") as process:
        events_until(process, '"primary"')
    file.write_text(text.replace('groups."g"', 'groups."h"'))
    assert cli.main(words(tmp_path)) == 69
    assert "holds journals of g only, and this process runs h" in capsys.readouterr().err
