"""Who may connect as a replica: secrets, certificates, or both.

**A secret** is shown, not sent (`coterie.protocol.proof`), and each pair of replicas has its own.
What follows on the connection is not protected by it: on a network that others can write to, use
certificates as well.

**Certificates** (mutual TLS): both ends show one that the given authority has signed, with the
name of their replica in it; see `coterie.runtime.certificates`.
"""

from __future__ import annotations

import os
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from coterie.kernel.errors import CoterieError
from coterie.protocol.proof import SECRET_BYTES_MIN

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coterie.kernel.views import ReplicaId
    from coterie.runtime.certificates import TlsFiles

__all__ = [
    "CLIENT_NAME",
    "FOR_OTHERS",
    "OPEN",
    "REPLICA_NAME",
    "SECRETS_MAX",
    "SECRET_BYTES_MIN",
    "Security",
    "SecurityError",
    "names_in",
    "read_secret",
    "read_secrets",
    "write_secret",
]

_SECRET_BYTES_MAX = 4096
SECRETS_MAX = 4
"""How many secrets one file may hold: that in use, the next one, and what is left of the last."""
FOR_OTHERS = 0o007
"""The part of a file's mode that is for everybody."""


class SecurityError(CoterieError):
    """A secret or a certificate cannot be used; says why."""


def read_secret(path: Path) -> bytes:
    """Read the secret that is shown: the first in a file. Raises as `read_secrets` does."""
    return read_secrets(path)[0]


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Read secrets from a file, one a line: the first is shown, and all are accepted.

    So a secret is replaced while the old one is good for a while. Spaces around it do not count.
    Raises `SecurityError` also if anybody on this machine could read or change the file.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(SECRETS_MAX * (_SECRET_BYTES_MAX + 1) + 1)
    except OSError as error:
        raise SecurityError(f"the secret in {path} cannot be read: {error.strerror}") from None
    if mode & FOR_OTHERS:
        raise SecurityError(
            f"the secret in {path} is none: its mode {mode & 0o777:04o} lets every user of this "
            f"machine at it; write another, and chmod 600 {path}"
        )
    secrets = tuple(line for line in map(bytes.strip, data.splitlines()) if line) or (b"",)
    for secret in secrets:
        if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
            raise SecurityError(
                f"the secret in {path} has {len(secret)} bytes; it needs {SECRET_BYTES_MIN} to "
                f"{_SECRET_BYTES_MAX}: write one with `openssl rand -hex 32 > {path.name}`"
            )
    if len(secrets) > SECRETS_MAX:
        raise SecurityError(
            f"{path} holds {len(secrets)} secrets, one a line; take out those that are replaced"
        )
    return secrets


def write_secret(path: Path) -> None:
    """Write a new secret to a file that only its owner can read; one that is there stays."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise SecurityError(f"no secret can be written to {path}: {error.strerror}") from None
    with os.fdopen(number, "w", encoding="ascii") as file:
        file.write(f"{token_hex(32)}\n")


class Security:
    """What connections between replicas must show; nothing, unless said otherwise.

    A credential is good for one replica's name. *secrets* has one for each peer, which nobody but
    the two knows: so no client and no third replica can be taken for a peer. With *tls* a peer's
    certificate must bear its name, by default `replica-` and its id; *names* says otherwise.
    """

    def __init__(
        self,
        *,
        secrets: Mapping[ReplicaId, bytes] | None = None,
        older: Mapping[ReplicaId, Sequence[bytes]] | None = None,
        tls: TlsFiles | None = None,
        names: Mapping[ReplicaId, str] | None = None,
    ) -> None:
        self.secrets = secrets
        self.older = older or {}
        """Secrets that peers may show as well, while they are being replaced."""
        self.tls = tls
        self._names = names or {}

    @property
    def is_open(self) -> bool:
        """Whether anybody who reaches an address may speak."""
        return self.secrets is None and self.tls is None

    def is_trusted(self, transport: asyncio.BaseTransport) -> bool:
        """Say whether nothing that a connection was let in for has been withdrawn since."""
        return self.tls is None or self.tls.is_trusted(transport)

    def is_accepted(self, shown: tuple[ReplicaId, bytes] | None) -> bool:
        """Say whether a secret that a connection has shown has not been taken out since."""
        return shown is None or shown[1] in self.accepted_from(shown[0])

    def secret_with(self, peer: ReplicaId) -> bytes | None:
        """Give the secret that is shared with a peer; None where no secrets are asked for."""
        return None if self.secrets is None else self.secrets[peer]

    def accepted_from(self, peer: ReplicaId) -> tuple[bytes, ...]:
        """Give the secrets that a peer may show."""
        secret = self.secret_with(peer)
        return () if secret is None else (secret, *self.older.get(peer, ()))

    def why_not(self, peer: ReplicaId, certificate: Mapping[str, Any] | None) -> str:
        """Say why a certificate is not that of a peer, or nothing if it is."""
        if self.tls is None:
            return ""
        expected = self._names.get(peer) or REPLICA_NAME.format(peer)
        shown = names_in(certificate)
        if expected in shown:
            return ""
        names = ", ".join(sorted(shown)) or "nobody"
        return f"process {peer!r} has to show a certificate of {expected}, and it is of {names}"


REPLICA_NAME = "replica-{}"
"""The name in a replica's certificate, unless the configuration has another."""
CLIENT_NAME = "client-{}"
"""The name in a client's certificate, unless the configuration has another."""


def names_in(certificate: Mapping[str, Any] | None) -> set[str]:
    """Give the names that a verified certificate bears: common ones, of hosts, and URIs."""
    if not certificate:
        return set()
    found = {
        value
        for part in certificate.get("subject", ())
        for kind, value in part
        if kind == "commonName"
    }
    others = certificate.get("subjectAltName", ())
    return found | {value for kind, value in others if kind in {"DNS", "URI"}}


OPEN = Security()
"""Nothing needs to be shown."""
