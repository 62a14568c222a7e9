"""The host: executes what an engine orders on a plain Python object, and answers those who asked.

One host serves all engines. It stands on top of an engine's stack as its `EngineHost`; beside it
stands a *front* (the client port of a replica, a local group, a simulated client), which hands in
requests and gets answers.

**One copy or two.** An engine that delivers only what is authoritative needs one machine. An
engine that delivers optimistically needs a second, the *authoritative copy*: it executes the same
entries again once they are settled. A roll-back starts from it and replays what is still good;
`weak` reads and snapshots are taken from it. It is made when the first optimistic entry arrives,
and follows in batches (`follow_entries`), or at once when somebody asks for it; so its cost is one
more execution per entry, without decoding of results and answers, and the memory of one more
object. Updates that failed are not run again there; how they ended is known.

**Undoing.** For an update that fails half-way the machine needs the object as it was before
(`coterie.objects.machine`). With two copies that is the authoritative one plus a replay. With one
it is a *starting point* and a replay of the entries since, both bounded; classes whose fields
cannot change in place need neither.

**Nothing waits.** Requests are checked, stamped with this replica's clock and gathered; the end of
the turn (`finish_turn`) proposes them together. Answers are gathered while entries are executed
and handed to the front together.

**Faults** (an entry that is no command, a state that cannot be encoded) are counted, kept in
`faults` and survived, because they are the same on every replica. What may not be the same
everywhere raises `ReplicaBroken` out of the engine's turn, now and at every later call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.engine import Role, Run, Standing
from coterie.kernel.errors import BacklogFull, Refused
from coterie.kernel.records import Replied, Reply, StateDigest
from coterie.objects import snapshots
from coterie.objects.commands import (
    NO_ARGUMENTS,
    Announce,
    Call,
    Calls,
    CloseSession,
    OpenSession,
    Read,
    Tick,
    encode_command,
)
from coterie.objects.effects import execute_for_effects
from coterie.objects.errors import (
    BadSnapshot,
    CommandTooLarge,
    NotReplicable,
    QueryFailed,
    StateNotEncodable,
    UnknownMethod,
)
from coterie.objects.fronts import Front, Level, NoFront, Proposer
from coterie.objects.machine import Failures, Machine, Place
from coterie.objects.methods import Kind, decode_parts
from coterie.objects.outcomes import AllDone, Answer, Done, Failed, NotTaken, Outcome
from coterie.objects.settings import DEFAULT_HOST_SETTINGS, HostSettings
from coterie.objects.starting_point import StartingPoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.engine import Status
    from coterie.kernel.layers import Context
    from coterie.objects.definition import Definition
    from coterie.objects.methods import Method


TICK = "host tick"
"""The name of the timer by which time passes for classes that define `on_tick`."""


TakeSnapshot = Callable[[Callable[[], Iterator[bytes]]], Iterator[bytes]]
"""How a state is encoded: from a function that encodes it as it is now, chunk by chunk."""


def encode_now(encode: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Encode a snapshot at once, in this process.

    A driver may put in something better for large states, such as a forked process that encodes
    while this one goes on: it must give the state of the moment of the call.
    """
    return iter(list(encode()))


def _also_into(kept: list[bytes], chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        kept.append(chunk)
        yield chunk


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
        self.dump: Callable[[int, Iterator[bytes]], None] | None = None
        """Takes the authoritative state every `dump_interval` positions, in chunks."""
        self.is_ordered = is_ordered
        self.standing: Status | None = None
        self.faults: deque[str] = deque(maxlen=100)
        """The last faults, for status pages and logs."""
        self._context = context
        self._clock = clock or (lambda: context.now)
        self._time_of_turn = -1
        self._records_replies = records_replies
        self._take_snapshot = take_snapshot
        self._machine = Machine(
            definition,
            settings,
            seed=context.group.encode()[:64],
            majority=context.configuration.majority,
            is_ordered=is_ordered,
        )
        self._versions = tuple((each.version, each.fingerprint) for each in definition.versions())
        self._has_versions = definition.version > 1
        self._settled = 0
        self._outbox: list[bytes] = []
        self._outbox_requests: list[tuple[int, int, int, int]] = []
        self._spoke_at = 0
        self._watched: set[tuple[int, int]] = set()
        # Entries executed above where undoing or the authoritative copy begins, in order.
        self._log: deque[Run] = deque()
        self._log_bytes = 0
        self._failures: Failures = {}
        self._authoritative: Machine | None = None
        self._start: StartingPoint | None = None
        self._log_bytes_max = settings.undo_log_bytes
        self._prepare(self._machine)

    # ---- where we are

    @property
    def definition(self) -> Definition:
        """The class, in the version that the group runs."""
        return self._machine.definition

    @property
    def position(self) -> int:
        """The position of the last entry executed."""
        return self._machine.position

    @property
    def settled_position(self) -> int:
        """The position up to which everything is authoritative."""
        return self._settled

    @property
    def session_count(self) -> int:
        """How many sessions clients have open."""
        return len(self._machine.sessions)

    @property
    def replicated(self) -> object:
        """The object, with all that was delivered; look, do not touch."""
        return self._machine.object

    # ---- what an engine calls (`coterie.kernel.engine.EngineHost`)

    def deliver(self, runs: list[Run], standing: Standing) -> None:
        """Execute entries in order; answer the clients whose requests came through here."""
        if standing is Standing.NON_PRIMARY or not runs:
            # It may be ordered again in a primary view, so this is not the end of any request.
            return
        if standing is Standing.OPTIMISTIC and self._authoritative is None:
            self._begin_to_follow()
        machine = self._machine
        place = Place(self._context.me, standing, self._watched)
        if self._authoritative is None:
            self._settled = runs[-1].last_position
            self._keep_for_undo(runs)
            self._execute_with_digests(machine, runs, place)
        else:
            self._log.extend(runs)
            machine.execute(runs, place)
            if standing is Standing.AUTHORITATIVE:
                self._settle(runs[-1].last_position)
        self._after(machine)
        if place.answers:
            self._give(place.answers)
        self._bear_witness()

    def settle(self, position: int) -> None:
        """Learn that everything up to *position* is authoritative."""
        if position > self._settled:
            self._settle(position)
        self.front.settled(position)

    def _settle(self, position: int) -> None:
        assert position <= self._machine.position, "settled what was never delivered"
        self._settled = position
        copy = self._authoritative
        if copy is None:
            return
        if position - copy.position >= self.settings.follow_entries or (
            copy.next_digest and position >= copy.next_digest
        ):
            self._follow()

    def roll_back(self, position: int) -> None:
        """Forget everything delivered above *position*; it is never below a settled one."""
        assert position >= self._settled, "what is settled is never rolled back"
        if position < self._machine.position:
            assert self._authoritative is not None, "nothing optimistic was delivered"
            copy = self._follow()
            while self._log and self._log[-1].last_position > position:
                run = self._log.pop()
                if run.position <= position:
                    self._log.append(run.up_to(position))
            for failed in [each for each in self._failures if each[0] > position]:
                del self._failures[failed]
            self._context.count("host.rolled_back", self._machine.position - position)
            self._machine = self._replay(copy.copy(), position)
            self._prepare(self._machine)
        self.front.rolled_back(position)

    def status(self, status: Status) -> None:
        """Learn that this replica's standing in the group changed."""
        self.standing = status
        has_work = self._has_versions or self.definition.on_tick is not None
        if has_work and not self._context.timer_is_set(TICK):
            self._tick_again()
        self.front.status(status)

    def snapshot(self) -> Iterator[bytes]:
        """Give the state at the last settled position, in chunks of bounded size."""
        return self._encoded(self._follow())

    def _encoded(self, machine: Machine) -> Iterator[bytes]:
        def encode() -> Iterator[bytes]:
            return snapshots.write(machine.parts(), self.settings.chunk_bytes)

        return self._take_snapshot(encode)

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        """Take over a whole state; the old one stays until the last chunk is read."""
        latest = self._machine.latest
        keeps = any(each.changes_in_place and not each.copies_cheaply for each in latest.versions())
        kept: list[bytes] = []
        machine = Machine.from_parts(
            latest,
            self.settings,
            snapshots.read(_also_into(kept, chunks) if keeps else chunks),
            majority=self._context.configuration.majority,
            is_ordered=self.is_ordered,
        )
        if machine.position != position:
            raise BadSnapshot(f"a state of position {machine.position} came for {position}")
        self._machine = machine
        self._authoritative = None
        self._log.clear()
        self._log_bytes = 0
        self._failures.clear()
        self._forget_start()
        self._settled = position
        self._prepare(machine)
        if keeps and machine.definition.transactional:
            self._start = StartingPoint(machine, kept)
        self.front.restored(position)

    # ---- the authoritative copy, and undoing

    def _begin_to_follow(self) -> None:
        """Make the authoritative copy: what comes now may be rolled back."""
        if self._start is not None and not self._log:
            self._authoritative = self._start.make()
        else:
            self._authoritative = self._machine.copy()
        self._forget_start()

    def _follow(self) -> Machine:
        """Give the authoritative state, brought up to what is settled."""
        copy = self._authoritative
        if copy is None:
            return self._machine
        if copy.position >= self._settled:
            return copy
        runs: list[Run] = []
        while self._log and self._log[0].position <= self._settled:
            run = self._log.popleft()
            if run.last_position > self._settled:
                self._log.appendleft(run.after(self._settled))
                run = run.up_to(self._settled)
            runs.append(run)
        self._execute_with_digests(copy, runs, None, self._failures)
        for failed in [each for each in self._failures if each[0] <= self._settled]:
            del self._failures[failed]
        self._after(copy)
        return copy

    def _replay(self, machine: Machine, position: int) -> Machine:
        """Bring a copy up to *position* from the log."""
        runs = [
            run.after(machine.position).up_to(position)
            for run in self._log
            if run.position <= position and run.last_position > machine.position
        ]
        machine.execute(runs, None, self._failures)
        return machine

    def _prepare(self, machine: Machine) -> None:
        """Have a machine that executes first able to undo."""
        machine.failures = self._failures
        if machine.needs_undoing:
            machine.rebuild = self._rebuild

    def _rebuild(self, position: int) -> object:
        """Give the object as it was at *position*, without what the machine did since."""
        self._context.count("host.rebuilt")
        copy = self._authoritative
        if copy is not None:
            twin = copy.copy()
        else:
            assert self._start is not None, "the log has a beginning"
            twin = self._start.make()
        return self._replay(twin, position).object

    def _keep_for_undo(self, runs: list[Run]) -> None:
        """Keep, with one copy, what undoing would need; called before *runs* are executed."""
        machine = self._machine
        if machine.rebuild is None:
            return
        if self._start is None or self._log_bytes > self._log_bytes_max:
            try:
                self._start = StartingPoint(machine)
            except StateNotEncodable as error:
                # The old starting point still serves.
                machine.note(str(error))
                self._log_bytes_max *= 2
            else:
                self._log_bytes_max = max(self.settings.undo_log_bytes, self._start.bytes)
                self._log.clear()
                self._log_bytes = 0
                self._failures.clear()
        self._log.extend(runs)
        self._log_bytes += sum(sum(map(len, run.payloads)) for run in runs)

    def _forget_start(self) -> None:
        self._start = None
        self._log.clear()
        self._log_bytes = 0
        self._failures.clear()

    def _execute_with_digests(
        self,
        machine: Machine,
        runs: list[Run],
        place: Place | None,
        known_failures: Failures | None = None,
    ) -> None:
        """Execute, stopping where a digest or a dump is due: everywhere at the same positions."""
        while runs and 0 < (due := self._next_stop(machine)) <= runs[-1].last_position:
            machine.execute(
                [run.up_to(due) for run in runs if run.position <= due], place, known_failures
            )
            runs = [run.after(due) for run in runs if run.last_position > due]
            if due == machine.next_digest:
                digest = machine.digest_if_due()
                if digest is None:
                    self._context.count("host.digests_skipped")
                else:
                    self._report_digest(machine.position, digest)
            interval = self.settings.dump_interval
            if self.dump is not None and interval and due % interval == 0:
                self.dump(due, self._encoded(machine))
        if runs:
            machine.execute(runs, place, known_failures)

    def _next_stop(self, machine: Machine) -> int:
        """Give the next position at which the state is to be looked at; 0 if never."""
        interval = self.settings.dump_interval
        if self.dump is None or not interval or not self.is_ordered:
            return machine.next_digest
        dump = (machine.position // interval + 1) * interval
        return min(dump, machine.next_digest or dump)

    def _after(self, machine: Machine) -> None:
        if machine.faults:
            self._context.count("host.faults", len(machine.faults))
            self.faults.extend(machine.faults)
            machine.faults.clear()

    # ---- what a front calls; nothing is proposed before `finish_turn`

    def open_session(self, token: int, asked_at: int = 0) -> None:
        """Open a session; the answer comes for session 0 and *token*."""
        if not self.is_ordered and len(self._machine.sessions) >= self.settings.sessions_max:
            self._refuse(0, token, "all sessions are taken (sessions_max)", asked_at)
            return
        self._propose(OpenSession(token, asked_at, self._time()), 0, token, asked_at)

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
    ) -> None:
        """Execute an update once for (session, request); the answer comes for these.

        Raises `UnknownMethod`, `BadArguments` or `CommandTooLarge`, and nothing is proposed. A
        request whose outcome is known here is answered at once.
        """
        self._method(method, Kind.UPDATE).check(arguments)
        known = self.outcome_of(session, request)
        if known is not None and known.position <= self._settled:
            self._give([Answer(session, request, known, Standing.AUTHORITATIVE, asked_at)])
            return
        if not self.is_ordered:
            reason = self._why_not_here(session)
            if reason:
                self._refuse(session, request, reason, asked_at)
                return
        raw = arguments if isinstance(arguments, msgspec.Raw) else msgspec.Raw(arguments)
        call = Call(session, request, method, raw, asked_at, lowest, self._time())
        self._propose(call, session, request, asked_at)

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
        found = self._method(method, Kind.UPDATE)
        count = found.check_many(arguments)
        raw = arguments if isinstance(arguments, msgspec.Raw) else msgspec.Raw(arguments)
        session_here = self._machine.sessions.table.get(session)
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

        `dirty` and `weak` are answered at once. Raises as `call` does.
        """
        self._method(method, Kind.QUERY).check(arguments)
        raw = arguments if isinstance(arguments, msgspec.Raw) else msgspec.Raw(arguments)
        query = Read(token, method, raw, asked_at, self._time())
        if level is Level.CONSISTENT:
            if not self.is_ordered:
                raise UnknownMethod("consistent reads need a stack with total order")
            self._propose(query, 0, token, asked_at)
            return
        outcome, standing = self._ask(level, query)
        self.front.answer([Answer(0, token, outcome, standing, asked_at)])

    def query(self, level: Level, method: str, *args: object, **kwargs: object) -> object:
        """Execute a query here and now, `dirty` or `weak`; give its answer, or raise its error."""
        found = self._method(method, Kind.QUERY)
        outcome, _ = self._ask(
            level, Read(0, method, msgspec.Raw(found.encode(args, kwargs)), 0, 0)
        )
        if isinstance(outcome, Failed):
            raise QueryFailed(f"{outcome.error}: {outcome.message}")
        return found.decode_result(outcome.result)

    def _ask(self, level: Level, query: Read) -> tuple[Done | Failed, Standing]:
        self._check_broken()
        machine = self._follow() if level is Level.WEAK else self._machine
        is_settled = machine.position <= self._settled
        return machine.ask(query), Standing.AUTHORITATIVE if is_settled else Standing.OPTIMISTIC

    def outcome_of(self, session: int, request: int) -> Done | Failed | None:
        """Give the outcome of a request, if it was executed and is remembered here."""
        found = self._machine.sessions.table.get(session)
        if found is None or request < found.lowest:
            return None
        return found.outcome(request)

    def watch(self, session: int, request: int) -> None:
        """Answer a request here, too, although another replica proposes it."""
        if len(self._watched) >= self.settings.waiting_commands_max:
            raise BacklogFull("too many requests are watched here (waiting_commands_max)")
        self._watched.add((session, request))

    def unwatch(self, session: int, request: int) -> None:
        """Take `watch` back."""
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
        machine = self._follow()
        digest = machine.digest()
        self._after(machine)
        self._report_digest(machine.position, digest)
        return machine.position, digest

    # ---- engines of the primary kind

    def execute(self, run: Run) -> tuple[Outcome, bytes]:
        """Execute one call here, before it is ordered; give its outcome and its effects.

        *run* holds the one command and says where its effects will stand in the order. The
        effects are the payload of that entry; if there are none the call was no news (a retry),
        and there is nothing to order. `settle` and `roll_back` follow as for entries delivered.
        """
        self._check_broken()
        if self._authoritative is None:
            self._begin_to_follow()
        outcome, effects = execute_for_effects(self._machine, run)
        self._after(self._machine)
        if effects is None:
            return outcome, b""
        payload = encode_command(effects)
        self._log.append(Run(run.view, run.number, run.position, run.origin, run.first, [payload]))
        return outcome, payload

    def apply(self, runs: list[Run], standing: Standing) -> None:
        """Take over effects of calls that were executed elsewhere; the same as `deliver`."""
        self.deliver(runs, standing)

    # ---- helpers

    def _propose(
        self,
        command: OpenSession | CloseSession | Call | Calls | Read | Tick | Announce,
        session: int,
        request: int,
        asked_at: int,
        count: int = 1,
    ) -> None:
        self._check_broken()
        settings = self.settings
        standing = self.standing
        if self._has_versions and not self._machine.position and not self._outbox:
            # It could become the group's first entry, which says with which version it begins.
            self._outbox.append(encode_command(self._announcement()))
            self._outbox_requests.append((-1, 0, 1, 0))
        if standing is not None and standing.role is Role.MINORITY:
            reason = "this replica's view has no majority: ask another replica, or wait"
        elif len(self._outbox) >= settings.waiting_commands_max:
            reason = "too many commands wait at this replica (waiting_commands_max)"
        else:
            payload = encode_command(command)
            if len(payload) > settings.command_bytes_max:
                raise CommandTooLarge(
                    f"a command of {len(payload)} bytes is over the limit of"
                    f" {settings.command_bytes_max} (command_bytes_max): send it in parts"
                )
            self._outbox.append(payload)
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
        found = self._machine.sessions.table.get(session)
        if found is None:
            return "this replica has not heard of the session yet: ask again, or ask another"
        if len(found.outcomes) >= self.settings.window_requests_max:
            return "the session keeps too many results: open another"
        return ""

    def _method(self, name: str, kind: Kind) -> Method:
        """Give a method of the version that the group runs."""
        machine = self._machine
        if name not in machine.definition.methods and name in machine.latest.methods:
            raise UnknownMethod(
                f"{machine.latest.methods[name]} comes with a later version of the class, which"
                " begins when all replicas of the group have it"
            )
        return machine.definition.method(name, kind)

    def _announce(self) -> None:
        """Say which versions of the class are known here, if the group does not know."""
        known = self._machine.announcements.of(self._context.me.id)
        if self._has_versions and known != self._versions:
            self._propose(self._announcement(), -1, 0, 0)

    def _announcement(self) -> Announce:
        return Announce(self._versions, self._context.configuration.members, self._time())

    def _bear_witness(self) -> None:
        """Say what time it is here, if another clock needs a witness and ours is one."""
        time = self._machine.time
        if time.wants_witnesses:
            now = self._time()
            is_news = now - self._spoke_at >= self.settings.tick_interval or now < self._spoke_at
            if is_news and time.would_lead(self._context.me.id, now):
                self._propose(Tick(now), -1, 0, 0)

    def _check_broken(self) -> None:
        self._machine.check_broken()
        if self._authoritative is not None:
            self._authoritative.check_broken()

    def _report_digest(self, position: int, digest: bytes) -> None:
        context = self._context
        context.report(
            StateDigest(
                group=context.group,
                member=context.me,
                at=context.now,
                position=position,
                digest=digest,
            )
        )

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
                outcome.viewstamp.view,
                outcome.viewstamp.number,
                answer.standing,
                answer.asked_at,
                outcome.digest,
                len(outcome.results) if isinstance(outcome, AllDone) else 1,
            )
            for answer in answers
            if isinstance(outcome := answer.outcome, Done | Failed | AllDone)
        ]
        if replies:
            context = self._context
            context.report(
                Replied(group=context.group, member=context.me, at=context.now, replies=replies)
            )
