"""What an agent keeps on its disk: the highest fence it has seen, and its replicas.

    DIR/agent.json                fence and replicas; replaced as a whole, and synced
    DIR/secrets/GROUP/a+b         the secret of two replicas, made from that of the manager
    DIR/secrets/GROUP/owner       what clients show
    DIR/replicas/ID/group.toml    the configuration of a replica
    DIR/replicas/ID/data/         its journals; they stay when it is stopped

An agent whose disk was lost has seen no fence and has no replicas, and says so: that is how a
manager finds out. Secrets are made, not sent: whoever knows that of the manager can have any
process started anyway.
"""

from __future__ import annotations

import hmac
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.disk import FileDisk, make_private_folder, replace_file
from coterie.kernel.decoding import JsonDecoder
from coterie.kernel.errors import CoterieError, Refused
from coterie.manager.orders import LISTED_MAX, ReplicaPlace
from coterie.runtime.address import parse_address
from coterie.service.config import (
    NAME,
    ClientConfig,
    ClusterConfig,
    GroupConfig,
    ReplicaConfig,
    SecurityConfig,
    encode_config,
    parse_config,
)
from coterie.service.disk_marks import found_groups
from coterie.service.folder import open_folder

if TYPE_CHECKING:
    from collections.abc import Collection

    from coterie.manager.orders import StartReplica
    from coterie.service.manage.agent_config import AgentConfig

STATE = "agent.json"
OWNER = "owner"
_TRIES_MAX = 4096
_HERE = {"placed", "started"}
_GONE_TOLD = 256


class KeptReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica on this host."""

    group: str
    id: str
    peers: str
    clients: str
    state: str = "placed"
    """placed, started, or ended for good: stopped or removed."""

    @property
    def place(self) -> ReplicaPlace:
        """Where it is found."""
        return ReplicaPlace(self.id, self.peers, self.clients)


class _AgentState(msgspec.Struct, frozen=True):
    fence: int = 0
    replicas: dict[str, KeptReplica] = {}


_decode = JsonDecoder(_AgentState).decode


class AgentDisk:
    """The folder of an agent."""

    def __init__(self, config: AgentConfig, secret: bytes) -> None:
        self._config = config
        self._secret = secret
        self.root = Path(config.dir)
        make_private_folder(self.root)
        self._disk = FileDisk(self.root)
        self._state = self._read()

    @property
    def fence(self) -> int:
        """The highest that was seen."""
        return self._state.fence

    @property
    def replicas(self) -> dict[str, KeptReplica]:
        """All that were ever placed here, by their ids."""
        return self._state.replicas

    def told(self) -> list[KeptReplica]:
        """Give those that a manager is told of: of what has ended for good, the latest.

        All that ever were here would one day be more than an answer holds.
        """
        here = [each for each in self.replicas.values() if each.state in _HERE]
        gone = [each for each in self.replicas.values() if each.state not in _HERE]
        return [*here[: LISTED_MAX - _GONE_TOLD], *gone[-_GONE_TOLD:]]

    def _read(self) -> _AgentState:
        path = self.root / STATE
        try:
            state = _decode(path.read_bytes())
        except FileNotFoundError:
            return _AgentState()
        except (OSError, msgspec.DecodeError) as error:
            raise CoterieError(f"{path} cannot be read: {error}") from None
        for id, replica in state.replicas.items():
            if replica.id != id or not (NAME.fullmatch(id) and NAME.fullmatch(replica.group)):
                raise CoterieError(f"{path} cannot be read: {id!r} is no replica of a group")
            for address in (replica.peers, replica.clients):
                parse_address(address)
        return state

    def keep_fence(self, fence: int) -> None:
        """Write a fence down, before anything is done under it."""
        if fence > self._state.fence:
            self._write(msgspec.structs.replace(self._state, fence=fence))

    def keep(self, replica: KeptReplica) -> None:
        """Write down what becomes of a replica."""
        replicas = {**self._state.replicas, replica.id: replica}
        self._write(msgspec.structs.replace(self._state, replicas=replicas))

    def _write(self, state: _AgentState) -> None:
        replace_file(self._disk, ".", STATE, msgspec.json.encode(state))
        self._state = state

    # ---- places

    def place(self, group: str, id: str) -> KeptReplica:
        """Keep two ports for a replica; the same ones if it was placed before."""
        known = self.replicas.get(id)
        if known is not None:
            return known
        for name in (group, id):
            if not NAME.fullmatch(name):  # folders and files are named by it
                raise Refused(f"{name!r} is no name: use letters, digits, dots and hyphens")
        host = self._config.address.host
        peers, clients = (str(each) for each in self._free_ports(host, 2))
        replica = KeptReplica(
            group=group, id=id, peers=f"{host}:{peers}", clients=f"{host}:{clients}"
        )
        self.keep(replica)
        return replica

    def _free_ports(self, host: str, count: int) -> list[int]:
        taken = {
            parse_address(text).port
            for each in self.replicas.values()
            if each.state in _HERE
            for text in (each.peers, each.clients)
        }
        found: list[int] = []
        for port in self._config.port_range[:_TRIES_MAX]:
            if port not in taken and _is_free(host, port):
                found.append(port)
                if len(found) == count:
                    return found
        raise CoterieError(f"no ports are left of {self._config.ports}")

    # ---- replicas

    def folder(self, id: str) -> Path:
        """Give the folder of a replica's journals."""
        return self.root / "replicas" / id / "data"

    def config_file(self, id: str) -> Path:
        """Give the file that says how to run it."""
        return self.root / "replicas" / id / "group.toml"

    def load(self, id: str) -> ClusterConfig:
        """Read that file."""
        return parse_config(
            self.config_file(id).read_text(encoding="utf-8"), source=str(self.config_file(id))
        )

    def prepare(self, replica: KeptReplica, order: StartReplica) -> None:
        """Write what a replica needs to start; raises `CoterieError` where that makes no sense."""
        given = {name: value for name, value in order.settings.items() if value != ""}
        try:
            group = msgspec.convert(given, GroupConfig)
        except msgspec.ValidationError as error:
            raise Refused(
                f"the policy says of {replica.group} what no replica can be: {error}"
            ) from None
        mine = ReplicaConfig(
            listen=replica.peers,
            clients=replica.clients,
            dir=str(self.folder(replica.id)),
            joins=() if order.founds else (replica.group,),
        )
        others = {
            each.id: ReplicaConfig(listen=each.peers, clients=each.clients, dir="elsewhere")
            for each in order.others
        }
        ids = sorted({replica.id, *others})
        if order.founds and group.family.has_leader:
            group = msgspec.structs.replace(group, replicas=tuple(ids))
        config = ClusterConfig(
            cluster=replica.group,
            groups={replica.group: group},
            replicas={replica.id: mine, **others},
            security=SecurityConfig(replica_secrets=str(self._secrets(replica.group))),
            clients={OWNER: ClientConfig(secret_file=str(self.owner_secret(replica.group)))},
        )
        file = self.config_file(replica.id)
        text = encode_config(config)
        config = parse_config(text, source=str(file))
        self.introduce(replica, ids)
        make_private_folder(file.parent)
        replace_file(FileDisk(file.parent), ".", file.name, text.encode())
        if order.founds:
            self._found(config, replica)

    def _found(self, config: ClusterConfig, replica: KeptReplica) -> None:
        """Mark the disk of a founder, once: what was begun goes on."""
        with open_folder(self.folder(replica.id), replica.id, config.groups_at(replica.id)) as disk:
            for name in config.groups_at(replica.id):
                try:
                    found_groups(disk, config, replica.id, [name])
                except ValueError:
                    continue  # it was killed before it could say that it has begun

    # ---- secrets

    def _secrets(self, group: str) -> Path:
        return self.root / "secrets" / group

    def owner_secret(self, group: str) -> Path:
        """Give the file with what clients of a group show."""
        given = self._config.owner_secret_file
        return Path(given) if given else self._secrets(group) / OWNER

    def introduce(self, replica: KeptReplica, ids: Collection[str]) -> None:
        """See to it that a replica can show others who it is, and they to it."""
        folder = self._secrets(replica.group)
        make_private_folder(folder.parent)
        make_private_folder(folder)
        self._write_secret(self.owner_secret(replica.group), f"client|{replica.group}|{OWNER}")
        for other in ids:
            if other != replica.id and NAME.fullmatch(other):
                pair = "+".join(sorted((replica.id, other)))
                self._write_secret(folder / pair, f"replicas|{replica.group}|{pair}")

    def knows(self, replica: KeptReplica) -> tuple[str, ...]:
        """Give whom a replica can be shown to."""
        found = set()
        for file in self._secrets(replica.group).glob("*+*"):
            pair = file.name.split("+")
            if replica.id in pair:
                found |= {*pair} - {replica.id}
        return tuple(sorted(found))

    def _write_secret(self, path: Path, of: str) -> None:
        if path.exists():
            return
        text = hmac.digest(self._secret, of.encode(), "sha256").hex()
        draft = path.with_name(path.name + ".new")
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(text + "\n")
        draft.rename(path)


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True
