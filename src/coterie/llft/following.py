"""Following: orders and inputs are taken as they come from the edge, and executed.

The base of `coterie.llft.replica.ProgramReplica`. Leading and following share everything here: the
log, the inputs, the execution, the kept state.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.claims import OrderKind
from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Layer
from coterie.kernel.records import (
    ClaimPromised,
    Diverged,
    ExecutedUpTo,
    InputsHeld,
    OrdersKnown,
    OrdersStored,
    PrimaryViewStarted,
    ProgramStateTaken,
    RosterAccepted,
    SideBranchDiscarded,
)
from coterie.llft.connections import EDGE
from coterie.llft.execution import Execution, InputBuffer
from coterie.llft.messages import Beat, Handed, Inputs, Nack, Reflected
from coterie.llft.orders import OrderLog
from coterie.llft.programs import DivergedError
from coterie.llft.settings import Backups, Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coterie.kernel.claims import Order, OrderRun, Output, PrimaryClaim, ProgramState, Roster
    from coterie.kernel.layers import Context
    from coterie.llft.memory import ReplicaMemory
    from coterie.llft.programs import OrderedProgram
    from coterie.llft.settings import LlftSettings


class ReplicaStanding(enum.Enum):
    """What a replica is doing in its group."""

    JOINING = "joining"
    """Not on the roster, or without a state that is sure; what it has, it keeps."""
    BACKUP = "backup"
    PROPOSING = "proposing"
    """Phase one: asking whom it would lead."""
    RECOVERING = "recovering"
    """Phase two: getting everything that the edge holds."""
    PRIMARY = "primary"


class Following(Layer):
    """The part of a replica that executes."""

    name = "LLFT"

    def __init__(  # noqa: PLR0913 -- built in one place
        self,
        context: Context,
        *,
        edge: str,
        roster: Roster,
        make_program: Callable[[], OrderedProgram],
        memory: ReplicaMemory,
        settings: LlftSettings,
    ) -> None:
        super().__init__(context)
        self.has_left = False
        self.highest = 0
        self.me = context.me
        self.settings = settings
        self.is_guarded = settings.guard is Guard.QUORUM
        self.edge = edge
        self.replicas = list(context.configuration.members)
        self.others = [id for id in self.replicas if id != self.me.id]
        self.standing = ReplicaStanding.JOINING
        self.promised: PrimaryClaim = memory.promised
        self.current: PrimaryClaim = memory.log.last_claim
        """The claim that the edge takes orders of, as far as is known."""
        self.following: PrimaryClaim = self.current
        """Without a guard: the claim whose orders are known to continue ours."""
        self.stored = memory.stored
        """The edge has all orders up to here, and they are ours."""
        self.freed = 0
        """The edge has no orders up to here any more."""
        self._make_program = make_program
        self.log: OrderLog = memory.log.copy()
        self.buffer = InputBuffer()
        self.execution = Execution(make_program, self.buffer, roster)
        self.is_logged = settings.backups is Backups.LOGGED
        """Whether backups execute nothing, and are sent states."""
        self.execution.is_logging = self.is_logged
        self.kept: ProgramState = memory.state or self.execution.state()
        """The last state that was kept; at first, the one before all orders."""
        self.outputs: dict[int, list[Output]] = {}
        """By order: output that the edge is not known to have; the next leader sends it."""
        self.edge_end = 0
        """So many orders the edge is known to have."""
        self.delivered: dict[str, int] = {}
        """How much of each connection's output was taken outside."""
        self.has_diverged = False
        """Whether execution did not do what an order says: it needs a state, and never leads."""
        self.is_hopeless = False
        """Whether it diverged again at the same order, with a state of the primary's."""
        self._diverged_at = 0
        self.is_stuck = False
        """Without a guard: whether it lacks input that nobody has any more."""
        self.first_input = 1
        """The edge has no inputs before this one any more."""
        self.edge_heard_at: int = -(1 << 60)
        self._digests: list[int] = []
        self._recall(memory)

    def _recall(self, memory: ReplicaMemory) -> None:
        """Begin where the last life was, as far as it is sure."""
        self.execution.restore(self.kept)
        self.buffer.free(self.kept)
        self.buffer.take(memory.inputs.values())
        if self.is_guarded and self.log.end > self.stored:
            # Made here, and perhaps never stored: nothing that left rests on it.
            self._discard(max(self.stored, self.log.base))
        self._execute()

    # ---- orders

    def _on_reflected(self, message: Reflected) -> None:
        self.edge_heard_at = self.context.now
        if message.claim > self.current:
            self._superseded_by(message.claim)
        if not self._may_follow(message) or self._leads_alone:
            return
        self.freed, self.edge_end = message.freed, message.last
        self.delivered.update(message.delivered)
        if len(self.delivered) > 2 * len(message.delivered) + 64 and message.delivered:
            self.delivered = dict(message.delivered)  # connections that are long gone
        if not self._leads:
            self._take_orders(message.runs)
        if self.is_guarded or self._is_of_our_branch(message):
            self._store_up_to(min(message.stored, self.log.end))
        self._execute()

    def _is_of_our_branch(self, message: Reflected) -> bool:
        """Without a guard: it may have left before the edge gave another branch up for this one."""
        known = self.log.claim_at(message.last)
        return message.last_claim == (message.claim if known is None else known)

    def _may_follow(self, message: Reflected) -> bool:
        """Say whether the edge's orders are known to continue ours."""
        return self.is_guarded or message.claim == self.following

    @property
    def _leads(self) -> bool:
        """Whether the orders are its own: nobody can tell it of one that it has not made."""
        return False

    @property
    def _leads_alone(self) -> bool:
        """Without a guard: whether it makes orders that its edge does not get."""
        return False

    def _take_orders(self, runs: Iterable[OrderRun]) -> None:
        new = self.log.extend(runs)
        if new:
            self.report(OrdersKnown, runs=new)

    def _store_up_to(self, number: int) -> None:
        if number > self.stored:
            self.stored = number
            self.outputs = {n: each for n, each in self.outputs.items() if n > number}
            self.report(OrdersStored, number=number)

    def _discard(self, number: int) -> None:
        """Give up orders above a number; what was executed of them is undone by replaying."""
        self.say_executed()
        claim = self.log.last_claim
        count = self.log.cut(number)
        self.outputs = {n: each for n, each in self.outputs.items() if n <= number}
        if count:
            was_stored = self.stored > number
            self.stored = min(self.stored, number)
            self.report(
                SideBranchDiscarded,
                number=number,
                count=count,
                was_stored=was_stored,
                claim=claim,
            )
        if self.execution.number > number:
            self._rebuild()

    def _rebuild(self) -> None:
        """Execute anew from the last kept state on."""
        self.say_executed()
        assert self.kept.number <= self.log.end, "the kept state stands"
        self.execution.restore(self.kept)
        self._execute()

    # ---- inputs

    def _on_inputs(self, message: Inputs) -> None:
        new = self.buffer.take(message.inputs)
        self.buffer.last = max(self.buffer.last, message.last)
        self.first_input = message.first
        if not self.is_guarded and self.standing is ReplicaStanding.PRIMARY:
            self.buffer.skip(message.first - 1)
        if new:
            self.report(InputsHeld, inputs=new)
            self._execute()

    def ask_again(self) -> None:
        """Ask the edge for what is missing (Nack)."""
        orders = self.log.end + 1 if self._lacks_orders() else 0
        inputs = self.buffer.received + 1 if self.buffer.received < self.buffer.last else 0
        if orders or inputs:
            self.send_edge(Nack(orders, inputs))

    @property
    def needs_state(self) -> bool:
        """Whether the edge no longer has what execution would need here."""
        lacks_inputs = self.buffer.received + 1 < self.first_input
        return self.log.end < self.freed or lacks_inputs or self.has_diverged or self.is_stuck

    def _lacks_orders(self) -> bool:
        return self.edge_end > self.log.end >= self.freed

    # ---- executing

    def sure_orders(self, number: int) -> Iterator[tuple[int, Order]]:
        """Give the orders behind a number that may be executed, each with its own."""
        for each in range(max(number, self.log.base) + 1, self._executable_end() + 1):
            yield each, self.log.order(each)

    def went_on(self) -> None:
        """Learn that a program in another process has executed more."""
        self._execute()

    def _execute(self) -> None:
        """Execute everything that is sure and whose input is here."""
        execution, log = self.execution, self.log
        end = 0 if self.has_diverged else self._executable_end()
        while execution.number < end:
            number = execution.number + 1
            claim, order = log.claim_at(number), log.order(number)
            assert claim is not None
            if not execution.can_perform(order) or self.perform(claim, order) is None:
                break
        self.say_executed()
        self._maybe_keep()

    def _executable_end(self) -> int:
        """Up to where orders may be executed: what the edge has is never taken back.

        Without a guard a leader may have no edge, and followers execute what they are told. States
        are kept only where the edge has the orders, so what is void later can be undone.
        """
        return min(self.stored, self.log.end) if self.is_guarded else self.log.end

    def perform(self, claim: PrimaryClaim, order: Order) -> list[Output] | None:
        """Perform one order and note what it looked like; nothing where execution diverges."""
        execution = self.execution
        before = execution.view
        try:
            outputs = execution.perform(claim, order)
        except DivergedError as error:
            number = execution.number + 1
            self.report(Diverged, number=number, reason=str(error))
            self.has_diverged = True
            self.is_hopeless = number == self._diverged_at
            self._diverged_at = number
            return None
        if not execution.is_logging:
            self._digests.append(execution.digest)
        if outputs and execution.number > self.stored:
            self.outputs[execution.number] = outputs
        if order.kind is OrderKind.VIEW:
            self.report(
                PrimaryViewStarted,
                claim=claim,
                after=before,
                number=execution.number,
                roster=execution.roster,
            )
        elif order.kind is OrderKind.ROSTER:
            roster, number = execution.roster, execution.number
            self.report(RosterAccepted, roster=roster, number=number, claim=claim)
            self._roster_changed()
        return outputs

    def say_executed(self) -> None:
        """Put on record what was executed since the last time."""
        digests, self._digests = self._digests, []
        if digests:
            execution = self.execution
            self.report(
                ExecutedUpTo,
                number=execution.number,
                claim=execution.claim,
                first=execution.number - len(digests) + 1,
                digests=digests,
                clock=execution.clock,
            )

    def _maybe_keep(self) -> None:
        """Keep the state now and then, where no claim can make it void."""
        execution = self.execution
        if (
            not execution.is_logging
            and execution.number >= self.kept.number + self.settings.state_every
            and execution.number <= self.stored
        ):
            self._keep(execution.state(), is_received=False)

    def _keep(self, state: ProgramState, *, is_received: bool, is_checkpoint: bool = False) -> None:
        self.kept = state
        self.report(
            ProgramStateTaken, state=state, is_received=is_received, is_checkpoint=is_checkpoint
        )
        self.buffer.free(state)
        if not is_received:
            self.execution.forget()
        if is_received and self.log.claim_at(state.number) != state.claim:
            self.log = OrderLog(state.number, state.claim)
        else:
            self.log.free(state.number)

    def _take_checkpoint(self, state: ProgramState) -> None:
        """Keep a state of the primary's in the place of the orders before it, which are here."""
        is_here = self.log.claim_at(state.number) == state.claim
        if is_here and self.kept.number < state.number <= min(self.stored, self.execution.number):
            self._keep(state, is_received=True, is_checkpoint=True)

    def execute_log(self) -> None:
        """Have a logged backup execute all that it has, because it is to lead."""
        if self.execution.is_logging:
            self.execution.is_logging = False
            self._rebuild()

    def log_again(self) -> None:
        """Be a backup again: one that executes nothing, if backups are logged."""
        self.say_executed()
        self.execution.is_logging = self.is_logged

    def _take_state(self, state: ProgramState) -> None:
        """Become what the primary was at a virtual synchrony point; only now the old state goes."""
        self.say_executed()
        if not self.is_guarded:  # with the guard what is here is only behind, never another branch
            self._leave_branch(state)
        self.stored, self.outputs = state.number, {}
        self._keep(state, is_received=True)
        self.execution.restore(state)
        self.has_diverged = False
        self._execute()

    def _look_at(self, state: ProgramState) -> None:
        """Refuse a state that cannot be read, before it is kept: no start would get over it."""
        try:
            self._make_program().restore(state.program)
        except msgspec.DecodeError as error:
            raise BadMessage(f"a state of the program that is none: {error}") from None

    def _leave_branch(self, state: ProgramState) -> None:
        """Give up everything that may not be the sender's: it has the orders behind the state.

        Even a state before the first order is nobody's in particular.
        """
        log = self.log
        at = state.number if log.claim_at(state.number) == state.claim else log.base
        if log.end > at:
            self.report(
                SideBranchDiscarded,
                number=at,
                count=log.end - at,
                was_stored=self.stored > at,
                claim=log.last_claim,
            )
            log.cut(at)
        last, self.buffer = self.buffer.last, InputBuffer()
        self.buffer.last, self.execution.inputs = last, self.buffer

    # ---- orders of another replica

    @property
    def has_executed(self) -> bool:
        """Whether everything that is known here is executed."""
        return self.execution.number == self.log.end

    def take_handed(self, message: Handed, common: int) -> None:
        """Without an edge: go on behind the last common order with what another replica has."""
        state = message.state
        if state is not None and state.number > self.execution.number:
            self._look_at(state)
            self._take_state(state)
        elif message.runs and message.runs[0].first == common + 1 >= self.kept.number + 1:
            self._discard(common)
        self._take_orders(message.runs)
        new = self.buffer.take(message.inputs)
        if new:
            self.report(InputsHeld, inputs=new)
        self._execute()

    # ---- what leading and membership add

    def _superseded_by(self, claim: PrimaryClaim) -> None:
        """Learn that the edge takes orders of a higher claim now."""

    def _roster_changed(self) -> None:
        """Learn that an order with a roster was executed."""

    # ---- speaking

    def _promise(self, claim: PrimaryClaim) -> None:
        """Follow no lower claim; it is stable before anything that rests on it leaves."""
        if claim > self.promised:
            self.promised = claim
            self.report(ClaimPromised, claim=claim)

    def _tell(self, *, is_leading: bool) -> None:
        """Heartbeat, second acknowledgement and what can be freed, for everybody."""
        kept = self.kept
        beat = Beat(self.current, is_leading, self.execution.number, kept.number, kept.back)
        self.context.send(self.others, beat)
        self.send_edge(beat)

    def send_edge(self, message: msgspec.Struct) -> None:
        """Send the edge something."""
        self.context.send_to(self.context.group + EDGE, [self.edge], message)

    def _send(self, ids: Sequence[str], message: msgspec.Struct) -> None:
        self.context.send(ids, message)

    def report(self, kind: Any, **fields: object) -> None:  # noqa: ANN401 -- a kind of record
        """Put something on record."""
        context = self.context
        context.report(kind(group=context.group, member=self.me, at=context.now, **fields))
