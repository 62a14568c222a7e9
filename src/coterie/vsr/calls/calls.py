"""The calls of a primary: run, made to wait for locks, completed, refused (figure 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.errors import BadMessage
from coterie.vsr.calls.executor import Completion, Nested
from coterie.vsr.calls.messages import CallRefused, CallReply, WaitsFor
from coterie.vsr.calls.primary_requests import UnknownGroup
from coterie.vsr.calls.remote import NotRun, RemoteCalls
from coterie.vsr.calls.running import Blocked, RunningCall
from coterie.vsr.commit.events import CallsGivenUp, CompletedCall, decode_event, encode_event
from coterie.vsr.commit.psets import Pair, is_of, is_within, number_of, participants
from coterie.vsr.objects.group_state import TransactionInProgress
from coterie.vsr.objects.locks import LockOwner, LockTable, Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.views import Member
    from coterie.vsr.calls.messages import CallRequest
    from coterie.vsr.commit.psets import Aid, CallId, Pset
    from coterie.vsr.commit.server import Server
    from coterie.vsr.objects.group_state import KeptCall

_Id = tuple["Aid", "CallId"]


class CallsInProgress:
    """All calls in progress at one primary, and the locks."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._state = server.state
        self.locks = LockTable()
        self._running: dict[_Id, RunningCall] = {}
        self._by_aid: dict[Aid, dict[CallId, RunningCall]] = {}
        self._waiting: dict[_Id, RunningCall] = {}
        """Calls that wait for locks, or have waited; who began to wait first comes first."""
        self._freed = False

    @property
    def are_any(self) -> bool:
        """Whether any call is in progress."""
        return bool(self._running)

    def restart(self) -> None:
        """Begin to lead: locks are those of the completed calls of transactions in progress."""
        self.stop()
        for aid, transaction in self._state.transactions.items():
            self._hold(aid, transaction)

    def _hold(self, aid: Aid, transaction: TransactionInProgress) -> None:
        for call, kept in transaction.calls.items():
            owner = LockOwner(aid, call)
            for read in kept.record.reads:
                self.locks.grant(owner, read.name, Mode.READ)
            for write in kept.record.writes:
                self.locks.grant(owner, write.name, Mode.WRITE)
            self._settle(owner)

    def _settle(self, owner: LockOwner) -> None:
        """Pass on the locks of a call that is complete, if it is no part of one that may not be."""
        if "." not in owner.call:
            self.locks.inherit(owner)

    def stop(self) -> None:
        """Forget all calls in progress."""
        for running in self._running.values():
            running.remote.cancel()
        self._running.clear()
        self._by_aid.clear()
        self._waiting.clear()
        self.locks = LockTable()
        self._freed = False

    # ---- arriving

    def on_call(self, caller: Member, message: CallRequest) -> None:
        """Take a call that is for this view."""
        number_of(message.call)
        if not is_of(message.aid, caller.id):
            raise BadMessage("a call in a transaction that another client began")
        aid, id = message.aid, (message.aid, message.call)
        if self._server.has_ended(aid):
            self._refuse(caller, message, "the transaction has ended")
            return
        self._give_up(message)
        transaction = self._state.transactions.get(aid)
        if transaction is not None:
            if any(is_within(message.call, each) for each in transaction.given_up):
                return
            kept = transaction.calls.get(message.call)
            if kept is not None:
                self._reply(caller, message.actor, kept)
                return
        running = self._running.get(id)
        if running is not None:
            running.caller = caller
            if running.message.progress != message.progress:
                running.learn(message)
                self.free()
            return
        reason = self._why_not(message)
        if reason:
            self._refuse(caller, message, reason)
            return
        remote = RemoteCalls(
            self._server.requests,
            self._server.settings,
            actor=self._server.group,
            aid=aid,
            prefix=f"{message.call}.",
            given_up=message.given_up,
            progress=message.progress,
        )
        running = RunningCall(message, caller, self._state, self.locks, remote)
        self._running[id] = running
        self._by_aid.setdefault(aid, {})[message.call] = running
        self._run(running)

    def _remove(self, running: RunningCall) -> None:
        """Take a call out of those in progress."""
        aid, call = running.aid, running.message.call
        self._waiting.pop((aid, call), None)
        if self._running.pop((aid, call), None) is not None:
            calls = self._by_aid[aid]
            del calls[call]
            if not calls:
                del self._by_aid[aid]

    def _why_not(self, message: CallRequest) -> str:
        if len(self._running) >= self._server.settings.calls_max:
            return "too many calls are in progress here (calls_max)"
        if len(self._state.transactions) >= self._server.settings.transactions_max:
            return "too many transactions are in progress here (transactions_max)"
        if not self._server.requests.knows(message.aid.group):
            # Nobody could ever say how it ended, and its locks would stay for good.
            return f"there is no group {message.aid.group!r} to coordinate the transaction"
        buffer = self._server.cohort.buffer
        if buffer is None or buffer.is_full:
            return "too much waits for the backups here (buffer_bytes_max)"
        for call in self._by_aid.get(message.aid, ()):
            if is_within(message.call, call):
                return f"{self._server.group} is called by a call that it made itself"
        return ""

    def _give_up(self, message: CallRequest) -> None:
        """Forget, for good, what calls did that the transaction has given up."""
        transaction = self._state.transactions.get(message.aid)
        known = transaction.given_up if transaction is not None else []
        news = tuple(each for each in message.given_up if each not in known)
        if not news:
            return
        for call, running in list(self._by_aid.get(message.aid, {}).items()):
            if any(is_within(call, each) for each in news):
                self._drop(running)
        kept = [] if transaction is None else list(transaction.calls)
        for call in kept:
            if any(is_within(call, each) for each in news):
                self.locks.release_call(LockOwner(message.aid, call))
        self.free()
        self._server.add(CallsGivenUp(message.aid, news))

    # ---- running

    def _run(self, running: RunningCall) -> None:
        """Run a call from its beginning, as far as it gets."""
        generator = running.begin(self._server.executor)

        def step() -> Nested:
            request = next(generator)
            for reply in list(running.replies):
                request = generator.send(reply)
            return request

        self._step(running, step)

    def _resume(self, running: RunningCall, reply: Completion) -> None:
        """Go on with a call that waited for another group."""
        running.replies.append(reply)
        generator = running.generator
        assert generator is not None, "a call that waits for an answer is suspended"
        self._step(running, lambda: generator.send(reply))

    def _step(self, running: RunningCall, step: Callable[[], Nested]) -> None:
        """Let a method go on to where it ends, calls somebody, or meets a lock.

        A method may have swallowed that it met one. What it did then rests on what it was not
        given, and does not count.
        """
        said: Nested | Completion | None = None
        met: Blocked | None = None
        try:
            said = step()
        except StopIteration as stop:
            said = stop.value
        except Blocked as blocked:
            met = blocked
        met = met or running.met
        if met is not None:
            self._block(running, met)
        elif isinstance(said, Nested):
            self._call(running, said)
        else:
            assert isinstance(said, Completion), "a method ends with what it answers"
            self._complete(running, said)

    def _call(self, running: RunningCall, request: Nested) -> None:
        group, method, arguments = request

        def then(outcome: Completion | NotRun) -> None:
            if self._running.get((running.aid, running.message.call)) is not running:
                return
            if isinstance(outcome, NotRun):
                self._give_back(running, outcome.reason)
            else:
                self._resume(running, outcome)

        try:
            running.remote.call(group, method, arguments, then)
        except UnknownGroup as error:
            self._give_back(running, str(error))

    def _complete(self, running: RunningCall, completion: Completion) -> None:
        message, remote = running.message, running.remote
        pset, void = self.pset_of(running), tuple(remote.void)
        if completion.is_failure and remote.begun:
            pset, void = self.in_vain(running)
        within = participants(pset)
        event = CompletedCall(
            running.aid,
            message.call,
            running.reads,
            [] if completion.is_failure else running.writes,
            completion.result,
            completion.is_failure,
            pset,
            void,
            tuple(group for group in remote.groups if group not in within),
        )
        data = encode_event(event)
        try:
            decode_event(data)
        except msgspec.DecodeError as error:
            # What no backup could read would stop the group at every start.
            self._give_back(running, f"what it did cannot be recorded: {error}")
            return
        size = len(data)
        if size > self._server.settings.event_bytes_max:
            reason = f"its reads, writes and result take {size} bytes (event_bytes_max)"
            self._give_back(running, reason)
            return
        self._remove(running)
        self._server.add(event, data)
        self._server.touch(running.aid)
        self._settle(running.owner)
        if running.aid in self._by_aid:
            self.free()  # a sibling may wait for what the transaction has inherited
        kept = self._state.transactions[running.aid].calls[message.call]
        self._reply(running.caller, message.actor, kept)

    def pset_of(self, running: RunningCall) -> Pset:
        """Give the viewstamps of all calls that a call made, and of those that they made."""
        return tuple(sorted(running.remote.pset))

    def in_vain(self, running: RunningCall) -> tuple[Pset, tuple[CallId, ...]]:
        """Give what is left of what a call had called that failed, and what is void of it."""
        # It has changed nothing, and neither have those that it called.
        return (), (f"{running.message.call}.",)

    def _reply(self, caller: Member, actor: str, kept: KeptCall) -> None:
        record, server = kept.record, self._server
        pset = (*record.pset, Pair(server.group, kept.vs))
        reply = CallReply(
            server.group,
            record.aid,
            record.call,
            record.reply,
            record.is_failure,
            pset,
            record.void,
            record.groups,
        )
        if server.settings.force_calls:
            server.cohort.force_to(kept.vs, lambda: server.send(caller, actor, reply))
        else:
            server.send(caller, actor, reply)

    def on_reply(self, message: CallReply) -> None:
        """Take the answer to a call that a call here made."""
        for running in self._callers(message.aid, message.call):
            running.remote.on_reply(message)

    def on_refused(self, message: CallRefused) -> None:
        """Take the refusal of a call that a call here made."""
        for running in self._callers(message.aid, message.call):
            running.remote.on_refused(message)

    def _callers(self, aid: Aid, call: CallId) -> list[RunningCall]:
        running = self._running.get((aid, call.rpartition(".")[0]))
        return [] if running is None else [running]

    # ---- waiting for locks

    def _block(self, running: RunningCall, blocked: Blocked) -> None:
        running.unwind()
        if running.waits_since is None:
            running.waits_since = self._server.context.now
        running.waits_for = blocked
        self._waiting[running.aid, running.message.call] = running
        circle = self.locks.wait(running.owner, blocked.name, blocked.mode)
        if circle:
            others = ", ".join(str(each) for each in circle[1:])
            self._give_back(running, f"deadlock over {blocked.name!r} with {others}")
        else:
            holders = self.locks.in_the_way(running.aid, blocked.name, blocked.mode)
            self._tell_waiting(running, holders)

    def _tell_waiting(self, running: RunningCall, holders: list[Aid]) -> None:
        """Tell the coordinator whom a call waits for, which finds deadlocks over several groups."""
        message = WaitsFor(self._server.group, running.aid, tuple(holders))
        self._server.requests.tell(running.aid.group, message)

    def free(self) -> None:
        """Learn that locks may have been released."""
        self._freed = True

    def retry(self) -> None:
        """Run calls again whose locks may be free, those first that have waited for longest."""
        while self._freed:
            self._freed = False
            for id, running in list(self._waiting.items()):
                blocked = running.waits_for
                if blocked is None or self._waiting.get(id) is not running:
                    continue
                progress = running.message.progress
                if self.locks.is_free(running.owner, blocked.name, blocked.mode, progress):
                    running.waits_for = None
                    self.locks.stop_waiting(running.owner, blocked.name)
                    # Or it would be thought to wait for who has ended, and for nobody's good.
                    self._tell_waiting(running, [])
                    self._run(running)

    def sweep(self) -> None:
        """Refuse calls that have waited for a lock for too long; tell of those that go on waiting.

        Their coordinators may have changed, and those in the way, too. And who is in the way may
        be of a transaction that nobody runs any more, or ever did: that is asked at once, however
        recently somebody spoke in its name.
        """
        server = self._server
        now, patience = server.context.now, server.settings.lock_patience
        in_the_way: dict[Aid, None] = {}
        for running in list(self._waiting.values()):
            blocked = running.waits_for
            if blocked is None or running.waits_since is None:
                continue
            holders = self.locks.in_the_way(running.aid, blocked.name, blocked.mode)
            if now - running.waits_since > patience:
                names = ", ".join(map(str, holders)) or "another call of the transaction"
                self._give_back(running, f"waited too long for {blocked.name!r}, held by {names}")
            else:
                self._tell_waiting(running, holders)
                if now - running.waits_since >= server.settings.sweep:
                    in_the_way.update(dict.fromkeys(holders))
        for aid in in_the_way:
            server.ask_about(aid)

    # ---- ending

    def called(self, aid: Aid) -> list[str]:
        """Give the groups that calls of a transaction have called from here."""
        found: list[str] = []
        transaction = self._state.transactions.get(aid)
        for kept in () if transaction is None else transaction.calls.values():
            found += (*participants(kept.record.pset), *kept.record.groups)
        for running in self._by_aid.get(aid, {}).values():
            found += running.remote.groups
        return list(dict.fromkeys(found))

    def release(self, aid: Aid) -> None:
        """Learn that a transaction has ended: forget its calls and its locks."""
        for running in list(self._by_aid.get(aid, {}).values()):
            self._drop(running)
        self.locks.release(aid)
        self.free()

    def release_reads(self, aid: Aid) -> None:
        """Learn that a transaction is prepared: it will read nothing more."""
        self.locks.release_reads(aid)
        self.free()

    def _drop(self, running: RunningCall) -> None:
        running.remote.cancel()
        running.unwind()
        if running.waits_for is not None:
            self.locks.stop_waiting(running.owner, running.waits_for.name)
        self._remove(running)
        self.free()

    def _give_back(self, running: RunningCall, reason: str) -> None:
        """Refuse a call after all."""
        self._drop(running)
        self._refuse(running.caller, running.message, reason, tuple(running.remote.groups))

    def _refuse(
        self, caller: Member, message: CallRequest, reason: str, groups: tuple[str, ...] = ()
    ) -> None:
        self._server.context.count("vsr.calls_refused")
        refusal = CallRefused(self._server.group, message.aid, message.call, reason, groups)
        self._server.send(caller, message.actor, refusal)
