"""Bringing a cohort up to date: what it missed if the primary still has it, else the whole state.

The cohort asks, and asks again until it has everything; the primary only answers. So nothing is
remembered at the primary but the last state it offered, and any loss is repaired the same way.
The events in between may belong to several views: the history in `NewView` says how many each had.
A whole state is staged: the old one stays until the last chunk is here.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from coterie.kernel.errors import BadMessage
from coterie.kernel.records import StateTaken
from coterie.kernel.views import Viewstamp
from coterie.vsr.log import covers
from coterie.vsr.messages import (
    Events,
    FetchChunks,
    FetchEvents,
    StateChunk,
    StateOffer,
)

if TYPE_CHECKING:
    from coterie.kernel.views import Member, ViewId
    from coterie.vsr.cohort import Cohort
    from coterie.vsr.messages import CohortView

_FETCH = "vsr fetch"
_OFFER = "vsr offer"
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
        self._offer: StateOffer | None = None
        self._chunks: dict[int, bytes] = {}

    def is_from(self, sender: Member, view: ViewId) -> bool:
        """Say whether a message belongs to this way."""
        return view == self._view.id and sender == self._view.primary

    def begin(self) -> None:
        """Find out what is missing, and ask for it."""
        if self._is_there():
            return
        self._ask()

    def take(self, message: Events | StateOffer | StateChunk) -> None:
        """Take an answer of the primary."""
        cohort = self._cohort
        match message:
            case StateOffer(history=history, chunks=chunks):
                if not history or not 0 < chunks <= _CHUNKS_MAX:
                    raise BadMessage("no state looks like this")
                # A late offer may be older than what is known, and perhaps acknowledged, here.
                is_news = not self._can_follow() or history[-1] > cohort.log.last
                is_other = self._offer is None or self._offer.serial != message.serial
                if is_news and is_other:
                    self._offer = message
                    self._chunks = {}
                    self._ask()
            case Events():
                if not self._can_follow():
                    return
                before = cohort.log.last
                cohort.learn(message)
                self._step()
                if cohort.log.last != before:
                    cohort.progressed()
                    if not self._is_there():
                        self._ask()
            case StateChunk():
                self._on_chunk(message)

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
            missing = next(index for index in count() if index not in self._chunks)
            message = FetchChunks(view, self._offer.serial, missing)
        else:
            message = FetchEvents(view, self._cohort.log.last if self._can_follow() else None)
        self._context.send([primary], message)
        self._context.set_timer(_FETCH, self._cohort.settings.resend, self._ask_again)

    def _ask_again(self) -> None:
        if self._cohort.is_catching_up(self):
            self._ask()

    def _on_chunk(self, message: StateChunk) -> None:
        offer = self._offer
        if offer is None or message.serial != offer.serial or message.index in self._chunks:
            return
        if not 0 <= message.index < offer.chunks:
            raise BadMessage("a chunk of a state that has no such chunk")
        self._chunks[message.index] = message.chunk
        self._cohort.progressed()
        if len(self._chunks) < offer.chunks:
            if (message.index + 1) % self._cohort.settings.chunks_ahead == 0:
                self._ask()
            return
        cohort = self._cohort
        chunks = [self._chunks[index] for index in range(offer.chunks)]
        # If it turns out to be no state, the next question is for another offer.
        self._offer = None
        self._chunks = {}
        cohort.module.restore(chunks)
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


class Donor:
    """What a primary answers to cohorts that catch up."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._context = cohort.context
        self._offer: StateOffer | None = None
        self._chunks: list[bytes] = []
        self._serial = 0

    def close(self) -> None:
        """Offer nothing any more."""
        self._offer = None
        self._chunks = []
        self._context.cancel_timer(_OFFER)

    def answer(self, sender: Member, message: FetchEvents | FetchChunks) -> None:
        """Answer one question."""
        if isinstance(message, FetchChunks):
            self._send_chunks(sender, message)
            return
        cohort = self._cohort
        spans = None
        if message.after is not None:
            packet = cohort.settings.packet_bytes_max
            spans = cohort.log.after(message.after, bytes_max=packet)
        if spans is None:
            self._context.send([sender.id], self._make_offer())
            return
        for span in spans:
            events = Events(cohort.cur_viewid, span.view, span.first, span.events)
            self._context.send([sender.id], events)

    def _send_chunks(self, sender: Member, message: FetchChunks) -> None:
        offer = self._offer
        if offer is None or offer.serial != message.serial:
            self._context.send([sender.id], self._make_offer())
            return
        if not 0 <= message.index < offer.chunks:
            raise BadMessage("the state that was offered has no such chunk")
        self._keep()
        ahead = self._cohort.settings.chunks_ahead
        end = min(message.index - message.index % ahead + ahead, offer.chunks)
        for index in range(message.index, end):
            chunk = StateChunk(offer.view, offer.serial, index, self._chunks[index])
            self._context.send([sender.id], chunk)

    def _make_offer(self) -> StateOffer:
        """Offer the present state, or one offered before from which events lead on."""
        cohort, offer = self._cohort, self._offer
        if offer is None or cohort.log.after(offer.history[-1], bytes_max=1) is None:
            self._serial += 1
            self._chunks = list(cohort.module.snapshot()) or [b""]
            history = tuple(cohort.log.history)
            offer = StateOffer(cohort.cur_viewid, self._serial, history, len(self._chunks))
            self._offer = offer
        self._keep()
        return offer

    def _keep(self) -> None:
        self._context.set_timer(_OFFER, self._cohort.settings.offer_lasts, self.close)
