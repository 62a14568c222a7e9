"""The copies of the state that one replica has, and how they go back.

**One copy or two.** An engine that delivers only what is authoritative needs one machine. An
engine that delivers optimistically needs a second, the *authoritative copy*: it executes the same
entries again once they are settled. A roll-back starts from it and replays what is still good;
`weak` reads and snapshots are taken from it. It is made when the first optimistic entry arrives,
and follows in batches (`follow_entries`), or at once when somebody asks for it; so its cost is one
more execution per entry, without decoding of results and answers, and the memory of one more
object. Updates that failed are not run again there; how they ended is known.

**Undoing.** For an update that fails half-way the machine needs the object as it was before
(`coterie.objects.execution.machine`). With two copies that is the authoritative one plus a replay.
With one it is a *starting point* and a replay of the entries since, both bounded; classes whose
fields cannot change in place need neither.

Digests and dumps are taken of what is authoritative, at the same positions on every replica.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from coterie.kernel.comparing import Comparison
from coterie.kernel.engine import Run, Standing
from coterie.kernel.records import StateDigest
from coterie.kernel.transfer import TakeSnapshot, encode_now
from coterie.objects.errors import BadSnapshot, StateNotEncodable
from coterie.objects.execution import snapshots
from coterie.objects.execution.machine import Failures, StateMachine
from coterie.objects.execution.machine_parts import machine_from_parts, parts_of
from coterie.objects.execution.starting_point import StartingPoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.layers import Context
    from coterie.objects.answering import Answering
    from coterie.objects.execution.outcomes import Done, Failed


def _also_into(kept: list[bytes], chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        kept.append(chunk)
        yield chunk


class Copies:
    """The machine that executes what is delivered, and the authoritative one where it is needed."""

    def __init__(
        self,
        machine: StateMachine,
        context: Context,
        take_snapshot: TakeSnapshot = encode_now,
        digested: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self.machine = machine
        """The machine that executes first."""
        self.settings = machine.settings
        self.settled = 0
        """The position up to which everything is authoritative."""
        self.dump: Callable[[int, Iterator[bytes]], None] | None = None
        """Takes the authoritative state every `dump_interval` positions, in chunks."""
        self.faults: deque[str] = deque(maxlen=100)
        """The last faults, for status pages and logs."""
        self.authoritative: StateMachine | None = None
        """The authoritative copy, as far as it has followed; None if one copy is enough."""
        self.start: StartingPoint | None = None
        """Where undoing begins, with one copy."""
        self.digested = digested
        """Learns of each regular digest that follows an executed call."""
        configuration = context.configuration
        self.comparison = (
            Comparison(context.me.id, configuration.members, configuration.majority)
            if self.settings.compare_digests
            else None
        )
        self._results_digested = 0
        self._context = context
        self._take_snapshot = take_snapshot
        # Entries executed above where undoing or the authoritative copy begins, in order.
        self._log: deque[Run] = deque()
        self._log_bytes = 0
        self._log_bytes_max = self.settings.undo_log_bytes
        self._failures: Failures = {}
        self._prepare(machine)

    # ---- executing

    def execute(self, runs: list[Run], answering: Answering, standing: Standing) -> None:
        """Execute entries in order, which an engine delivered with this standing."""
        if not standing.is_final and self.authoritative is None:
            self._begin_to_follow()
        machine = self.machine
        if self.authoritative is None:
            self.settled = runs[-1].last_position
            self._keep_for_undo(runs, machine)
            self._execute_with_digests(machine, runs, answering)
        else:
            self._log.extend(runs)
            machine.execute(runs, answering)
            if standing.is_final:
                self.settle(runs[-1].last_position)
        if machine.faults:
            self._take_faults(machine)

    def settle(self, position: int) -> None:
        """Have what was executed up to *position* count as authoritative."""
        assert position <= self.machine.position, "settled what was never delivered"
        self.settled = position
        copy = self.authoritative
        if copy is None:
            return
        if position - copy.position >= self.settings.follow_entries or (
            copy.next_digest and position >= copy.next_digest
        ):
            self.follow()

    def roll_back(self, position: int) -> None:
        """Forget everything delivered above *position*; it is never below a settled one."""
        assert position >= self.settled, "what is settled is never rolled back"
        if position < self.machine.position:
            assert self.authoritative is not None, "nothing optimistic was delivered"
            copy = self.follow()
            while self._log and self._log[-1].last_position > position:
                run = self._log.pop()
                if run.position <= position:
                    self._log.append(run.up_to(position))
            for failed in [each for each in self._failures if each[0] > position]:
                del self._failures[failed]
            self._context.count("host.rolled_back", self.machine.position - position)
            self.machine = self._replay(copy.copy(), position)
            self._prepare(self.machine)

    def check_broken(self) -> None:
        """Raise `ReplicaBroken` if one of the copies may have strayed from the other replicas."""
        self.machine.check_broken()
        if self.authoritative is not None:
            self.authoritative.check_broken()

    def outcome_of(self, session: int, request: int) -> Done | Failed | None:
        """Give the outcome of a request, if it was executed and is remembered here."""
        return self.machine.sessions.outcome_of(session, request)

    # ---- the whole state

    def snapshot(self) -> Iterator[bytes]:
        """Give the state at the last settled position, in chunks of bounded size."""
        return self._encoded(self.follow())

    def _encoded(self, machine: StateMachine) -> Iterator[bytes]:
        def encode() -> Iterator[bytes]:
            return snapshots.write(parts_of(machine), self.settings.chunk_bytes)

        return self._take_snapshot(encode)

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        """Take over a whole state; the old one stays until the last chunk is read."""
        latest = self.machine.latest
        keeps = any(each.changes_in_place and not each.copies_cheaply for each in latest.versions())
        kept: list[bytes] = []
        machine = machine_from_parts(
            latest,
            self.settings,
            snapshots.read(_also_into(kept, chunks) if keeps else chunks),
            majority=self._context.configuration.majority,
            is_ordered=self.machine.is_ordered,
        )
        if machine.position != position:
            raise BadSnapshot(f"a state of position {machine.position} came for {position}")
        self.machine = machine
        self.authoritative = None
        self._forget_start()
        self.settled = position
        if self.comparison is not None:
            self.comparison.forget()
        self._prepare(machine)
        if keeps and machine.definition.transactional:
            self.start = StartingPoint(machine, kept)

    def digest(self) -> tuple[int, bytes]:
        """Report a digest of the authoritative state now; give its position and the digest."""
        machine = self.follow()
        digest = machine.digest()
        self._take_faults(machine)
        self._report_digest(machine.position, digest)
        return machine.position, digest

    # ---- the authoritative copy, and undoing

    def _begin_to_follow(self) -> None:
        """Make the authoritative copy: what comes now may be rolled back."""
        if self.start is not None and not self._log:
            self.authoritative = self.start.make()
        else:
            self.authoritative = self.machine.copy()
        self._forget_start()

    def follow(self) -> StateMachine:
        """Give the authoritative state, brought up to what is settled."""
        copy = self.authoritative
        if copy is None:
            return self.machine
        if copy.position >= self.settled:
            return copy
        runs: list[Run] = []
        while self._log and self._log[0].position <= self.settled:
            run = self._log.popleft()
            if run.last_position > self.settled:
                self._log.appendleft(run.after(self.settled))
                run = run.up_to(self.settled)
            runs.append(run)
        self._execute_with_digests(copy, runs, None, self._failures)
        for failed in [each for each in self._failures if each[0] <= self.settled]:
            del self._failures[failed]
        self._take_faults(copy)
        return copy

    def _replay(self, machine: StateMachine, position: int) -> StateMachine:
        """Bring a copy up to *position* from the log."""
        runs = [
            run.after(machine.position).up_to(position)
            for run in self._log
            if run.position <= position and run.last_position > machine.position
        ]
        machine.execute(runs, None, self._failures)
        return machine

    def _prepare(self, machine: StateMachine) -> None:
        """Have a machine that executes first able to undo."""
        machine.failures = self._failures
        machine.comparison = self.comparison
        if machine.needs_undoing:
            machine.rebuild = self._rebuild

    def _rebuild(self, position: int) -> object:
        """Give the object as it was at *position*, without what the machine did since."""
        self._context.count("host.rebuilt")
        copy = self.authoritative
        if copy is not None:
            twin = copy.copy()
        else:
            assert self.start is not None, "the log has a beginning"
            twin = self.start.make()
        return self._replay(twin, position).object

    def _keep_for_undo(self, runs: list[Run], machine: StateMachine) -> None:
        """Keep, with one copy, what undoing would need; called before *runs* are executed."""
        if machine.rebuild is None:
            return
        if self.start is None or self._log_bytes > self._log_bytes_max:
            try:
                self.start = StartingPoint(machine)
            except StateNotEncodable as error:
                # The old starting point still serves.
                machine.note(str(error))
                self._log_bytes_max *= 2
            else:
                self._log_bytes_max = max(self.settings.undo_log_bytes, self.start.bytes)
                self._log.clear()
                self._log_bytes = 0
                self._failures.clear()
        self._log.extend(runs)
        self._log_bytes += sum(sum(map(len, run.payloads)) for run in runs)

    def _forget_start(self) -> None:
        self.start = None
        self._log.clear()
        self._log_bytes = 0
        self._failures.clear()

    def _execute_with_digests(
        self,
        machine: StateMachine,
        runs: list[Run],
        answering: Answering | None,
        known_failures: Failures | None = None,
    ) -> None:
        """Execute, stopping where a digest or a dump is due: everywhere at the same positions."""
        while runs and 0 < (due := self._next_stop(machine)) <= runs[-1].last_position:
            machine.execute(
                [run.up_to(due) for run in runs if run.position <= due], answering, known_failures
            )
            runs = [run.after(due) for run in runs if run.last_position > due]
            if due == machine.next_digest:
                digest = machine.digest_if_due()
                if digest is None:
                    self._context.count("host.digests_skipped")
                else:
                    self._report_digest(machine.position, digest)
                    self._compare(machine, digest)
            interval = self.settings.dump_interval
            if self.dump is not None and interval and due % interval == 0:
                self.dump(due, self._encoded(machine))
        if runs:
            machine.execute(runs, answering, known_failures)

    def _compare(self, machine: StateMachine, digest: bytes) -> None:
        """Compare a digest with what others said, and have it said if there is anything new."""
        if self.comparison is None or not machine.is_digested:
            return
        machine.compare(self.comparison.digested(machine.position, digest))
        if self.digested is not None and machine.results != self._results_digested:
            self._results_digested = machine.results
            self.digested(machine.position, digest)

    def _next_stop(self, machine: StateMachine) -> int:
        """Give the next position at which the state is to be looked at; 0 if never."""
        interval = self.settings.dump_interval
        if self.dump is None or not interval or not machine.is_ordered:
            return machine.next_digest
        dump = (machine.position // interval + 1) * interval
        return min(dump, machine.next_digest or dump)

    def _take_faults(self, machine: StateMachine) -> None:
        if machine.faults:
            self._context.count("host.faults", len(machine.faults))
            self.faults.extend(machine.faults)
            machine.faults.clear()

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
