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

    [limits]                         # optional
    connections_max = 20000

    [replicas.b]
    ...

    [security]
    replica_secrets = "secrets"      # the file a+b in it is for a and b alone, and so on

    [clients.billing]
    secret_file = "billing.secret"
    may = { seats = "read", bank = ["balance", "deposit"] }
    rate = 500

All machines have the same file; `coterie replica --config FILE --id a` starts the one called *a*,
with a replica of each of its groups in one process. An unknown word in the file is an error,
because a misspelt setting that is silently left out would be found too late.
"""

from __future__ import annotations

import ipaddress
import math
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from zlib import crc32

import msgspec

from coterie.journal.format import Sync
from coterie.kernel.errors import CoterieError
from coterie.objects.execution.sessions import owner_number
from coterie.ready.locations import LOCATIONS, Locations
from coterie.runtime.address import Address, parse_address
from coterie.runtime.security import CLIENT_NAME, REPLICA_NAME
from coterie.service.engines import DEFAULT_FAMILY, find_family
from coterie.service.limits import PORT_LIMITS, check_limits

if TYPE_CHECKING:
    from coterie.service.engines.family import Family

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REPLICAS_MAX = 32
_CLIENTS_MAX = 256
"""The secrets of all are tried when somebody connects."""


Role = Literal["read", "write", "operate"]
"""What a client may do in a group; `coterie.service.known_clients` says what each means."""


class ConfigError(CoterieError):
    """The file that describes a deployment cannot be used; the message says where and why."""


class GroupConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the file says of one group."""

    class_: str = msgspec.field(name="class")
    """Where the class is: module:Class."""
    engine: str = DEFAULT_FAMILY
    """The engine family, one of those in `coterie.service.engines`."""
    stack: str = ""
    """Under `stack`, what keeps the replicas together, top first; empty for the default."""
    sync: Sync = Sync.NONE
    dump_interval: int = 0
    """Every how many positions the whole state is dumped for the pipeline; 0 for never."""
    audit: bool = False
    """Whether its journals say who called what."""
    compare_digests: bool = True
    """Whether replicas tell each other the digests of their states, and one that has strayed from
    the others stops; where all execute."""
    force_calls: bool = False
    """Under `vsr`, whether a call is answered only when a majority knows it."""
    replicas: tuple[str, ...] = ()
    """Where the group is; all if none are named. If one leads, the first does if it can."""
    limits: dict[str, int] = {}
    """Limits that are not to be the default (`coterie.service.limits`)."""
    multicast: str = ""
    """Under `ONUS`, the address to which clients send what all replicas receive, if any."""

    @property
    def family(self) -> Family:
        """Its engine family; raises `CoterieError` if there is none of that name."""
        return find_family(self.engine, self.stack)

    @property
    def kept_by(self) -> str:
        """What keeps its replicas together, in a word."""
        return self.family.kept_by(self)


_LOCATIONS = GroupConfig(class_=f"{Locations.__module__}:{Locations.__name__}", sync=Sync.TURN)


class ReplicaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One process, with a replica of every group."""

    listen: str
    clients: str
    dir: str
    advertise: str = ""
    advertise_clients: str = ""
    metrics: str = ""
    datagrams: str = ""
    """Where clients are taken that know nothing of replication, of groups under `ONUS`."""
    certificate_name: str = ""
    """The name that its certificate bears; by default `replica-` and its id."""
    joins: tuple[str, ...] = ()
    """The groups it is in, if it was not there when they began: `coterie add` made it a member."""

    @property
    def peer_address(self) -> Address:
        """The address at which other replicas find this one."""
        return parse_address(self.advertise or self.listen)

    @property
    def client_address(self) -> Address:
        """The address at which clients find the replica."""
        return parse_address(self.advertise_clients or self.clients)


class SecurityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What replicas must show to each other; all paths are relative to the file."""

    replica_secrets: str = ""
    """A folder: each pair of replicas has a secret there, in a file such as `a+b`."""
    certificate: str = ""
    key: str = ""
    authority: str = ""
    """With all three, connections are encrypted and both ends show a certificate."""
    revoked: str = ""
    """A revocation list of each authority; whose certificate is in one is not let in."""
    seal_key: str = ""
    """A file with a key: journals are written with keyed digests, for who has the key to check."""
    allow_open: bool = False
    """Whether addresses other than loopback may be bound with neither secrets nor certificates."""

    @property
    def is_open(self) -> bool:
        """Whether anybody who reaches an address may speak."""
        return not self.replica_secrets and not self.certificate

    def secret_between(self, one: str, other: str) -> Path:
        """Give the file with the secret that two replicas share."""
        return Path(self.replica_secrets) / "+".join(sorted((one, other)))


class ClientConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A client, or all those that share a credential; it is never that of a replica."""

    secret_file: str = ""
    """Its secret; needed unless there are certificates."""
    certificate_name: str = ""
    """The name that its certificate bears; by default `client-` and its name."""
    certificate: str = ""
    key: str = ""
    """Where the command line finds the certificate, on machines that have it."""
    may: dict[str, Role | tuple[str, ...]] = {}
    """What it may do in each group, a role or a list of methods; * stands for all other groups.
    Where nothing is said, everything."""
    rate: float = 0
    """How many calls a second it may make at each replica; 0 for any number."""


class ClusterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the whole file says."""

    cluster: str
    groups: dict[str, GroupConfig]
    replicas: dict[str, ReplicaConfig]
    security: SecurityConfig = SecurityConfig()
    limits: dict[str, int] = {}
    """Limits of the clients' port that are not to be the default (`coterie.service.limits`)."""
    clients: dict[str, ClientConfig] = {}
    """Who may call, where anything is asked of who connects."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The replicas, in alphabetical order."""
        return tuple(sorted(self.replicas))

    @property
    def all_groups(self) -> dict[str, GroupConfig]:
        """The groups of the file, and the location service where some need it."""
        if not any(group.family.needs_locations for group in self.groups.values()):
            return self.groups
        return {**self.groups, LOCATIONS: _LOCATIONS}

    def members(self, group: str) -> tuple[str, ...]:
        """Give the replicas that a group begins with; where one leads, in the order of preference.

        If the file names none, the name of the group decides who comes first: so primaries are
        spread (section 5), and groups that are added later change nothing for the others.
        """
        given = self.all_groups[group]
        first = tuple(id for id in self.ids if not self.replicas[id].joins)
        if given.replicas or not given.family.has_leader or not first:
            return given.replicas or first
        place = crc32(group.encode()) % len(first)
        return first[place:] + first[:place]

    def everyone(self, group: str) -> tuple[str, ...]:
        """Give the replicas that a group began with, then those that joined it, as in the file."""
        joins = {id: self.replicas[id].joins for id in self.ids}
        if group == LOCATIONS:
            joined = [id for id in self.ids if joins[id]]  # where there is one, it is everywhere
        else:
            joined = [id for id in self.ids if group in joins[id]]
        return tuple(dict.fromkeys((*self.members(group), *joined)))

    def groups_at(self, id: str) -> dict[str, GroupConfig]:
        """Give the groups that have a replica there, the location service included."""
        return {name: group for name, group in self.all_groups.items() if id in self.everyone(name)}


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
        told = tomllib.loads(text)
        _check_words(told, source)
        config = msgspec.convert(told, ClusterConfig)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{source} is not what we read: it is nested too deeply") from None
    except msgspec.ValidationError as error:
        reason = str(error).encode("unicode_escape").decode()  # it may quote what cannot be shown
        raise ConfigError(f"{source}: {reason}; $ is the file itself") from None
    try:
        _check_texts(config)
        _check(config)
    except CoterieError as error:
        raise ConfigError(f"{source}: {error}") from None
    return _with_paths(config, base)


def _check_words(told: dict[str, object], source: str) -> None:
    """Say what has become of words that files of earlier releases have."""
    security = told.get("security")
    if isinstance(security, dict) and "secret_file" in security:
        raise ConfigError(
            f"{source}: security: one secret_file for everybody let clients be replicas; give a "
            "folder, replica_secrets, and each client a secret_file of its own in [clients.NAME] "
            "(coterie secrets FILE writes them)"
        )


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
            replica_secrets=at(security.replica_secrets),
            certificate=at(security.certificate),
            key=at(security.key),
            authority=at(security.authority),
            revoked=at(security.revoked),
            seal_key=at(security.seal_key),
        ),
        clients={
            name: msgspec.structs.replace(
                client,
                secret_file=at(client.secret_file),
                certificate=at(client.certificate),
                key=at(client.key),
            )
            for name, client in config.clients.items()
        },
    )


def encode_config(config: ClusterConfig) -> str:
    """Write a file that `parse_config` reads."""
    lines = [f"cluster = {_quote(config.cluster)}", ""]
    for name, group in config.groups.items():
        lines += [f"[groups.{_quote(name)}]", *_settings(group), ""]
        if group.limits:
            lines += [f"[groups.{_quote(name)}.limits]", *_limits(group.limits), ""]
    for id, replica in config.replicas.items():
        lines += [f"[replicas.{_quote(id)}]", *_settings(replica), ""]
    if config.security != SecurityConfig():
        lines += ["[security]", *_settings(config.security), ""]
    if config.limits:
        lines += ["[limits]", *_limits(config.limits), ""]
    for name, client in config.clients.items():
        lines += [f"[clients.{_quote(name)}]", *_settings(client), ""]
    return "\n".join(lines)


def _limits(limits: dict[str, int]) -> list[str]:
    return [f"{name} = {value}" for name, value in limits.items()]


def _settings(section: msgspec.Struct) -> list[str]:
    return [
        f"{name} = {_quote(value)}"
        for name, value in msgspec.to_builtins(section).items()
        if name != "limits" and (value or not isinstance(value, str | tuple | list | dict))
    ]


def _quote(value: object) -> str:
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{_quote(key)} = {_quote(each)}' for key, each in value.items())} }}"
        )
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
    for name in (config.cluster, *config.groups, *config.replicas, *config.clients):
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is no name: up to 64 letters, digits, dots, dashes and underscores, "
                "beginning with a letter or digit"
            )
    security = config.security
    given = (security.certificate, security.key, security.authority)
    if any(given) and not all(given):
        raise ConfigError("security: certificate, key and authority are given together or not")
    if security.revoked and not security.authority:
        raise ConfigError("security: revoked is a list of certificates, and none are asked for")
    check_limits(config.limits, PORT_LIMITS, "the clients' port")
    _check_clients(config)
    for name, group in config.groups.items():
        with _at(f"group {name}"):
            check_group(group)
            _check_members(config, name)
    _check_places(config)
    taken: dict[Address, str] = {}
    for id, replica in config.replicas.items():
        with _at(f"replica {id}"):
            if not replica.dir:
                raise ConfigError("dir is empty: name a folder of its own")
            _check_bound(replica, security)
            _check_advertised(replica, taken, id)


def _check_clients(config: ClusterConfig) -> None:
    """See to it that whoever connects has something to show, and nobody what another one has."""
    security = config.security
    if security.is_open and config.clients:
        raise ConfigError(
            "clients: they show who they are and replicas do not, so anybody could be a replica: "
            "set replica_secrets or certificates under [security]"
        )
    if not security.is_open and not config.clients:
        raise ConfigError(
            "nobody may call: add a client, such as [clients.owner] with a secret_file"
        )
    if len(config.clients) > _CLIENTS_MAX:
        raise ConfigError(f"there are {len(config.clients)} clients, over {_CLIENTS_MAX}")
    names = [replica_name(config, id) for id in config.replicas]
    names += [client_name(config, name) for name in config.clients]
    files: list[str] = []
    _check_owners(config)
    for name, client in config.clients.items():
        with _at(f"client {name}"):
            if not client.secret_file and not security.certificate:
                raise ConfigError("it needs a secret_file, to show who it is")
            if bool(client.certificate) != bool(client.key):
                raise ConfigError("certificate and key are given together or not")
            if client.secret_file and client.secret_file in files:
                raise ConfigError(f"secret_file = {client.secret_file!r} is another client's")
            files.append(client.secret_file)
            _check_rights(config, client)
    for name in names:
        if security.certificate and names.count(name) > 1:
            raise ConfigError(f"certificate_name = {name!r} is that of two replicas or clients")


def _check_owners(config: ClusterConfig) -> None:
    """See to it that the numbers of sessions tell whose they are."""
    owners: dict[int, str] = {}
    for name in config.clients:
        other = owners.setdefault(owner_number(name), name)
        if other != name:
            raise ConfigError(
                f"sessions of {other} and {name} could not be told apart, by chance: give one of "
                "them another name"
            )


def _check_rights(config: ClusterConfig, client: ClientConfig) -> None:
    for group in client.may:
        if group not in {*config.groups, "*"}:
            known = ", ".join(config.groups)
            raise ConfigError(f"may: there is no group {group!r}; there is {known}, and * for all")
    if not 0 <= client.rate < math.inf:
        raise ConfigError("rate is a number of calls a second, or 0 for any number")


def replica_name(config: ClusterConfig, id: str) -> str:
    """Give the name that the certificate of a replica has to bear."""
    return config.replicas[id].certificate_name or REPLICA_NAME.format(id)


def client_name(config: ClusterConfig, name: str) -> str:
    """Give the name that the certificate of a client has to bear."""
    return config.clients[name].certificate_name or CLIENT_NAME.format(name)


def _check_texts(config: ClusterConfig) -> None:
    if _holds_zero(msgspec.to_builtins(config)):
        raise ConfigError("a text holds the character 0, which no path or name can: leave it out")


def _holds_zero(value: object) -> bool:
    """Say whether some text holds what the system takes for its end."""
    if isinstance(value, dict):
        return any(map(_holds_zero, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_zero, value))
    return isinstance(value, str) and "\x00" in value


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except CoterieError as error:
        raise ConfigError(f"{place}: {error}") from None


def check_group(group: GroupConfig) -> None:
    """Find what is wrong with what is said of one group; raises `CoterieError`."""
    if group.class_.count(":") != 1 or not all(group.class_.split(":")):
        raise ConfigError(
            f"class = {group.class_!r} should say module:Class, for example airline.seats:Seats"
        )
    if group.sync not in group.family.syncs:
        choice = ", ".join(sync.value for sync in Sync if sync in group.family.syncs)
        raise ConfigError(
            f'sync = "{group.sync.value}" is not for engine = "{group.engine}": it takes {choice}'
        )
    group.family.check(group)
    check_limits(group.limits, group.family.limits, f'engine = "{group.engine}"')
    if group.dump_interval < 0:
        raise ConfigError("dump_interval is a number of positions, or 0 for never")


def _check_places(config: ClusterConfig) -> None:
    if LOCATIONS in config.groups:
        raise ConfigError(f"{LOCATIONS} is Coterie's own group: give yours another name")
    for id, replica in config.replicas.items():
        for name in replica.joins:
            if name not in config.groups:
                known = ", ".join(config.groups)
                raise ConfigError(
                    f"replica {id}: joins: there is no group {name!r}; it has {known}"
                )
        if config.groups_at(id).keys() <= {LOCATIONS}:
            raise ConfigError(f"replica {id}: no group is there; name it in one, or leave it out")


def _check_members(config: ClusterConfig, name: str) -> None:
    group = config.groups[name]
    for id in group.replicas:
        if id not in config.replicas:
            known = ", ".join(config.ids)
            raise ConfigError(f"replicas: there is no replica {id!r}; there is {known}")
        if group.replicas.count(id) > 1:
            raise ConfigError(f"replicas: {id!r} is named twice")
        joins = config.replicas[id].joins
        if joins and name not in joins:
            raise ConfigError(f"replicas: {id!r} joined other groups later, as its joins says")


def _check_bound(replica: ReplicaConfig, security: SecurityConfig) -> None:
    bound = {"listen": replica.listen, "clients": replica.clients}
    if replica.metrics:
        bound["metrics"] = replica.metrics
    if replica.datagrams:
        with _at("datagrams"):
            if not (is_loopback(parse_address(replica.datagrams)) or security.allow_open):
                raise ConfigError(
                    f"datagrams = {replica.datagrams!r} can be reached from other machines, and "
                    "datagrams do not say who sent them: set allow_open = true under [security] "
                    "if all who reach it may call"
                )
    for word, text in bound.items():
        with _at(word):
            address = parse_address(text)
        if security.is_open and not security.allow_open and not is_loopback(address):
            raise ConfigError(
                f"{word} = {text!r} can be reached from other machines, and nothing asks who is "
                "there: set replica_secrets or certificates under [security], or allow_open = true"
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
