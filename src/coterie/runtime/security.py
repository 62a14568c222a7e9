"""Who may connect: a shared secret, certificates, or both.

**The secret** is shown, not sent. Both ends of a new connection choose a nonce; a proof is an HMAC
over the speaker's part (who dialled, who listened), both nonces, both lives and the cluster. So a
proof cannot be used again, elsewhere, or thrown back at its speaker. What follows on the connection
is not protected by it: on a network that others can write to, use certificates as well.

**Certificates** (mutual TLS): both ends show one that the given authority has signed. The files
are looked at from time to time, and new connections use what is in them then; so a certificate is
renewed by replacing files.
"""

from __future__ import annotations

import hmac
import os
import secrets
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from coterie.kernel.views import ReplicaId

SECRET_BYTES_MIN = 16
NONCE_BYTES = 16
_SECRET_BYTES_MAX = 4096


class SecurityError(CoterieError):
    """A secret or a certificate cannot be used; says why."""


def read_secret(path: Path) -> bytes:
    """Read a shared secret from a file; spaces and line ends around it do not count."""
    try:
        with path.open("rb") as file:
            secret = file.read(_SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise SecurityError(f"the secret in {path} cannot be read: {error.strerror}") from None
    if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
        raise SecurityError(
            f"the secret in {path} has {len(secret)} bytes; it needs {SECRET_BYTES_MIN} to "
            f"{_SECRET_BYTES_MAX}: write one with `openssl rand -hex 32 > {path.name}`"
        )
    return secret


def is_readable_by_others(path: Path) -> bool:
    """Say whether anybody on this machine can read a file."""
    return bool(path.stat().st_mode & 0o004)


def make_nonce() -> bytes:
    """Give bytes that nobody can foresee, for one connection."""
    return secrets.token_bytes(NONCE_BYTES)


class Meeting:
    """What a proof is about: one connection, as both of its ends see it."""

    def __init__(
        self,
        cluster: str,
        dialler: tuple[ReplicaId, int, bytes],
        listener: tuple[ReplicaId, int, bytes],
    ) -> None:
        """Each end is given by its id, its incarnation and its nonce."""
        parts = [cluster.encode()]
        for id, incarnation, nonce in (dialler, listener):
            parts += [id.encode(), b"%d" % incarnation, nonce]
        # Lengths, so that no two lists of parts give one text.
        self._text = b"".join(len(part).to_bytes(4) + part for part in parts)

    def proof(self, secret: bytes, *, by_dialler: bool) -> bytes:
        """Give what one of the ends shows."""
        speaker = b"coterie peer 1 dialler" if by_dialler else b"coterie peer 1 listener"
        return hmac.digest(secret, speaker + self._text, "sha256")

    def is_proof(self, secret: bytes, shown: bytes, *, by_dialler: bool) -> bool:
        """Say whether the right thing was shown."""
        return hmac.compare_digest(shown, self.proof(secret, by_dialler=by_dialler))


class TlsFiles:
    """Mutual TLS from files, for both ends of connections.

    `reload` takes up files that have changed; connections that are open stay as they are.
    """

    def __init__(self, certificate: Path, key: Path, authority: Path) -> None:
        self._files = (certificate, key, authority)
        self.server = _context(ssl.PROTOCOL_TLS_SERVER)
        """For those who accept connections."""
        self.client = _context(ssl.PROTOCOL_TLS_CLIENT)
        """For those who open them."""
        # Whom we reach is settled by the hello; whether they belong to us, by the authority.
        self.client.check_hostname = False
        self._load()

    def reload(self) -> bool:
        """Take up changed files; say whether there were any. Raises `SecurityError`."""
        if self._stamps() == self._loaded:
            return False
        self._load()
        return True

    def _load(self) -> None:
        certificate, key, authority = self._files
        stamps = self._stamps()
        for context in (self.server, self.client):
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_cert_chain(certificate, key)
            except (OSError, ssl.SSLError) as error:
                raise SecurityError(
                    f"the certificate {certificate} with the key {key} cannot be used: {error}"
                ) from None
            try:
                context.load_verify_locations(authority)
            except (OSError, ssl.SSLError) as error:
                raise SecurityError(f"the authority {authority} cannot be used: {error}") from None
        self._loaded = stamps

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps: list[tuple[int, int, int]] = []
        for file in self._files:
            try:
                status = os.stat(file)  # noqa: PTH116 -- a file that is being replaced
            except OSError as error:
                raise SecurityError(f"{file} cannot be read: {error.strerror}") from None
            stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return stamps


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class Security:
    """What connections between replicas must show; nothing, unless said otherwise."""

    def __init__(self, *, secret: bytes | None = None, tls: TlsFiles | None = None) -> None:
        self.secret = secret
        self.tls = tls

    @property
    def is_open(self) -> bool:
        """Whether anybody who reaches an address may speak."""
        return self.secret is None and self.tls is None


OPEN = Security()
"""Nothing needs to be shown."""
