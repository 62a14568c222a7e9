"""Who may call at a port: the clients that the configuration names, known by what they show.

A client has a secret, a certificate, or both. Where certificates are asked for, the name in it says
which client it is, and if that one has a secret it must show it as well. Where none are, the secret
it shows says who it is (`coterie.protocol.handshake`). What a replica shows to other replicas is no
client's, so none of them is a client, and no client is a replica.

What a client may do is said for each group: a *role*, or the methods that it may call.

| Role | What it may do |
|---|---|
| `read` | queries, and asking how the group is |
| `write` | updates, too |
| `operate` | everything: also end sessions that it has not used, and move groups to other places |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coterie.objects.execution.sessions import owner_number
from coterie.protocol.handshake import HandshakeFailed
from coterie.protocol.kinds import NO_CLIENT
from coterie.protocol.proof import check_secret
from coterie.ready.locations import LOCATIONS
from coterie.runtime.security import names_in
from coterie.service.rates import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


ALL_GROUPS = "*"
READ, WRITE, OPERATE = "read", "write", "operate"
ROLES = {READ: 1, WRITE: 2, OPERATE: 3}
"""Who has a role has those below it."""
Rights = str | Collection[str]
"""What a client may do in a group: a role, or methods."""
EVERYTHING: Mapping[str, Rights] = {ALL_GROUPS: OPERATE}


class KnownClient:
    """A client, or all those that share a credential; without a name, anybody.

    *may* has its rights in each group, and under * those in all others; *rate* is how many calls it
    may make in a second at one replica, 0 for any number.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        name: str = "",
        *,
        secret: bytes | None = None,
        older: Sequence[bytes] = (),
        certificate_name: str = "",
        may: Mapping[str, Rights] = EVERYTHING,
        rate: float = 0,
    ) -> None:
        if secret is not None:
            check_secret(secret)
        self.name = name
        self.owner = owner_number(name)
        """How its sessions tell that they are its; 0 for anybody."""
        self.secret = secret
        self.secrets = () if secret is None else (secret, *older)
        """What it may show: also what is being replaced."""
        self.certificate_name = certificate_name
        self.is_limited = may != EVERYTHING or rate > 0
        """Whether there is anything that it may not."""
        self._may = may
        self._bucket = TokenBucket(rate) if rate > 0 else None

    def __repr__(self) -> str:
        return f"client {self.name!r}" if self.name else "anybody"

    def _rights(self, group: str) -> Rights:
        given = self._may.get(group, self._may.get(ALL_GROUPS, ()))
        if group == LOCATIONS and (isinstance(given, str) or not given):
            return (
                OPERATE if given == OPERATE else READ
            )  # who may not write may ask where groups are
        return given

    def has(self, role: str, group: str) -> bool:
        """Say whether it has a role in a group."""
        rights = self._rights(group)
        return isinstance(rights, str) and ROLES[rights] >= ROLES[role]

    def may_update(self, group: str) -> bool:
        """Say whether it may change anything in a group: some methods, if it has no role."""
        rights = self._rights(group)
        return self.has(WRITE, group) or (not isinstance(rights, str) and bool(rights))

    def why_unwelcome(self, group: str) -> str:
        """Say why it has no business with a group at all, or nothing if it has."""
        return "" if self._rights(group) else f"{self} may do nothing in group {group!r}"

    def why_not(self, group: str, method: str, role: str) -> str:
        """Say why it may not call a method that needs a role, or nothing if it may."""
        rights = self._rights(group)
        if self.has(role, group) or (not isinstance(rights, str) and method in rights):
            return ""
        if isinstance(rights, str):
            return f"{self} has the role {rights} in {group}, and {method} needs {role}"
        return f"{self} may call {', '.join(sorted(rights)) or 'nothing'} in {group}, not {method}"

    def why_not_now(self, count: int, now: float) -> str:
        """Say why it may not call so often now, or nothing if it may."""
        if self._bucket is None or self._bucket.take(count, now):
            return ""
        return f"{self} makes more than {self._bucket.rate:g} calls a second: ask later"


class KnownClients:
    """All clients of a deployment."""

    def __init__(self, clients: Iterable[KnownClient]) -> None:
        self._clients = {client.name: client for client in clients}

    def __getitem__(self, name: str) -> KnownClient:
        return self._clients[name]

    def secrets_of(self, name: str) -> tuple[bytes, ...]:
        """Give what a client may show; nothing if there is no such client."""
        client = self._clients.get(name)
        return () if client is None else client.secrets

    def __iter__(self) -> Iterator[KnownClient]:
        return iter(self._clients.values())

    def find(self, certificate: Mapping[str, Any] | None) -> list[KnownClient]:
        """Give those who may be at the other end of a new connection; raises `HandshakeFailed`.

        One that has shown a certificate is the client of that name. Without, all with a secret may.
        """
        if certificate is None:
            return [each for each in self._clients.values() if each.secret is not None]
        shown = names_in(certificate)
        for client in self._clients.values():
            if client.certificate_name in shown:
                return [client]
        names = ", ".join(sorted(shown)) or "nobody"
        raise HandshakeFailed(
            NO_CLIENT, f"the certificate is of {names}, and that is no client here"
        )


ANYBODY = KnownClient()
"""Whoever connects where nothing is asked."""
