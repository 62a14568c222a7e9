"""The replicated state machine: one object, its sessions and its clock, executing in order.

A machine is a function from its state and the next entry to its next state and an outcome. All
replicas run the same one; nothing in it knows on which of them it is. A host has one machine, or,
where entries arrive before they are authoritative, two (`coterie.objects.host`).

`execute` is the hot path of the whole product. What can be known before is known before (decoders,
the table of methods, which run of entries is whose); what is the same for all entries of a run is
done once for the run; nothing is made for a call that is not kept.

**An update that raises** is an answer like any other, the same on every replica, and leaves no
trace. Setting fields back is done from what they held before the call: the one field that the
update can assign (`coterie.objects.code.assignments`), or a copy of the object's `__dict__`, both
of which cost next to nothing. That does not help if the update had begun to change a dictionary or
a list in answering. Where the update raised before it can have changed anything
(`coterie.objects.code.raise_safety`), which is what updates do that check first, nothing needs to
be done. Otherwise the object is *rebuilt*: `rebuild`, set by the host, gives an equal machine as of
the position before, and its object takes the place of the damaged one. That is slow, and rare.

Running out of memory inside an update is not the same everywhere, and neither is a signal that
interrupts one. Then the machine stops for good (`ReplicaBroken`), loudly, and the replica must be
started anew. (Endless recursion is the same everywhere: it fails like any other error.)
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn
from zlib import crc32

from coterie.kernel.configuration import Reconfigure
from coterie.kernel.decoding import DECODE_ERRORS
from coterie.kernel.engine import Run, Standing
from coterie.kernel.errors import ReplicaBroken
from coterie.kernel.past_lives import PastLives
from coterie.kernel.requests import ServiceRequest
from coterie.kernel.views import NO_VIEW
from coterie.objects.announcements import Announcements
from coterie.objects.change_over import begin_with_first, learn_members, learn_versions
from coterie.objects.classes.definition import NUMBER_MAX
from coterie.objects.classes.encodable import as_text, encode
from coterie.objects.classes.methods import NO_UPDATE, MethodKind
from coterie.objects.code.raise_safety import was_clean
from coterie.objects.errors import (
    NotInAnUpdate,
    ResultTooLarge,
    UnknownMethod,
    is_of_this_machine,
)
from coterie.objects.execution import current
from coterie.objects.execution.commands import (
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
    decode_command_quickly,
)
from coterie.objects.execution.conditional import execute_call_if
from coterie.objects.execution.digesting import digest_of
from coterie.objects.execution.group_time import GroupTime
from coterie.objects.execution.outcomes import (
    SESSION_EVICTED,
    AllDone,
    AlreadyForgotten,
    Answer,
    Closed,
    Done,
    Failed,
    NotTaken,
    Opened,
    Outcome,
    WindowFull,
)
from coterie.objects.execution.packed import execute_calls
from coterie.objects.execution.records import Records
from coterie.objects.execution.requested import execute_request
from coterie.objects.execution.sessions import SMALL, SWEEP, Sessions, session_id, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

    from coterie.kernel.comparing import Comparison
    from coterie.kernel.views import ViewId
    from coterie.objects.answering import Answering
    from coterie.objects.classes.definition import Definition
    from coterie.objects.classes.methods import Method
    from coterie.objects.execution.commands import Command
    from coterie.objects.settings import HostSettings

_EXECUTED: dict[type, Any] = {
    Calls: execute_calls,
    CallIf: execute_call_if,
    ServiceRequest: execute_request,
}
"""How entries are executed that ask for updates, and are no plain calls."""
FAULTS_MAX = 100
"""Faults remembered until the host takes them."""
_NONE = encode(None)


Failures = dict[tuple[int, int], Failed]
"""How updates failed, by position and by their place in an entry of several."""


class StateMachine:
    """One copy of the replicated state."""

    def __init__(
        self,
        definition: Definition,
        settings: HostSettings,
        *,
        seed: bytes,
        majority: int,
        is_ordered: bool = True,
    ) -> None:
        self.latest = definition
        """The latest version of the class that is known here."""
        self.definition = definition
        """The version that the group runs; before the first entry, what it would begin with."""
        self.announcements = Announcements()
        self.settings = settings
        self.seed = seed
        self.is_ordered = is_ordered
        self.object = self.definition.make()
        self.sessions = Sessions(settings, is_ordered=is_ordered)
        self.records = Records(settings)
        self.time = GroupTime(settings.leap, majority)
        self.was_asked_time = False
        """Whether a method has asked what time it is, since this was last set back."""
        self.position = 0
        self.packed: Sized = ()
        """What the calls before the running one in an entry of several have answered."""
        self.view = NO_VIEW
        self.number = 0
        self.results = 0
        """A checksum over all results so far: replicas must agree on answers, too."""
        self.next_digest = settings.digest_interval if is_ordered else 0
        """The position at which a digest of the state is due; 0 is never."""
        self.weight = 0
        """How many bytes the state had when it was last digested."""
        self.failures: Failures | None = None
        """If set, failures are noted here, for replays."""
        self.rebuild: Callable[[int], object] | None = None
        """Gives the object as it was at a position: for undoing what cannot be set back."""
        self.faults: list[str] = []
        """What went wrong and was survived; the host reports and clears it."""
        self.broken: str | None = None
        self.comparison: Comparison[int] | None = None
        """Takes what replicas say of their digests; set by the host for the machine in front."""
        self.majority = majority
        self._updates = self.definition.updates
        self._run: Run | None = None
        self._digested = 0
        self.is_digested = True
        """Whether the last digest is one of the whole state, and not of why there is none."""

    @property
    def needs_undoing(self) -> bool:
        """Whether some version of the class may need the object as it was before an update."""
        return any(each.changes_in_place and each.transactional for each in self.latest.versions())

    # ---- what the running update may ask (`coterie.objects.execution.current`)

    def group_time(self) -> int:
        """Give group time."""
        if not self.is_ordered:
            raise NotInAnUpdate("now() has no meaning without total order: replicas would differ")
        self.was_asked_time = True
        return self.time.value

    @property
    def running_view(self) -> ViewId:
        """The view of the entry that is being executed."""
        assert self._run is not None, "asked while an entry is executed"
        return self._run.view

    def update(self, name: str) -> Method | None:
        """Give the update of that name."""
        return self._updates.get(name)

    def entropy(self) -> bytes:
        """Give the seed of the running update's chance: its identity."""
        run = self._run
        if run is None:
            raise NotInAnUpdate("chance and ids are for updates; a query runs on one replica only")
        origin = run.origin
        number = run.first + self.position - run.position
        name = f"{origin.id}#{origin.incarnation}#{number}"
        if self.packed:
            name += f"#{len(self.packed)}"
        return blake2b(name.encode(), key=self.seed[:64], digest_size=32).digest()

    # ---- executing

    def execute(  # noqa: C901, PLR0912, PLR0915 -- one loop on purpose: the hot path
        self,
        runs: Iterable[Run],
        answering: Answering | None = None,
        known_failures: Failures | None = None,
    ) -> None:
        """Execute entries that follow what was executed before.

        With *answering*, those who asked here are answered. *known_failures* are not executed
        again: a replay is told how they ended.
        """
        self.check_broken()
        decode = decode_command_quickly
        updates = self._updates
        sessions = self.sessions
        table = sessions.table
        window_max = self.settings.window_requests_max
        result_max = self.settings.result_bytes_max
        is_ordered, opens_late = self.is_ordered, not sessions.is_ordered
        definition = self.definition
        state = kept = vars(self.object)
        old: object = None
        number_max, number_min = NUMBER_MAX, -NUMBER_MAX
        results: list[bytes] = []
        name: str | None = None
        method = NO_UPDATE
        count, touched, checked, number = 0, method.touched, method.checked, ""
        read, function = method.decode_quickly, method.function
        encode_result, plain_result = method.encode_result, method.plain_result
        answers: list[Answer] = []
        standing, watched = Standing.NON_PRIMARY, None
        if answering is not None:
            answers, standing, watched = answering.answers, answering.standing, answering.watched
        before = current.enter(self)
        try:
            for run in runs:
                view = run.view
                position = run.position - 1
                to_number = run.number - run.position
                is_mine = answering is not None and run.origin == answering.me
                clock = -1
                assert position == self.position, "entries must follow each other"
                if not position and self.latest.version > 1:
                    begin_with_first(self, run.payloads[0])
                    state, updates = vars(self.object), self._updates
                self._run = run
                for payload in run.payloads:
                    position += 1
                    self.position = position
                    try:
                        command = decode(payload)
                    except DECODE_ERRORS as error:
                        self.note(f"the entry at {position} is no command: {error}")
                        continue
                    if command.clock != clock and is_ordered:
                        # A reading is taken with every command, however these are cut into runs:
                        # it may count for more the second time. What changed nothing never does.
                        is_changed = self.time.observe(run.origin.id, command.clock)
                        clock = -1 if is_changed else command.clock
                    if type(command) is not Call:
                        execute = _EXECUTED.get(type(command))
                        if execute is not None:
                            results += execute(
                                self, command, to_number, answering, known_failures, is_mine=is_mine
                            )
                            state = vars(self.object)
                            continue
                        self._control(command, run, answering if is_mine else None, known_failures)
                        state = vars(self.object)
                        updates = self._updates
                        definition = self.definition
                        name = None
                        clock = -1  # it may have changed whose clocks count
                        continue

                    # Who asks, and have they asked before?
                    id, request = command.session, command.request
                    session = table.get(id)
                    outcome: Outcome | None
                    if session is None and opens_late:
                        # Its opening is still on its way here: nothing orders the two.
                        session = sessions.open(id, position)
                    if session is None:
                        outcome = SESSION_EVICTED
                    elif request < session.lowest:
                        outcome = AlreadyForgotten(session.lowest)
                    else:
                        session.used = position
                        outcomes = session.outcomes
                        if command.lowest > session.lowest:
                            if not opens_late:
                                session.lowest = command.lowest
                            else:
                                sessions.raise_lowest(session, command.lowest)
                        outcome = outcomes.get(request)
                        if outcome is None:
                            if (
                                len(outcomes) >= window_max or session.bytes
                            ) and not sessions.has_room(session):
                                outcome = WindowFull(session.lowest)
                        elif type(outcome) is AllDone:
                            outcome = outcome.of(request)

                        # No: execute the update.
                        if outcome is None:
                            if command.method != name:
                                # Most calls are of the method of the call before.
                                name = command.method
                                method = updates.get(name, NO_UPDATE)
                                count, touched = method.count, method.touched
                                read, function = method.decode_quickly, method.function
                                encode_result = method.encode_result
                                plain_result = method.plain_result
                                checked, number = method.checked, method.checked_number
                            if touched is None:
                                kept = state.copy()
                            elif touched:
                                old = state[touched]
                            try:
                                if known_failures and (position, 0) in known_failures:
                                    raise _Known  # noqa: TRY301
                                if method is NO_UPDATE:
                                    raise UnknownMethod(name)  # noqa: TRY301
                                try:
                                    arguments = read(command.arguments)
                                except DECODE_ERRORS:
                                    arguments = method.read(command.arguments)
                                # Written out, because a call with a star is much slower.
                                if count == 1:
                                    answer = function(self.object, arguments[0])
                                elif count == 2:  # noqa: PLR2004
                                    answer = function(self.object, arguments[0], arguments[1])
                                else:
                                    answer = function(self.object, *arguments)
                                if type(answer) is plain_result:
                                    result = encode_result(answer)
                                else:
                                    result = _NONE if answer is None else encode_result(answer)
                                    method.check_result(result)
                                size = len(result)
                                if size > result_max:
                                    raise ResultTooLarge(  # noqa: TRY301
                                        f"{size} bytes; result_bytes_max is {result_max}"
                                    )
                                # What it left is looked at; nearly always it is a number.
                                if number:
                                    value = state.get(number)
                                    if (
                                        type(value) is not int
                                        or not number_min <= value <= number_max
                                    ):
                                        definition.check_assigned(checked, state)  # type: ignore[arg-type]
                                elif checked is None:
                                    definition.check_change(state, kept)
                                elif checked:
                                    definition.check_assigned(checked, state)
                                outcome = Done(position, view, position + to_number, result)
                            except _Known:
                                assert known_failures is not None
                                outcome = known_failures[position, 0]
                                result = outcome.error.encode()
                                size = weigh(outcome)
                            except BaseException as error:  # noqa: BLE001 -- an answer, too
                                if touched is not None:
                                    kept = {touched: old} if touched else {}
                                failing = None if method is NO_UPDATE else method
                                outcome = self.fail(error, failing, kept, view, to_number)
                                result = outcome.error.encode()
                                size = weigh(outcome)
                                state = vars(self.object)
                            outcomes[request] = outcome
                            results.append(result)
                            if size > SMALL:
                                sessions.add_weight(session, size)
                            if not request % SWEEP:
                                sessions.sweep(session)

                    if is_mine or (watched and (id, request) in watched):
                        answers.append(Answer(id, request, outcome, standing, command.asked_at))
                self.results = crc32(b"".join(results), self.results)
                results.clear()
                self.view, self.number = view, position + to_number
        finally:
            self._run = None
            current.enter(before)

    def fail(  # noqa: PLR0913, PLR0917 -- called in three places
        self,
        error: BaseException,
        method: Method | None,
        kept: dict[str, object],
        view: ViewId,
        to_number: int,
        index: int = 0,
    ) -> Failed:
        """Leave no trace of an update that raised, and give what its caller is told.

        *kept* is what the fields held that it can have assigned. What could not be set back was
        built anew, as it was before the whole entry.
        """
        position = self.position
        what = f"the update at {position} ({method})"
        if is_of_this_machine(error):
            self.broken = f"{what} ended in {type(error).__name__}, which others may not have met"
            raise ReplicaBroken(self.broken) from error
        definition = self.definition
        if definition.transactional:
            if definition.changes_in_place and not was_clean(error, method):
                if self.rebuild is None:
                    self.broken = f"{what} failed half-way, and nothing is there to undo it with"
                    raise ReplicaBroken(self.broken) from error
                self.object = self.rebuild(position - 1)
            else:
                state = vars(self.object)
                if method is not None and method.touched is None:
                    state.clear()  # it can have set what is no field
                state.update(kept)
        name = as_text(type(error).__name__)
        fields = definition.errors.fields_of(error)
        failed = Failed(position, view, position + to_number, name, self._message(error), fields)
        if self.failures is not None:
            self.failures[position, index] = failed
        return failed

    def _message(self, error: BaseException) -> str:
        try:
            message = str(error)
        except Exception:  # noqa: BLE001 -- the user's own __str__
            message = ""
        return as_text(message[: self.settings.error_chars_max])

    def _control(
        self,
        command: Command,
        run: Run,
        answering: Answering | None,
        known_failures: Failures | None,
    ) -> None:
        """Execute what is not a call; *answering* is there if we proposed it."""
        position = self.position
        sessions = self.sessions
        match command:
            case (
                OpenSession(token=token, asked_at=asked_at)
                | OpenOwnSession(token=token, asked_at=asked_at)
            ):
                number = run.first + position - run.position
                owner = command.owner if isinstance(command, OpenOwnSession) else 0
                session = sessions.open(session_id(run.origin, number, owner), position)
                opened = NotTaken("try again") if session is None else Opened(session.id)
                _answer(answering, 0, token, opened, asked_at)
            case CloseSession(session=id):
                # Without order a call may still be on its way, and must find that it is known.
                closed = Closed() if not self.is_ordered or sessions.close(id) else SESSION_EVICTED
                _answer(answering, id, 0, closed, 0)
            case Read(token=token, asked_at=asked_at):
                if answering is not None:
                    self.view = run.view
                    self.number = run.number + position - run.position
                    _answer(answering, 0, token, self.ask(command), asked_at)
            case Tick():
                self._tick(run, known_failures)
            case Announce():
                learn_versions(self, command, run.origin.id)
            case Compare(position=place, digest=digest):
                if self.comparison is not None:
                    self.compare(self.comparison.said(run.origin.id, place, digest))
            case Reconfigure(to=to):
                learn_members(self, to)
            case _:
                assert isinstance(command, PastLives), "it is for the engine"

    def run_as(self, definition: Definition, replicated: object) -> None:
        """Go on with an object of this version of the class."""
        self.definition = definition
        self.object = replicated
        self._updates = definition.updates

    def compare(self, strayed: str) -> None:
        """Stop if this replica has strayed from the others; note what else was found out."""
        if strayed:
            self.stop(strayed)
        if self.comparison is not None and self.comparison.note:
            self.note(self.comparison.note)
            self.comparison.note = ""

    def stop(self, reason: str) -> NoReturn:
        """Stop for good: others may not have met what happened here."""
        self.broken = reason
        raise ReplicaBroken(reason)

    def _tick(self, run: Run, known_failures: Failures | None) -> None:
        method = self.definition.on_tick
        if method is None or (known_failures and (self.position, 0) in known_failures):
            return
        kept = vars(self.object).copy()
        try:
            method.function(self.object)
            if self.definition.transactional:
                self.definition.check_change(vars(self.object), kept)
        except BaseException as error:  # noqa: BLE001 -- as in execute
            failed = self.fail(error, method, kept, run.view, run.number - run.position)
            # Nobody waits for it, so nobody would hear of it.
            self.note(f"{method} failed at {failed.position}: {failed.error}: {failed.message}")

    # ---- queries

    def ask(self, query: Read) -> Done | Failed:
        """Execute a query on the present state; the answer says which that is."""
        before = current.enter(self)
        run, self._run = self._run, None
        try:
            method = self.definition.method(query.method, MethodKind.QUERY)
            answer = method.function(self.object, *method.read(query.arguments))
            result = method.encode_result(answer)
            method.check_answer(answer, result)
            return Done(self.position, self.view, self.number, result)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            name = as_text(type(error).__name__)
            message, fields = self._message(error), self.definition.errors.fields_of(error)
            return Failed(self.position, self.view, self.number, name, message, fields)
        finally:
            self._run = run
            current.enter(before)

    # ---- the whole state

    def digest(self) -> bytes:
        """Give a digest of the state that equal states share, on any machine."""
        found = digest_of(self)
        self.is_digested = not found.fault
        if found.fault:
            self.note(found.fault)
        self._digested = found.size
        return found.digest

    def digest_if_due(self) -> bytes | None:
        """Give the digest if this is the position for it and the state is not too large.

        The next position is fixed from what is the same on all replicas: how much the state
        seems to weigh, and what it weighed when it was last digested. What is too large is
        skipped; the old weight fades, so that a state that has shrunk is found out.
        """
        if self.position != self.next_digest:
            return None
        settings = self.settings
        weight = max(self.weight, self.definition.weigh(self.object))
        digest = None
        if weight > settings.digest_bytes_max:
            self.weight //= 2
        else:
            digest = self.digest()
            weight = self.weight = self._digested
        self.next_digest += settings.digest_interval * (1 + weight // settings.digest_bytes)
        return digest

    def copy(self) -> StateMachine:
        """Give an equal machine that shares nothing that can change."""
        twin = StateMachine(
            self.latest,
            self.settings,
            seed=self.seed,
            majority=self.majority,
            is_ordered=self.is_ordered,
        )
        twin.run_as(self.definition, self.definition.copy(self.object))
        twin.announcements = self.announcements.copy()
        twin.sessions = self.sessions.copy()
        twin.records = self.records.copy()
        twin.time = self.time.copy()
        twin.position = self.position
        twin.view = self.view
        twin.number = self.number
        twin.results = self.results
        twin.next_digest = self.next_digest
        twin.weight = self.weight
        return twin

    def check_broken(self) -> None:
        """Raise if this machine may have strayed from the others."""
        if self.broken is not None:
            raise ReplicaBroken(self.broken)

    def note(self, fault: str) -> None:
        """Remember something that should not have happened."""
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)


class _Known(Exception):
    """Not an error: a replay meets an update whose failure is known."""


def _answer(
    answering: Answering | None, session: int, request: int, outcome: Outcome, asked: int
) -> None:
    if answering is not None:
        answering.answers.append(Answer(session, request, outcome, answering.standing, asked))
