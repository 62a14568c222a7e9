"""How a client and a replica come to know each other, for both ends.

    client   Hello     which group, and a nonce
    replica  Challenge a nonce of its own; only where a secret is asked for
    client   Proof     that it knows the secret
    replica  Welcome   with its own proof; or Farewell with the reason, at any time

Neither end here reads or writes: each is told what the other said and answers with what to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError
from coterie.protocol.kinds import WRONG_SECRET
from coterie.protocol.messages import Challenge, Hello, Proof, Welcome
from coterie.protocol.proof import make_nonce, meeting_of_client

if TYPE_CHECKING:
    from collections.abc import Sequence


class HandshakeFailed(CoterieError):
    """The two ends do not fit together; `kind` is one of `coterie.protocol.kinds`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class ClientHandshake:
    """A client's part. Where it has a secret, the replica must know it, too."""

    def __init__(self, group: str, secret: bytes | None) -> None:
        self.hello = Hello(group, make_nonce())
        self._secret = secret
        self._replica_nonce = b""

    def answer(self, challenge: Challenge) -> Proof:
        """Show that we know the secret; raises `HandshakeFailed` if we have none."""
        if self._secret is None:
            raise HandshakeFailed(
                WRONG_SECRET,
                "asks for a shared secret: give it to connect(); that of a group which is served "
                "on this machine is found by the user who serves it, and by nobody else",
            )
        self._replica_nonce = challenge.nonce
        meeting = meeting_of_client(self.hello.group, self.hello.nonce, challenge.nonce)
        return Proof(meeting.proof(self._secret, by_dialler=True))

    def check(self, welcome: Welcome) -> None:
        """Raise `HandshakeFailed` unless whoever welcomes us has shown the secret we have."""
        secret, nonce = self._secret, self._replica_nonce
        if secret is None:
            return
        meeting = meeting_of_client(self.hello.group, self.hello.nonce, nonce)
        if not nonce or not meeting.is_proof(secret, welcome.proof, by_dialler=False):
            raise HandshakeFailed(
                WRONG_SECRET, "does not know the shared secret: is it the right one?"
            )


class ReplicaHandshake:
    """A replica's part, for one connection.

    *secrets* are those of all clients that may be at the other end, each with the client's name.
    Which of them it is, its proof tells: nobody has to say a name. Without any, nothing is asked.
    """

    def __init__(self, secrets: Sequence[tuple[str, bytes]]) -> None:
        self.hello: Hello | None = None
        """What the client said, once it has."""
        self.is_proved = False
        """Whether the client may be made welcome."""
        self.client = ""
        """Whose secret the client has shown."""
        self.shown = b""
        """The secret that the client has shown."""
        self._secrets = secrets
        self._nonce = b""

    def challenge(self, hello: Hello) -> Challenge | None:
        """Take a hello; give what the client must answer first, if anything."""
        self.hello = hello
        if not self._secrets:
            self.is_proved = True
            return None
        self._nonce = make_nonce()
        return Challenge(self._nonce)

    @property
    def awaits_proof(self) -> bool:
        """Whether a proof comes next."""
        return bool(self._nonce) and not self.is_proved

    def prove(self, shown: Proof) -> bytes:
        """Take the client's proof; give ours. Raises `HandshakeFailed`."""
        assert self.hello is not None
        meeting = meeting_of_client(self.hello.group, self.hello.nonce, self._nonce)
        for client, secret in self._secrets:
            if meeting.is_proof(secret, shown.proof, by_dialler=True):
                self.is_proved = True
                self.client, self.shown = client, secret
                return meeting.proof(secret, by_dialler=False)
        raise HandshakeFailed(WRONG_SECRET, "the client does not know a secret of this group")
