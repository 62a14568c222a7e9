"""How a request ended, as the state machine sees it.

`Done` and `Failed` are remembered in the session, so a retry gets the same answer, with the place
where the update was executed first. The others are not: they say that this attempt had no effect.
What they mean for the client:

| outcome | the update |
|---|---|
| `Done`, `AllDone`, `Failed` | was executed, once; one that failed left no trace |
| `WindowFull`, `NotTaken` | was surely not executed by this attempt |
| `AlreadyForgotten`, `SessionEvicted` | may have been executed earlier; nobody remembers |
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from coterie.kernel.engine import Standing
from coterie.kernel.views import ViewId, Viewstamp


class Done(msgspec.Struct, tag=1, frozen=True, array_like=True, gc=False):
    """The method answered; `result` is its answer as MessagePack."""

    position: int
    view: ViewId
    number: int
    result: bytes

    @property
    def digest(self) -> int:
        """A checksum over the answer."""
        return crc32(self.result)

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the request was ordered."""
        return Viewstamp(self.view, self.number)


class Failed(msgspec.Struct, tag=2, frozen=True, array_like=True, gc=False):
    """The method raised: the name of the exception's class, and its message.

    Of an error that the class declares there are its `fields`, too
    (`coterie.objects.classes.declared`).
    """

    position: int
    view: ViewId
    number: int
    error: str
    message: str
    fields: bytes = b""

    @property
    def digest(self) -> int:
        """A checksum over the answer."""
        return crc32(f"{self.error}: {self.message}".encode())

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the request was ordered."""
        return Viewstamp(self.view, self.number)


class AllDone(msgspec.Struct, tag=9, frozen=True, array_like=True, gc=False):
    """Several calls of one entry answered, with request numbers from `first` on."""

    position: int
    view: ViewId
    number: int
    first: int
    results: list[bytes]

    def of(self, request: int) -> Done:
        """Give the outcome of one of them."""
        return Done(self.position, self.view, self.number, self.results[request - self.first])

    @property
    def digest(self) -> int:
        """A checksum over the answers."""
        return crc32(b"".join(self.results))

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the requests were ordered."""
        return Viewstamp(self.view, self.number)


EXECUTED = (Done, Failed, AllDone)
"""The outcomes of requests that were executed."""


class SessionEvicted(msgspec.Struct, tag=3, frozen=True, array_like=True, gc=False):
    """The session is not, or no longer, known: open another."""


class AlreadyForgotten(msgspec.Struct, tag=4, frozen=True, array_like=True, gc=False):
    """The number is below the one the client said it would never ask below again."""

    lowest: int


class WindowFull(msgspec.Struct, tag=5, frozen=True, array_like=True, gc=False):
    """The session keeps too many results: say which are not needed, then ask again."""

    lowest: int


class NotTaken(msgspec.Struct, tag=6, frozen=True, array_like=True, gc=False):
    """The request was not proposed, and why."""

    reason: str


class Opened(msgspec.Struct, tag=7, frozen=True, array_like=True, gc=False):
    """A session was opened; requests in it are numbered from 1."""

    session: int


class Closed(msgspec.Struct, tag=8, frozen=True, array_like=True, gc=False):
    """The session was closed, as its client asked."""


Outcome = (
    Done
    | Failed
    | AllDone
    | SessionEvicted
    | AlreadyForgotten
    | WindowFull
    | NotTaken
    | Opened
    | Closed
)


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a front hands to whoever waits for (session, request).

    What has no session (opening one, a read) has session 0 and its token as request.
    """

    session: int
    request: int
    outcome: Outcome
    standing: Standing
    asked_at: int = 0
    reply_to: str = ""
    """Where a client is that knows nothing of replication; its id is `session` then."""
    age: int = 0
    """How old the state may be that a read saw, in microseconds: for so long this replica has not
    been in a primary view. -1 where it has not been in one in this life."""


SESSION_EVICTED = SessionEvicted()
