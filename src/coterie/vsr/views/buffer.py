"""The communication buffer of a primary (section 3).

`add` gives an event the next timestamp of the view and has it sent to the backups in the
background, in order; `force_to` says when a sub-majority of backups, and so with the primary a
majority of the configuration, knows everything up to a viewstamp.

Sending is by cumulative acknowledgement: each turn sends a backup what it was not sent yet, within
a window; what is not acknowledged for a while is sent again from the last acknowledgement on.

**Departure.** In the paper `force_to` returns at once for a viewstamp of an earlier view, because
the new view's initial state reflects it. But that state may be known to the new primary alone, and
then it is not safe yet: a majority that never heard of the view could form the next one without
it. So here such a force waits until a sub-majority has the view's initial state (number 0).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from coterie.kernel.errors import BacklogFull, BadMessage
from coterie.kernel.records import Forced
from coterie.kernel.views import Viewstamp
from coterie.vsr.views.messages import NewEvents, NewView

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.views import Member, ReplicaId
    from coterie.vsr.views.cohort import Cohort
    from coterie.vsr.views.messages import AckEvents, CohortView

_RESEND = "vsr buffer"


class Buffer:
    """The events of one view at its primary, on their way to the backups."""

    def __init__(self, cohort: Cohort, view: CohortView) -> None:
        self._cohort = cohort
        self._context = cohort.context
        self._settings = cohort.settings
        self._log = cohort.log
        self.view = view
        self.initial_history = tuple(self._log.history)
        self.forced = -1
        """A majority knows the view's events up to this number; -1: not even its initial state."""
        self._acked: dict[ReplicaId, int] = {}
        self._lives: dict[ReplicaId, Member] = {}
        self._sent: dict[ReplicaId, int] = {}
        self._acked_before: dict[ReplicaId, int] = {}
        """What each had acknowledged when it was looked at last."""
        self._changes = 0
        """How often the members of the view have changed."""
        self._heard: dict[ReplicaId, int] = {}
        """Of how many of these changes each has heard."""
        self._unforced_bytes = 0
        self._sizes: dict[int, int] = {}
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._is_alone = False
        """Whether what this primary knows is forced at once."""
        self.members_changed()

    def open(self) -> None:
        """Announce the view."""
        self._log.keep_above(Viewstamp(self.view.id, 0))
        self._announce(self._others())
        self._count_acks()
        self._resend_later()
        self._cohort.members.tell_gone()

    def members_changed(self) -> None:
        """Learn that others have to know events, or are to be told."""
        configuration = self._cohort.members.now
        self._is_alone = configuration.is_quorum({self._context.me.id})
        for id in [id for id in self._lives if id in configuration.gone]:
            self.forget(id)
        self._resend_later()

    def resume(self) -> None:
        """Learn that somebody may be in reach again."""
        self._resend_later()

    def close(self) -> None:
        """Stop: what was not forced by now, this primary will never know."""
        self._context.cancel_timer(_RESEND)
        self._waiting.clear()
        self._log.keep_above(None)

    # ---- what the module asks for

    @property
    def is_full(self) -> bool:
        """Whether too much waits for a sub-majority, so that new work must be refused."""
        return self._unforced_bytes > self._settings.buffer_bytes_max

    def check_room(self) -> None:
        """Raise `BacklogFull` if new work must be refused."""
        if self.is_full:
            raise BacklogFull(
                "too many events wait for the backups of this group (buffer_bytes_max): try again"
            )

    def added(self, number: int, size: int) -> None:
        """Learn that the log has a new event."""
        self._sizes[number] = size
        self._unforced_bytes += size
        if self._is_alone:
            self._count_acks()

    def force_to(self, viewstamp: Viewstamp, then: Callable[[], None]) -> None:
        """Call *then* once a majority knows everything up to *viewstamp*; never, if the view ends.

        *then* may be called at once.
        """
        number = viewstamp.number if viewstamp.view == self.view.id else 0
        assert number <= self._log.last.number, "only what was added can be forced"
        if number <= self.forced:
            then()
            return
        self._serial += 1
        heapq.heappush(self._waiting, (number, self._serial, then))

    # ---- backups

    @property
    def backups(self) -> list[Member]:
        """The cohorts that have acknowledged anything in this view."""
        return list(self._lives.values())

    def knows_all(self, id: ReplicaId) -> bool:
        """Say whether a backup has acknowledged every event."""
        return self._acked.get(id, -1) == self._log.last.number

    def knows_nearly_all(self, id: ReplicaId) -> bool:
        """Say whether a backup has the state, and is not far behind."""
        acked = self._acked.get(id, -1)
        return acked >= 0 and self._log.last.number - acked <= self._settings.window_events

    def on_ack(self, sender: Member, message: AckEvents) -> None:
        """Take an acknowledgement."""
        id = sender.id
        known = self._lives.get(id)
        if known != sender:
            # A new life of a backup knows nothing of what the earlier one acknowledged.
            self._lives[id] = sender
            self._acked[id] = -1
        if sender not in self._cohort.cur_view.members:
            self._cohort.include(sender)
        if message.number > self._log.last.number:
            # It has heard, in this view's name, what this primary does not know that it said. What
            # follows it would take for that; only in another view are the two of one mind again.
            self._cohort.manage()
            raise BadMessage("an acknowledgement of events that there are not")
        self._heard[id] = self._changes if message.changes < 0 else message.changes
        if self._heard[id] < self._changes:
            self._resend_later()
        if self._acked[id] < message.number:
            self._acked[id] = message.number
            self._sent[id] = max(self._sent.get(id, 0), message.number)
            self._count_acks()

    def forget(self, id: ReplicaId) -> None:
        """Learn that a cohort is a new life, or out of reach: it has to be told of the view."""
        self._lives.pop(id, None)
        self._acked.pop(id, None)
        self._sent.pop(id, None)
        self._acked_before.pop(id, None)
        self._heard.pop(id, None)

    def _count_acks(self) -> None:
        number = self._cohort.members.agreed(self._acked, self._log.last.number)
        if number <= self.forced:
            return
        for each in range(max(self.forced, 0) + 1, number + 1):
            self._unforced_bytes -= self._sizes.pop(each)
        self.forced = number
        self._log.keep_above(Viewstamp(self.view.id, number))
        self._cohort.report(Forced, view=self.view.id, number=number)
        while self._waiting and self._waiting[0][0] <= self.forced:
            heapq.heappop(self._waiting)[2]()
        self._cohort.members.forced_rose()

    # ---- sending

    def _others(self) -> list[ReplicaId]:
        mine = self._context.me.id
        now = self._cohort.members.now
        return [id for id in now.everyone if id != mine]

    def _announce(self, ids: list[ReplicaId]) -> None:
        # The view may have got or lost members meanwhile; what it began with stays.
        cohort = self._cohort
        news, counted = cohort.members.told(), cohort.members.counted
        message = NewView(cohort.cur_view, self.initial_history, self._changes, news, counted)
        self._context.send(ids, message)

    def tell_members(self) -> None:
        """Tell the backups who is in the view now, until they have heard it.

        No event depends on their knowing it; but what they say of their group does.
        """
        self._changes += 1
        self._resend_later()
        self._announce([id for id in self._lives if self._context.reaches(id)])

    def push(self) -> None:
        """Send every backup in the view what it was not sent yet."""
        last = self._log.last.number
        together: dict[int, list[ReplicaId]] = {}
        for id in self._acked:
            if (sent := self._sent.get(id, 0)) < last and self._context.reaches(id):
                together.setdefault(sent, []).append(id)
        for sent, ids in together.items():
            self._send_after(sent, ids)

    def _send_after(self, number: int, ids: list[ReplicaId]) -> None:
        """Send events above *number* to backups that have all been sent what is below."""
        of = self.view.id
        # Whoever has much on the way gets more when it acknowledges.
        window = self._settings.window_events
        ids = [id for id in ids if number - self._acked[id] < window]
        if not ids:
            return
        start = Viewstamp(of, number)
        for span in self._log.after(start, bytes_max=self._settings.packet_bytes_max) or ():
            self._context.send(ids, NewEvents(of, span.view, span.first, span.events, self.forced))
            number = span.last.number
        for id in ids:
            self._sent[id] = number
        self._resend_later()

    def _resend_later(self) -> None:
        if not self._context.timer_is_set(_RESEND):
            self._context.set_timer(_RESEND, self._settings.resend, self._resend)

    def _resend(self) -> None:
        """Go back to the last acknowledgement of who has not said anything since."""
        behind = False
        last = self._log.last.number
        for id in self._others():
            if not self._context.reaches(id):
                if self._cohort.members.told() is not None:
                    # It may have been away while the members changed, and know nobody by now.
                    self._announce([id])
                    behind = True
                continue
            acked = self._acked.get(id, -1)
            if acked < 0 or self._heard[id] < self._changes:
                self._announce([id])
                behind = True
            if 0 <= acked < last:
                behind = True
                if acked > self._acked_before.get(id, -1):
                    self._acked_before[id] = acked
                    continue
                self._sent[id] = acked
                if self._log.after(Viewstamp(self.view.id, acked), bytes_max=1) is None:
                    # It will see that it missed something, and fetch it.
                    self._context.send(
                        [id], NewEvents(self.view.id, self.view.id, last + 1, [], self.forced)
                    )
                    self._sent[id] = last
        if behind:
            self._resend_later()
        self.push()
