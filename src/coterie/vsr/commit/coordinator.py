"""Two-phase commit, from the side of the coordinator (figure 2, and 3.5 for clients).

Every group can coordinate: for unreplicated clients it is the paper's coordinator-server. What it
knows of transactions that are not decided is not replicated; a new primary lets them abort.

**Departure.** Who asks about a transaction that this primary does not know may be told that it is
aborted only once an "aborted" record is forced. A primary that was replaced, and does not know it
yet, could otherwise call aborted what its successor commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import BadMessage
from coterie.vsr.calls.messages import (
    Abort,
    Commit,
    OutcomeAnswer,
    Prepare,
    StillThere,
    TransactionBegun,
    TransactionEnded,
)
from coterie.vsr.commit.events import Aborted, Committing, DecisionKnown, GroupCalls
from coterie.vsr.commit.psets import Aid, number_for, of_group, participants

if TYPE_CHECKING:
    from coterie.kernel.clock import Instant
    from coterie.kernel.views import Member, ViewId, Viewstamp
    from coterie.vsr.calls.messages import (
        BeginTransaction,
        CommitDone,
        EndTransaction,
        OutcomeQuery,
        Prepared,
        PrepareRefused,
        StillHere,
    )
    from coterie.vsr.commit.psets import Pset
    from coterie.vsr.commit.server import Server
    from coterie.vsr.objects.group_state import Ended

_FORGOTTEN = "its coordinator does not know it any more"
_LONG_AGO = "it ended too long ago: its coordinator does not remember how (ended_max)"


class _Client:
    """Who began a transaction, and when it was last heard."""

    __slots__ = ("actor", "asked", "heard_at", "process")

    def __init__(self, process: Member, actor: str, now: Instant) -> None:
        self.process = process
        self.actor = actor
        self.heard_at = now
        self.asked = False


class _Vote:
    """A transaction that is being prepared."""

    __slots__ = ("groups", "missing", "pset", "read_only")

    def __init__(self, pset: Pset, groups: tuple[str, ...]) -> None:
        self.pset = pset
        self.groups = groups
        """All that were called, also in vain."""
        self.missing = set(participants(pset))
        self.read_only: set[str] = set()


class Coordinator:
    """The transactions that this primary coordinates."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._context = server.context
        self._state = server.state
        self._requests = server.requests
        self._active: dict[Aid, _Client] = {}
        self._votes: dict[Aid, _Vote] = {}
        self._told: dict[Aid, set[str]] = {}
        """Who has not confirmed a commit yet."""
        self._read_only: dict[Aid, None] = {}
        """Committed without a trace, because nobody wrote anything; remembered for a while."""
        self._count = 0
        self._led: ViewId | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing has to be looked after."""
        return not self._active

    def lead(self) -> None:
        """Begin to lead: go on with what is decided, and with what was begun if nobody else led."""
        history = self._server.cohort.log.history
        goes_on = len(history) > 1 and history[-2].view == self._led
        self._led = history[-1].view
        if not goes_on:
            self._active.clear()
            self._votes.clear()
            self._read_only.clear()
            self._abort_forgotten()
        for aid, vote in self._votes.items():
            for group in sorted(vote.missing):
                self._prepare(aid, group, vote)
        self._told.clear()
        for aid, parts in self._state.committing.items():
            self._commit(aid, parts)

    def _abort_forgotten(self) -> None:
        """Abort what nobody will decide any more: it is in the way of others.

        The first query about it would do the same.
        """
        for aid in list(self._state.transactions):
            if aid.group == self._server.group and self._state.decision(aid) is None:
                self._abort(aid, (), _FORGOTTEN)

    # ---- transactions of clients

    def on_begin(self, sender: Member, message: BeginTransaction) -> None:
        """Give a new transaction its name, unless too many are active; the client asks again."""
        if len(self._active) >= self._server.settings.transactions_max:
            self._context.count("vsr.begins_refused")
            return
        self._count += 1
        number = number_for(sender.id, self._count)
        aid = Aid(self._server.group, self._server.cohort.cur_viewid, number)
        self._active[aid] = _Client(sender, message.actor, self._context.now)
        self._server.send(
            sender, message.actor, TransactionBegun(self._server.group, message.number, aid)
        )

    def on_end(self, sender: Member, message: EndTransaction) -> None:
        """Commit or abort a transaction, as its client wishes."""
        aid = message.aid
        client = self._client_that_ends(sender, message)
        ended = self._state.decision(aid)
        if ended is not None or aid in self._read_only:
            if ended is not None and not ended.committed:
                self._tell_aborted_when_sure(aid, message.groups, ended)
            self._tell_when_sure(aid, sender, message.actor)
        elif aid in self._votes:
            return
        elif client is None:
            self._end_unknown(sender, message)
        elif not message.commit:
            self._abort(aid, message.groups, message.reason)
            self._tell_when_sure(aid, sender, message.actor)
        elif not all(self._requests.knows(group) for group in participants(message.pset)):
            self._abort(aid, message.groups, "it has calls to groups that nobody knows")
            self._tell_when_sure(aid, sender, message.actor)
        else:
            vote = self._votes[aid] = _Vote(message.pset, message.groups)
            for group in sorted(vote.missing):
                self._prepare(aid, group, vote)
            self._count_votes(aid)

    def _client_that_ends(self, sender: Member, message: EndTransaction) -> _Client | None:
        """Give who began a transaction, if it is known here; nobody else may end it."""
        if message.aid.group != self._server.group:
            # It may be prepared here, and then only its coordinator may abort it.
            raise BadMessage("the end of a transaction that another group coordinates")
        client = self._active.get(message.aid)
        if client is not None:
            if client.process.id != sender.id:
                raise BadMessage("the end of a transaction that another client began")
            client.process, client.actor = sender, message.actor
            client.heard_at = self._context.now
        return client

    def _end_unknown(self, sender: Member, message: EndTransaction) -> None:
        """End a transaction of which nothing is known here, or not any more."""
        aid = message.aid
        if self._state.may_be_forgotten(aid):
            group = self._server.group
            ending = TransactionEnded(group, aid, committed=False, reason=_LONG_AGO, is_known=False)
            self._server.send(sender, message.actor, ending)
        elif self._may_forget(aid):
            self._abort(aid, (), _FORGOTTEN)
            self._tell_when_sure(aid, sender, message.actor)

    def _may_forget(self, aid: Aid) -> bool:
        """Whether an unknown transaction is surely not the work of a later primary."""
        return aid.view <= self._server.cohort.cur_viewid

    def _tell_when_sure(self, aid: Aid, process: Member, actor: str) -> None:
        """Tell a client how its transaction ended, once that cannot be forgotten."""
        group = self._server.group
        ended = self._state.decision(aid)
        if ended is None:
            if aid in self._read_only:
                self._server.send(
                    process, actor, TransactionEnded(group, aid, committed=True, reason="")
                )
            return
        message = TransactionEnded(group, aid, ended.committed, ended.reason)
        self._server.cohort.force_to(ended.vs, lambda: self._server.send(process, actor, message))

    def on_still_here(self, message: StillHere) -> None:
        """Learn that a client lives."""
        client = self._active.get(message.aid)
        if client is not None:
            client.heard_at = self._context.now
            client.asked = False

    def sweep(self) -> None:
        """Ask silent clients whether they live; abort for those who do not answer."""
        now, patience = self._context.now, self._server.settings.client_patience
        for aid, client in list(self._active.items()):
            if aid in self._votes or now - client.heard_at < patience:
                continue
            if not client.asked:
                client.asked = True
                client.heard_at = now
                ask = StillThere(self._server.group, aid)
                self._server.send(client.process, client.actor, ask)
            else:
                self.abort(aid, "its client is silent")

    def is_active(self, aid: Aid) -> bool:
        """Whether a transaction has begun here, and its client has not asked for its end."""
        return aid in self._active and aid not in self._votes

    def abort(self, aid: Aid, reason: str) -> None:
        """Abort a transaction that is active, and tell its client why."""
        client = self._active[aid]
        self._abort(aid, (), reason)
        self._tell_when_sure(aid, client.process, client.actor)

    # ---- phase one

    def _prepare(self, aid: Aid, group: str, vote: _Vote) -> None:
        message = Prepare(self._server.group, aid, vote.pset)
        self._requests.ask(
            ("prepare", aid, group),
            group,
            lambda _: message,
            patience=self._server.settings.prepare_patience,
            on_timeout=lambda: self._veto(aid, f"{group} did not answer in time"),
        )

    def on_prepared(self, message: Prepared) -> None:
        """Count a vote."""
        vote = self._votes.get(message.aid)
        self._requests.done(("prepare", message.aid, message.actor))
        if vote is None or message.actor not in vote.missing:
            return
        vote.missing.remove(message.actor)
        if message.is_read_only:
            vote.read_only.add(message.actor)
        self._count_votes(message.aid)

    def on_refused(self, message: PrepareRefused) -> None:
        """Learn that a participant cannot commit."""
        self._requests.done(("prepare", message.aid, message.actor))
        self._veto(message.aid, message.reason)

    def _veto(self, aid: Aid, reason: str) -> None:
        vote = self._votes.get(aid)
        if vote is not None:
            self._abort(aid, participants(vote.pset), reason)

    def _count_votes(self, aid: Aid) -> None:
        vote = self._votes[aid]
        if vote.missing:
            return
        del self._votes[aid]
        self._server.deadlocks.forget(aid)
        client = self._active.pop(aid)
        parts = [
            GroupCalls(group, of_group(vote.pset, group))
            for group in participants(vote.pset)
            if group not in vote.read_only
        ]
        if parts:
            self._server.add(Committing(aid, parts))
            self._commit(aid, parts)
        else:
            self._read_only[aid] = None
            if len(self._read_only) > self._server.settings.ended_max:
                del self._read_only[next(iter(self._read_only))]
        self._tell_when_sure(aid, client.process, client.actor)
        self._free_others(aid, vote)

    def _free_others(self, aid: Aid, vote: _Vote) -> None:
        """Tell those of whom only calls remain that were given up; they would ask some time."""
        others = set(vote.groups).difference(participants(vote.pset))
        answer = OutcomeAnswer(self._server.group, aid, committed=True, calls=(), reason="")

        def tell() -> None:
            for group in sorted(filter(self._requests.knows, others)):
                self._requests.tell(group, answer)

        ended = self._state.decision(aid)
        if ended is None:
            tell()
        elif others:
            self._server.cohort.force_to(ended.vs, tell)

    # ---- phase two

    def _commit(self, aid: Aid, parts: list[GroupCalls]) -> None:
        """Tell the participants, once the decision cannot be forgotten."""

        def tell() -> None:
            self._told[aid] = {part.group for part in parts}
            for part in parts:
                self._tell_commit(aid, part)

        self._server.cohort.force_to(self._state.ended[aid].vs, tell)

    def _tell_commit(self, aid: Aid, part: GroupCalls) -> None:
        message = Commit(self._server.group, aid, part.calls)
        self._requests.ask(("commit", aid, part.group), part.group, lambda _: message)

    def on_commit_done(self, message: CommitDone) -> None:
        """Learn that a participant has installed its part."""
        self._requests.done(("commit", message.aid, message.actor))
        told = self._told.get(message.aid)
        if told is not None:
            told.discard(message.actor)
            if not told:
                del self._told[message.aid]
                self._server.add(DecisionKnown(message.aid))

    def _abort(self, aid: Aid, groups: tuple[str, ...], reason: str) -> None:
        client = self._active.pop(aid, None)
        vote = self._votes.pop(aid, None)
        if vote is not None:
            for group in participants(vote.pset):
                self._requests.done(("prepare", aid, group))
        # Who only guesses that it is aborted, because it does not know it, may not say so yet.
        called = [] if client is None else self._server.calls.called(aid)
        self._server.add(Aborted(aid, reason))
        self._server.forget(aid)
        self._tell_aborted(aid, tuple(dict.fromkeys((*groups, *called))), reason)
        if client is not None and vote is not None:
            self._tell_when_sure(aid, client.process, client.actor)

    def _tell_aborted(self, aid: Aid, groups: tuple[str, ...], reason: str) -> None:
        """Tell participants; nobody has to hear it, for who does not will ask."""
        for group in groups:
            self._requests.tell(group, Abort(self._server.group, aid, reason))

    def _tell_aborted_when_sure(self, aid: Aid, groups: tuple[str, ...], ended: Ended) -> None:
        """Tell participants of an abort that may be this primary's guess, once it is forced.

        Where the transaction began, it may still be active, and that cohort may come to lead again.
        """
        self._server.cohort.force_to(
            ended.vs, lambda: self._tell_aborted(aid, groups, ended.reason)
        )

    # ---- queries, section 3.4

    def on_query(self, sender: Member, message: OutcomeQuery) -> None:
        """Answer what became of a transaction, once that is sure."""
        aid = message.aid
        if aid in self._read_only:
            # There is nothing to install anywhere, so that nobody can be told wrong; who asks has
            # forgotten its vote, and still holds the read locks.
            answer = OutcomeAnswer(self._server.group, aid, committed=True, calls=(), reason="")
            self._server.send(sender, message.actor, answer)
            return
        if self._state.decision(aid) is None:
            if aid in self._active:
                return
            # A name from a later view is the work of a later primary, or of nobody: if we are
            # replaced, what we add now is never forced and nobody gets an answer.
            if not self._may_forget(aid) and not self._server.cohort.is_serving:
                return
            if self._state.may_be_forgotten(aid):
                self._answer_forgotten(sender, message)
                return
            self._abort(aid, (), _FORGOTTEN)
        ended = self._state.ended[aid]
        answer = answer_to(self._server, message, ended)
        self._server.cohort.force_to(
            ended.vs, lambda: self._server.send(sender, message.actor, answer)
        )

    def _answer_forgotten(self, sender: Member, message: OutcomeQuery) -> None:
        """Answer about a transaction that may have ended long ago.

        If it was committed, all who had to install something have confirmed that: what is left at
        the one who asks are calls that the transaction gave up. If it was never decided, whoever
        led before us must not do so any more; an event of ours that is forced sees to that.
        """
        aid = message.aid
        answer = OutcomeAnswer(self._server.group, aid, committed=False, calls=(), reason=_LONG_AGO)
        vs = self._server.add(DecisionKnown(aid))
        self._server.cohort.force_to(vs, lambda: self._server.send(sender, message.actor, answer))


def answer_to(server: Server, message: OutcomeQuery, ended: Ended) -> OutcomeAnswer:
    """Give the answer to a query about a transaction that ended."""
    aid = message.aid
    calls: tuple[Viewstamp, ...] = ()
    # Who is not named among those who must install something, or asks when all of them have done
    # so, has only calls that the transaction gave up.
    for part in server.state.committing.get(aid, ()):
        if part.group == message.actor:
            calls = part.calls
    return OutcomeAnswer(server.group, aid, ended.committed, calls, ended.reason)
