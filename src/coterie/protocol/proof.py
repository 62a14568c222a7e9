"""How both ends of a connection show that they know a shared secret without saying it.

Each end chooses a nonce; a proof is an HMAC over the speaker's part, both nonces and what the
connection is for: between replicas the cluster and both lives, between a client and a replica the
group. So a proof cannot be used again, elsewhere, or thrown back at its speaker. What follows on
the connection is not protected by it: on a network that others can write to, use TLS as well.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.views import ReplicaId

SECRET_BYTES_MIN = 16
"""A shorter secret can be guessed from one proof."""
NONCE_BYTES = 16


def make_nonce() -> bytes:
    """Give bytes that nobody can foresee, for one connection."""
    return secrets.token_bytes(NONCE_BYTES)


def check_secret(secret: bytes) -> None:
    """Refuse a secret that is too short to be one."""
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(
            f"a shared secret has at least {SECRET_BYTES_MIN} bytes, this one {len(secret)}:"
            " write one with `openssl rand -hex 32`"
        )


class Meeting:
    """What a proof is about: one connection, as both of its ends see it."""

    def __init__(self, dialler: bytes, listener: bytes, about: bytes) -> None:
        """*dialler* and *listener* say who speaks, *about* what both agree on."""
        self._dialler = dialler + about
        self._listener = listener + about

    def proof(self, secret: bytes, *, by_dialler: bool) -> bytes:
        """Give what one of the ends shows."""
        return hmac.digest(secret, self._dialler if by_dialler else self._listener, "sha256")

    def which(self, secrets: Iterable[bytes], shown: bytes, *, by_dialler: bool) -> bytes | None:
        """Give the one of several secrets that was shown, if any was."""
        for secret in secrets:
            if self.is_proof(secret, shown, by_dialler=by_dialler):
                return secret
        return None

    def is_proof(self, secret: bytes, shown: bytes, *, by_dialler: bool) -> bool:
        """Say whether the right thing was shown, in a time that tells nothing."""
        return hmac.compare_digest(shown, self.proof(secret, by_dialler=by_dialler))


def meeting_of_peers(
    cluster: str, dialler: tuple[ReplicaId, int, bytes], listener: tuple[ReplicaId, int, bytes]
) -> Meeting:
    """Give the meeting of two replicas' processes: each an id, an incarnation and a nonce."""
    parts = [cluster.encode()]
    for id, incarnation, nonce in (dialler, listener):
        parts += [id.encode(), b"%d" % incarnation, nonce]
    return Meeting(b"coterie peer 1 dialler", b"coterie peer 1 listener", _joined(parts))


def meeting_of_client(group: str, client_nonce: bytes, replica_nonce: bytes) -> Meeting:
    """Give the meeting of a client with a replica, which it has dialled."""
    protocol = b"coterie client 1"
    return Meeting(
        _joined([protocol, b"client"]),
        _joined([protocol, b"replica"]),
        _joined([client_nonce, replica_nonce, group.encode()]),
    )


def meeting_of_manager(host: str, manager_nonce: bytes, agent_nonce: bytes) -> Meeting:
    """Give the meeting of a manager with the agent of a host, which it has dialled."""
    protocol = b"coterie manager 1"
    return Meeting(
        _joined([protocol, b"manager"]),
        _joined([protocol, b"agent"]),
        _joined([manager_nonce, agent_nonce, host.encode()]),
    )


def _joined(parts: Iterable[bytes]) -> bytes:
    """Join parts with their lengths, so that no two lists of parts give one text."""
    return b"".join(len(part).to_bytes(4) + part for part in parts)
