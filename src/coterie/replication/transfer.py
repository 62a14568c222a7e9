"""State transfer: how a member that missed something gets it from one that has it.

The member that needs something asks and asks again; the donor only answers, and keeps nothing but
the state it offered. Missing entries are sent while the donor has them; otherwise the state as of
the donor's settled position, in chunks, and the entries above that. Everything fetched is *staged*:
the member's own history stays as it is until all of it is there, so a crash or a view change in
the middle leaves no trace (**objects** 7.4: a transfer is restarted or terminated).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.transfer import ChunkDonor, StagedState
from coterie.replication.messages import (
    Entries,
    FetchChunk,
    FetchEntries,
    FetchMissing,
    Missing,
    OtherHistory,
    StateChunk,
    StateOffer,
)
from coterie.replication.vectors import covers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.engine import Chunks, Run
    from coterie.kernel.views import Member
    from coterie.replication.log import Log

CHUNKS_AT_ONCE = 8
"""How many chunks of a state are asked for ahead."""
NOTHING = -1
"""What a member has whose history is not the group's: not even what all histories begin with."""


class FetchedState(StagedState):
    """A state that was offered, on its way; without an offer, none."""

    def __init__(self) -> None:
        super().__init__()
        self.begin(None)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is missing; no state is whole, too."""
        return self.offer is None or super().is_whole

    def begin(self, offer: StateOffer | None) -> None:
        """Fetch another state from now on, or none."""
        self.begin_anew()
        self.offer = offer
        self._asked: set[int] = set()

    def requests(self) -> list[FetchChunk]:
        """Give which chunks to ask for now: a few ahead, each once."""
        offer = self.offer
        if offer is None:
            return []
        first = self.first_missing()
        end = first + CHUNKS_AT_ONCE
        if self.count is not None:
            end = min(end, self.count)
        missing = [
            index for index in range(first, end) if index not in self and index not in self._asked
        ]
        self._asked.update(missing)
        return [FetchChunk(offer.position, index) for index in missing]

    def ask_again(self) -> None:
        """What was asked for does not come: ask for it again."""
        self._asked.clear()

    def take(self, message: StateChunk) -> bool:
        """Stage a chunk; say whether it was missing."""
        offer, index = self.offer, message.index
        if offer is None or message.position != offer.position or index in self:
            return False
        if index not in range(self._next, self._next + CHUNKS_AT_ONCE):
            return False
        self.add(index, message.data)
        self._asked.discard(index)
        if message.is_last:
            self.count = index + 1
        return True


class Transfer:
    """The receiving side of one transfer."""

    def __init__(self, donors: Sequence[Member], after: int, up_to: int, mark: int) -> None:
        self.donors = list(donors)
        self._ours = after
        self._mark = mark
        self.after = after
        """Everything up to here is ours already, or staged."""
        self.up_to = up_to
        self.runs: list[Run] = []
        self.state = FetchedState()

    @property
    def donor(self) -> Member:
        """The member asked at present."""
        return self.donors[0]

    @property
    def keeps_own(self) -> bool:
        """Whether what is fetched follows what we have."""
        return self._ours != NOTHING

    @property
    def is_complete(self) -> bool:
        """Whether everything that was to be fetched is here."""
        return self.after >= self.up_to and self.state.is_whole

    @property
    def fetched(self) -> int:
        """How many bytes of a state have come."""
        return self.state.size

    def change_donor(self) -> None:
        """Ask another member from now on; a half-fetched state is of no use with it."""
        self.donors.append(self.donors.pop(0))
        if not self.state.is_whole:
            self.state.begin(None)
            self.runs = []
            self.after = self._ours

    def ask_again(self) -> None:
        """What was asked for does not come: ask for it again."""
        self.state.ask_again()

    def requests(self) -> Sequence[FetchEntries | FetchChunk]:
        """Give what to ask for now."""
        if not self.state.is_whole:
            return self.state.requests()
        if self.after >= self.up_to:
            return []
        mark = self._mark if self.after == self._ours else 0
        return [FetchEntries(self.after, self.up_to, mark)]

    def start_over(self) -> None:
        """Learn that nothing we have is of use: fetch the state, and what comes after it."""
        self._ours = self.after = NOTHING
        self._mark = 0
        self.runs = []
        self.state.begin(None)

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

    def __init__(self, log: Log, snapshot: Callable[[], Chunks], bytes_max: int) -> None:
        self._log = log
        self._snapshot = snapshot
        self._bytes_max = bytes_max
        self._position = NOTHING
        self._state = ChunkDonor()
        self._origins: list[tuple[Member, int]] = []

    def forget(self) -> None:
        """Drop the offered state."""
        self._position = NOTHING
        self._state.forget()

    def answer(self, message: FetchEntries) -> Entries | StateOffer | OtherHistory:
        """Give entries above a position, or the state if they are gone."""
        log = self._log
        if message.after < log.start:
            return self._offer()
        if message.mark and message.mark != log.mark(message.after):
            return OtherHistory(message.after)
        runs = log.after(message.after, up_to=message.up_to, bytes_max=self._bytes_max)
        return Entries(message.after, runs)

    def answer_missing(
        self, message: FetchMissing, *, gives_state: bool
    ) -> Missing | StateOffer | None:
        """Give entries that are not in a set, or the state if some of them are gone."""
        log = self._log
        holds = dict(message.holds)
        if covers(holds, log.forgotten) and not message.needs_state:
            return Missing(message.serial, log.beyond(holds, bytes_max=self._bytes_max))
        return self._offer() if gives_state else None

    def ask_chunk(self, member: Member, message: FetchChunk) -> None:
        """Note who wants which chunk of the state offered, if it is still the one."""
        if message.position == self._position != NOTHING and message.index >= 0:
            self._state.ask(member, message.index)

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody wants what is not encoded yet."""
        return self._state.is_waited_for

    def ready_chunks(self) -> list[tuple[Member, StateChunk]]:
        """Give what was asked for and is encoded by now."""
        given = self._state.ready()
        if not self._state.is_offering:
            self._position = NOTHING  # the encoder failed
        return [
            (member, StateChunk(self._position, index, chunk, is_last))
            for member, index, chunk, is_last in given
        ]

    def _offer(self) -> StateOffer:
        log = self._log
        if self._position < max(log.start, 0):
            # The state offered earlier is too old by now: the entries above it are gone as well.
            self.forget()
            self._position = log.settled
            self._state.offer(self._snapshot())
            self._origins = sorted(log.origins(log.settled).items())
        return StateOffer(self._position, self._origins)
