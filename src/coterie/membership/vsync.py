"""VSYNC: partitionable virtual synchrony with extended virtual synchrony's transitional sets.

**objects** section 3.3, **transis** slides 17-23. The layer is three parts around one state:

- `Multicast`: reliable, first-in-first-out multicast in the current view;
- `ViewChange`: from one view to the next, in three steps: all stop (propose, flush), all who come
  from one view get the same packets (cut, ready), all go on (install);
- `Discovery`: views that find each other merge (alive, merge request).

It promises properties 3.3.1-3.3.6 of **objects**: a view is installed only by members that
agreed to it; ids rise along every member's life; members that go from one view to the next
together have delivered the same messages in between. It never blocks: a member that nobody
answers installs a view of itself. It does not promise that only one view exists.

Departures from the papers, and why, are in `docs/internals/papers.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.backlog import Backlog
from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Ending, Layer, Service
from coterie.kernel.records import Sent, Started, Stopped, ViewInstalled, ViewProposed
from coterie.kernel.views import NO_VIEW, ChangedConfiguration, Member, View, ViewId
from coterie.membership.change import ViewChange
from coterie.membership.discovery import Discovery
from coterie.membership.messages import (
    Ack,
    Alive,
    Cut,
    Data,
    Direct,
    Flush,
    Install,
    Leave,
    MergeRequest,
    Nak,
    Propose,
    Ready,
    Refuse,
    Removed,
    Repair,
    VsyncMessage,
)
from coterie.membership.multicast import Multicast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.layers import Context
    from coterie.kernel.views import Configuration

_decoder: Decoder[VsyncMessage] = Decoder(VsyncMessage)
decode_quickly = _decoder.decode_quickly
"""Reads one message of this layer; raises one of `DECODE_ERRORS` if it is none."""

InViewMessage = Data | Repair | Ack | Nak | Direct
_IN_VIEW = frozenset({Data, Repair, Ack, Nak, Direct})

VIEW_LEAP_MAX = 1 << 32
"""How far above all view numbers known here a real one can be: no group has had so many views."""
FIRST_LEAP_MAX = 1 << 48
"""The same for who has only just begun: where damaged words have made its group's numbers high, it
could join it no more."""

_MULTICAST_TIMERS = ("ack", "repair", "advertise")


class Vsync(Layer):
    """The bottom layer of every group-communication stack."""

    name = "VSYNC"
    gives = frozenset({Service.VIEWS, Service.RELIABLE_FIFO, Service.STABILITY})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.me = context.me
        self.highest = 0
        """The highest view number seen anywhere in the group."""
        self.departed: set[Member] = set()
        """Members of the current view known to be in no view with us any more."""
        self.has_left = False
        self.is_to_be_renewed = False
        """Whether the layers above want another view, of whomever."""
        self.change = ViewChange(self)
        self.discovery = Discovery(self)
        self.current = View(NO_VIEW, (self.me,), (NO_VIEW,), (b"",), context.configuration)
        self._repairs_itself = True
        self.multicast = self.new_multicast(self.current)
        self._backlog = Backlog(context)
        self._early: list[tuple[Member, VsyncMessage]] = []
        self._must_consider = False
        self._leave_deadline = 0

    @property
    def configuration(self) -> Configuration:
        """Who belongs to the group, as far as known here."""
        return self.context.configuration

    # ---- the replica's life

    def start(self) -> None:
        """Begin with a view of ourselves alone."""
        context = self.context
        context.report(
            Started(
                group=context.group,
                member=self.me,
                at=context.now,
                stack=self.context.stack,
                configuration=self.configuration,
                is_zombie=context.past is not None and context.past.is_zombie,
            )
        )
        if context.past is not None:
            self.highest = context.past.highest_view
            context.past = None  # with its snapshot it may be large
        alone = ViewId(self.highest + 1, self.me.id, self.me.incarnation)
        self.report_proposal(alone, (self.me,))
        self._enter(View(alone, (self.me,), (NO_VIEW,), (b"",), self.configuration))
        self.discovery.start()

    def leave(self) -> None:
        """Leave in good order: once what we sent is stable, or after a while in any case."""
        if self._leave_deadline == 0:
            self._leave_deadline = self.context.now + self.context.settings.proposer_patience
            self._try_to_leave()

    def _try_to_leave(self) -> None:
        multicast = self.multicast
        unstable = multicast.stable[multicast.rank] < multicast.received[multicast.rank]
        waiting = unstable or self._backlog or self.above.has_waiting_casts
        if waiting and self.context.now < self._leave_deadline:
            wait = self.context.settings.ack_delay
            self.context.set_timer("leave", wait, self._try_to_leave)
            return
        self._go()

    def be_gone(self) -> None:
        """Learn that the group has gone on without us for good."""
        self.context.is_removed = True
        self.context.count("vsync.removed")
        self._go()

    def renew(self) -> None:
        self.is_to_be_renewed = True
        self._must_consider = True

    def end_alone(self) -> None:
        """Deliver all that we received, as who is cut off from everybody does.

        We say nothing more in this view, so to the others it makes no difference.
        """
        multicast, above = self.multicast, self.above
        value = above.flush_value()
        self.freeze()
        rest = multicast.pass_up_rest(multicast.received)
        if rest:
            above.deliver(rest)
        alone = (self.me,)
        above.end_view(Ending(self.current.id, alone, list(multicast.stable), {self.me: value}))

    def _go(self) -> None:
        self.above.leaving()
        self.send(self.multicast.others, Leave(self.current.id))
        self.has_left = True
        self.multicast.is_frozen = True
        self.context.report(Stopped(group=self.context.group, member=self.me, at=self.context.now))

    # ---- downwards

    def cast(self, payloads: Sequence[bytes], *, safe: bool = False, mark: int = 0) -> int:
        # Without an order there is no safe delivery; VSYNC alone delivers as things arrive.
        del safe
        return self._backlog.add(payloads, safe=False, mark=mark)

    @property
    def can_cast(self) -> bool:
        return not self.multicast.is_frozen and self.multicast.has_room

    @property
    def is_stopped(self) -> bool:
        return self.multicast.is_frozen

    def cast_packet(  # noqa: PLR0913 -- the parts of a packet
        self,
        header: bytes,
        first: int,
        payloads: list[bytes],
        *,
        safe: bool,
        urgent: bool,
        parsed: object = None,
    ) -> None:
        if parsed is None:
            parsed = self.above.parse(header)
        batch = self.multicast.send(first, header, parsed, payloads, urgent=urgent)
        context = self.context
        if context.recording and payloads:
            context.report(
                Sent(
                    group=context.group,
                    member=self.me,
                    at=context.now,
                    view=self.current.id,
                    first=first,
                    count=len(payloads),
                    safe=safe,
                    digest=batch.digest,
                )
            )
        self.above.deliver([batch])

    def send_direct(self, members: Sequence[Member], body: bytes) -> None:
        if not self.multicast.is_frozen and members:
            self.context.send([member.id for member in members], Direct(self.current.id, body))

    @property
    def stable(self) -> Sequence[int]:
        return self.multicast.stable

    @property
    def received(self) -> Sequence[int]:
        return self.multicast.received

    def missing(self) -> list[tuple[int, int, int]]:
        return self.multicast.missing()

    def learn_sent(self, sent: Sequence[int]) -> None:
        self.multicast.learn_sent(sent)

    def repair(self, rank: int, first: int, last: int) -> bool:
        members = self.current.members
        origin = members[rank].id if 0 <= rank < len(members) else ""
        everyone_else = [id for id in self.multicast.others if id != origin]
        return self.multicast.repair(everyone_else, rank, first, last)

    def carry_repairs(self) -> None:
        self._repairs_itself = False

    def finish_turn(self) -> None:
        if self.has_left:
            return
        if self._backlog.casts:
            for _, first, payloads, mark in self._backlog.packets(lambda: self.can_cast):
                header = bytes([mark]) if mark else b""
                self.cast_packet(header, first, payloads, safe=False, urgent=False)
        if self._must_consider:
            self._must_consider = False
            self.change.consider()
        self.multicast.send_acks()

    def is_calm(self) -> bool:
        """Say whether at the end of this turn only acknowledgements can be due."""
        return not (
            self._must_consider or self._backlog.casts or self.has_left or self.multicast.is_frozen
        )

    # ---- upwards

    decode = staticmethod(_decoder.decode)
    """Reads one message of this layer."""

    def receive(self, sender: Member, message: VsyncMessage) -> None:  # noqa: C901, PLR0912 -- a table
        """Take one message."""
        if self._is_too_high(message.view):
            raise BadMessage("a view number that no group comes to")
        if self.has_left:
            # Whoever still counts on us should know better.
            if not isinstance(message, Alive | Leave):
                self.send([sender.id], Leave(message.view))
            return
        if type(message) in _IN_VIEW:  # nearly all are; a pattern for each would cost more
            self._receive_in_view(sender, message)  # type: ignore[arg-type]
            return
        match message:
            case Alive():
                self.discovery.on_alive(sender, message)
            case MergeRequest():
                self.discovery.on_merge_request(sender, message)
            case Propose():
                self.change.on_propose(sender, message)
            case Refuse():
                self.change.on_refuse(sender, message)
            case Flush():
                self.change.on_flush(sender, message)
            case Cut():
                self.change.on_cut(sender, message)
            case Ready():
                self.change.on_ready(sender, message)
            case Install():
                self.change.on_install(sender, message)
            case Leave():
                self.note_departed([sender])
                self.change.on_leave(sender)
            case Removed(configuration=configuration):
                is_news = configuration.number > self.configuration.number
                everyone = configuration.everyone
                is_theirs = sender.id in everyone and self.me.id not in everyone
                if is_news and is_theirs and self.me.id in configuration.gone:
                    self.be_gone()

    def hear_stranger(self, sender: Member, message: VsyncMessage) -> None:
        """Take what a process says that ours does not know.

        It may be a member of a later configuration, if we were away; or a former one, which was
        away when it was removed and is to know.
        """
        if self._is_too_high(message.view) or self.has_left:
            return
        configuration = self.configuration
        if sender.id in configuration.gone:
            if isinstance(message, Alive) and isinstance(configuration, ChangedConfiguration):
                self.send([sender.id], Removed(message.view, configuration))
        elif isinstance(message, Alive):
            self.above.alive_heard(message.value)

    def _receive_in_view(self, sender: Member, message: InViewMessage) -> None:
        if message.view != self.current.id:
            self._keep_for_later(sender, message)
            return
        rank = self.multicast.ranks.get(sender)
        if rank is None:
            self.context.count("vsync.from_outside_the_view")
            return
        # Not a table of patterns: nearly all are of the first three kinds.
        if isinstance(message, Direct):
            if not self.multicast.is_frozen:
                self.above.receive_direct(sender, message.body)
        elif isinstance(message, Data):
            multicast = self.multicast
            self._take_packet(rank, message)
            # The packet may have completed a cut and ended its view: then its vector is
            # of no use, and must not be taken for one of the next view.
            if self.multicast is multicast:
                self._learn_received(rank, message.received)
                multicast.is_urgent |= message.is_urgent
        elif isinstance(message, Ack):
            self._learn_received(rank, message.received)
            if message.wants_answer:
                self.multicast.answer(sender.id)
        elif isinstance(message, Repair):
            self._take_packet(message.rank, message)
        else:
            self._answer_nak(sender, message)

    def _answer_nak(self, sender: Member, message: Nak) -> None:
        for rank, first, last in message.wanted[: self.context.settings.repair_packets_max]:
            self.multicast.repair([sender.id], rank, first, last)

    def _learn_received(self, rank: int, received: Sequence[int]) -> None:
        if self.multicast.on_received_vector(rank, received):
            self.above.stability_rose()

    def _take_packet(self, rank: int, packet: Data | Repair) -> None:
        multicast = self.multicast
        if not 0 <= rank < len(self.current.members) or rank == multicast.rank:
            self.context.count("vsync.bad_packets")
            return
        parsed = self.above.parse(packet.header)
        number, first, payloads = packet.number, packet.first, packet.payloads
        if multicast.is_next(rank, number):
            batch = multicast.take_next(rank, number, first, packet.header, parsed, payloads)
            self.above.deliver([batch])
            return
        multicast.take(rank, number, first, packet.header, parsed, payloads)
        if multicast.is_frozen:
            self.change.packets_arrived()
            return
        batches = multicast.pass_up(rank)
        if batches:
            self.above.deliver(batches)

    def _keep_for_later(self, sender: Member, message: InViewMessage) -> None:
        """Keep messages of the view we are about to install; others may be there already."""
        room = len(self._early) < self.context.settings.early_packets_max
        if self.change.is_changing and message.view == self.change.promised and room:
            self._early.append((sender, message))
        else:
            self.context.count("vsync.of_another_view")

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """Look at the view again when the failure detector changed its mind."""
        self.note_departed([member for member in self.current.members if member.id in restarted])
        self.discovery.greet_new()
        self._must_consider = True

    # ---- what the parts share

    def send(self, replicas: Sequence[str], message: VsyncMessage) -> None:
        """Send to other replicas of the group."""
        if replicas:
            self.context.send(replicas, message)

    def consider_soon(self) -> None:
        """Look at the end of this turn whether the view must change."""
        self._must_consider = True

    def note_departed(self, members: Sequence[Member]) -> None:
        """Learn that members of our view are not in it any more."""
        for member in members:
            if member != self.me and member in self.current.members:
                self.departed.add(member)
                self._must_consider = True

    def note_number(self, view: ViewId) -> None:
        """Learn of a view number, so that the next one proposed here is higher."""
        if self._is_too_high(view):
            raise BadMessage("a view number that no group comes to")
        self.highest = max(self.highest, view.number)

    def _is_too_high(self, view: ViewId) -> bool:
        """Say whether no group has come to a view number."""
        highest = self.highest
        return view.number > highest + VIEW_LEAP_MAX and (
            highest > 1 or view.number > FIRST_LEAP_MAX
        )

    def is_with_us(self, member: Member) -> bool:
        """Say whether a member of the current view still seems to be in it."""
        if member == self.me:
            return True
        is_ours = member.id in self.configuration.everyone
        return is_ours and member not in self.departed and self.context.reaches(member.id)

    def _give_up_on(self, member: Member) -> None:
        self.discovery.shun(member)
        self.note_departed([member])

    def freeze(self) -> None:
        """Stop in the current view, for good."""
        self.multicast.is_frozen = True

    def report_proposal(self, view: ViewId, members: tuple[Member, ...]) -> None:
        """Put on record that we proposed a view."""
        context = self.context
        context.report(
            ViewProposed(
                group=context.group,
                member=self.me,
                at=context.now,
                view=view,
                members=members,
                after=self.current.id,
            )
        )

    def install(self, message: Install) -> None:
        """Deliver what is left of the old view, then go on in the new one."""
        rest = self.multicast.pass_up_rest(message.cut)
        if rest:
            self.above.deliver(rest)
        view = View(
            message.view,
            message.members,
            message.previous,
            message.values,
            message.configuration,
        )
        transitional = view.came_along(self.me)
        values = {member: view.values[view.rank(member)] for member in transitional}
        self.above.end_view(Ending(self.current.id, transitional, message.stable, values))
        self._enter(view)
        early, self._early = self._early, []
        for sender, kept in early:
            self.receive(sender, kept)

    def new_multicast(self, view: View) -> Multicast:
        """Begin the multicast of a view."""
        return Multicast(
            self.context,
            view.id,
            view.members,
            repairs_itself=self._repairs_itself,
            give_up_on=self._give_up_on,
        )

    def _enter(self, view: View) -> None:
        context = self.context
        previous = self.current.id
        self.current = view
        self.note_number(view.id)
        self.departed.clear()
        self.is_to_be_renewed = False
        for timer in _MULTICAST_TIMERS:
            context.cancel_timer(timer)
        self.multicast = self.new_multicast(view)
        context.count("vsync.views")
        context.report(
            ViewInstalled(
                group=context.group,
                member=self.me,
                at=context.now,
                view=view.id,
                members=view.members,
                previous=previous,
                transitional=view.came_along(self.me),
            )
        )
        self._must_consider = True
        self.above.view(view)
