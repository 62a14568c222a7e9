"""What the configuration says about security, made ready for use."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from coterie.journal.disk import make_private_folder
from coterie.runtime.certificates import TlsFiles
from coterie.runtime.events import log
from coterie.runtime.security import (
    Security,
    SecurityError,
    read_secret,
    read_secrets,
    write_secret,
)
from coterie.service.config import NAME, client_name, replica_name
from coterie.service.known_clients import EVERYTHING, KnownClient, KnownClients

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Sequence

    from coterie.runtime.transport import TcpTransport
    from coterie.service.config import ClusterConfig
    from coterie.service.port import ClientPort

LOOK_SECONDS = 5.0
"""How often certificates are looked at for changes."""
LOOKS_BEFORE_CHECK = 12
"""After how many looks it is checked that our own certificate is still good."""


def load_security(config: ClusterConfig, id: str) -> Security:
    """Read what a replica shows to its peers, and they to it; raises `SecurityError`."""
    given = config.security
    peers = [peer for peer in config.ids if peer != id]
    (secrets, older), _ = load_secrets(config, id)
    tls = None
    if given.certificate:
        tls = TlsFiles(
            Path(given.certificate),
            Path(given.key),
            Path(given.authority),
            Path(given.revoked) if given.revoked else None,
        )
    return Security(
        secrets=secrets,
        older=older,
        tls=tls,
        names={peer: replica_name(config, peer) for peer in peers},
    )


PeerSecrets = tuple[dict[str, bytes] | None, dict[str, tuple[bytes, ...]]]
"""What is shown to each peer, and what each may show besides; None where nothing is asked."""


def load_secrets(
    config: ClusterConfig, id: str, joined: Collection[str] = ()
) -> tuple[PeerSecrets, str]:
    """Read the secrets that a replica shares with its peers; raises `SecurityError`.

    Of those that have *joined* and are not in the file the secrets may be missing: nothing is let
    in from them then, and the second result says why.
    """
    given = config.security
    if not given.replica_secrets:
        return (None, {}), ""
    peers = [peer for peer in config.ids if peer != id]
    found = {peer: read_secrets(given.secret_between(id, peer)) for peer in peers}
    missing = ""
    for peer in sorted({*joined} - {id, *peers}):
        if not NAME.fullmatch(peer):  # its name would be that of another file
            missing = f"what has joined under the name {peer!r} is no replica"
            continue
        try:
            found[peer] = read_secrets(given.secret_between(id, peer))
        except SecurityError as error:
            missing = f"{peer} has joined, and {error}"
    known = [secret for secrets in found.values() for secret in secrets]
    if len(set(known)) < len(known):
        raise SecurityError(
            f"two files in {given.replica_secrets} hold the same secret: each pair of replicas "
            "has its own, or one replica could be taken for another"
        )
    secrets = {peer: each[0] for peer, each in found.items()}
    return (secrets, {peer: each[1:] for peer, each in found.items()}), missing


def load_clients(config: ClusterConfig, security: Security) -> KnownClients | None:
    """Read what clients show, None if nothing is asked of them; raises `SecurityError`."""
    if security.is_open:
        return None
    taken = dict.fromkeys((security.secrets or {}).values(), "two replicas")
    known: list[KnownClient] = []
    for name, client in config.clients.items():
        secrets = read_secrets(Path(client.secret_file)) if client.secret_file else ()
        for secret in secrets:
            owner = taken.setdefault(secret, f"client {name!r}")
            if owner != f"client {name!r}":
                raise SecurityError(
                    f"the secret of client {name!r} is that of {owner}, too: write another to "
                    f"{client.secret_file}"
                )
        known.append(
            KnownClient(
                name,
                secret=secrets[0] if secrets else None,
                older=secrets[1:],
                certificate_name=client_name(config, name),
                may=client.may or EVERYTHING,
                rate=client.rate,
            )
        )
    return KnownClients(known)


class Credential(NamedTuple):
    """What a client shows."""

    client: str = ""
    secret: bytes | None = None
    tls: ssl.SSLContext | None = None


def find_credential(config: ClusterConfig, client: str = "") -> Credential:
    """Find what a client on this machine shows; by default, the first whose files are here.

    Raises `SecurityError` with what is missing.
    """
    if config.security.is_open:
        return Credential()
    if client:
        if client not in config.clients:
            known = ", ".join(config.clients)
            raise SecurityError(
                f"there is no client {client!r} in the configuration; it has {known}"
            )
        return _load_credential(config, client)
    problems = []
    for name in config.clients:
        try:
            return _load_credential(config, name)
        except SecurityError as error:
            problems.append(str(error))
    raise SecurityError(problems[0])


def _load_credential(config: ClusterConfig, name: str) -> Credential:
    client = config.clients[name]
    secret = read_secret(Path(client.secret_file)) if client.secret_file else None
    if not config.security.certificate:
        return Credential(name, secret)
    if not client.certificate:
        raise SecurityError(
            f"the configuration does not say where client {name!r} has its certificate: give it "
            "certificate and key, or use --address with --tls"
        )
    files = TlsFiles(Path(client.certificate), Path(client.key), Path(config.security.authority))
    return Credential(name, secret, files.client)


def write_secrets(config: ClusterConfig) -> list[Path]:
    """Write the secrets that the configuration names and that are not there; give them."""
    files = [Path(client.secret_file) for client in config.clients.values() if client.secret_file]
    if config.security.replica_secrets:
        files += [
            config.security.secret_between(one, other)
            for one in config.ids
            for other in config.ids
            if one < other
        ]
    missing = [file for file in files if not file.exists()]
    for file in missing:
        make_private_folder(file.parent)
        write_secret(file)
    return missing


class SecretWatch:
    """Takes up changed secrets, and has connections ended that were let in by one taken out.

    A secret that cannot be used leaves what was there before in use, and is told of once.
    """

    def __init__(
        self, config: ClusterConfig, id: str, transport: TcpTransport, port: ClientPort
    ) -> None:
        self.wrong = ""
        """What is wrong with the files, in words; empty if nothing."""
        self._config = config
        self._id = id
        self._transport = transport
        self._port = port
        self._clients_seen = self._shown_by(port.clients)
        self.joined: Collection[str] = ()
        """The peers that the file does not name."""
        self.looked: list[Callable[[], None]] = []
        """Called after every look."""

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Look at the files now."""
        self._look()
        for each in self.looked:
            each()

    def _look(self) -> None:
        security = self._transport.security
        try:
            (secrets, older), missing = load_secrets(self._config, self._id, self.joined)
            fresh = Security(secrets=secrets, older=older, tls=security.tls)
            clients = load_clients(self._config, fresh)
        except SecurityError as error:
            if str(error) != self.wrong:
                log(logging.WARNING, "secrets cannot be used", reason=str(error))
            self.wrong = str(error)
            return
        if missing and missing != self.wrong:
            log(logging.WARNING, "secret missing", reason=missing)
        self.wrong = missing
        if secrets is not None and security.secrets is not None:
            for peer in self.joined:  # what was good for a member stays good until there is another
                if peer in security.secrets:
                    secrets.setdefault(peer, security.secrets[peer])
        shown = self._shown_by(clients)
        if (secrets, older) == (security.secrets, security.older) and shown == self._clients_seen:
            return
        security.secrets, security.older = secrets, older
        self._port.clients, self._clients_seen = clients, shown
        log(logging.INFO, "secrets taken up")
        for each in (self._transport, self._port):
            each.end_untrusted()

    @staticmethod
    def _shown_by(clients: KnownClients | None) -> list[tuple[str, tuple[bytes, ...]]]:
        return [] if clients is None else [(each.name, each.secrets) for each in clients]


class Trusting(Protocol):
    """Who has connections that were let in for their certificates."""

    def end_untrusted(self) -> None:
        """End those whose certificates are not trusted any more."""


def check_certificate(tls: TlsFiles) -> None:
    """Refuse to start with a certificate that nobody would accept; raises `SecurityError`."""
    problem = tls.problem()
    if problem:
        raise SecurityError(
            f"the certificate of this replica would be refused by every other one: {problem}; "
            "give it one that the authority has signed, and that is valid now"
        )


class CertificateWatch:
    """Takes up changed certificates; what cannot be used leaves what was there before in use.

    Connections whose certificates are not trusted any more are ended by *watched*, who have them.
    """

    def __init__(self, tls: TlsFiles, watched: Sequence[Trusting]) -> None:
        self.wrong = ""
        """What is wrong with the files or with what is in use, in words; empty if nothing."""
        self._tls = tls
        self._watched = watched
        self._looks = 0
        self._refused = ""

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Look at the files now."""
        is_new, problems = False, []
        try:
            is_new = self._tls.reload()
        except SecurityError as error:
            is_new = True  # what is trusted may have been taken up without the rest
            problems.append(f"what was there before stays in use: {error}")
        if is_new:
            for each in self._watched:
                each.end_untrusted()
        # A handshake with ourselves takes milliseconds, which turns would wait for.
        if is_new or self._looks % LOOKS_BEFORE_CHECK == 0:
            self._refused = self._tls.problem()
        self._looks += 1
        if self._refused:
            problems.append(f"the one in use would be refused by every replica: {self._refused}")
        self._tell("; ".join(problems), is_new=is_new)

    def _tell(self, wrong: str, *, is_new: bool) -> None:
        if wrong and wrong != self.wrong:
            log(logging.WARNING, "certificates cannot be used", reason=wrong)
        elif not wrong and (is_new or self.wrong):
            log(logging.INFO, "certificates taken up")
        self.wrong = wrong
