"""Bringing a cohort up to date: what it missed if the primary still has it, else the whole state.

The cohort asks, and asks again until it has everything; the primary only answers. So nothing is
remembered at the primary but the last state it offered, and any loss is repaired the same way.
The events in between may belong to several views: the history in `NewView` says how many each had.
A whole state is staged: the old one stays until the last chunk is here. It may be encoded elsewhere
while the primary goes on: then an offer does not say yet how many chunks there are, those that are
encoded are sent as they come, and the offer is made again, with their number, when it is known. It
is also the answer to whoever asks meanwhile, so that nobody loses patience with a large state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import BadMessage
from coterie.kernel.records import StateTaken
from coterie.kernel.transfer import ENCODER_POLL, ChunkDonor, StagedState
from coterie.kernel.views import Viewstamp
from coterie.vsr.views.log import covers
from coterie.vsr.views.messages import (
    CohortStateChunk,
    CohortStateOffer,
    FetchChunks,
    FetchEvents,
    NewEvents,
)

if TYPE_CHECKING:
    from coterie.kernel.views import Member, ViewId
    from coterie.vsr.views.cohort import Cohort
    from coterie.vsr.views.messages import CohortView

_FETCH = "vsr fetch"
_OFFER = "vsr offer"
_ENCODE = "vsr encode"
_CHUNKS_MAX = 1 << 20
"""No state has more chunks."""


class CatchUp:
    """One cohort's way into a view, or back to the front of it."""

    def __init__(
        self, cohort: Cohort, view: CohortView, history: tuple[Viewstamp, ...], *, up_to: int
    ) -> None:
        self._cohort = cohort
        self._context = cohort.context
        self._view = view
        self._history = history
        self._up_to = up_to
        """How many events of the view have to be known before this is over."""
        self._offer: CohortStateOffer | None = None
        self._staged = StagedState()

    def is_from(self, sender: Member, view: ViewId) -> bool:
        """Say whether a message belongs to this way."""
        return view == self._view.id and sender == self._view.primary

    def begin(self) -> None:
        """Find out what is missing, and ask for it."""
        if self._is_there():
            return
        self._ask()

    def take(self, message: NewEvents | CohortStateOffer | CohortStateChunk) -> None:
        """Take an answer of the primary."""
        cohort = self._cohort
        match message:
            case CohortStateOffer(history=history, chunks=chunks):
                # Who leads a view has begun it: its history ends there.
                is_of_view = bool(history) and history[-1].view == self._view.id
                if not is_of_view or not 0 <= chunks <= _CHUNKS_MAX:
                    raise BadMessage("no state looks like this")
                if self._offer is not None and self._offer.serial == message.serial:
                    self._on_same_offer(chunks)
                    return
                # A late offer may be older than what is known, and perhaps acknowledged, here.
                is_news = not self._can_follow() or history[-1] > cohort.log.last
                if is_news:
                    self._offer = message
                    self._staged.begin_anew(chunks or None)
                    self._ask()
            case NewEvents():
                if self._can_follow():
                    self._on_events(message)
            case CohortStateChunk():
                self._on_chunk(message)

    def _on_events(self, message: NewEvents) -> None:
        cohort = self._cohort
        before = cohort.log.last
        cohort.learn(message)
        self._step()
        is_all = message.of == self._view.id and not message.events
        if is_all:
            # There is no more: who spoke of more was damaged, and it would never come.
            self._up_to = min(self._up_to, message.first - 1)
        if cohort.log.last != before:
            cohort.progressed()
        if (is_all or cohort.log.last != before) and not self._is_there():
            self._ask()

    def _step(self) -> None:
        if self._cohort.up_to_date:
            self._cohort.log.step_into(self._history)

    def _can_follow(self) -> bool:
        """Whether what is known here is a beginning of the primary's history."""
        last = self._cohort.log.last
        is_covered = last.view == self._view.id or covers(self._history, last)
        return self._cohort.up_to_date and is_covered

    def _is_there(self) -> bool:
        """Whether the initial state of the view is here; if so, say it."""
        self._step()
        cohort = self._cohort
        if not cohort.up_to_date or cohort.log.last < Viewstamp(self._view.id, self._up_to):
            return False
        self._context.cancel_timer(_FETCH)
        cohort.done_catching_up()
        cohort.caught_up(self._view)
        return True

    def _ask(self) -> None:
        """Ask for what comes next, and again while there is no answer."""
        view, primary = self._view.id, self._view.primary.id
        message: FetchChunks | FetchEvents
        if self._offer is not None:
            message = FetchChunks(view, self._offer.serial, self._staged.first_missing())
        else:
            message = FetchEvents(view, self._cohort.log.last if self._can_follow() else None)
        self._context.send([primary], message)
        self._context.set_timer(_FETCH, self._cohort.settings.resend, self._ask_again)

    def _ask_again(self) -> None:
        if self._cohort.is_catching_up(self):
            self._ask()

    def _on_same_offer(self, chunks: int) -> None:
        """Learn how many chunks there are, or that the primary is still at it."""
        staged = self._staged
        if staged.count is not None:
            return
        self._cohort.progressed()
        if chunks:
            if staged.last >= chunks:
                raise BadMessage("a state of fewer chunks than have come")
            staged.count = chunks
            self._restore_if_whole()

    def _on_chunk(self, message: CohortStateChunk) -> None:
        offer, staged = self._offer, self._staged
        if offer is None or message.serial != offer.serial or message.index in staged:
            return
        if not 0 <= message.index < (staged.count or _CHUNKS_MAX):
            raise BadMessage("a chunk of a state that has no such chunk")
        staged.add(message.index, message.chunk)
        self._cohort.progressed()
        if not self._restore_if_whole() and (
            (message.index + 1) % self._cohort.settings.chunks_ahead == 0
        ):
            self._ask()

    def _restore_if_whole(self) -> bool:
        """Take the state over if all of it is here; say whether it was."""
        offer, staged, cohort = self._offer, self._staged, self._cohort
        if offer is None or not staged.is_whole:
            return False
        chunks = list(staged.chunks())
        # If it turns out to be no state, the next question is for another offer.
        self._offer = None
        staged.begin_anew()
        cohort.members.restore(chunks, offer.history[-1])
        cohort.log.adopt(offer.history)
        cohort.up_to_date = True
        cohort.report(
            StateTaken,
            view=self._view.id,
            source=self._view.primary,
            history=offer.history,
        )
        if not self._is_there():
            self._ask()
        return True


class CohortDonor:
    """What a primary answers to cohorts that catch up."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._context = cohort.context
        self._state = ChunkDonor()
        self._history: tuple[Viewstamp, ...] = ()
        """What the offered state reflects."""
        self._serial = 0
        self._untold: dict[Member, None] = {}
        """Who was offered the state before it was known how many chunks it has."""

    def close(self) -> None:
        """Offer nothing any more."""
        self._state.forget()
        self._untold.clear()
        self._context.cancel_timer(_OFFER)
        self._context.cancel_timer(_ENCODE)

    def answer(self, sender: Member, message: FetchEvents | FetchChunks) -> None:
        """Answer one question."""
        if isinstance(message, FetchChunks):
            self._answer_chunks(sender, message)
            return
        cohort = self._cohort
        spans = None
        if message.after is not None:
            packet = cohort.settings.packet_bytes_max
            spans = cohort.log.after(message.after, bytes_max=packet)
        if spans is None:
            self._offer_state(sender)
            return
        view = cohort.cur_viewid
        for span in spans:
            events = NewEvents(view, span.view, span.first, span.events)
            self._context.send([sender.id], events)
        if message.after == cohort.log.last:
            self._context.send([sender.id], NewEvents(view, view, message.after.number + 1, []))

    def _answer_chunks(self, sender: Member, message: FetchChunks) -> None:
        state = self._state
        if not state.is_offering or self._serial != message.serial:
            self._offer_state(sender)
            return
        self._keep()
        count = state.count
        if message.index == count:
            self._tell(sender)  # it has them all, and did not know
            return
        if not 0 <= message.index < (count or _CHUNKS_MAX):
            raise BadMessage("the state that was offered has no such chunk")
        ahead = self._cohort.settings.chunks_ahead
        end = message.index - message.index % ahead + ahead
        for index in range(message.index, end if count is None else min(end, count)):
            state.ask(sender, index)
        if sender not in self._give() and count is None:
            self._tell(sender)  # that it is being encoded

    def _give(self) -> set[Member]:
        """Send what was asked for and is encoded; say who got something."""
        given = self._state.ready()
        view = self._cohort.cur_viewid
        for member, index, chunk, _ in given:
            self._context.send([member.id], CohortStateChunk(view, self._serial, index, chunk))
        if not self._state.is_offering:
            self._untold.clear()  # the encoder failed, and they will ask again
        elif self._state.count is not None:
            untold, self._untold = self._untold, {}
            for member in untold:
                self._tell(member)
        if self._untold:
            self._context.set_timer(_ENCODE, ENCODER_POLL, self._give_more)
        return {each.member for each in given}

    def _give_more(self) -> None:
        self._give()

    def _offer_state(self, member: Member) -> None:
        """Offer the present state, or one offered before from which events lead on."""
        cohort, state = self._cohort, self._state
        if not state.is_offering or cohort.log.after(self._history[-1], bytes_max=1) is None:
            self._serial += 1
            self._untold.clear()
            state.offer(cohort.members.snapshot())
            self._history = tuple(cohort.log.history)
        state.encode_more()
        self._keep()
        self._tell(member)

    def _tell(self, member: Member) -> None:
        """Say what is offered, and how many chunks it has if that is known."""
        count = self._state.count
        if count is None:
            self._untold[member] = None
            self._context.set_timer(_ENCODE, ENCODER_POLL, self._give_more)
        offer = CohortStateOffer(self._cohort.cur_viewid, self._serial, self._history, count or 0)
        self._context.send([member.id], offer)

    def _keep(self) -> None:
        self._context.set_timer(_OFFER, self._cohort.settings.offer_lasts, self.close)
