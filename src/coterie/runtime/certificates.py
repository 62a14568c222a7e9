"""Mutual TLS from files that may be replaced while the process runs.

Both ends of a connection show a certificate that an authority in the authority's file has signed.
The files are looked at from time to time. What is found is put together from scratch: a context
of TLS that is in use is never changed, because one that takes a certificate and then finds that
the key is another has neither the old pair nor the new one, and because nothing can be taken away
from what it trusts. New contexts also have new keys for session tickets, so nobody gets in with a
ticket from before.

- **Certificate and key** count as a pair. Where the two that are found do not belong together, or
  one of them cannot be read, the old pair stays in use, and the reason is told.
- **What is trusted** (authorities and revocation lists) is taken up whether or not the pair is
  good. If an authority was withdrawn, or the revocation list changed, no connection that was made
  before is trusted any more; who still belongs to us is back after one handshake.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from coterie.runtime.security import SecurityError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from pathlib import Path

FILE_BYTES_MAX = 16 << 20
"""No certificate, key or list is larger; a revocation list of 300,000 certificates fits."""
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_FLIGHTS_MAX = 16


class _Pair(NamedTuple):
    """A certificate, with those that lead to its authority, and its key."""

    certificate: bytes
    key: bytes


class _Trust(NamedTuple):
    """What says whose certificates are good."""

    authorities: bytes
    revoked: bytes


class TlsFiles:
    """Contexts of TLS made from files; `reload` takes up files that have changed.

    *revoked* names a file with a revocation list of each authority; without it nothing is revoked.
    Raises `SecurityError` if the files cannot be used.
    """

    def __init__(
        self, certificate: Path, key: Path, authority: Path, revoked: Path | None = None
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._authority = authority
        self._revoked = revoked
        self._seen = self._stamps()
        self._pair, self._trust = self._read_pair(), self._read_trust()
        self.server, self.client = self._contexts(self._pair, self._trust)
        """The contexts for who accepts connections, and for who opens them."""
        self._trusted: weakref.WeakSet[ssl.SSLContext] = weakref.WeakSet((self.server, self.client))

    def reload(self) -> bool:
        """Take up changed files; say whether anything was taken up.

        Raises `SecurityError` for what could not be, after the rest was.
        """
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        problems: list[SecurityError] = []
        pair, trust = self._pair, self._trust
        try:
            trust = self._usable_trust()
        except SecurityError as error:
            problems.append(error)
        try:
            pair = self._usable_pair()
        except SecurityError as error:
            problems.append(error)
        is_new = (pair, trust) != (self._pair, self._trust)
        if is_new:
            self._use(pair, trust)
        if problems:
            raise problems[0]
        self._seen = stamps
        return is_new

    def is_trusted(self, transport: asyncio.BaseTransport) -> bool:
        """Say whether nothing that a connection was let in for has been withdrawn since."""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        # What is not encrypted did not come over the network: there nothing else is taken.
        return tls is None or tls.context in self._trusted

    def problem(self) -> str:
        """Say why others who trust what we trust would refuse our certificate; empty if not.

        They would if it has expired, was revoked, or no authority in the file has signed it.
        """
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [
            self.client.wrap_bio(to_client, to_server),
            self.server.wrap_bio(to_server, to_client, server_side=True),
        ]
        for _ in range(_FLIGHTS_MAX):
            for end in list(ends):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLCertVerificationError as error:
                    return error.verify_message
                except ssl.SSLError as error:
                    return str(error)
                ends.remove(end)
            if not ends:
                return ""
        return "a handshake with ourselves does not come to an end"

    # ---- inside

    def _use(self, pair: _Pair, trust: _Trust) -> None:
        is_withdrawn = bool(
            _blocks(self._trust.authorities) - _blocks(trust.authorities)
        ) or _blocks(self._trust.revoked) != _blocks(trust.revoked)
        self.server, self.client = self._contexts(pair, trust)
        self._pair, self._trust = pair, trust
        if is_withdrawn:
            self._trusted.clear()
        self._trusted.update((self.server, self.client))

    def _contexts(self, pair: _Pair, trust: _Trust) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        server, client = _context(ssl.PROTOCOL_TLS_SERVER), _context(ssl.PROTOCOL_TLS_CLIENT)
        # Whom we reach is settled by the hello; whether they belong to us, by the authority.
        client.check_hostname = False
        for context in (server, client):
            context.verify_mode = ssl.CERT_REQUIRED
            self._load_pair(context, pair)
            self._load_trust(context, trust)
        return server, client

    def _usable_pair(self) -> _Pair:
        pair = self._read_pair()
        if pair != self._pair:
            self._load_pair(_context(ssl.PROTOCOL_TLS_SERVER), pair)
        return pair

    def _usable_trust(self) -> _Trust:
        trust = self._read_trust()
        if trust != self._trust:
            self._load_trust(_context(ssl.PROTOCOL_TLS_SERVER), trust)
        return trust

    def _load_pair(self, context: ssl.SSLContext, pair: _Pair) -> None:
        try:
            with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
                # A key with a passphrase would have OpenSSL ask at the terminal, for ever.
                context.load_cert_chain(certificate, key, password=_no_passphrase)
        except (OSError, ValueError) as error:  # those of TLS are among the first
            raise SecurityError(
                f"the certificate {self._certificate} with the key {self._key} cannot be used: "
                f"{_why(error)}"
            ) from None

    def _load_trust(self, context: ssl.SSLContext, trust: _Trust) -> None:
        _load(context, trust.authorities, f"the authority {self._authority}")
        if self._revoked is None:
            return
        if {kind for kind, _ in _BLOCK.findall(trust.revoked)} != {b"X509 CRL"}:
            # A certificate among the lists would be trusted from then on.
            raise SecurityError(
                f"{self._revoked} has to hold revocation lists (X509 CRL), and nothing else"
            )
        _load(context, trust.revoked, f"the revocation list {self._revoked}")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF

    def _read_pair(self) -> _Pair:
        return _Pair(_read(self._certificate), _read(self._key))

    def _read_trust(self) -> _Trust:
        revoked = b"" if self._revoked is None else _read(self._revoked)
        return _Trust(_read(self._authority), revoked)

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps: list[tuple[int, int, int]] = []
        for file in (self._certificate, self._key, self._authority, self._revoked):
            if file is None:
                continue
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


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase, and nobody is there to give it: store it without")


def _blocks(data: bytes) -> set[bytes]:
    """Give what a file in PEM holds, whatever the order and the spaces."""
    return {kind + b"".join(body.split()) for kind, body in _BLOCK.findall(data)}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecurityError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise SecurityError(f"{path} is larger than {FILE_BYTES_MAX} bytes: is it the right file?")
    return data


def _load(context: ssl.SSLContext, data: bytes, what: str) -> None:
    """Have a context go by what a file held."""
    try:
        with _as_file(data) as path:
            context.load_verify_locations(path)
    except OSError as error:
        raise SecurityError(f"{what} cannot be used: {_why(error)}") from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "they do not belong together; replace both files, and the pair is taken up"
    return str(error)


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give a path under which OpenSSL finds *data*, because it takes files only.

    What both contexts get is what was read once, also where a file is replaced meanwhile. Where
    the system can, the file is in memory only.
    """
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        with open(os.memfd_create("coterie", os.MFD_CLOEXEC), "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:  # for nobody but us
            file.write(data)
            file.flush()
            yield file.name
