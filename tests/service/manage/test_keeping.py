"""What an agent keeps on its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from coterie.kernel.errors import CoterieError
from coterie.manager.orders import LookAround, Permit, StartReplica, StopReplica, Turnstile
from coterie.service.engines.family import Slot
from coterie.service.manage.agent_config import AgentConfig, AgentConfigError, load_agent_config
from coterie.service.manage.keeping import AgentDisk

if TYPE_CHECKING:
    from pathlib import Path

SECRET = b"5" * 32
WHOLE = "host = 'h1'\nlisten = '127.0.0.1:1'\ndir = 'd'\nsecret_file = 's'\n"


def config(folder: Path) -> AgentConfig:
    return AgentConfig(host="h1", listen="127.0.0.1:1", dir=str(folder), secret_file="s")  # noqa: S106 -- a path


def test_the_fence_and_the_places_outlive_the_agent(tmp_path: Path) -> None:
    disk = AgentDisk(config(tmp_path), SECRET)
    disk.keep_fence(7)
    disk.keep_fence(3)
    place = disk.place("g", "g-1")
    assert disk.place("g", "g-1") == place
    other = disk.place("g", "g-2")
    assert len({place.peers, place.clients, other.peers, other.clients}) == 4
    again = AgentDisk(config(tmp_path), SECRET)
    assert again.fence == 7
    assert again.replicas == disk.replicas


def test_a_replica_is_given_all_that_it_needs(tmp_path: Path) -> None:
    disk = AgentDisk(config(tmp_path), SECRET)
    first, second = disk.place("g", "g-1"), disk.place("g", "g-2")
    settings: dict[str, str | int] = {"class": "coterie.ready:Counter", "stack": "", "sync": "turn"}
    permit = Permit(1)
    disk.prepare(first, StartReplica(permit, "g", "g-1", founds=True, others=(), settings=settings))
    disk.prepare(
        first, StartReplica(permit, "g", "g-1", founds=True, others=(), settings=settings)
    )  # as after a crash
    disk.prepare(
        second,
        StartReplica(permit, "g", "g-2", founds=False, others=(first.place,), settings=settings),
    )
    assert Slot(disk.load("g-1"), "g", "g-1").configuration.members == ("g-1",)
    newcomer = Slot(disk.load("g-2"), "g", "g-2").configuration
    assert (newcomer.number, newcomer.members) == (0, ("g-1",))
    assert disk.knows(second) == ("g-1",)
    assert disk.load("g-2").groups["g"].sync.value == "turn"


def test_two_hosts_make_the_same_secrets_and_others_for_others(tmp_path: Path) -> None:
    one = AgentDisk(config(tmp_path / "one"), SECRET)
    two = AgentDisk(config(tmp_path / "two"), SECRET)
    three = AgentDisk(config(tmp_path / "three"), b"6" * 32)
    for disk in (one, two, three):
        disk.introduce(disk.place("g", "g-1"), ["g-1", "g-2", "g-3"])
    texts = [
        {path.name: path.read_text() for path in (disk.root / "secrets" / "g").iterdir()}
        for disk in (one, two, three)
    ]
    assert texts[0] == texts[1]
    assert set(texts[0].values()).isdisjoint(texts[2].values())
    assert len(set(texts[0].values())) == 3


def test_a_file_that_is_damaged_ends_in_a_sentence(tmp_path: Path) -> None:
    AgentDisk(config(tmp_path), SECRET).keep_fence(1)
    (tmp_path / "agent.json").write_text("{", encoding="utf-8")
    with pytest.raises(CoterieError, match=r"agent\.json cannot be read"):
        AgentDisk(config(tmp_path), SECRET)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host = 'h1'", "missing required field"),
        ("host = 'h/1'\nlisten = '127.0.0.1:1'\ndir = 'd'\nsecret_file = 's'", "no name"),
        ("host = 'h1'\nlisten = '127.0.0.1'\ndir = 'd'\nsecret_file = 's'", "is no address"),
        (
            "host = 'h1'\nlisten = '127.0.0.1:1'\ndir = 'd'\nsecret_file = 's'\nports = '9'",
            "is no range",
        ),
        *(
            (f"{WHOLE}ports = '{ports}'", "is no range")
            for ports in ("65000-99999", f"1-{'9' * 5000}", "0-9", "9-1")
        ),
        ("host =", "not valid TOML"),
    ],
)
def test_the_file_of_an_agent(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((AgentConfigError, CoterieError), match=said):
        load_agent_config(path)


def test_permits() -> None:
    turnstile = Turnstile("life", 3)
    stop = StopReplica(Permit(3, "life", 100.0), "g", "g-1")
    assert turnstile.refusal(stop, 99.0) == ""
    assert "after the lease" in turnstile.refusal(stop, 100.0)
    assert turnstile.refusal(LookAround(Permit(4)), 500.0) == ""
    assert "lower than 4" in turnstile.refusal(stop, 99.0)
    other = msgspec.structs.replace(stop, permit=Permit(4, "another", 100.0))
    assert "earlier life" in turnstile.refusal(other, 99.0)
    assert turnstile.refused == {"late": 1, "fence": 1, "life": 1}
