"""A state on its way from one replica to another, in chunks: what all engines do alike.

The giving side offers a state as it is at one moment. It may be encoded elsewhere, so `ChunkDonor`
keeps who waits for what is not encoded yet, and takes over only a few chunks in a turn. The taking
side stages the chunks (`StagedState`): its own state stays as it is until the last one is here.
Which chunks are asked for, and by which messages, is each engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from coterie.kernel.clock import milliseconds
from coterie.kernel.engine import Chunks

if TYPE_CHECKING:
    from coterie.kernel.views import Member

TakeSnapshot = Callable[[Callable[[], Iterator[bytes]]], Iterator[bytes]]
"""How a state is encoded: from a function that encodes it as it is now, chunk by chunk."""
ENCODER_POLL = milliseconds(5)
"""How often a donor looks whether the next chunks are encoded, while somebody waits for them."""
CHUNKS_PER_TURN = 16
"""How many chunks that were encoded elsewhere are taken over in one turn."""
WAITING_MAX = 1000
"""How many requests for chunks may wait for the encoder; more are dropped, and come again."""


def encode_now(encode: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Encode a snapshot at once, in this process.

    A driver may put in something better for large states, such as a forked process that encodes
    while this one goes on: it must give the state of the moment of the call.
    """
    return iter(list(encode()))


class StagedState:
    """The chunks of a state as far as they have come."""

    def __init__(self, count: int | None = None) -> None:
        self.begin_anew(count)

    def begin_anew(self, count: int | None = None) -> None:
        """Stage another state, of so many chunks if that is known."""
        self.count = count
        """How many chunks the state has; None as long as that is not known."""
        self._chunks: dict[int, bytes] = {}
        self._next = 0

    def __contains__(self, index: int) -> bool:
        return index in self._chunks

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is missing."""
        return len(self._chunks) == self.count

    @property
    def last(self) -> int:
        """The last chunk that has come; -1 if none has."""
        return max(self._chunks, default=-1)

    @property
    def size(self) -> int:
        """How many bytes of it have come."""
        return sum(map(len, self._chunks.values()))

    def first_missing(self) -> int:
        """Give the first chunk that has not come."""
        while self._next in self._chunks:
            self._next += 1
        return self._next

    def add(self, index: int, chunk: bytes) -> None:
        """Stage a chunk."""
        self._chunks[index] = chunk

    def chunks(self) -> Iterator[bytes]:
        """Give the state, in order."""
        for index in range(len(self._chunks)):
            yield self._chunks[index]


class GivenChunk(NamedTuple):
    """A chunk for somebody who asked for it."""

    member: Member
    number: int
    """Which one, counted from 0."""
    chunk: bytes
    is_last: bool


class ChunkDonor:
    """Keeps one offered state for all who ask for chunks of it."""

    def __init__(self) -> None:
        self.is_offering = False
        """Whether there is a state to be had."""
        self._chunks: list[bytes] = []
        self._rest: Chunks | None = None
        self._waiting: dict[tuple[Member, int], None] = {}

    def offer(self, chunks: Iterator[bytes]) -> None:
        """Offer another state from now on."""
        self.forget()
        self.is_offering = True
        self._rest = chunks if isinstance(chunks, Chunks) else Chunks(chunks)

    def forget(self) -> None:
        """Drop the offered state, and let go of what encodes it."""
        self.is_offering = False
        self._chunks = []
        self._waiting.clear()
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    @property
    def count(self) -> int | None:
        """How many chunks the state has; None as long as it is being encoded."""
        return len(self._chunks) if self.is_offering and self._rest is None else None

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody wants what is not encoded yet."""
        return bool(self._waiting)

    def ask(self, member: Member, index: int) -> None:
        """Note who wants which chunk."""
        if self.is_offering and len(self._waiting) < WAITING_MAX:
            self._waiting[member, index] = None

    def ready(self) -> list[GivenChunk]:
        """Give what was asked for and is encoded by now.

        Where the encoder failed the state is forgotten: whoever asks next is offered another one.
        """
        self.encode_more()
        chunks = self._chunks
        is_complete = self._rest is None
        # Which one is the last is known only when the encoder has ended.
        ready = len(chunks) if is_complete else len(chunks) - 1
        given: list[GivenChunk] = []
        for member, index in list(self._waiting):
            if index < ready:
                is_last = is_complete and index == len(chunks) - 1
                given.append(GivenChunk(member, index, chunks[index], is_last))
            if index < ready or is_complete:
                del self._waiting[member, index]
        return given

    def encode_more(self) -> None:
        """Take over what is encoded: of what is encoded elsewhere, not more than a turn may."""
        rest = self._rest
        if rest is None:
            return
        taken = 0
        while not rest.is_elsewhere or taken < CHUNKS_PER_TURN:
            try:
                chunk = rest.poll()
            except StopIteration:
                self._rest = None
                if not self._chunks:
                    self._chunks.append(b"")  # what is asked for can always be given
                return
            except OSError:
                self._rest = None
                self.forget()
                return
            if chunk is None:
                return
            self._chunks.append(chunk)
            taken += 1
