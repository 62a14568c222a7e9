"""The replicated state machine: one object, its sessions and its clock, executing in order.

A machine is a function from its state and the next entry to its next state and an outcome. All
replicas run the same one; nothing in it knows on which of them it is. A host has one machine, or,
where entries arrive before they are authoritative, two (`coterie.objects.host`).

`execute` is the hot path of the whole product. What can be known before is known before (decoders,
the table of methods, which run of entries is whose); what is the same for all entries of a run is
done once for the run; nothing is made for a call that is not kept.

**An update that raises** is an answer like any other, the same on every replica, and leaves no
trace. Setting fields back is done from a copy of the object's `__dict__`, which is taken before
every call and costs next to nothing. That does not help if the update had begun to change a
dictionary or a list in place. Where the update raised before it can have changed anything
(`coterie.objects.clean`), which is what updates do that check first, nothing needs to be done.
Otherwise the object is *rebuilt*: `rebuild`, set by the host, gives an equal machine as of the
position before, and its object takes the place of the damaged one. That is slow, and rare.

Running out of memory inside an update is not the same everywhere, and neither is a signal that
interrupts one. Then the machine stops for good (`ReplicaBroken`), loudly, and the replica must be
started anew. (Endless recursion is the same everywhere: it fails like any other error.)
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NoReturn
from zlib import crc32

import msgspec

from coterie.kernel.engine import Run, Standing
from coterie.kernel.errors import Refused
from coterie.kernel.views import NO_VIEW
from coterie.objects import current
from coterie.objects.announcements import Announcements
from coterie.objects.commands import (
    Announce,
    Call,
    Calls,
    CloseSession,
    Effects,
    OpenSession,
    Read,
    Tick,
    decode_command,
)
from coterie.objects.effects import apply_effects
from coterie.objects.encodable import encode
from coterie.objects.errors import (
    BadSnapshot,
    NotInAnUpdate,
    ReplicaBroken,
    ResultTooLarge,
    StateNotEncodable,
    UnknownMethod,
)
from coterie.objects.group_time import GroupTime
from coterie.objects.methods import Kind
from coterie.objects.outcomes import (
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
from coterie.objects.packed import execute_calls
from coterie.objects.sessions import SMALL, SWEEP, Session, Sessions, session_id, weigh
from coterie.objects.snapshots import FORMAT, FieldPart, Head, SessionPart
from coterie.objects.versions import upgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sized

    from coterie.kernel.views import Member, ReplicaId, ViewId
    from coterie.objects.commands import Command
    from coterie.objects.definition import Definition
    from coterie.objects.methods import Method
    from coterie.objects.settings import HostSettings

PIECE_BYTES = 64 << 10
"""The size aimed at for one piece of a field."""
OUTCOMES_PER_PART = 256
"""Outcomes in one record of a snapshot."""
FAULTS_MAX = 100
"""Faults remembered until the host takes them."""
_NONE = encode(None)


class Place:
    """Where a machine executes at present: who asks there, and what their answers may claim."""

    __slots__ = ("answers", "me", "standing", "watched")

    def __init__(self, me: Member, standing: Standing, watched: set[tuple[int, int]]) -> None:
        self.me = me
        self.standing = standing
        self.watched = watched
        """Requests to answer here although another replica proposed them."""
        self.answers: list[Answer] = []


Failures = dict[tuple[int, int], Failed]
"""How updates failed, by position and by their place in an entry of several."""


class Machine:
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
        self.time = GroupTime(settings.leap, majority)
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
        self.majority = majority
        self._updates = self.definition.updates
        self._run: Run | None = None
        self._digested = 0

    @property
    def needs_undoing(self) -> bool:
        """Whether some version of the class may need the object as it was before an update."""
        return any(each.changes_in_place and each.transactional for each in self.latest.versions())

    # ---- what the running update may ask (`coterie.objects.current`)

    def group_time(self) -> int:
        """Give group time."""
        if not self.is_ordered:
            raise NotInAnUpdate("now() has no meaning without total order: replicas would differ")
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
        place: Place | None = None,
        known_failures: Failures | None = None,
    ) -> None:
        """Execute entries that follow what was executed before.

        With a *place*, those who ask there are answered. *known_failures* are not executed again:
        a replay is told how they ended.
        """
        self.check_broken()
        decode = decode_command
        updates = self._updates
        sessions = self.sessions
        table = sessions.table
        window_max = self.settings.window_requests_max
        result_max = self.settings.result_bytes_max
        is_ordered = self.is_ordered
        keeps_fields = self.definition.transactional
        state = vars(self.object)
        kept = state
        results: list[bytes] = []
        before = current.enter(self)
        try:
            for run in runs:
                view = run.view
                position = run.position - 1
                to_number = run.number - run.position
                is_mine = place is not None and run.origin == place.me
                watched = place.watched if place is not None else None
                clock = -1
                assert position == self.position, "entries must follow each other"
                if not position and self.latest.version > 1:
                    self._begin_with_first(run.payloads[0])
                    state, updates = vars(self.object), self._updates
                self._run = run
                for payload in run.payloads:
                    position += 1
                    self.position = position
                    try:
                        command = decode(payload)
                    except (msgspec.DecodeError, RecursionError) as error:
                        self.note(f"the entry at {position} is no command: {error}")
                        continue
                    if command.clock != clock and is_ordered:
                        clock = command.clock
                        self.time.observe(run.origin.id, clock)
                    if type(command) is Calls:
                        results += execute_calls(
                            self, command, to_number, place, known_failures, is_mine=is_mine
                        )
                        state = vars(self.object)
                        continue
                    if type(command) is not Call:
                        self._control(command, run, place if is_mine else None, known_failures)
                        state = vars(self.object)
                        updates = self._updates
                        keeps_fields = self.definition.transactional
                        continue

                    # Who asks, and have they asked before?
                    request = command.request
                    session = table.get(command.session)
                    outcome: Outcome | None
                    if session is None and not is_ordered:
                        # Its opening is still on its way here: nothing orders the two.
                        session = sessions.open(command.session, position)
                    if session is None:
                        outcome = SESSION_EVICTED
                    elif request < session.lowest:
                        outcome = AlreadyForgotten(session.lowest)
                    else:
                        session.used = position
                        outcomes = session.outcomes
                        if command.lowest > session.lowest:
                            if is_ordered:
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
                            if keeps_fields:
                                kept = state.copy()
                            method = updates.get(command.method)
                            try:
                                if known_failures and (position, 0) in known_failures:
                                    raise _Known  # noqa: TRY301
                                if method is None:
                                    raise UnknownMethod(command.method)  # noqa: TRY301
                                try:
                                    arguments = method.decode(command.arguments)
                                except msgspec.DecodeError:
                                    arguments = method.read(command.arguments)
                                # Written out, because a call with a star is much slower.
                                if method.count == 1:
                                    answer = method.function(self.object, arguments[0])
                                elif method.count == 2:  # noqa: PLR2004
                                    answer = method.function(
                                        self.object, arguments[0], arguments[1]
                                    )
                                else:
                                    answer = method.function(self.object, *arguments)
                                result = _NONE if answer is None else method.encode_result(answer)
                                if type(answer) is not method.plain_result:
                                    method.check_result(result)
                                size = len(result)
                                if size > result_max:
                                    raise ResultTooLarge(  # noqa: TRY301
                                        f"{size} bytes; result_bytes_max is {result_max}"
                                    )
                                outcome = Done(position, view, position + to_number, result)
                            except _Known:
                                assert known_failures is not None
                                outcome = known_failures[position, 0]
                                result = outcome.error.encode()
                                size = weigh(outcome)
                            except BaseException as error:  # noqa: BLE001 -- an answer, too
                                outcome = self.fail(error, method, kept, view, to_number)
                                result = outcome.error.encode()
                                size = weigh(outcome)
                                state = vars(self.object)
                            outcomes[request] = outcome
                            results.append(result)
                            if size > SMALL:
                                sessions.add_weight(session, size)
                            if not request % SWEEP:
                                sessions.sweep(session)

                    if is_mine or (watched and (command.session, request) in watched):
                        assert place is not None
                        place.answers.append(
                            Answer(
                                command.session, request, outcome, place.standing, command.asked_at
                            )
                        )
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

        What could not be set back was built anew, as it was before the whole entry.
        """
        position = self.position
        what = f"the update at {position} ({method})"
        if isinstance(error, MemoryError) or not isinstance(error, Exception | SystemExit):
            self.broken = f"{what} ended in {type(error).__name__}, which others may not have met"
            raise ReplicaBroken(self.broken) from error
        definition = self.definition
        if definition.transactional:
            if definition.changes_in_place and not _is_clean(error, method):
                if self.rebuild is None:
                    self.broken = f"{what} failed half-way, and nothing is there to undo it with"
                    raise ReplicaBroken(self.broken) from error
                self.object = self.rebuild(position - 1)
            else:
                state = vars(self.object)
                state.clear()
                state.update(kept)
        failed = Failed(
            position, view, position + to_number, type(error).__name__, self._message(error)
        )
        if self.failures is not None:
            self.failures[position, index] = failed
        return failed

    def _message(self, error: BaseException) -> str:
        try:
            message = str(error)
        except Exception:  # noqa: BLE001 -- the user's own __str__
            message = ""
        return message[: self.settings.error_chars_max]

    def _control(
        self,
        command: Command,
        run: Run,
        place: Place | None,
        known_failures: Failures | None,
    ) -> None:
        """Execute what is not a call; *place* is there if we proposed it."""
        position = self.position
        sessions = self.sessions
        match command:
            case OpenSession(token=token, asked_at=asked_at):
                number = run.first + position - run.position
                session = sessions.open(session_id(run.origin, number), position)
                opened = NotTaken("try again") if session is None else Opened(session.id)
                _answer(place, 0, token, opened, asked_at)
            case CloseSession(session=id):
                # Without order a call may still be on its way, and must find that it is known.
                closed = Closed() if not self.is_ordered or sessions.close(id) else SESSION_EVICTED
                _answer(place, id, 0, closed, 0)
            case Read(token=token, asked_at=asked_at):
                if place is not None:
                    self.view = run.view
                    self.number = run.number + position - run.position
                    _answer(place, 0, token, self.ask(command), asked_at)
            case Tick():
                self._tick(run, known_failures)
            case Effects():
                self._take_over(command)
            case Announce():
                self._learn_versions(command, run.origin.id)
            case _:
                raise AssertionError(command)

    def _take_over(self, effects: Effects) -> None:
        try:
            apply_effects(self, effects)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            # Whoever executed the call has another class, or another version of it.
            self.broken = f"the effects at {self.position} cannot be applied: {error!r}"
            raise ReplicaBroken(self.broken) from error

    # ---- versions of the class

    def _begin_with_first(self, payload: bytes) -> None:
        try:
            is_announcement = isinstance(decode_command(payload), Announce)
        except (msgspec.DecodeError, RecursionError):
            is_announcement = False
        if not is_announcement and self.is_ordered:
            self._begin_with(1)

    def _learn_versions(self, announce: Announce, replica: ReplicaId) -> None:
        """Take what a replica announced, and change over if it was the last."""
        if self.position == 1:
            self._begin_with(max(announce.known, default=(1, 0))[0])
        announcements = self.announcements
        announcements.take(replica, announce.known, announce.members)
        present = self.definition
        if not announcements.knows(replica, present.version, present.fingerprint):
            self.note(
                f"the group runs version {present.version} of {present.name}, and {replica} has"
                " another class of that version, or none: stop it"
            )
        while True:
            version = self.definition.version + 1
            fingerprints = announcements.fingerprints(version, announce.members)
            if len(fingerprints) > 1:
                self.note(f"replicas have different classes as version {version} of {present.name}")
            if len(fingerprints) != 1 or not self._change_over(version, *fingerprints):
                return

    def _begin_with(self, version: int) -> None:
        """Have the group begin with a version: the latest of whoever spoke first.

        A replica whose class has versions announces them before it says anything else, so a group
        whose history begins with something else is one of version 1.
        """
        definition = self.latest.of_version(version)
        if definition is None:
            self._break(
                f"the group began with version {version} of {self.latest.name}, which is not known"
                " here: start this replica with a release that has it"
            )
        self._run_as(definition, definition.make())

    def _change_over(self, version: int, fingerprint: int) -> bool:
        """Go on as the next version of the class; say whether that worked."""
        later = self.latest.of_version(version)
        if later is None or later.fingerprint != fingerprint:
            self._break(
                f"the group runs version {version} of {self.latest.name} from {self.position} on,"
                " which is not known here: start this replica with a release that has it"
            )
        try:
            made = upgrade(later, self.definition, self.object)
            later.check(made)
        except BaseException as error:  # noqa: BLE001 -- as in execute
            if isinstance(error, MemoryError) or not isinstance(error, Exception):
                self._break(
                    f"the upgrade to version {version} ended in {type(error).__name__}, which"
                    " others may not have met"
                )
            self.note(
                f"the upgrade of {later.name} to version {version} at {self.position} failed, and"
                f" the group goes on with version {self.definition.version}: {error!r}"
            )
            return False
        self._run_as(later, made)
        return True

    def _run_as(self, definition: Definition, replicated: object) -> None:
        self.definition = definition
        self.object = replicated
        self._updates = definition.updates

    def _break(self, reason: str) -> NoReturn:
        self.broken = reason
        raise ReplicaBroken(reason)

    def _tick(self, run: Run, known_failures: Failures | None) -> None:
        method = self.definition.on_tick
        if method is None or (known_failures and (self.position, 0) in known_failures):
            return
        kept = vars(self.object).copy()
        try:
            method.function(self.object)
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
            method = self.definition.method(query.method, Kind.QUERY)
            answer = method.function(self.object, *method.read(query.arguments))
            result = method.encode_result(answer)
            method.check_result(result)
            return Done(self.position, self.view, self.number, result)
        except Exception as error:  # noqa: BLE001 -- an answer, too
            name = type(error).__name__
            return Failed(self.position, self.view, self.number, name, self._message(error))
        finally:
            self._run = run
            current.enter(before)

    # ---- the whole state

    def digest(self) -> bytes:
        """Give a digest of the state that equal states share, on any machine."""
        hashed = blake2b(digest_size=16)
        try:
            data = self.definition.canonical_state(self.object)
        except StateNotEncodable as error:
            # The same on every replica, and no reason for all of them to stop at once.
            self.note(str(error))
            data = str(error).encode()
        hashed.update(data)
        sessions = self.sessions
        rest = (self.position, self.results, len(sessions), sessions.bytes, sessions.evicted)
        if self.is_ordered:
            hashed.update(encode((rest, self.time.value, self.time.to_clocks())))
        announced = self.announcements.to_list()
        if announced:
            hashed.update(encode((self.definition.version, announced)))
        self._digested = len(data)
        return hashed.digest()

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

    def parts(self) -> Iterator[Head | SessionPart | FieldPart]:
        """Give the state in parts, for a snapshot."""
        yield Head(
            FORMAT,
            self.definition.name,
            self.position,
            self.view,
            self.number,
            self.seed,
            self.results,
            self.next_digest,
            self.weight,
            self.sessions.evicted,
            self.time.value,
            self.time.to_clocks(),
            self.definition.version,
            self.definition.fingerprint,
            self.announcements.to_list(),
        )
        for session in self.sessions.in_order():
            outcomes = [
                (number, outcome.of(number) if isinstance(outcome, AllDone) else outcome)
                for number, outcome in session.outcomes.items()
            ]
            for start in range(0, len(outcomes) or 1, OUTCOMES_PER_PART):
                some = outcomes[start : start + OUTCOMES_PER_PART]
                yield SessionPart(session.id, session.used, session.lowest, some)
        for name, data in self.definition.pieces(self.object, PIECE_BYTES):
            yield FieldPart(name, data)

    @classmethod
    def from_parts(
        cls,
        definition: Definition,
        settings: HostSettings,
        parts: Iterator[Head | SessionPart | FieldPart],
        *,
        majority: int,
        is_ordered: bool = True,
    ) -> Machine:
        """Make a machine from its parts; raise `BadSnapshot` if that cannot be."""
        head = next(parts, None)
        if not isinstance(head, Head):
            raise BadSnapshot("a state begins without a head: it is none of ours")
        if head.format > FORMAT:
            raise BadSnapshot(f"a state has format {head.format}; this release reads {FORMAT}")
        if head.class_name != definition.name:
            raise BadSnapshot(f"a state is of {head.class_name}, not of {definition.name}")
        machine = cls(
            definition, settings, seed=head.seed, majority=majority, is_ordered=is_ordered
        )
        machine.position = head.position
        machine.view = head.view
        machine.number = head.number
        machine.results = head.results
        machine.next_digest = head.next_digest
        machine.weight = head.weight
        machine.sessions.evicted = head.evicted
        machine.time = GroupTime.from_clocks(settings.leap, majority, head.time, head.clocks)
        present = _present(definition, head)
        machine.announcements = Announcements(head.announced)
        try:
            machine._run_as(present, present.assemble(machine._take_sessions(parts)))
        except (msgspec.DecodeError, TypeError, ValueError, StateNotEncodable) as error:
            raise BadSnapshot(f"a state of {definition.name} cannot be read: {error}") from error
        return machine

    def _take_sessions(
        self, parts: Iterator[Head | SessionPart | FieldPart]
    ) -> Iterator[tuple[str, bytes]]:
        """Take the sessions in, and give the pieces of the object that follow."""
        for part in parts:
            if isinstance(part, SessionPart):
                session = Session(part.id, part.used, part.lowest)
                self.sessions.take(session, part.outcomes)
            elif isinstance(part, FieldPart):
                yield part.name, part.data

    def copy(self) -> Machine:
        """Give an equal machine that shares nothing that can change."""
        twin = Machine(
            self.latest,
            self.settings,
            seed=self.seed,
            majority=self.majority,
            is_ordered=self.is_ordered,
        )
        twin._run_as(self.definition, self.definition.copy(self.object))
        twin.announcements = self.announcements.copy()
        twin.sessions = self.sessions.copy()
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


def _present(latest: Definition, head: Head) -> Definition:
    """Give the version of the class that a state is of."""
    present = latest.of_version(head.version)
    if present is None:
        known = ", ".join(str(each.version) for each in latest.versions())
        if head.version > latest.version:
            advice = "start this replica with a release that has it"
        else:
            advice = f"keep the class of version {head.version} as previous, until all have changed"
        raise BadSnapshot(
            f"a state is of version {head.version} of {latest.name}, and here is only {known}:"
            f" {advice}"
        )
    if head.fingerprint not in {0, present.fingerprint}:
        raise BadSnapshot(
            f"a state is of another class than {latest.name} of version {present.version} here,"
            f" whose methods or fields differ: give the changed class version ="
            f" {present.version + 1} and keep the old one as previous"
        )
    return present


class _Known(Exception):
    """Not an error: a replay meets an update whose failure is known."""


def _answer(place: Place | None, session: int, request: int, outcome: Outcome, asked: int) -> None:
    if place is not None:
        place.answers.append(Answer(session, request, outcome, place.standing, asked))


def _is_clean(error: BaseException, method: Method | None) -> bool:
    """Say whether an update surely had changed nothing when it raised."""
    if method is None:
        return True
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not method.code:
        traceback = traceback.tb_next
    if traceback is None:
        # It was never entered, if its arguments were at fault; or it has returned.
        return isinstance(error, Refused)
    return traceback.tb_lasti in method.clean_offsets
