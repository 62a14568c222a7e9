"""Hostile configuration files: valid ones with something wrong inside.

Whatever stands in `group.toml`, it is understood or refused in one sentence; what is understood can
be written and read again, and everything that is asked of it before a replica starts has an answer.
"""

from __future__ import annotations

import contextlib
from copy import deepcopy
from pathlib import Path
from random import Random

import msgspec
from tests.fuzz.mutations import mutate
from tests.fuzz.tally import Tally

from coterie.kernel.errors import CoterieError
from coterie.service.config import ClusterConfig, ConfigError, encode_config, parse_config
from coterie.service.engines.vsr_family import directory_of
from coterie.service.limits import port_settings
from coterie.service.security import load_clients, load_security

BASE = Path("/nowhere")
OF_GROUP = {
    "stack": {
        "class": "airline.seats:Seats",
        "stack": "SAFE:TOKEN:PVSYNC",
        "sync": "turn",
        "dump_interval": 500,
        "replicas": ["a", "b"],
        "limits": {"command_bytes_max": 262_144, "waiting_commands_max": 100},
    },
    "vsr": {
        "class": "bank.py:Bank",
        "engine": "vsr",
        "sync": "primary",
        "replicas": ["b", "a", "c"],
        "limits": {"calls_max": 100, "event_bytes_max": 262_144},
    },
}
LETTERS = "\"'[]{}=.,:#\\\n\t \x00éabc019-_+TZ"
WORDS = ("[", "]]", "[[", "{", "= ", '"""', "'''", "\\u0000", "\\UFFFFFFFF", "1e999", "nan", "0x")
STRANGE = ("1979-05-27T07:32:00Z", "07:32:00", "1_000", "-0", "+inf", "9" * 400, "[" * 3000)


def whole(engine: str) -> dict[str, object]:
    """Give a file with a group of an engine, as a value."""
    replicas = {
        id: {
            "listen": f"127.0.0.1:700{number}",
            "advertise": f"10.0.0.{number}:7000",
            "clients": f"127.0.0.1:710{number}",
            "advertise_clients": f"[::1]:720{number}",
            "metrics": f"localhost:730{number}",
            "dir": f"var/{id}",
        }
        for number, id in enumerate("abc", 1)
    }
    return {
        "cluster": "booking",
        "groups": {"seats": deepcopy(OF_GROUP[engine]), "meals": {"class": "meals.py:Meals"}},
        "replicas": replicas,
        "security": {"replica_secrets": "secrets", "allow_open": False},
        "clients": {"billing": {"secret_file": "billing.secret"}},
        "limits": {"connections_max": 9, "frame_bytes_max": 8 << 20},
    }


def to_toml(value: object) -> str:  # noqa: PLR0911 -- a table
    """Write any value as TOML does, all tables in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(str(k))} = {to_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return _text(value.decode("latin-1"))
    if isinstance(value, msgspec.Raw):
        return _text(bytes(value).decode("latin-1"))
    if isinstance(value, bool):
        return "true" if value else "false"
    return '""' if value is None else repr(value)


def _text(text: str) -> str:
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _file(value: object) -> str:
    if not isinstance(value, dict):
        return to_toml(value)
    return "\n".join(f"{_text(str(key))} = {to_toml(each)}" for key, each in value.items())


def wrong_text(text: str, random: Random) -> str:
    """Change a few letters of a file."""
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(text) + 1)
        end = min(len(text), at + random.choice((0, 0, 1, 3, 20)))
        new = random.choice((random.choice(LETTERS), random.choice(WORDS), random.choice(STRANGE)))
        text = text[:at] + new + text[end:]
    return text


def fuzz(engine: str, seed: int, inputs: int) -> Tally:
    """Have files read that are wrong inside."""
    random = Random(f"{seed}/configs")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    right = _file(whole(engine))
    parse_config(right, source="group.toml", base=BASE)
    for _ in range(inputs):
        if random.random() < 0.25:
            text = wrong_text(right, random)
        else:
            changes = random.choice((1, 1, 1, 2, 3))
            text = _file(mutate(whole(engine), random, changes=changes))
        tally.inputs += 1
        tally.outcomes[read(text)] += 1
    return tally


def read(text: str) -> str:
    """Read a file, and ask for all that is asked for before a replica starts."""
    try:
        config = parse_config(text, source="group.toml", base=BASE)
    except ConfigError as error:
        if not str(error).isprintable() and "TOML" not in str(error):
            raise AssertionError(f"it cannot be shown as it is: {str(error)!r}") from None
        return "refused"
    again = parse_config(encode_config(config), source="again", base=BASE)
    assert again == config, f"what was written is not what was read: {text!r}"
    _ask(config)
    return "understood"


def _ask(config: ClusterConfig) -> None:
    port_settings(config.limits)
    directory_of(config)
    for id, replica in config.replicas.items():
        str(replica.peer_address)
        str(replica.client_address)
        for name in config.groups_at(id):
            config.members(name)
    with contextlib.suppress(CoterieError):
        load_clients(config, load_security(config, config.ids[0]))
