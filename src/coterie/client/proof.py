"""How both ends show that they know a shared secret without saying it.

Each end sends a nonce of its own; a proof is an HMAC over the speaker's part, both nonces and the
group. So a proof is good for one connection, one direction and one group. What follows on the
connection is not protected by it: on a network that others can write to, use TLS as well.
"""

from __future__ import annotations

import hmac

SECRET_BYTES_MIN = 16
"""A shorter secret can be guessed from one proof."""


def client_proof(secret: bytes, client_nonce: bytes, replica_nonce: bytes, group: str) -> bytes:
    """Give what a client shows to a replica."""
    return _proof(secret, b"client", client_nonce, replica_nonce, group)


def replica_proof(secret: bytes, client_nonce: bytes, replica_nonce: bytes, group: str) -> bytes:
    """Give what a replica shows to a client."""
    return _proof(secret, b"replica", client_nonce, replica_nonce, group)


def is_same(one: bytes, other: bytes) -> bool:
    """Compare proofs in a time that tells nothing."""
    return hmac.compare_digest(one, other)


def check_secret(secret: bytes) -> None:
    """Refuse a secret that is too short to be one."""
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(
            f"a shared secret has at least {SECRET_BYTES_MIN} bytes, this one {len(secret)}:"
            " write one with `openssl rand -hex 32`"
        )


def _proof(
    secret: bytes, speaker: bytes, client_nonce: bytes, replica_nonce: bytes, group: str
) -> bytes:
    parts = (b"coterie client 1", speaker, client_nonce, replica_nonce, group.encode())
    # Lengths, so that no two lists of parts give one text.
    text = b"".join(len(part).to_bytes(4) + part for part in parts)
    return hmac.digest(secret, text, "sha256")
