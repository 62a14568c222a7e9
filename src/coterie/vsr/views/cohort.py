"""A cohort: one replica of a module group, and its part in views (**vsr** section 4, figure 5).

A cohort is *active* in a view, or *view manager* (it has invited the others to a new view), or an
*underling* (it has accepted an invitation, and waits). Names are the paper's: `cur_view`,
`max_viewid`, `up_to_date`.

Decisions where the paper leaves room (4.1), and departures from it:

- `max_viewid` is on stable storage before an invitation or an acceptance leaves (design 10 f).
- A view change happens when the primary is lost. A primary takes cohorts that come back into its
  view, and leaves out those that are gone, by itself; one that has lost its majority stops
  serving, and serves again if the majority comes back before a view change.
- A cohort cut off from a primary that others still hear, a majority in all, changes nothing
  (`primary_monitor.py`).
- A cohort that has just started waits a while to be taken in before it invites others.
- Whoever has promised a higher view than the one it is told of says so, and the primary then
  forms a new view itself: one round, and nothing is lost.
- `newview` does not carry the state: the cohort fetches what it misses (`catch_up.py`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

import msgspec
from msgspec.structs import replace

from coterie.kernel.configuration import changed
from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import BadMessage
from coterie.kernel.records import (
    EventsKnown,
    InvitationAccepted,
    MembersChanged,
    Started,
    ViewStarted,
)
from coterie.kernel.views import NO_VIEW, Viewstamp
from coterie.vsr.views.buffer import Buffer
from coterie.vsr.views.catch_up import CatchUp, CohortDonor
from coterie.vsr.views.formation import Response
from coterie.vsr.views.hand_over import HandOver
from coterie.vsr.views.history import CohortHistory
from coterie.vsr.views.log import EventLog
from coterie.vsr.views.manager import Manager
from coterie.vsr.views.members import CohortMembers
from coterie.vsr.views.messages import (
    MODULE_TAGS,
    AcceptInvitation,
    AckEvents,
    CohortMessage,
    CohortStateChunk,
    CohortStateOffer,
    CohortView,
    Declined,
    FetchChunks,
    FetchEvents,
    InitView,
    Invite,
    NewEvents,
    NewView,
    NoMember,
    Superseded,
    WhoBelongs,
)
from coterie.vsr.views.primary_monitor import PrimaryMonitor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.clock import Duration
    from coterie.kernel.layers import Context
    from coterie.kernel.records import Record
    from coterie.kernel.views import Member, ReplicaAddresses, ReplicaId, ViewId
    from coterie.vsr.settings import VsrSettings
    from coterie.vsr.views.module import CohortPast, Module

_AWAIT = "vsr await"

_decoder: Decoder[CohortMessage] = Decoder(CohortMessage)
_KINDS = frozenset(get_args(CohortMessage))


class CohortStatus(enum.Enum):
    """What a cohort is doing (figure 1)."""

    ACTIVE = "active"
    VIEW_MANAGER = "view manager"
    UNDERLING = "underling"


class Cohort(CohortHistory):
    """One replica of a group; `Replica` has it as its bottom."""

    name = "VSR"
    manager_kind: ClassVar[type[Manager]] = Manager
    buffer_kind: ClassVar[type[Buffer]] = Buffer
    members_kind: ClassVar[type[CohortMembers]] = CohortMembers

    def __init__(
        self, context: Context, module: Module, *, memory: CohortPast, settings: VsrSettings
    ) -> None:
        super().__init__(context)
        self.me = context.me
        self.settings = settings
        self.module = module
        self.has_left = False
        self.status = CohortStatus.UNDERLING
        self.log = EventLog(bytes_max=settings.log_bytes, views_max=settings.history_views_max)
        self.up_to_date = memory.has_state
        self.max_viewid = self.seen = memory.max_viewid
        self.highest = memory.max_viewid.number
        self.cur_viewid = memory.cur_viewid
        self.cur_view = CohortView(memory.cur_viewid, self.me, ())
        self.led = memory.led
        self.buffer: Buffer | None = None
        """The communication buffer, while this cohort is the active primary."""
        self.members = self.members_kind(self)
        self._manager = self.manager_kind(self)
        self._catch_up: CatchUp | None = None
        self._donor = CohortDonor(self)
        self._owes_ack = False
        self._forced = -1
        """What this backup has heard to be forced in its view."""
        self._changes = 0
        """How many changes of its view's members this backup has heard of."""
        self._monitor = PrimaryMonitor(self)
        self._hand_over = HandOver(self)
        module.attach(self)
        if memory.history:
            self.recall(memory)

    # ---- what the process calls (`coterie.kernel.replica.Bottom`)

    def start(self) -> None:
        """Begin: wait to be taken into a view that is at work, or else form one."""
        self.report(
            Started,
            stack=self.name,
            configuration=self.members.now,
            is_zombie=not self.up_to_date,
        )
        self._await(self.settings.recovery_patience)
        self.members.look_around()

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message between cohorts, or one for the module; its tag says which it is."""
        head = bytes(memoryview(message)[:2])
        if head[1:] >= MODULE_TAGS:
            return self.module.decode(message)
        return _decoder.decode(message)

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401, C901, PLR0912 -- a table
        """Take one message."""
        if type(message) not in _KINDS:
            self.module.receive(sender, message)
            return
        if self.has_left:
            return
        if sender.id not in self.members.heard or sender.id == self.me.id:
            self.hear_stranger(sender, message)
            return
        match message:
            case NewEvents():
                self._on_events(sender, message)
            case AckEvents(view=view):
                if self.buffer is not None and view == self.cur_viewid:
                    self.buffer.on_ack(sender, message)
            case Invite():
                self._on_invite(sender, message)
            case AcceptInvitation():
                self._manager.on_accept(sender, message)
            case Declined():
                self._manager.on_declined(sender, message)
            case InitView(view=view):
                self._on_init_view(view)
            case NewView():
                self._on_new_view(sender, message)
            case Superseded(highest=highest):
                self._on_superseded(highest)
            case NoMember():
                self.members.on_no_member(sender, message)
            case WhoBelongs():
                self.members.on_question(sender, message)
            case FetchEvents(view=view) | FetchChunks(view=view):
                if self.buffer is not None and view == self.cur_viewid:
                    self._donor.answer(sender, message)
            case CohortStateOffer() | CohortStateChunk():
                if self._catch_up is not None and self._catch_up.is_from(sender, message.view):
                    self._catch_up.take(message)

    def hear_stranger(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Take a message of who is no member as far as is known here: one of us may have been away.

        A former one is told so. Of a later one it is learned who belongs to the group by now.
        """
        if type(message) not in _KINDS:
            self.module.hear_stranger(sender, message)
            return
        if self.has_left or self.members.is_gone(sender):
            return
        is_news = isinstance(message, Invite | NewView | NoMember | WhoBelongs)
        if not is_news or sender.id == self.me.id:
            raise BadMessage("only cohorts of a group take part in its views")
        if isinstance(message, NoMember):
            self.members.on_no_member(sender, message)
        else:
            self.members.hear(message.configuration)

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """Learn whom the failure detector believes in now."""
        if self.has_left:
            return
        if self.buffer is not None:
            for id in restarted:
                self.buffer.forget(id)
            self._adjust_members()
            self.buffer.resume()
        elif self.status is CohortStatus.ACTIVE:
            self._monitor.reachability_changed(set(restarted))
        self._manager.reachability_changed()
        self.members.look_around()

    def finish_turn(self) -> None:
        """Send what gathered: events to backups, one acknowledgement to the primary."""
        if self.members.is_changing:
            self.members.look_for_a_step()
        if self.buffer is not None:
            self.buffer.push()
        elif self._owes_ack and self.status is CohortStatus.ACTIVE:
            self.context.send(
                [self.cur_view.primary.id],
                AckEvents(self.cur_viewid, self.log.last.number, self._changes),
            )
        self._owes_ack = False

    # ---- what the module calls

    @property
    def is_primary(self) -> bool:
        """Whether this cohort is the active primary of its view."""
        return self.buffer is not None

    @property
    def is_backup(self) -> bool:
        """Whether this cohort is active in a view that another one leads."""
        return self.status is CohortStatus.ACTIVE and self.buffer is None

    @property
    def is_active(self) -> bool:
        """Whether this cohort is active in its view."""
        return self.status is CohortStatus.ACTIVE

    @property
    def is_behind(self) -> bool:
        """Whether this cohort is being brought up to date."""
        return self._catch_up is not None

    @property
    def reaches_majority(self) -> bool:
        """Whether this cohort and those it hears are a majority."""
        return self._monitor.reaches_majority()

    @property
    def forced(self) -> int:
        """Up to which event of its view a majority is known here to know all."""
        return self._forced if self.buffer is None else self.buffer.forced

    def describe(self) -> str:
        """Say in a few words where this cohort stands."""
        lost = "" if self.up_to_date else ", without its state"
        return f"{self.status.value} in {self.cur_view} at {self.log.last}{lost}"

    @property
    def is_serving(self) -> bool:
        """Whether work begun here now has a chance: an active primary that hears a majority."""
        return (
            self.buffer is not None
            and self._monitor.reaches_majority()
            and not (self.members.is_changing and self.members.must_go)
        )

    def add(self, data: bytes, event: object = None) -> Viewstamp:
        """Perform an event here, and have the backups told; give its viewstamp.

        *event* is what the module would read in *data*, if it has that at hand.
        """
        assert self.buffer is not None, "only an active primary adds events"
        known = self.log.append([data])
        self.report(EventsKnown, view=known.view, first=known.number, events=[data])
        self.members.perform(known, self.members.read([data]) if event is None else [event])
        self.buffer.added(known.number, len(data))
        return known

    def force_to(self, viewstamp: Viewstamp, then: Callable[[], None]) -> None:
        """Call *then* when a majority knows everything up to *viewstamp*; see `Buffer`."""
        assert self.buffer is not None, "only an active primary forces"
        self.buffer.force_to(viewstamp, then)

    def knows_forced(self, viewstamp: Viewstamp) -> bool:
        """Say whether a majority is known here to know an event that is known here."""
        if self.status is not CohortStatus.ACTIVE:
            return False
        return (viewstamp.number if viewstamp.view == self.cur_viewid else 0) <= self.forced

    def report(self, kind: type[msgspec.Struct], **fields: object) -> None:
        """Put a record on the history of this replica."""
        record = kind(group=self.context.group, member=self.me, at=self.context.now, **fields)
        self.context.report(cast("Record", record))

    # ---- accepting invitations

    def response(self) -> Response:
        """Say what this cohort brings to a new view."""
        if not self.up_to_date:
            crashed_in = Viewstamp(self.cur_viewid, 0)
            return Response(self.me, crashed=True, known=crashed_in, was_primary=False)
        known = self.log.last
        was_primary = known.view == self.led and known.view != NO_VIEW
        now = self.members.now
        return Response(self.me, False, known, was_primary, now)  # noqa: FBT003 -- not crashed

    def promise(self, view: ViewId) -> None:
        """Take part in no lower view than this one from now on."""
        assert view >= self.max_viewid, "promises only rise"
        self.max_viewid = view
        self.highest = view.number
        self.seen = max(self.seen, view)

    def _on_invite(self, sender: Member, message: Invite) -> None:
        view = message.view
        self.members.hear(message.configuration)
        if self.members.is_blank:
            pass  # It is being admitted: it counts for nothing, and knows nothing.
        elif view < self.max_viewid:
            self.context.send([sender.id], Superseded(self.max_viewid))
        elif view == self.cur_viewid:
            pass
        elif self.is_backup and not message.insists and self._monitor.declines(sender, view):
            self.context.send([sender.id], Declined(view, self.cur_view.primary))
        elif self.is_serving and not self.context.reaches(sender.id):
            pass  # It would not hear the answer, and this view is well without it.
        else:
            self.accept_invitation(sender, view)

    def accept_invitation(self, sender: Member, view: ViewId) -> None:
        """Accept, also once more: the answer to the first of equal invitations may be lost."""
        if view > self.max_viewid:
            self._accept(view)
            self.await_view()
        mine = self.response()
        now = None if mine.configuration is None else changed(mine.configuration)
        self.context.send(
            [sender.id], AcceptInvitation(view, mine.crashed, mine.known, mine.was_primary, now)
        )

    def _accept(self, view: ViewId) -> None:
        """Leave the present view for a later one."""
        self._leave_view()
        mine = self.response()
        self.promise(view)
        self.report(
            InvitationAccepted,
            view=view,
            crashed=mine.crashed,
            known=mine.known,
            was_primary=mine.was_primary,
        )

    def _leave_view(self) -> None:
        """Stop being active, a manager, or on the way into a view."""
        self._manager.stop()
        self._monitor.stop()
        self._catch_up = None
        self.context.cancel_timer(_AWAIT)
        if self.buffer is not None:
            self.buffer.close()
            self.buffer = None
            self._hand_over.stop()
            self._donor.close()
            self.module.follow()
        self.status = CohortStatus.UNDERLING

    def await_view(self) -> None:
        """Be an underling, until a view comes or patience ends."""
        self._await(self.settings.underling_patience)

    def _await(self, patience: Duration) -> None:
        self.status = CohortStatus.UNDERLING
        # Not all at the same moment: several managers at once only get into each other's way.
        spread = self.context.random.randrange(self.settings.manager_stagger)
        members, mine = self.members.now.members, self.me.id
        rank = members.index(mine) if mine in members else len(members)
        wait = patience + rank * self.settings.manager_stagger // 2 + spread
        self.context.set_timer(_AWAIT, cast("Duration", wait), self._tired_of_waiting)

    def _tired_of_waiting(self) -> None:
        if self.members.may_manage and self._monitor.reaches_majority():
            self.manage()
        else:
            # Alone one can form no view: to promise higher and higher ones would only disturb
            # the others later.
            self._await(self.settings.underling_patience)

    def try_again(self) -> None:
        """Learn that the view change managed here did not succeed."""
        self._tired_of_waiting()

    def progressed(self) -> None:
        """Learn that catching up goes on: there is no reason to lose patience."""
        if self.status is CohortStatus.UNDERLING:
            self.await_view()

    def is_catching_up(self, catch_up: CatchUp) -> bool:
        """Say whether this is how the cohort is being brought up to date at present."""
        return self._catch_up is catch_up

    def manage(self, *, successor: ReplicaId = "") -> None:
        """Become the manager of a view change; *successor* is to lead if it knows everything."""
        self._leave_view()
        self.status = CohortStatus.VIEW_MANAGER
        self._manager.make_invitations(successor)

    # ---- starting views

    def _on_init_view(self, view: CohortView) -> None:
        is_mine = view.id == self.max_viewid and view.primary == self.me and self.up_to_date
        if is_mine and self.status is CohortStatus.UNDERLING and self._catch_up is None:
            self.start_view(view)

    def start_view(self, view: CohortView) -> None:
        """Begin to lead a view."""
        assert self.up_to_date, "who has lost its state cannot lead"
        self._leave_view()
        self.led = view.id
        self.log.begin_view(view.id)
        self._enter(view)
        self.buffer = self.buffer_kind(self, view)
        self._adjust_members()
        self.buffer.open()
        self._hand_over.begin()
        self.module.lead(view)

    def _on_new_view(self, sender: Member, message: NewView) -> None:
        view, history = message.view, message.history
        if sender != view.primary:
            return
        if not history or history[-1] != Viewstamp(view.id, 0):
            raise BadMessage("a new view begins with its own viewstamp")
        self.members.hear_forced(message.configuration)
        self.members.check_disk(message.counted)
        if view.id == self.cur_viewid and self.status is CohortStatus.ACTIVE:
            if self.buffer is None and message.changes >= self._changes:
                self.cur_view = view
                self._changes = message.changes
                self._owes_ack = True
            return
        # An earlier life may have acknowledged events in this very view; the primary could offer
        # this one an older state, and then count it as if it knew them. It needs a new view.
        has_lost_this_view = view.id == self.cur_viewid and not self.up_to_date
        if view.id < self.max_viewid or has_lost_this_view:
            self.context.send([sender.id], Superseded(self.max_viewid))
            return
        if self._catch_up is not None and self._catch_up.is_from(sender, view.id):
            return
        if view.id > self.max_viewid:
            self._accept(view.id)
        else:
            self._leave_view()
        # Changes of the members while it catches up pass it by: it is told of them afterwards.
        self._changes = message.changes
        self._catch_up = CatchUp(self, view, message.history, up_to=0)
        self.await_view()
        self._catch_up.begin()

    def caught_up(self, view: CohortView) -> None:
        """Learn that the state is that of the view, whole: be active in it."""
        self.context.cancel_timer(_AWAIT)
        self.up_to_date = True
        if self.cur_viewid != view.id or self.status is not CohortStatus.ACTIVE:
            self._enter(view)
        self._owes_ack = True
        self._monitor.look()

    def _enter(self, view: CohortView) -> None:
        self.promise(view.id)
        self.cur_view = view
        self.cur_viewid = view.id
        self.status = CohortStatus.ACTIVE
        self._monitor.begin()
        self._forced = -1
        self.report(
            ViewStarted,
            view=view.id,
            primary=view.primary,
            members=view.members,
            history=tuple(self.log.history),
        )

    def _on_superseded(self, highest: ViewId) -> None:
        """Somebody promised a higher view: it can only come back by an even higher one."""
        is_asking = self.buffer is not None or self.status is CohortStatus.VIEW_MANAGER
        if highest >= self.max_viewid and is_asking:
            self.seen = max(self.seen, highest)
            self.manage()

    # ---- being active

    def _on_events(self, sender: Member, message: NewEvents) -> None:
        if self._catch_up is not None and self._catch_up.is_from(sender, message.view):
            self._catch_up.take(message)
        elif (
            self.status is CohortStatus.ACTIVE
            and message.view == self.cur_viewid
            and sender == self.cur_view.primary
        ):
            if not self.learn(message):
                # Something in between is missing, and perhaps not kept by the primary any more.
                history = tuple(self.log.history)
                up_to = message.first - 1
                self._catch_up = CatchUp(self, self.cur_view, history, up_to=up_to)
                self._catch_up.begin()
            self._owes_ack = True
            # No more than is known here: what is damaged would else hold for all that comes.
            forced = min(message.forced, self.log.last.number)
            if forced > self._forced:
                self._forced = forced
                self.members.forced_rose()
        elif self.status is CohortStatus.ACTIVE and message.view < self.cur_viewid:
            # It still hears a majority, perhaps, and does not know that this one is lost to it.
            self.context.send([sender.id], Superseded(self.max_viewid))

    def learn(self, message: NewEvents) -> bool:
        """Perform events that follow what is known here; False if something is missing."""
        if message.first < 1:
            raise BadMessage("events are numbered from 1")
        last = self.log.last
        if message.of != last.view or message.first > last.number + 1:
            return message.of < last.view
        events = message.events[last.number + 1 - message.first :]
        if events:
            # Read first: what cannot be read must not be known.
            read = self.members.read(events)
            known = self.log.append(events)
            self.report(EventsKnown, view=known.view, first=last.number + 1, events=events)
            self.members.perform(known, read)
        return True

    def done_catching_up(self) -> None:
        """Learn that the gap is filled."""
        self._catch_up = None

    def include(self, member: Member) -> None:
        """Take a cohort into the view (4.1)."""
        others = tuple(each for each in self.cur_view.members if each.id != member.id)
        self._set_members((*others, member))

    def _adjust_members(self) -> None:
        """Leave out of the view who is out of reach; tell those who came back of the view."""
        assert self.buffer is not None, "only a primary changes its view"
        known = {each.id: each for each in (*self.cur_view.members, *self.buffer.backups)}
        self._set_members(
            tuple(
                each
                for id, each in known.items()
                if each == self.me or (self.context.reaches(id) and id not in self.members.now.gone)
            )
        )

    # ---- changing members

    def members_changed(self) -> None:
        """Learn that other majorities count, or that others belong to the group."""
        self._monitor.members_changed()
        if self.buffer is not None:
            self.buffer.members_changed()
            self._adjust_members()

    def admit(self, id: ReplicaId, at: ReplicaAddresses | None = None) -> None:
        """Have a cohort join, found *at* these addresses; raise `Refused` if it cannot be."""
        self.members.admit(id, at)

    def dismiss(self, id: ReplicaId) -> None:
        """Have a cohort removed from the group; raise `Refused` if it cannot be."""
        self.members.dismiss(id)

    def be_removed(self) -> None:
        """Learn that the group goes on without this cohort for good."""
        self.context.is_removed = True
        self.has_left = True
        self._leave_view()

    def _set_members(self, members: tuple[Member, ...]) -> None:
        ordered = tuple(sorted(members))
        if ordered != self.cur_view.members:
            self.cur_view = replace(self.cur_view, members=ordered)
            self.report(MembersChanged, view=self.cur_viewid, members=ordered)
            if self.buffer is not None:
                self.buffer.tell_members()
