"""The configuration file: what it may say, and that everything else is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.journal.format import Sync
from coterie.runtime.address import Address
from coterie.service.config import (
    ConfigError,
    SecurityConfig,
    encode_config,
    is_loopback,
    load_config,
    parse_config,
)

WHOLE = """
cluster = "booking"

[groups.seats]
class = "airline.seats:Seats"
stack = "SAFE:TOKEN:PVSYNC"
sync = "turn"

[groups.meals]
class = "meals.py:Meals"

[replicas.b]
listen = "127.0.0.1:7002"
clients = "127.0.0.1:7102"
dir = "/var/lib/coterie/b"

[replicas.a]
listen = "0.0.0.0:7001"
advertise = "10.0.0.1:7001"
clients = "0.0.0.0:7101"
advertise_clients = "10.0.0.1:7101"
metrics = "127.0.0.1:9101"
dir = "/var/lib/coterie/a"

[security]
secret_file = "secret"
"""

SMALL = """
cluster = "c"
[groups.g]
class = "m:C"
[replicas.a]
listen = "127.0.0.1:1"
clients = "127.0.0.1:2"
dir = "a"
"""


OTHER = 'listen = "127.0.0.1:3"\nclients = "127.0.0.1:4"\ndir = "b"\n'


def test_groups_under_vsr_have_members_in_an_order_that_stays() -> None:
    text = SMALL.replace('"m:C"', '"m:C"\nengine = "vsr"') + f"[replicas.b]\n{OTHER}"
    config = parse_config(text, source="group.toml")
    assert config.groups["g"].is_vsr
    assert sorted(config.members("g")) == ["a", "b"]
    more = f'{text}[groups.h]\nclass = "m:C"\nengine = "vsr"\nreplicas = ["b", "a"]\n'
    later = parse_config(more, source="group.toml")
    assert later.members("g") == config.members("g")
    assert later.members("h") == ("b", "a")
    assert parse_config(encode_config(later), source="again").groups == later.groups
    assert [*later.groups_at("a")] == ["g", "h", "coterie.locations"]


def test_a_whole_file_is_understood() -> None:
    config = parse_config(WHOLE, source="group.toml")
    assert config.ids == ("a", "b")
    assert config.groups["seats"].sync is Sync.TURN
    assert config.groups["meals"].sync is Sync.NONE
    assert config.groups["meals"].ordered_by == "SAFE:DYNSEQ:PVSYNC"
    a, b = config.replicas["a"], config.replicas["b"]
    assert a.peer_address == Address("10.0.0.1", 7001)
    assert a.client_address == Address("10.0.0.1", 7101)
    assert b.peer_address == Address("127.0.0.1", 7002)
    assert b.client_address == Address("127.0.0.1", 7102)


def test_what_is_written_is_read_again() -> None:
    config = parse_config(WHOLE, source="group.toml")
    assert parse_config(encode_config(config), source="again") == config
    without = parse_config(SMALL, source="group.toml")
    assert without.security == SecurityConfig()
    assert parse_config(encode_config(without), source="again") == without


def test_names_and_paths_of_any_kind_survive(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted" \\ folder\nof é'
    config = parse_config(SMALL.replace('"a"', _toml(str(odd))), source="x")
    assert config.replicas["a"].dir == str(odd)
    assert parse_config(encode_config(config), source="y") == config


def _toml(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("cluster = ", "cluster "), "group.toml is not valid TOML: "),
        (('"c"', "3"), "group.toml: Expected `str`, got `int` - at `$.cluster`"),
        (('dir = "a"', 'dri = "a"'), "`$.replicas"),
        (('dir = "a"', 'dir = "a"\nlisen = "x:1"'), "unknown field `lisen`"),
        (('"m:C"', '"m"'), "group g: class = 'm' should say module:Class"),
        (('"m:C"', '"m:"'), "group g: class = 'm:' should say module:Class"),
        (('"m:C"', '"m:C"\nsync = "daily"'), "Invalid enum value 'daily'"),
        (('"m:C"', '"m:C"\nstack = "DYNSEK"'), "group g: "),
        (('"m:C"', '"m:C"\nstack = "DYNSEQ:VSYNC"'), "keeps no history; take SAFE:DYNSEQ:PVSYNC"),
        (('"m:C"', '"m:C"\ndump_interval = -1'), "group g: dump_interval is a number of positions"),
        (('"m:C"', '"m:C"\nengine = "raft"'), "Invalid enum value 'raft'"),
        (
            ('"m:C"', '"m:C"\nengine = "vsr"\nstack = "SAFE:DYNSEQ:PVSYNC"'),
            'group g: engine = "vsr" has no stack: leave one of the two out',
        ),
        (('"m:C"', '"m:C"\nengine = "vsr"\ndump_interval = 9'), "dump_interval is for stacks"),
        (('"m:C"', '"m:C"\nsync = "primary"'), 'sync = "primary" is for engine = "vsr"'),
        (('"m:C"', '"m:C"\nreplicas = ["b"]'), "group g: replicas: there is no replica 'b'"),
        (('"m:C"', '"m:C"\nreplicas = ["a", "a"]'), "group g: replicas: 'a' is named twice"),
        (("[groups.g]", '[groups."coterie.locations"]'), "is Coterie's own group"),
        (
            (
                '"m:C"\n[replicas.a]',
                '"m:C"\nreplicas = ["a"]\n[replicas.b]\n' + OTHER + "[replicas.a]",
            ),
            "replica b: no group is there",
        ),
        (("[groups.g]", '[groups."../g"]'), "'../g' is no name"),
        (("[replicas.a]", '[replicas."a b"]'), "'a b' is no name"),
        (("127.0.0.1:1", "127.0.0.1"), "replica a: listen: '127.0.0.1' is no address"),
        (("127.0.0.1:2", "127.0.0.1:1"), "127.0.0.1:1 is the address of a (advertise) already"),
        (("127.0.0.1:1", "0.0.0.0:1"), "replica a: listen = '0.0.0.0:1' can be reached from other"),
        (("127.0.0.1:2", "10.0.0.1:2"), "set secret_file or certificates under [security], or"),
        (('dir = "a"', 'dir = "a"\nmetrics = "[::]:9"'), "replica a: metrics = '[::]:9' can be"),
        (
            ('dir = "a"', 'dir = "a"\n[security]\ncertificate = "c"'),
            "security: certificate, key and authority are given together or not",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change: tuple[str, str], sentence: str) -> None:
    text = SMALL.replace(*change, 1)
    assert text != SMALL
    with pytest.raises(ConfigError, match=r"^group.toml") as refusal:
        parse_config(text, source="group.toml")
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('cluster = "c"\n[groups]\n[replicas]\n', "there is no group: add a table such as"),
        (SMALL.partition("[replicas.a]")[0] + "[replicas]", "1 to 32 replicas, this one 0"),
    ],
)
def test_something_must_be_there(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_config(text, source="group.toml")
    assert sentence in str(refusal.value)


def test_an_address_that_others_cannot_dial_needs_another() -> None:
    text = SMALL.replace("127.0.0.1:1", "0.0.0.0:1") + '[security]\nsecret_file = "s"\n'
    with pytest.raises(ConfigError, match="no address that others can dial: set advertise"):
        parse_config(text, source="group.toml")


def test_open_addresses_can_be_allowed() -> None:
    text = SMALL.replace("127.0.0.1:1", "10.0.0.1:1") + "[security]\nallow_open = true\n"
    assert parse_config(text, source="x").security.is_open


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load_config(tmp_path / "group.toml")
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(ConfigError, match="latin cannot be read: "):
        load_config(tmp_path / "latin")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 -- is refused
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_what_only_this_machine_can_reach(host: str, expected: bool) -> None:  # noqa: FBT001
    assert is_loopback(Address(host, 1)) is expected
