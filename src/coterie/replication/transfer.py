"""State transfer: how a member that missed something gets it from one that has it.

The member that needs something asks and asks again; the donor only answers, and keeps nothing but
the state it offered. Missing entries are sent while the donor has them; otherwise the state as of
the donor's settled position, in chunks, and the entries above that. Everything fetched is *staged*:
the member's own history stays as it is until all of it is there, so a crash or a view change in
the middle leaves no trace (**objects** 7.4: a transfer is restarted or terminated).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.replication.messages import (
    Entries,
    FetchChunk,
    FetchEntries,
    FetchMissing,
    Missing,
    StateChunk,
    StateOffer,
)
from coterie.replication.vectors import covers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coterie.kernel.engine import Run
    from coterie.kernel.views import Member
    from coterie.replication.log import Log

CHUNKS_AT_ONCE = 8
"""How many chunks of a state are asked for ahead."""


class StagedState:
    """A state on its way, chunk by chunk."""

    def __init__(self) -> None:
        self.offer: StateOffer | None = None
        self._chunks: dict[int, bytes] = {}

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is missing; no state is whole, too."""
        return self.offer is None or len(self._chunks) == self.offer.chunks

    def begin(self, offer: StateOffer | None) -> None:
        """Fetch another state from now on, or none."""
        self.offer = offer
        self._chunks = {}

    def chunks(self) -> Iterator[bytes]:
        """Give the state, in order."""
        for index in range(len(self._chunks)):
            yield self._chunks[index]

    def requests(self) -> list[FetchChunk]:
        """Give which chunks to ask for now."""
        offer = self.offer
        if offer is None:
            return []
        missing = [index for index in range(offer.chunks) if index not in self._chunks]
        return [FetchChunk(offer.position, index) for index in missing[:CHUNKS_AT_ONCE]]

    def take(self, message: StateChunk) -> bool:
        """Stage a chunk; say whether it was missing."""
        offer = self.offer
        if offer is None or message.position != offer.position or message.index in self._chunks:
            return False
        if not 0 <= message.index < offer.chunks:
            return False
        self._chunks[message.index] = message.data
        return True


class Transfer:
    """The receiving side of one transfer."""

    def __init__(self, donors: Sequence[Member], after: int, up_to: int) -> None:
        self.donors = list(donors)
        self._ours = after
        self.after = after
        """Everything up to here is ours already, or staged."""
        self.up_to = up_to
        self.runs: list[Run] = []
        self.state = StagedState()

    @property
    def donor(self) -> Member:
        """The member asked at present."""
        return self.donors[0]

    @property
    def is_complete(self) -> bool:
        """Whether everything is here."""
        return self.after >= self.up_to and self.state.is_whole

    def change_donor(self) -> None:
        """Ask another member from now on; a half-fetched state is of no use with it."""
        self.donors.append(self.donors.pop(0))
        if not self.state.is_whole:
            self.state.begin(None)
            self.runs = []
            self.after = self._ours

    def requests(self) -> Sequence[FetchEntries | FetchChunk]:
        """Give what to ask for now."""
        chunks = self.state.requests()
        if chunks:
            return chunks
        return [FetchEntries(self.after, self.up_to)] if self.after < self.up_to else []

    def take(self, message: Entries | StateOffer | StateChunk) -> bool:
        """Stage what a donor sent; say whether it was news."""
        match message:
            case Entries():
                return self._take_entries(message)
            case StateOffer():
                return self._take_offer(message)
            case StateChunk():
                return self.state.take(message)

    def _take_entries(self, message: Entries) -> bool:
        """Stage entries; say whether they were the next ones."""
        if message.after != self.after or not message.runs:
            return False
        for run in message.runs:
            if run.position != self.after + 1 or not run.payloads:
                return False
            self.runs.append(run)
            self.after = run.last_position
        return True

    def _take_offer(self, message: StateOffer) -> bool:
        """Begin to fetch a state; say whether that is news."""
        # A second offer means that the donor has dropped the entries above the first one.
        if message.position <= self.after:
            return False
        self.state.begin(message)
        self.runs = []
        self.after = message.position
        self.up_to = max(self.up_to, message.position)
        return True


class Donor:
    """The giving side: answers from the log, and keeps one offered state for all who ask."""

    def __init__(self, log: Log, snapshot: Callable[[], Iterator[bytes]], bytes_max: int) -> None:
        self._log = log
        self._snapshot = snapshot
        self._bytes_max = bytes_max
        self._position = 0
        self._chunks: list[bytes] = []
        self._origins: list[tuple[Member, int]] = []

    def forget(self) -> None:
        """Drop the offered state."""
        self._position = 0
        self._chunks = []

    def answer(self, message: FetchEntries) -> Entries | StateOffer:
        """Give entries above a position, or the state if they are gone."""
        log = self._log
        if message.after >= log.start:
            runs = log.after(message.after, up_to=message.up_to, bytes_max=self._bytes_max)
            return Entries(message.after, runs)
        return self._offer()

    def answer_missing(
        self, message: FetchMissing, *, gives_state: bool
    ) -> Missing | StateOffer | None:
        """Give entries that are not in a set, or the state if some of them are gone."""
        log = self._log
        holds = dict(message.holds)
        if covers(holds, log.forgotten):
            return Missing(message.serial, log.beyond(holds, bytes_max=self._bytes_max))
        return self._offer() if gives_state else None

    def answer_chunk(self, message: FetchChunk) -> StateChunk | None:
        """Give a chunk of the state offered, if it is still the one."""
        if message.position != self._position or not 0 <= message.index < len(self._chunks):
            return None
        return StateChunk(message.position, message.index, self._chunks[message.index])

    def _offer(self) -> StateOffer:
        log = self._log
        if self._position < log.start:
            # The state offered earlier is too old by now: the entries above it are gone as well.
            self._position = log.settled
            self._chunks = list(self._snapshot())
            self._origins = sorted(log.origins(log.settled).items())
        return StateOffer(self._position, len(self._chunks), self._origins)
