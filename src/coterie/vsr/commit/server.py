"""A module group at work: calls and two-phase commit at its primary (section 3, figures 2 and 3).

The parts: `GroupState` is replicated; `CallsInProgress` runs calls under locks; `Coordinator`
commits and aborts, `Deadlocks` finds it victims; this class is the participant, and the `Module`
that stands on the cohort.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.clock import Instant
from coterie.kernel.comparing import Comparison
from coterie.kernel.errors import BadMessage, ReplicaBroken
from coterie.kernel.records import StateAt
from coterie.kernel.transfer import TakeSnapshot, encode_now
from coterie.kernel.views import Viewstamp
from coterie.vsr.calls.calls import CallsInProgress
from coterie.vsr.calls.messages import (
    Abort,
    BeginTransaction,
    CallRefused,
    CallReply,
    CallRequest,
    CohortDigest,
    Commit,
    CommitDone,
    Elsewhere,
    EndTransaction,
    OutcomeAnswer,
    OutcomeQuery,
    Prepare,
    Prepared,
    PrepareRefused,
    Probe,
    StillHere,
    WaitsFor,
    WhereIs,
    decoder,
)
from coterie.vsr.calls.primary_requests import PrimaryRequests
from coterie.vsr.commit.coordinator import Coordinator, answer_to
from coterie.vsr.commit.events import Aborted, Committed, decode_event, encode_event
from coterie.vsr.commit.psets import compatible, of_group, participants, vs_max
from coterie.vsr.objects.deadlocks import Deadlocks
from coterie.vsr.objects.group_state import GroupState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coterie.kernel.layers import Context
    from coterie.kernel.views import ChangedConfiguration, Configuration, Member, ReplicaId
    from coterie.vsr.calls.executor import Executor
    from coterie.vsr.commit.events import Event
    from coterie.vsr.commit.psets import Aid
    from coterie.vsr.objects.group_state import TransactionInProgress
    from coterie.vsr.settings import VsrSettings
    from coterie.vsr.views.cohort import Cohort
    from coterie.vsr.views.messages import CohortView

_SWEEP = "vsr sweep"
_CALLERS_MAX = 10_000
"""How many callers a primary remembers as told of its members; beyond that all are told again."""


class Server:
    """The module of one cohort."""

    cohort: Cohort

    def __init__(
        self,
        context: Context,
        executor: Executor,
        directory: Mapping[str, Configuration],
        settings: VsrSettings,
        take_snapshot: TakeSnapshot = encode_now,
    ) -> None:
        self.context = context
        self.group = context.group
        self.settings = settings
        self.executor = executor
        self.state = GroupState(ended_max=settings.ended_max, chunk_bytes=settings.chunk_bytes)
        self.requests = PrimaryRequests(context, directory, settings)
        self.calls = CallsInProgress(self)
        self.coordinator = Coordinator(self)
        self.deadlocks = Deadlocks(self)
        self._take_snapshot = take_snapshot
        self._lost = f"calls to {self.group} were lost in a view change"
        self._touched: dict[Aid, Instant] = {}
        """When each transaction in progress was last heard of."""
        self.strayed = ""
        """Why this cohort has to stop, if it does: its state is not that of most."""
        configuration = context.configuration
        self._comparison: Comparison[Viewstamp] = Comparison(
            context.me.id, configuration.members, configuration.majority
        )
        self._introduced_at = Instant(0)
        """When the other groups were last told who belongs to this one."""
        self._introduced: ChangedConfiguration | None = None
        self._callers: dict[ReplicaId, None] = {}
        """Who has asked for something since then, and so knows of it."""
        self._void: dict[Aid, None] = {}
        """Aborted before anything of them came here: a call may still be on its way."""

    def attach(self, cohort: Cohort) -> None:
        """Learn which cohort this is the module of."""
        self.cohort = cohort

    # ---- the state (`coterie.vsr.views.module.Module`)

    def read(self, events: Sequence[bytes]) -> list[Event]:
        """Read events."""
        try:
            return [decode_event(data) for data in events]
        except msgspec.DecodeError as error:
            raise BadMessage("no event looks like this") from error

    def perform(self, known: Viewstamp, events: Sequence[Event]) -> None:
        """Change the state by events."""
        first = known.number - len(events) + 1
        for number, event in enumerate(events, first):
            at = Viewstamp(known.view, number)
            self.state.perform(at, event)
            interval = self.settings.digest_interval
            if interval and number % interval == 0 and self._is_digested(number // interval):
                digest = blake2b(self.state.encode(), digest_size=16).digest()
                self.cohort.report(StateAt, known=at, digest=digest)
                self._compare(at, digest)

    def _is_digested(self, number: int) -> bool:
        """Say whether the state is digested at the place of this number.

        Every second, fourth ... one where the state is large; all cohorts have the same state
        there, so they choose the same places.
        """
        most = self.settings.digest_bytes
        weight = sum(len(each.value) for each in self.state.objects.values())
        return number % (1 << (weight // most).bit_length()) == 0

    def _compare(self, at: Viewstamp, digest: bytes) -> None:
        """Tell the other cohorts what the state is like here (decision 71)."""
        if not self.settings.compare_digests or not self.cohort.is_active:
            return
        others = [each for each in self.context.configuration.members if each != self.context.me.id]
        self.context.send_to(self.group, others, CohortDigest(self.group, at, digest))
        self._heard_digest(self.context.me.id, at, digest)

    def _heard_digest(self, replica: ReplicaId, at: Viewstamp, digest: bytes) -> None:
        comparison, configuration = self._comparison, self.context.configuration
        comparison.count_by(configuration.members, configuration.majority)
        if replica == self.context.me.id:
            comparison.digested(at, digest)
        self.strayed = self.strayed or comparison.said(replica, at, digest)
        if comparison.note:
            self.context.count("vsr.digests_differ")
            comparison.note = ""
        if self.strayed:
            raise ReplicaBroken(self.strayed)

    def snapshot(self) -> Iterator[bytes]:
        """Give the state, in chunks; where it is encoded is the driver's choice."""
        return self._take_snapshot(self.state.snapshot)

    def restore(self, chunks: Sequence[bytes]) -> None:
        """Take over a whole state."""
        self.state.restore(chunks)
        self._comparison.forget()

    def add(self, event: Event, data: bytes = b"") -> Viewstamp:
        """Add an event to the buffer; give its viewstamp. *data*: if it is encoded already."""
        return self.cohort.add(data or encode_event(event), event)

    # ---- leading

    def lead(self, view: CohortView) -> None:
        """Begin to lead a view."""
        del view
        self.requests.clear()
        self.calls.restart()
        self.deadlocks.clear()
        self._touched = dict.fromkeys(self.state.transactions, self.context.now)
        self._abort_orphans()
        self.coordinator.lead()
        self._sweep_later()

    def _abort_orphans(self) -> None:
        """Abort what no group coordinates: nobody could ever say how it ended.

        No call of such a transaction is taken, but a state from a disk or from another cohort may
        hold one, and its locks would stay for good.
        """
        for aid in list(self.state.transactions):
            if not self.requests.knows(aid.group):
                self._abort(aid, f"there is no group {aid.group!r} that coordinates it")

    def follow(self) -> None:
        """Stop leading: calls in progress are void."""
        self.calls.stop()
        self.requests.clear()
        self.context.cancel_timer(_SWEEP)

    def touch(self, aid: Aid) -> None:
        """Learn that a transaction is alive."""
        self._touched[aid] = self.context.now

    def _sweep_later(self) -> None:
        self.context.set_timer(_SWEEP, self.settings.sweep, self._sweep)

    def _sweep(self) -> None:
        """Look for what has waited for too long."""
        if not self.cohort.is_primary:
            return
        self.calls.sweep()
        self.coordinator.sweep()
        self._introduce_members()
        now = self.context.now
        # Also calls that were refused have touched their transactions.
        self._touched = {aid: self._touched.get(aid, now) for aid in self.state.transactions}
        for aid, touched_at in self._touched.items():
            if now - touched_at > self.settings.query_after:
                self.ask_about(aid)
        self._sweep_later()

    def ask_about(self, aid: Aid) -> None:
        """Ask those who coordinate a transaction what became of it."""
        self._touched[aid] = self.context.now
        self.requests.tell_all(aid.group, OutcomeQuery(self.group, aid))

    def finish_turn(self) -> None:
        """Run calls again that waited for locks which are free now."""
        if self.cohort.is_primary:
            self.calls.retry()

    # ---- messages

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message of another actor."""
        return decoder.decode(message)

    def send(self, process: Member, actor: str, message: msgspec.Struct) -> None:
        """Send to an actor at a process."""
        self.context.send_to(actor, [process.id], message)

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Take a message of another actor."""
        match message:
            case Elsewhere():
                self.requests.learn(message)
            case OutcomeQuery():
                self._on_query(sender, message)
            case CohortDigest(at=at, digest=digest):
                if sender.id in self.context.configuration.members:
                    self._heard_digest(sender.id, at, digest)
            case WhereIs(group=group):
                self._say_where(sender, message.actor, group or self.group)
            case CallRequest() | BeginTransaction() | EndTransaction() | Prepare() | Commit():
                if not self.cohort.is_primary:
                    self._say_where(sender, message.actor)
                else:
                    self._introduce_to(sender, message.actor)
                    self._on_request(sender, message)
            case _:
                if self.cohort.is_primary:
                    self._on_news(message)

    def hear_stranger(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Learn that the members of another group have changed, from one who has come to it."""
        told = message.configuration if isinstance(message, Elsewhere) else None
        if told is not None and sender.id in told.everyone:
            self.requests.learn(message)

    def _introduce_members(self) -> None:
        """Tell the other groups who belongs to this one, once that has changed."""
        told, view, now = self.cohort.members.told(), self.cohort.cur_view, self.context.now
        if told is not None and now - self._introduced_at >= self.settings.query_after:
            self._introduced_at = now
            self.requests.tell_others(Elsewhere(self.group, view.id, view.primary.id, told))

    def _introduce_to(self, sender: Member, actor: str) -> None:
        """Tell who asks for something who belongs to the group, once it has changed.

        A client speaks with the primary alone as long as all goes well. Whoever it knew may be gone
        when that is removed, and then nobody is left whom it could ask.
        """
        told = self.cohort.members.told()
        if told is None:
            return
        if told is not self._introduced or len(self._callers) >= _CALLERS_MAX:
            self._introduced = told
            self._callers.clear()
        if sender.id not in self._callers:
            self._callers[sender.id] = None
            self._say_where(sender, actor)

    def _say_where(self, sender: Member, actor: str, group: str = "") -> None:
        """Tell what is known here of the view and its primary (3.3), or of another group's."""
        if group not in {"", self.group}:
            where = self.requests.where(group)
            if where is not None:
                self.send(sender, actor, where)
        elif self.cohort.is_active:
            view = self.cohort.cur_view
            told = self.cohort.members.told()
            self.send(sender, actor, Elsewhere(self.group, view.id, view.primary.id, told))

    def _on_request(
        self,
        sender: Member,
        message: CallRequest | BeginTransaction | EndTransaction | Prepare | Commit,
    ) -> None:
        match message:
            case CallRequest(view=view):
                if view != self.cohort.cur_viewid:
                    self._say_where(sender, message.actor)
                elif self.cohort.is_serving:
                    self.touch(message.aid)
                    self.calls.on_call(sender, message)
            case BeginTransaction():
                if self.cohort.is_serving:
                    self.coordinator.on_begin(sender, message)
            case EndTransaction():
                self.coordinator.on_end(sender, message)
            case Prepare():
                if self.group in participants(message.pset):
                    self._on_prepare(sender, message)
            case Commit():
                self._on_commit(sender, message)

    def _on_news(self, message: object) -> None:  # noqa: C901 -- a table
        match message:
            case CallReply():
                self.calls.on_reply(message)
            case CallRefused():
                self.calls.on_refused(message)
            case Prepared():
                self.coordinator.on_prepared(message)
            case PrepareRefused():
                self.coordinator.on_refused(message)
            case CommitDone():
                self.coordinator.on_commit_done(message)
            case StillHere():
                self.coordinator.on_still_here(message)
            case Abort(aid=aid, reason=reason):
                if message.actor == aid.group:
                    self._abort(aid, reason)
            case OutcomeAnswer():
                self._on_answer(message)
            case WaitsFor():
                self.deadlocks.on_waits_for(message)
            case Probe():
                self.deadlocks.on_probe(message)
            case _:
                raise BadMessage("a group has no use for this message")

    # ---- the participant (figure 3)

    def _on_prepare(self, sender: Member, message: Prepare) -> None:
        aid = message.aid
        if vs_max(message.pset, self.group).view > self.cohort.cur_viewid:
            return  # This primary has been replaced, and knows nothing of these calls.
        transaction = self.state.transactions.get(aid)
        ended = self.state.ended.get(aid)
        if transaction is None:
            # A duplicate, after a transaction that only read was prepared and forgotten.
            if ended is not None and ended.committed:
                self._vote_when_forced(sender, message, ended.vs, is_read_only=True)
            else:
                reason = self._lost if ended is None else ended.reason
                self.send(sender, message.actor, PrepareRefused(self.group, aid, reason))
            return
        if not self.is_compatible(message, transaction):
            # Its coordinator will abort it; figure 3 would here, but this may be an old message
            # about a transaction that is being committed.
            self.send(sender, message.actor, PrepareRefused(self.group, aid, self._lost))
            return
        self.touch(aid)
        self._vote_when_forced(
            sender, message, vs_max(message.pset, self.group), is_read_only=transaction.is_read_only
        )

    def is_compatible(self, message: Prepare, transaction: TransactionInProgress) -> bool:
        """Say whether all calls of the transaction to this group survived."""
        known = {kept.vs for kept in transaction.calls.values()}
        return compatible(message.pset, self.group, self.cohort.log.history) and known.issuperset(
            of_group(message.pset, self.group)
        )

    def _vote_when_forced(
        self, sender: Member, message: Prepare, viewstamp: Viewstamp, *, is_read_only: bool
    ) -> None:
        """Vote once a majority knows the calls, read locks and all.

        Without that, the locks could be lost with this primary, and the vote would stand.
        """
        aid = message.aid
        is_at_once = True
        self.context.count("vsr.prepares")

        def vote() -> None:
            if not is_at_once:
                self.context.count("vsr.prepares_waited")
            self.calls.release_reads(aid)
            if is_read_only and aid in self.state.transactions:
                calls = of_group(message.pset, self.group)
                self.add(Committed(aid, calls, is_read_only=True))
                self.forget(aid)
            self.send(sender, message.actor, Prepared(self.group, aid, is_read_only))

        self.force_calls(viewstamp, vote, is_read_only=is_read_only)
        is_at_once = False

    def force_calls(
        self, viewstamp: Viewstamp, then: Callable[[], None], *, is_read_only: bool
    ) -> None:
        """Have a majority know the calls of a transaction, also of one that has only read."""
        del is_read_only
        self.cohort.force_to(viewstamp, then)

    def _on_commit(self, sender: Member, message: Commit) -> None:
        aid = message.aid
        if aid in self.state.transactions:
            self._install(message)
        ended = self.state.ended.get(aid)
        # If nothing is known of it, it was committed and forgotten since: it was prepared here.
        if ended is not None and not ended.committed:
            raise BadMessage("the commit of what its own coordinator has aborted")
        done = CommitDone(self.group, aid)
        # Also in that case: a primary that was replaced knows nothing of what its successor did.
        self.cohort.force_to(self.cohort.log.last, lambda: self.send(sender, message.actor, done))

    def _install(self, message: Commit | OutcomeAnswer) -> None:
        self.add(Committed(message.aid, message.calls))
        self.forget(message.aid)

    def _abort(self, aid: Aid, reason: str) -> None:
        """Discard locks and versions; pass it on to whom the coordinator may not know."""
        for group in self.calls.called(aid):
            self.requests.tell(group, Abort(aid.group, aid, reason))
        if aid in self.state.transactions:
            self.add(Aborted(aid, reason))
        elif aid not in self.state.ended:
            self._void[aid] = None
            if len(self._void) > self.settings.ended_max:
                del self._void[next(iter(self._void))]
        self.forget(aid)

    def has_ended(self, aid: Aid) -> bool:
        """Say whether a transaction is known to be over, so that no call of it may run."""
        return aid in self.state.ended or aid in self._void

    def forget(self, aid: Aid) -> None:
        """Learn that a transaction has ended here: nobody needs its locks any more."""
        self.calls.release(aid)
        self.deadlocks.forget(aid)
        self._touched.pop(aid, None)

    # ---- queries, section 3.4

    def _on_query(self, sender: Member, message: OutcomeQuery) -> None:
        """Answer if the answer is known here, whoever this is."""
        if self.cohort.is_primary and message.aid.group == self.group:
            self.coordinator.on_query(sender, message)
            return
        ended = self.state.decision(message.aid)
        if ended is not None and self.cohort.knows_forced(ended.vs):
            answer = answer_to(self, message, ended)
            self.send(sender, message.actor, answer)

    def _on_answer(self, message: OutcomeAnswer) -> None:
        if message.actor != message.aid.group:
            return
        if not message.committed:
            self._abort(message.aid, message.reason)
        elif message.aid in self.state.transactions:
            self._install(message)
