"""The configuration file: what it may say, and that everything else is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from coterie.journal.format import Sync
from coterie.objects import HostSettings
from coterie.runtime.address import Address
from coterie.service.config import (
    ConfigError,
    SecurityConfig,
    encode_config,
    is_loopback,
    load_config,
    parse_config,
)
from coterie.service.engines import find_family
from coterie.service.limits import PORT_LIMITS, Bounds, port_settings
from coterie.service.settings import PortSettings
from coterie.vsr import VsrSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

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
replica_secrets = "secrets"

[clients.billing]
secret_file = "billing.secret"
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


SECURE = '[security]\nreplica_secrets = "s"\n'
OTHER = 'listen = "127.0.0.1:3"\nclients = "127.0.0.1:4"\ndir = "b"\n'


def test_groups_under_vsr_have_members_in_an_order_that_stays() -> None:
    text = SMALL.replace('"m:C"', '"m:C"\nengine = "vsr"') + f"[replicas.b]\n{OTHER}"
    config = parse_config(text, source="group.toml")
    assert config.groups["g"].kept_by == "vsr"
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
    assert config.groups["meals"].kept_by == "SAFE:DYNSEQ:PVSYNC"
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


LIMITED = SMALL.replace('"m:C"', '"m:C"\n[groups.g.limits]\n{}') + "[limits]\n{}"


def test_limits_are_understood_and_written_again() -> None:
    text = LIMITED.format("command_bytes_max = 262144", "connections_max = 9\nsessions_max = 5")
    config = parse_config(text, source="group.toml")
    assert config.groups["g"].limits == {"command_bytes_max": 262144}
    assert parse_config(encode_config(config), source="again") == config
    settings = port_settings(config.limits)
    assert (settings.connections_max, settings.sessions_max) == (9, 5)
    assert settings.watches_max == PortSettings().watches_max
    text = text.replace("[groups.g.limits]", 'engine = "vsr"\n[groups.g.limits]')
    text = text.replace("command_bytes_max", "event_bytes_max")
    assert parse_config(text, source="vsr").groups["g"].limits == {"event_bytes_max": 262144}


@pytest.mark.parametrize(
    ("of_group", "of_port", "sentence"),
    [
        ("", "connections_max = 0", "limits: connections_max = 0 cannot be: give 1 to 1000000"),
        ("", "frame_bytes_max = 100", "frame_bytes_max = 100 cannot be: give 3145728 to 67108864"),
        ("", "conections_max = 9", "the clients' port has no limit 'conections_max'; there is ans"),
        ("", "connections_max = 1.5", "Expected `int`, got `float`"),
        ("", 'connections_max = "many"', "Expected `int`, got `str`"),
        (
            "command_bytes_max = 10000000",
            "",
            "group g: limits: command_bytes_max = 10000000 cannot",
        ),
        (
            "calls_max = 9",
            "",
            "group g: limits: engine = \"stack\" has no limit 'calls_max'; there is",
        ),
        ("result_bytes_max = 9", "", "has no limit 'result_bytes_max'"),
    ],
)
def test_limits_that_make_no_sense_are_refused(of_group: str, of_port: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_config(LIMITED.format(of_group, of_port), source="group.toml")
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("limits", "settings"),
    [
        (PORT_LIMITS, PortSettings()),
        (find_family("stack").limits, HostSettings()),
        (find_family("vsr").limits, VsrSettings()),
    ],
)
def test_limits_are_settings_and_defaults_are_within_their_bounds(
    limits: Mapping[str, Bounds], settings: msgspec.Struct
) -> None:
    for name, (least, most) in limits.items():
        assert least <= getattr(settings, name) <= most


def test_the_page_on_operations_has_every_limit_with_its_default_and_range() -> None:
    page = (Path(__file__).parents[2] / "docs/operate/operations.md").read_text()
    for limits, settings in (
        (PORT_LIMITS, PortSettings()),
        (find_family("stack").limits, HostSettings()),
        (find_family("vsr").limits, VsrSettings()),
    ):
        for name, (least, most) in limits.items():
            [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
            _, _, default, bounds, *_ = (cell.strip() for cell in row.split("|"))
            low, high = bounds.split(" to ")
            unit = high.rpartition(" ")[2]
            low = low if not low.isdigit() or unit.isdigit() else f"{low} {unit}"
            assert _number(default) == getattr(settings, name), name
            assert (_number(low), _number(high)) == (least, most), name


def _number(text: str) -> int:
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "MB": 1_000_000}
    number, _, unit = text.rpartition(" ")
    return int(number) * units[unit] if unit in units else int(text.replace(" ", ""))


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
        (('dir = "a"', 'dir = ""'), "replica a: dir is empty: name a folder of its own"),
        (('dir = "a"', 'dir = "a\\u0000"'), "a text holds the character 0, which no path or name"),
        (('"c"', "[" * 9999), "group.toml is not what we read: it is nested too deeply"),
        (('dir = "a"', 'dir = "a"\n"x\\u001b[31m" = 1'), "unknown field `x\\x1b[31m`"),
        (('"m:C"', '"m"'), "group g: class = 'm' should say module:Class"),
        (('"m:C"', '"m:"'), "group g: class = 'm:' should say module:Class"),
        (('"m:C"', '"m:C"\nsync = "daily"'), "Invalid enum value 'daily'"),
        (('"m:C"', '"m:C"\nstack = "DYNSEK"'), "group g: "),
        (('"m:C"', '"m:C"\nstack = "DYNSEQ:VSYNC"'), "keeps no history; take SAFE:DYNSEQ:PVSYNC"),
        (('"m:C"', '"m:C"\ndump_interval = -1'), "group g: dump_interval is a number of positions"),
        (
            ('"m:C"', '"m:C"\nengine = "raft"'),
            "group g: there is no engine 'raft'; there is colours, stack, vsr",
        ),
        (
            ('"m:C"', '"m:C"\nengine = "vsr"\nstack = "SAFE:DYNSEQ:PVSYNC"'),
            'group g: engine = "vsr" has no stack: leave one of the two out',
        ),
        (('"m:C"', '"m:C"\nengine = "vsr"\ndump_interval = 9'), "dump_interval is for stacks"),
        (('"m:C"', '"m:C"\nforce_calls = true'), 'force_calls is for engine = "vsr"'),
        (
            ('"m:C"', '"m:C"\nsync = "primary"'),
            'sync = "primary" is not for engine = "stack": it takes turn, interval, none',
        ),
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
        (("127.0.0.1:2", "10.0.0.1:2"), "set replica_secrets or certificates under [security], or"),
        (('dir = "a"', 'dir = "a"\nmetrics = "[::]:9"'), "replica a: metrics = '[::]:9' can be"),
        (
            ('dir = "a"', 'dir = "a"\n[security]\ncertificate = "c"'),
            "security: certificate, key and authority are given together or not",
        ),
        (
            ('dir = "a"', 'dir = "a"\n[security]\nsecret_file = "c"'),
            "security: one secret_file for everybody let clients be replicas",
        ),
        (
            ('dir = "a"', 'dir = "a"\n[security]\nreplica_secrets = "s"'),
            "nobody may call: add a client, such as [clients.owner]",
        ),
        (
            ('dir = "a"', 'dir = "a"\n[clients.x]\nsecret_file = "s"'),
            "so anybody could be a replica: set replica_secrets or certificates",
        ),
        (
            ('dir = "a"', f'dir = "a"\n{SECURE}[clients.x]\n'),
            "client x: it needs a secret_file",
        ),
        (
            ('dir = "a"', f'dir = "a"\n{SECURE}[clients.x]\nsecret_file = "s"\nkey = "k"'),
            "client x: certificate and key are given together or not",
        ),
        (
            (
                'dir = "a"',
                (
                    f'dir = "a"\n{SECURE}[clients.x]\nsecret_file = "s"\n'
                    '[clients.y]\nsecret_file = "s"'
                ),
            ),
            "client y: secret_file = 's' is another client's",
        ),
        (
            (
                'dir = "a"',
                (
                    f'dir = "a"\n{SECURE}[clients.client-7232]\nsecret_file = "s"\n'
                    '[clients.client-25647]\nsecret_file = "t"'
                ),
            ),
            "sessions of client-7232 and client-25647 could not be told apart",
        ),
        (
            (
                'dir = "a"',
                (
                    'dir = "a"\n[security]\ncertificate = "c"\nkey = "k"\nauthority = "t"\n'
                    '[clients.x]\ncertificate_name = "replica-a"'
                ),
            ),
            "certificate_name = 'replica-a' is that of two replicas or clients",
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
    text = SMALL.replace("127.0.0.1:1", "0.0.0.0:1") + SECURE
    text += '[clients.x]\nsecret_file = "x"\n'
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
