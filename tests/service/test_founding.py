"""A local group begins: all marks first, the file last."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from coterie.journal.engines.stack import recover
from coterie.journal.format import Sync
from coterie.kernel.errors import CoterieError
from coterie.runtime.address import parse_address
from coterie.service.config import ClusterConfig, ConfigError, GroupConfig
from coterie.service.folder import open_folder
from coterie.service.operate.founding import PORTS, found, free_port, make_config
from coterie.service.state_folder import CONFIG, read_config


def config_in(folder: Path, replicas: int = 3) -> ClusterConfig:
    return make_config(
        folder,
        "g",
        groups={"g": GroupConfig(class_="m:C", stack="SAFE:DYNSEQ:PVSYNC", sync=Sync.TURN)},
        replicas=replicas,
    )


def test_all_replicas_are_founders_and_none_a_zombie(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    assert config.ids == ("a", "b", "c")
    found(tmp_path, config)
    assert read_config(tmp_path) == config
    for id in config.ids:
        with open_folder(Path(config.replicas[id].dir), id, ["g"]) as disk:
            recovery = recover(disk, "g", id)
        assert recovery.is_founder
        assert not recovery.is_zombie


def test_founding_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    first = config_in(tmp_path)
    found(tmp_path, first)
    (tmp_path / CONFIG).unlink()  # as if the crash had come just before it was written
    again = config_in(tmp_path)
    found(tmp_path, again)
    assert read_config(tmp_path) == again


def test_journals_without_their_file_are_left_alone(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    journal = tmp_path / "b" / "g" / "b"
    journal.mkdir(parents=True)
    (journal / "something").write_text("")
    with pytest.raises(CoterieError, match=r"group.toml is gone: put it back, or choose another"):
        found(tmp_path, config)
    assert not (tmp_path / CONFIG).exists()


def test_addresses_are_all_different_and_on_loopback(tmp_path: Path) -> None:
    config = config_in(tmp_path, replicas=5)
    texts = [text for each in config.replicas.values() for text in (each.listen, each.clients)]
    assert len(set(texts)) == 10
    assert {parse_address(text).host for text in texts} == {"127.0.0.1"}


def test_a_port_is_not_one_for_outgoing_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PORTS, raising=False)
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not ephemeral.exists():
        pytest.skip("this system does not say which those are")
    first = int(ephemeral.read_text().split()[0])
    with ExitStack() as held:
        assert all(10_000 <= free_port(held) < first for _ in range(20))


def test_ports_are_those_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS, "21000-21099")
    with ExitStack() as held:
        assert all(21_000 <= free_port(held) < 21_100 for _ in range(20))


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is down keeps its port, though nobody listens there."""
    monkeypatch.setenv(PORTS, "21000-21999")
    given = []
    for _ in range(200):
        with ExitStack() as held:
            given.append(free_port(held))
    assert len(set(given)) == 200


@pytest.mark.parametrize("text", ["21000", "a-b", "5-4", "0-9", "65000-65536"])
def test_ports_that_cannot_be_are_a_sentence(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(PORTS, text)
    with ExitStack() as held, pytest.raises(CoterieError, match="two ports, as in 20000-20999"):
        free_port(held)


@pytest.mark.parametrize("replicas", [0, -1, 27])
def test_a_number_of_replicas_that_cannot_be(tmp_path: Path, replicas: int) -> None:
    with pytest.raises(CoterieError, match=f"has 1 to 26 replicas, not {replicas}"):
        config_in(tmp_path, replicas=replicas)


def test_a_stack_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keeps no history"):
        make_config(
            tmp_path,
            "g",
            groups={"g": GroupConfig(class_="m:C", stack="DYNSEQ:VSYNC", sync=Sync.NONE)},
            replicas=1,
        )
