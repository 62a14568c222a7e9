"""The file that describes a deployment: which groups there are, and where their replicas run.

    cluster = "booking"

    [groups.seats]
    class = "airline.seats:Seats"
    stack = "SAFE:DYNSEQ:PVSYNC"
    sync = "turn"

    [groups.bank]
    class = "bank:Bank"
    engine = "vsr"                   # transactions; instead of a stack
    replicas = ["b", "c", "a"]       # optional: where, and who leads if it can

    [replicas.a]
    listen = "0.0.0.0:7001"          # for the other replicas
    advertise = "10.0.0.1:7001"      # what they dial, if that is another address
    clients = "0.0.0.0:7101"
    advertise_clients = "10.0.0.1:7101"
    metrics = "127.0.0.1:9101"       # optional
    dir = "/var/lib/coterie/a"

    [replicas.b]
    ...

All machines have the same file; `coterie replica --config FILE --id a` starts the one called *a*,
with a replica of each of its groups in one process. An unknown word in the file is an error,
because a misspelt setting that is silently left out would be found too late.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from zlib import crc32

import msgspec

from coterie.client.locations import LOCATIONS, Locations
from coterie.journal.format import Sync
from coterie.kernel.errors import CoterieError
from coterie.kernel.views import Configuration
from coterie.runtime.address import Address, parse_address
from coterie.stacks import has_engine, parse_stack

DEFAULT_STACK = "SAFE:DYNSEQ:PVSYNC"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REPLICAS_MAX = 32


class ConfigError(CoterieError):
    """The file that describes a deployment cannot be used; the message says where and why."""


class GroupConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One group."""

    class_: str = msgspec.field(name="class")
    """Where the class is: module:Class."""
    engine: Literal["", "vsr"] = ""
    """`vsr` for viewstamped replication, with transactions; otherwise the stack says it all."""
    stack: str = ""
    """What keeps the replicas together, top first; empty for the default."""
    sync: Sync = Sync.NONE
    dump_interval: int = 0
    """Every how many positions the whole state is dumped for the pipeline; 0 for never."""
    replicas: tuple[str, ...] = ()
    """Where the group is; all if none are named. Under **vsr** the first leads if it can."""

    @property
    def is_vsr(self) -> bool:
        """Whether it runs under viewstamped replication."""
        return self.engine == "vsr"

    @property
    def ordered_by(self) -> str:
        """The stack of a group that has one."""
        return self.stack or DEFAULT_STACK

    @property
    def kept_by(self) -> str:
        """What keeps its replicas together, in a word."""
        return self.engine or self.ordered_by


_LOCATIONS = GroupConfig(class_=f"{Locations.__module__}:{Locations.__name__}", sync=Sync.TURN)


class ReplicaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One process, with a replica of every group."""

    listen: str
    clients: str
    dir: str
    advertise: str = ""
    advertise_clients: str = ""
    metrics: str = ""

    @property
    def peer_address(self) -> Address:
        """What other replicas dial."""
        return parse_address(self.advertise or self.listen)

    @property
    def client_address(self) -> Address:
        """What clients dial."""
        return parse_address(self.advertise_clients or self.clients)


class SecurityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What connections must show; all paths are relative to the file."""

    secret_file: str = ""
    """A file with a shared secret that replicas and clients must know."""
    certificate: str = ""
    key: str = ""
    authority: str = ""
    """With all three, connections are encrypted and both ends show a certificate."""
    allow_open: bool = False
    """Whether addresses other than loopback may be bound without any of the above."""

    @property
    def is_open(self) -> bool:
        """Whether anybody who reaches an address may speak."""
        return not self.secret_file and not self.certificate


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    cluster: str
    groups: dict[str, GroupConfig]
    replicas: dict[str, ReplicaConfig]
    security: SecurityConfig = SecurityConfig()

    @property
    def ids(self) -> tuple[str, ...]:
        """The replicas, in alphabetical order."""
        return tuple(sorted(self.replicas))

    @property
    def all_groups(self) -> dict[str, GroupConfig]:
        """The groups of the file, and the location service where there are transactions."""
        if not any(group.is_vsr for group in self.groups.values()):
            return self.groups
        return {**self.groups, LOCATIONS: _LOCATIONS}

    def members(self, group: str) -> tuple[str, ...]:
        """Give the replicas of a group; under **vsr** in the order of preference.

        If the file names none, the name of the group decides who comes first: so primaries are
        spread (section 5), and groups that are added later change nothing for the others.
        """
        given = self.all_groups[group]
        if given.replicas or not given.is_vsr:
            return given.replicas or self.ids
        first = crc32(group.encode()) % len(self.ids)
        return self.ids[first:] + self.ids[:first]

    def groups_at(self, id: str) -> dict[str, GroupConfig]:
        """Give the groups that have a replica there, the location service included."""
        return {name: group for name, group in self.all_groups.items() if id in self.members(name)}


def directory_of(config: ClusterConfig) -> dict[str, Configuration]:
    """Say where all groups are that transactions can be over."""
    return {
        name: Configuration(1, config.members(name))
        for name, group in config.groups.items()
        if group.is_vsr
    }


def load_config(path: Path) -> ClusterConfig:
    """Read and check the file; raises `ConfigError` with the place of what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    return parse_config(text, source=str(path), base=path.resolve().parent)


def parse_config(text: str, *, source: str, base: Path = Path()) -> ClusterConfig:
    """Read and check the text of a file called *source*; its paths are relative to *base*."""
    try:
        config = msgspec.convert(tomllib.loads(text), ClusterConfig)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}; $ is the file itself") from None
    try:
        _check(config)
    except CoterieError as error:
        raise ConfigError(f"{source}: {error}") from None
    return _with_paths(config, base)


def _with_paths(config: ClusterConfig, base: Path) -> ClusterConfig:
    """Give the same with all paths made absolute."""

    def at(path: str) -> str:
        return str((base / path).absolute()) if path else ""

    security = config.security
    return msgspec.structs.replace(
        config,
        replicas={
            id: msgspec.structs.replace(replica, dir=at(replica.dir))
            for id, replica in config.replicas.items()
        },
        security=msgspec.structs.replace(
            security,
            secret_file=at(security.secret_file),
            certificate=at(security.certificate),
            key=at(security.key),
            authority=at(security.authority),
        ),
    )


def encode_config(config: ClusterConfig) -> str:
    """Write a file that `parse_config` reads."""
    lines = [f"cluster = {_quote(config.cluster)}", ""]
    for name, group in config.groups.items():
        lines += [f"[groups.{_quote(name)}]", *_settings(group), ""]
    for id, replica in config.replicas.items():
        lines += [f"[replicas.{_quote(id)}]", *_settings(replica), ""]
    if config.security != SecurityConfig():
        lines += ["[security]", *_settings(config.security), ""]
    return "\n".join(lines)


def _settings(section: msgspec.Struct) -> list[str]:
    return [
        f"{name} = {_quote(value)}"
        for name, value in msgspec.to_builtins(section).items()
        if value or not isinstance(value, str | tuple | list)
    ]


def _quote(value: object) -> str:
    # JSON strings, numbers, booleans and lists of these are TOML, too.
    return msgspec.json.encode(value).decode()


def is_loopback(address: Address) -> bool:
    """Say whether only this machine can reach an address."""
    if address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False


def _check(config: ClusterConfig) -> None:
    """Find what is wrong with a file whose types are right."""
    if not config.groups:
        raise ConfigError("there is no group: add a table such as [groups.seats]")
    if not 1 <= len(config.replicas) <= _REPLICAS_MAX:
        raise ConfigError(
            f"a cluster has 1 to {_REPLICAS_MAX} replicas, this one {len(config.replicas)}"
        )
    for name in (config.cluster, *config.groups, *config.replicas):
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is no name: up to 64 letters, digits, dots, dashes and underscores, "
                "beginning with a letter or digit"
            )
    security = config.security
    given = (security.certificate, security.key, security.authority)
    if any(given) and not all(given):
        raise ConfigError("security: certificate, key and authority are given together or not")
    for name, group in config.groups.items():
        with _at(f"group {name}"):
            _check_group(group)
            _check_members(config, group)
    _check_places(config)
    taken: dict[Address, str] = {}
    for id, replica in config.replicas.items():
        with _at(f"replica {id}"):
            _check_bound(replica, security)
            _check_advertised(replica, taken, id)


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except CoterieError as error:
        raise ConfigError(f"{place}: {error}") from None


def _check_group(group: GroupConfig) -> None:
    if group.class_.count(":") != 1 or not all(group.class_.split(":")):
        raise ConfigError(
            f"class = {group.class_!r} should say module:Class, for example airline.seats:Seats"
        )
    if group.is_vsr and group.stack:
        raise ConfigError('engine = "vsr" has no stack: leave one of the two out')
    if group.sync is Sync.PRIMARY and not group.is_vsr:
        raise ConfigError('sync = "primary" is for engine = "vsr": in a stack all replicas execute')
    if group.is_vsr and group.dump_interval:
        raise ConfigError('dump_interval is for stacks: under engine = "vsr" nothing is dumped')
    if not group.is_vsr:
        parse_stack(group.ordered_by)
        if not has_engine(group.ordered_by):
            raise ConfigError(f"stack = {group.stack!r} keeps no history; take {DEFAULT_STACK}")
    if group.dump_interval < 0:
        raise ConfigError("dump_interval is a number of positions, or 0 for never")


def _check_places(config: ClusterConfig) -> None:
    if LOCATIONS in config.groups:
        raise ConfigError(f"{LOCATIONS} is Coterie's own group: give yours another name")
    for id in config.replicas:
        if config.groups_at(id).keys() <= {LOCATIONS}:
            raise ConfigError(f"replica {id}: no group is there; name it in one, or leave it out")


def _check_members(config: ClusterConfig, group: GroupConfig) -> None:
    for id in group.replicas:
        if id not in config.replicas:
            known = ", ".join(config.ids)
            raise ConfigError(f"replicas: there is no replica {id!r}; there is {known}")
        if group.replicas.count(id) > 1:
            raise ConfigError(f"replicas: {id!r} is named twice")


def _check_bound(replica: ReplicaConfig, security: SecurityConfig) -> None:
    bound = {"listen": replica.listen, "clients": replica.clients}
    if replica.metrics:
        bound["metrics"] = replica.metrics
    for word, text in bound.items():
        with _at(word):
            address = parse_address(text)
        if security.is_open and not security.allow_open and not is_loopback(address):
            raise ConfigError(
                f"{word} = {text!r} can be reached from other machines, and nothing asks who is "
                "there: set secret_file or certificates under [security], or allow_open = true"
            )


def _check_advertised(replica: ReplicaConfig, taken: dict[Address, str], id: str) -> None:
    for word, text in (
        ("advertise", replica.advertise or replica.listen),
        ("advertise_clients", replica.advertise_clients or replica.clients),
    ):
        with _at(word):
            address = parse_address(text)
        if address.host in {"0.0.0.0", "::"}:  # noqa: S104 -- refused
            raise ConfigError(f"{text} is no address that others can dial: set {word}")
        owner = taken.setdefault(address, f"{id} ({word})")
        if owner != f"{id} ({word})":
            raise ConfigError(f"{text} is the address of {owner} already")
