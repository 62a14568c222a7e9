"""The host: executes what an engine orders on a plain Python object, and answers those who asked.

One host serves all engines that order commands and have every replica execute them. (Under **vsr**
one replica executes and the others take over the effects: `coterie.transactional.executor`.) It
stands on top of an engine's stack as its `EngineHost`; beside it stands a *front* (the client port
of a replica, a local group, a simulated client), which hands in requests and gets answers. One or
two copies of the replicated state execute, and can go back: `coterie.objects.copies`.

**Nothing waits.** Requests are checked, stamped with this replica's clock and gathered; the end of
the turn (`finish_turn`) proposes them together. Answers are gathered while entries are executed
and handed to the front together.

**Faults** (an entry that is no command, a state that cannot be encoded) are counted, kept in
`faults` and survived, because they are the same on every replica. What may not be the same
everywhere raises `ReplicaBroken` out of the engine's turn, now and at every later call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.engine import Role, Run, Standing
from coterie.kernel.errors import BacklogFull, Refused
from coterie.kernel.records import Replied, Reply
from coterie.kernel.requests import ServiceRequest
from coterie.kernel.transfer import TakeSnapshot, encode_now
from coterie.objects.answering import Answering
from coterie.objects.classes.methods import MethodKind, decode_parts
from coterie.objects.coloured_copies import copies_for
from coterie.objects.confirmed_reads import NO_MAJORITY, TOO_MANY, ConfirmedReads
from coterie.objects.errors import (
    CommandTooLarge,
    MethodFailed,
    NotReplicable,
    UnknownMethod,
)
from coterie.objects.execution.commands import (
    NO_ARGUMENTS,
    Announce,
    Call,
    CallIf,
    Calls,
    CloseSession,
    Compare,
    OpenOwnSession,
    OpenSession,
    Read,
    Tick,
    encode_command,
)
from coterie.objects.execution.machine import StateMachine
from coterie.objects.execution.outcomes import EXECUTED, AllDone, Answer, Done, Failed, NotTaken
from coterie.objects.fronts import Front, Level, NoFront, Proposer, Synchroniser
from coterie.objects.settings import DEFAULT_HOST_SETTINGS, HostSettings

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator

    from coterie.kernel.engine import Status
    from coterie.kernel.layers import Context
    from coterie.objects.classes.definition import Definition
    from coterie.objects.classes.methods import Method
    from coterie.objects.execution.commands import Command, Condition


TICK = "host tick"
"""The name of the timer by which time passes for classes that define `on_tick`."""


class ObjectHost:
    """Executes the entries of one replica. See the module for how."""

    def __init__(  # noqa: PLR0913 -- a driver makes it in one place
        self,
        definition: Definition,
        context: Context,
        *,
        front: Front | None = None,
        settings: HostSettings = DEFAULT_HOST_SETTINGS,
        clock: Callable[[], int] | None = None,
        is_ordered: bool = True,
        confirms_reads: bool = False,
        has_colours: bool = False,
        records_replies: bool = True,
        take_snapshot: TakeSnapshot = encode_now,
    ) -> None:
        if not is_ordered and not definition.commuting:
            raise NotReplicable(
                f"{definition.name} needs a stack with total order: if all its updates commute,"
                " declare commuting = True"
            )
        if not is_ordered and definition.previous is not None:
            raise NotReplicable(
                f"{definition.name} of version {definition.version} needs a stack with total order:"
                " without, replicas could not change over from the version before at one place"
            )
        self.settings = settings
        self.front: Front = NoFront() if front is None else front
        self.engine: Proposer | None = None
        self.synchroniser: Synchroniser | None = None
        """Where the stack serves clients that know nothing of replication: the layer for that."""
        self.is_ordered = is_ordered
        self._reads = ConfirmedReads(settings.waiting_commands_max) if confirms_reads else None
        """The consistent reads that take no place in the order, where there are such."""
        self.status: Status | None = None
        """What the engine said last of this replica's role."""
        machine = StateMachine(
            definition,
            settings,
            seed=context.group.encode()[:64],
            majority=context.configuration.majority,
            is_ordered=is_ordered,
        )
        copies = copies_for(definition, has_colours=has_colours)
        self.copies = copies(machine, context, take_snapshot, self._say_digest)
        self._context = context
        self._clock = clock or (lambda: context.now)
        self._time_of_turn = -1
        self._records_replies = records_replies
        self._versions = tuple((each.version, each.fingerprint) for each in definition.versions())
        self._has_versions = definition.version > 1
        self._outbox: list[bytes] = []
        self._outbox_requests: list[tuple[int, int, int, int]] = []
        self._spoke_at = 0
        self._watched: set[tuple[int, int]] = set()
        self._fresh_until: int | None = None
        """When this replica was last in a primary view; None if it has not been in this life."""

    # ---- where we are

    @property
    def definition(self) -> Definition:
        """The class, in the version that the group runs."""
        return self.copies.machine.definition

    @property
    def position(self) -> int:
        """The position of the last entry executed."""
        return self.copies.machine.position

    @property
    def settled_position(self) -> int:
        """The position up to which everything is authoritative."""
        return self.copies.settled

    @property
    def session_count(self) -> int:
        """How many sessions clients have open."""
        return len(self.copies.machine.sessions)

    @property
    def replicated(self) -> object:
        """The object, with all that was delivered; look, do not touch."""
        return self.copies.machine.object

    @property
    def faults(self) -> deque[str]:
        """The last faults, for status pages and logs."""
        return self.copies.faults

    # ---- what an engine calls (`coterie.kernel.engine.EngineHost`)

    def deliver(self, runs: list[Run], standing: Standing) -> None:
        """Execute entries in order; answer the clients whose requests came through here."""
        if standing is Standing.NON_PRIMARY or not runs:
            # It may be ordered again in a primary view, so this is not the end of any request.
            return
        synchroniser = self.synchroniser
        enables = None if synchroniser is None else synchroniser.delivered
        answering = Answering(self._context.me, standing, self._watched, enables)
        self.copies.execute(runs, answering, standing)
        if answering.answers:
            self._give(answering.answers)
        if self.copies.machine.time.wants_witnesses:
            self._bear_witness()

    def settle(self, position: int) -> None:
        """Learn that everything up to *position* is authoritative."""
        if position > self.copies.settled:
            self.copies.settle(position)
        self.front.settled(position)

    def roll_back(self, position: int) -> None:
        """Forget everything delivered above *position*; it is never below a settled one."""
        self.copies.roll_back(position)
        self.front.rolled_back(position)

    def status_changed(self, status: Status) -> None:
        """Learn that what this replica may do has changed."""
        if self.status is not None and self.status.role is Role.PRIMARY:
            self._fresh_until = self._context.now
        self.status = status
        if self._reads is not None and status.role is Role.MINORITY:
            for query in self._reads.give_up():
                self._refuse(0, query.token, NO_MAJORITY, query.asked_at)
        has_work = self._has_versions or self.definition.on_tick is not None
        if has_work and not self._context.timer_is_set(TICK):
            self._tick_again()
        self.front.status_changed(status)

    def snapshot(self) -> Iterator[bytes]:
        """Give the state at the last settled position, in chunks of bounded size."""
        return self.copies.snapshot()

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        """Take over a whole state; the old one stays until the last chunk is read."""
        self.copies.restore(chunks, position)
        self.front.restored(position)

    # ---- what a front calls; nothing is proposed before `finish_turn`

    def open_session(self, token: int, asked_at: int = 0, owner: int = 0) -> None:
        """Open a session, for an owner if there is one; the answer is for session 0 and *token*."""
        if not self.is_ordered and len(self.copies.machine.sessions) >= self.settings.sessions_max:
            self._refuse(0, token, "all sessions are taken (sessions_max)", asked_at)
            return
        opening = (
            OpenOwnSession(token, asked_at, self._time(), owner)
            if owner
            else OpenSession(token, asked_at, self._time())
        )
        self._propose(opening, 0, token, asked_at)

    def close_session(self, session: int) -> None:
        """Close a session, whoever opened it; the answer comes for *session* and 0."""
        self._propose(CloseSession(session, self._time()), session, 0, 0)

    def call(  # noqa: PLR0913, PLR0917 -- a request has these parts
        self,
        session: int,
        request: int,
        method: str,
        arguments: bytes | msgspec.Raw = NO_ARGUMENTS,
        lowest: int = 1,
        asked_at: int = 0,
        conditions: tuple[Condition, ...] = (),
    ) -> None:
        """Execute an update once for (session, request); the answer comes for these.

        With *conditions* it is executed only if they hold at its place in the order, and fails
        with `Changed` otherwise. Raises `UnknownMethod`, `BadArguments` or `CommandTooLarge`, and
        nothing is proposed. A request whose outcome is known here is answered at once.
        """
        machine = self.copies.machine
        found = machine.definition.updates.get(method)
        if found is None:
            found = self._method(method, MethodKind.UPDATE)  # which says what is wrong
        found.check(arguments)
        window = machine.sessions.table.get(session)
        if window is not None and request in window.outcomes and request >= window.lowest:
            known = self.copies.outcome_of(session, request)
            if known is not None and known.position <= self.copies.settled:
                self._give([Answer(session, request, known, Standing.AUTHORITATIVE, asked_at)])
                return
        if not self.is_ordered:
            reason = self._why_not_here(session)
            if reason:
                self._refuse(session, request, reason, asked_at)
                return
        raw = arguments if type(arguments) is msgspec.Raw else msgspec.Raw(arguments)
        clock = self._time_of_turn if self._time_of_turn >= 0 else self._time()
        asked: Call | CallIf = Call(session, request, method, raw, asked_at, lowest, clock)
        if conditions:
            self._check_conditions(conditions)
            asked = CallIf(session, request, method, raw, asked_at, lowest, clock, conditions)
        self._propose(asked, session, request, asked_at)

    def _check_conditions(self, conditions: tuple[Condition, ...]) -> None:
        if not self.is_ordered:
            raise UnknownMethod("calls on condition need a stack with total order")
        for condition in conditions:
            self._method(condition.method, MethodKind.QUERY).check(condition.arguments)

    def call_many(  # noqa: PLR0913, PLR0917 -- as `call`
        self,
        session: int,
        first: int,
        method: str,
        arguments: bytes | msgspec.Raw,
        lowest: int = 1,
        asked_at: int = 0,
    ) -> None:
        """Execute updates with request numbers from *first* on, each once; *arguments* is an array.

        They are one entry, and so much cheaper than calls one by one. If all of them are executed
        the answer is one `AllDone` for *first*, otherwise each is answered for itself. Raises as
        `call` does.
        """
        found = self._method(method, MethodKind.UPDATE)
        count = found.check_many(arguments)
        raw = arguments if isinstance(arguments, msgspec.Raw) else msgspec.Raw(arguments)
        session_here = self.copies.machine.sessions.table.get(session)
        is_news = session_here is None or session_here.outcomes.keys().isdisjoint(
            range(first, first + count)
        )
        if not self.is_ordered or not is_news:
            for number, part in enumerate(decode_parts(raw), start=first):
                self.call(session, number, method, part, lowest, asked_at)
            return
        calls = Calls(session, first, method, raw, asked_at, lowest, self._time())
        self._propose(calls, session, first, asked_at, count)

    def read(
        self,
        level: Level,
        token: int,
        method: str,
        arguments: bytes | msgspec.Raw = NO_ARGUMENTS,
        asked_at: int = 0,
    ) -> None:
        """Execute a query; the answer comes for session 0 and *token*.

        `dirty` and `weak` are answered at once. `consistent` is answered when the engine has
        confirmed that all is here that it must see, if it is an engine that delivers only what is
        authoritative; from its place in the order, if not, and if the query asks what time it is,
        because time passes with entries. Raises as `call` does.
        """
        self._method(method, MethodKind.QUERY).check(arguments)
        raw = arguments if isinstance(arguments, msgspec.Raw) else msgspec.Raw(arguments)
        query = Read(token, method, raw, asked_at, self._time())
        if level is Level.CONSISTENT:
            if not self.is_ordered:
                raise UnknownMethod("consistent reads need a stack with total order")
            self._read_consistently(query)
            return
        outcome, standing = self._ask(level, query)
        self.front.answer([Answer(0, token, outcome, standing, asked_at, age=self.age)])

    def _read_consistently(self, query: Read) -> None:
        reads = self._reads
        if reads is None or query.method in reads.by_time:
            self._propose(query, 0, query.token, query.asked_at)
            return
        self.copies.check_broken()
        if self.status is not None and self.status.role is Role.MINORITY:
            self._refuse(0, query.token, NO_MAJORITY, query.asked_at)
        elif not reads.add(query):
            self._refuse(0, query.token, TOO_MANY, query.asked_at)

    def _confirmed(self, serial: int) -> None:
        """Answer the reads that were to be confirmed up to this serial: all they see is here."""
        assert self._reads is not None, "something was to be confirmed"
        self.copies.check_broken()
        answers, to_order = self._reads.read(self.copies.machine, serial)
        for query in to_order:
            self._propose(query, 0, query.token, query.asked_at)
        if answers:
            self.front.answer(answers)

    @property
    def age(self) -> int:
        """How old what is known here may be, in microseconds; -1 if nobody can say."""
        if self.status is not None and self.status.role is Role.PRIMARY:
            return 0
        return -1 if self._fresh_until is None else self._context.now - self._fresh_until

    def query(self, level: Level, method: str, *args: object, **kwargs: object) -> object:
        """Execute a query here and now, `dirty` or `weak`; give its answer, or raise its error."""
        found = self._method(method, MethodKind.QUERY)
        outcome, standing = self._ask(
            level, Read(0, method, msgspec.Raw(found.encode(args, kwargs)), 0, 0)
        )
        if isinstance(outcome, Failed):
            failed = MethodFailed(
                outcome.error, outcome.message, outcome.viewstamp, standing, outcome.fields
            )
            raise self.definition.errors.as_raised(failed)
        return found.decode_result(outcome.result)

    def _ask(self, level: Level, query: Read) -> tuple[Done | Failed, Standing]:
        self.copies.check_broken()
        machine = self.copies.follow() if level is Level.WEAK else self.copies.machine
        is_settled = machine.position <= self.copies.settled
        return machine.ask(query), Standing.AUTHORITATIVE if is_settled else Standing.OPTIMISTIC

    # ---- clients that know nothing of replication

    def request(  # noqa: PLR0913, PLR0917 -- a request has these parts
        self,
        client: int,
        number: int,
        method: str,
        arguments: bytes | msgspec.Raw = NO_ARGUMENTS,
        reply_to: str = "",
        via: str = "",
        *,
        relay: bool = False,
    ) -> bool:
        """Take a request that came to all replicas, or with *relay* to this one; it may be known.

        A request that is on record is answered again if that is our onus. Raises as `call` does.
        Says whether it is kept, to be executed.
        """
        assert self.synchroniser is not None, "the stack has no ONUS"
        machine = self.copies.machine
        machine.definition.method(method).check(arguments)
        raw = arguments if isinstance(arguments, msgspec.Raw) else msgspec.Raw(arguments)
        if len(raw) > self.settings.command_bytes_max:
            raise CommandTooLarge(
                f"arguments of {len(raw)} bytes are over the limit (command_bytes_max)"
            )
        request = ServiceRequest(client, number, method, raw, 0, machine.time.value, reply_to, via)
        known = machine.records.before(request)
        if known is None:
            return self.synchroniser.receive(request, relay=relay)
        is_ours = bool(via) or self.synchroniser.has_onus(client)
        if isinstance(known, EXECUTED) and is_ours:
            # Not on record again: it was when it was executed.
            self._context.count("onus.answered_again")
            answer = Answer(client, number, known, Standing.AUTHORITATIVE, reply_to=reply_to)
            self.front.answer([answer])
        return False

    def has_record(self, client: int, number: int) -> bool:
        """Say whether a request was executed, or is older than one that was."""
        return self.copies.machine.records.knows(client, number)

    def wall_clock(self) -> int:
        """Give this replica's wall clock, once a turn."""
        return self._time()

    def outcome_of(self, session: int, request: int) -> Done | Failed | None:
        """Give the outcome of a request, if it was executed and is remembered here."""
        return self.copies.outcome_of(session, request)

    def watch(self, session: int, request: int) -> None:
        """Answer a request here, too, although another replica proposes it."""
        if len(self._watched) >= self.settings.waiting_commands_max:
            raise BacklogFull("too many requests are watched here (waiting_commands_max)")
        self._watched.add((session, request))

    def unwatch(self, session: int, request: int) -> None:
        """Watch a request no longer (see `watch`)."""
        self._watched.discard((session, request))

    def _tick_again(self) -> None:
        self.tick()
        self._context.set_timer(TICK, self.settings.tick_interval, self._tick_again)

    def tick(self) -> None:
        """Let time pass for a class that has something to do then."""
        self._announce()
        now = self._time()
        if self.definition.on_tick is not None and (
            now - self._spoke_at >= self.settings.tick_interval or now < self._spoke_at
        ):
            self._propose(Tick(now), -1, 0, 0)

    def _time(self) -> int:
        """Give the wall clock, once a turn: commands of one turn share one reading."""
        if self._time_of_turn < 0:
            self._time_of_turn = self._clock()
        return self._time_of_turn

    def finish_turn(self) -> None:
        """Propose what has gathered."""
        self._time_of_turn = -1
        if self._reads is not None and self._reads.gathered:
            assert self.engine is not None, "a host is given its engine before its first turn"
            self.engine.confirm(self._reads.next_serial(), self._confirmed)
        if not self._outbox:
            return
        payloads, self._outbox = self._outbox, []
        requests, self._outbox_requests = self._outbox_requests, []
        assert self.engine is not None, "a host is given its engine before its first turn"
        try:
            self.engine.propose(payloads)
        except Refused as error:
            refusal = NotTaken(str(error))
            self.front.answer(
                [
                    Answer(session, number, refusal, Standing.NON_PRIMARY, asked_at)
                    for session, request, count, asked_at in requests
                    if session >= 0
                    for number in range(request, request + count)
                ]
            )

    def digest(self) -> tuple[int, bytes]:
        """Report a digest of the authoritative state now; give its position and the digest."""
        return self.copies.digest()

    # ---- helpers

    def _propose(
        self,
        command: Command,
        session: int,
        request: int,
        asked_at: int,
        count: int = 1,
    ) -> None:
        copies = self.copies
        if copies.machine.broken is not None or copies.authoritative is not None:
            copies.check_broken()
        settings = self.settings
        status = self.status
        if session < 0 and status is not None and status.role is Role.NON_PRIMARY:
            return  # nobody waits for it, and what is red would grow as long as a partition lasts
        outbox = self._outbox
        if self._has_versions and not outbox and not copies.machine.position:
            # It could become the group's first entry, which says with which version it begins.
            outbox.append(encode_command(self._announcement()))
            self._outbox_requests.append((-1, 0, 1, 0))
        if status is not None and status.role is Role.MINORITY:
            reason = NO_MAJORITY
        elif len(outbox) >= settings.waiting_commands_max:
            reason = TOO_MANY
        else:
            payload = encode_command(command)
            if len(payload) > settings.command_bytes_max:
                raise CommandTooLarge(
                    f"a command of {len(payload)} bytes is over the limit of"
                    f" {settings.command_bytes_max} (command_bytes_max): send it in parts"
                )
            outbox.append(payload)
            self._outbox_requests.append((session, request, count, asked_at))
            self._spoke_at = command.clock
            return
        if session >= 0:
            for number in range(request, request + count):
                self._refuse(session, number, reason, asked_at)

    def _refuse(self, session: int, request: int, reason: str, asked_at: int) -> None:
        answer = Answer(session, request, NotTaken(reason), Standing.NON_PRIMARY, asked_at)
        self.front.answer([answer])

    def _why_not_here(self, session: int) -> str:
        """Say, without order, why a call of a session is not to be proposed here; "" if it is."""
        found = self.copies.machine.sessions.table.get(session)
        if found is None:
            return "this replica has not heard of the session yet: ask again, or ask another"
        if len(found.outcomes) >= self.settings.window_requests_max:
            return "the session keeps too many results: open another"
        return ""

    def _method(self, name: str, kind: MethodKind) -> Method:
        """Give a method of the version that the group runs."""
        machine = self.copies.machine
        if name not in machine.definition.methods and name in machine.latest.methods:
            raise UnknownMethod(
                f"{machine.latest.methods[name]} comes with a later version of the class, which"
                " begins when all replicas of the group have it"
            )
        return machine.definition.method(name, kind)

    def _announce(self) -> None:
        """Say which versions of the class are known here, if the group does not know."""
        known = self.copies.machine.announcements.of(self._context.me.id)
        if self._has_versions and known != self._versions:
            self._propose(self._announcement(), -1, 0, 0)

    def _announcement(self) -> Announce:
        return Announce(self._versions, self._context.configuration.members, self._time())

    def _say_digest(self, position: int, digest: bytes) -> None:
        """Have the others know what this replica's state is like, while it counts."""
        if self.status is not None and self.status.role is Role.PRIMARY:
            self._propose(Compare(position, digest, self._time()), -1, 0, 0)

    def _bear_witness(self) -> None:
        """Say what time it is here, if another clock needs a witness and ours is one."""
        time = self.copies.machine.time
        if time.wants_witnesses:
            now = self._time()
            is_news = now - self._spoke_at >= self.settings.tick_interval or now < self._spoke_at
            if is_news and time.would_lead(self._context.me.id, now):
                self._propose(Tick(now), -1, 0, 0)

    def _give(self, answers: list[Answer]) -> None:
        """Hand answers to the front, on record."""
        if self._records_replies:
            self._report_replies(answers)
        self.front.answer(answers)

    def _report_replies(self, answers: list[Answer]) -> None:
        replies = [
            Reply(
                answer.session,
                answer.request,
                outcome.position,
                outcome.view,
                outcome.number,
                answer.standing,
                answer.asked_at,
                outcome.digest,
                len(outcome.results) if isinstance(outcome, AllDone) else 1,
            )
            for answer in answers
            if isinstance(outcome := answer.outcome, EXECUTED)
        ]
        if replies:
            context = self._context
            context.report(
                Replied(group=context.group, member=context.me, at=context.now, replies=replies)
            )
