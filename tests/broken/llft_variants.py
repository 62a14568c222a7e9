"""Deliberately broken variants of leader and followers, most of them from the design's list.

Each is a replica or an edge with one rule changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coterie.kernel.claims import NO_CLAIM, PrimaryClaim
from coterie.kernel.clock import seconds
from coterie.kernel.records import OutputReleased
from coterie.llft.edge import Edge
from coterie.llft.execution import InputBuffer
from coterie.llft.following import ReplicaStanding
from coterie.llft.gone import GoneConnections
from coterie.llft.messages import Beat
from coterie.llft.replica import ProgramReplica
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.llft.clients import PACES
from coterie.simulation.engines.llft.trial import FAULTS, ProgramOptions, ProgramTrial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.claims import OrderRun, Output, ProgramState
    from coterie.kernel.views import Member
    from coterie.llft.connections import EdgeLine
    from coterie.llft.messages import NewPrimaryView, OrdersMade, ViewAnswer

AS_FOUND: dict[str, Any] = {"paces": PACES, "rests": False}
"""Options of runs when most of the seeds that are kept were found: each tells its story by them."""

CUTS = ("partition", "isolation", "flapping", "one-way", "delay", "loss", "duplication")
DEATHS = (*CUTS, "crash", "restart", "pause")
DISKS = ("kill", "power-all", "torn-write", "full-disk", "failing-sync")
MACHINES = tuple(fault for fault in FAULTS if fault not in DISKS)


class NeverFences(Edge):
    """Takes orders of whoever sends the next ones."""

    def _on_orders(self, sender: Member, message: OrdersMade) -> None:
        fence, self.fence = self.fence, message.claim
        super()._on_orders(sender, message)
        self.fence = max(fence, self.fence)


class ReleasesBeforeStoring(Edge):
    """Lets output go that came with orders behind a gap."""

    def _release(self, message: OrdersMade) -> None:
        end = self.log.end
        for output in message.outputs:
            if output.rests_on > end:
                line = self._line(output.conn)
                if line is not None and output.offset == line.released:
                    self._let_go(message, output, line)
        super()._release(message)

    def _let_go(self, message: OrdersMade, output: Output, line: EdgeLine) -> None:
        line.released = line.delivered = output.end
        self.outside.wrote(output.conn, output.data)
        self._report(OutputReleased, outputs=[output], claim=message.claim)


class RepeatsOutput(Edge):
    """Lets output go again that was sent again."""

    def _is_next(self, line: EdgeLine, output: Output) -> bool:
        return output.offset <= line.released


class ForgetsClaim(Edge):
    """Begins each life without the fence."""

    def start(self) -> None:
        self.fence = NO_CLAIM
        super().start()


class EqualViewsFollow(Edge):
    """Lets a claim to a view follow another to the same view, by its precedence."""

    def _is_later(self, claim: PrimaryClaim) -> bool:
        return claim.view >= self.log.last_claim.view


class OpensWhatIsGone(Edge):
    """Forgets connections between programs, and that there ever were such (a story catches it)."""

    def _forget(self, freed: int) -> None:
        super()._forget(freed)
        self.gone = GoneConnections()


class LowerPrecedenceWins(Edge):
    """Of two claims to one view, lets the one of lower precedence win."""

    def _on_new_primary_view(self, sender: Member, message: NewPrimaryView) -> None:
        fence, claim = self.fence, message.claim
        if claim.view == fence.view and claim.precedence < fence.precedence:
            self.fence = NO_CLAIM
        super()._on_new_primary_view(sender, message)
        if self.fence == NO_CLAIM:
            self.fence = fence  # it did not come to that


class SkipsNewPrimaryView(ProgramReplica):
    """Leads with what it has, without asking what the edge holds."""

    def _on_view_answer(self, message: ViewAnswer) -> None:
        if self.standing is ReplicaStanding.RECOVERING and message.claim == self._claim:
            self.current = message.claim
            self._discard(max(self.stored, self.kept.number))
            self._execute()
            self._lead(with_edge=True)


class ViewBeforeItsPoint(ProgramReplica):
    """Enters a view when the first order of it is known, not when it is executed."""

    def _take_orders(self, runs: Iterable[OrderRun]) -> None:
        runs = list(runs)
        super()._take_orders(runs)
        self.execution.view = max([self.execution.view, *(run.claim for run in runs)])


class StateAtWrongPoint(ProgramReplica):
    """Keeps the state under the number of the order after it."""

    def _keep(self, state: ProgramState, *, is_received: bool, is_checkpoint: bool = False) -> None:
        claim = self.log.claim_at(state.number + 1)
        if claim is not None and not is_received:
            state = replace(state, number=state.number + 1, claim=claim)
        super()._keep(state, is_received=is_received, is_checkpoint=is_checkpoint)


class KeepsUnstored(ProgramReplica):
    """Keeps what it made and the edge has not, when it is superseded."""

    def _stop_leading(self) -> None:
        self.leading = None
        self.context.cancel_timer("llft step")
        self._step_back()


class BlockedByDeadProposer(ProgramReplica):
    """Proposes itself no more once it has heard of another proposal (figure 9, line 3)."""

    def _suspects(self, now: int) -> bool:
        is_blocked = self.promised > self.current and self.promised.life != self.me
        return not is_blocked and super()._suspects(now)


class ClockGoesBack(ProgramReplica):
    """Leads by its own clock, whatever the group's was (`TimersRestart`)."""

    def _lead(self, *, with_edge: bool) -> None:
        self.execution.clock = 0
        super()._lead(with_edge=with_edge)


class NeverAsksAgain(ProgramReplica):
    """Sends no Nack."""

    def ask_again(self) -> None:
        pass


class ResetsTooEarly(ProgramReplica):
    """Gives its state up when it has to rejoin, not when it has been sent another."""

    def start(self) -> None:
        super().start()
        if not self._is_founder:
            self.execution.restore(None)
            nothing = replace(self.execution.state(), back=0)
            self.buffer = self.execution.inputs = InputBuffer()
            self._take_state(nothing)


class AcksUnexecuted(ProgramReplica):
    """Acknowledges what it has heard of, not what it has executed and kept."""

    def _tell(self, *, is_leading: bool) -> None:
        known = self.edge_end
        beat = Beat(self.current, is_leading, known, known, self.buffer.last)
        self.context.send(self.others, beat)
        self.send_edge(beat)


class TakesCheckpointsUnseen(ProgramReplica):
    """Keeps a checkpoint in the place of orders that it has not got yet."""

    def _take_checkpoint(self, state: ProgramState) -> None:
        if state.number > self.kept.number:
            self._keep(state, is_received=True, is_checkpoint=True)
            self.stored = max(self.stored, state.number)
            self.execution.restore(state)


@dataclass(frozen=True)
class BrokenProgram:
    """A variant, and the checks of which one must name it."""

    kind: type[ProgramReplica | Edge]
    caught_by: tuple[str, ...]
    faults: tuple[str, ...] = DEATHS
    first_seed: int = 0
    duration: int = 8
    """Of simulated seconds."""
    backups: str = "active"

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.kind.__name__

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = ProgramOptions(
            program="counter",
            duration=seconds(self.duration),
            faults=self.faults,
            backups=self.backups,
            **AS_FOUND,
            converge_within=seconds(10),
        )
        if issubclass(self.kind, Edge):
            trial = ProgramTrial(seed, options, edge_kind=self.kind)
        else:
            trial = ProgramTrial(seed, options, replica_kind=self.kind)
        return {violation.partition(":")[0] for violation in run_trial(trial).violations}


SEQUENCE = (
    *("one chain of primary views", "one sequence of operations", "consecutive subsequence"),
    *("quorum held", "clients saw one program"),
)
LIVENESS = ("a primary view of all", "operations go on")

PROGRAMS_BROKEN = (
    BrokenProgram(NeverFences, SEQUENCE, first_seed=12),
    BrokenProgram(ReleasesBeforeStoring, ("released is ordered",)),
    BrokenProgram(RepeatsOutput, ("released once",)),
    BrokenProgram(ForgetsClaim, ("quorum held",), first_seed=21),
    BrokenProgram(LowerPrecedenceWins, ("quorum held",), MACHINES, first_seed=55),
    BrokenProgram(SkipsNewPrimaryView, SEQUENCE, first_seed=8),
    BrokenProgram(ViewBeforeItsPoint, ("one chain of primary views",)),
    BrokenProgram(StateAtWrongPoint, ("consecutive states", "consecutive subsequence")),
    BrokenProgram(TakesCheckpointsUnseen, ("consecutive states",), backups="logged", duration=10),
    BrokenProgram(KeepsUnstored, SEQUENCE, first_seed=5),
    BrokenProgram(BlockedByDeadProposer, LIVENESS, first_seed=3),
    BrokenProgram(ClockGoesBack, ("group clock monotone",)),
    BrokenProgram(NeverAsksAgain, LIVENESS),
    BrokenProgram(ResetsTooEarly, LIVENESS, ("restart-all", "restart", "crash", "loss")),
    BrokenProgram(AcksUnexecuted, LIVENESS, first_seed=12),
)
