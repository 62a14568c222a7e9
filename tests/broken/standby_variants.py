"""Deliberately broken variants of edges with standbys: each a rule of the guard left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.broken.llft_variants import LIVENESS, SEQUENCE, BrokenProgram

from coterie.kernel.claims import NO_CLAIM, Order, OrderKind
from coterie.kernel.clock import seconds
from coterie.llft.edge import Edge
from coterie.llft.execution import encode
from coterie.llft.installing import EdgeInstall
from coterie.llft.moving import MovingReplica
from coterie.llft.standby import StandbyEdge
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.llft import OUTAGES
from coterie.simulation.engines.llft.trial import FAULTS, ProgramOptions, ProgramTrial

if TYPE_CHECKING:
    from typing import Any

    from coterie.kernel.claims import PrimaryClaim, ProgramState
    from coterie.kernel.views import Member
    from coterie.llft.messages import ActivateEdge, NewPrimaryView


class MajorityInstalls(MovingReplica):
    """Has another edge begin when most have voted, not all lives of the roster."""

    class Install(EdgeInstall):
        @property
        def is_quorum(self) -> bool:
            return 2 * len(self.votes) > len(self._replica.others) + 1

    install_kind = Install


class AsksEdgesOnly(MovingReplica):
    """Has another edge begin with what it has itself, whatever those who voted know beyond that."""

    class Install(EdgeInstall):
        @property
        def has_longest(self) -> bool:
            return self._replica.has_executed

    install_kind = Install


class ShrinksBelowQuorum(MovingReplica):
    """Leaves everybody else out when it takes over (figure 9, line 9)."""

    def _lead(self, *, with_edge: bool) -> None:
        super()._lead(with_edge=with_edge)
        if self.leading is not None:
            roster = self.execution.roster
            for life in roster.lives:
                roster = roster if life.member == self.me else roster.without(life.member)
            self.leading.make(Order(OrderKind.ROSTER, data=encode(roster), clock=self.leading.now))
            self.leading.flush()


class NamesVote(MovingReplica):
    """Takes the vote of a life that began later for that of the one on the roster."""

    class Install(EdgeInstall):
        @property
        def is_quorum(self) -> bool:
            names = {member.id for member in self.votes}
            return {life.id for life in self._wanted} <= names

    install_kind = Install


class VotesWithWhatIsStored(MovingReplica):
    """Votes with the orders that it knows to be stored, not with all that were ever sent."""

    def _vote(self, claim: PrimaryClaim, edge: str) -> None:
        super()._vote(claim, edge)
        self._discard(max(self.stored, self.kept.number))


class GoesOnBesideTheOldEdge(MovingReplica):
    """Votes, and uses the old edge all the same."""

    def _vote(self, claim: PrimaryClaim, edge: str) -> None:
        leading, standing = self.leading, self.standing
        super()._vote(claim, edge)
        self.voted = None
        if leading is not None:
            self.leading, self.standing = leading, standing


class LeadsWithoutARosterLine(StandbyEdge):
    """Lets who was removed lead beside it."""

    def _on_new_primary_view(self, sender: Member, message: NewPrimaryView) -> None:
        Edge._on_new_primary_view(self, sender, message)


class BeginsAllTheSame(StandbyEdge):
    """Begins by a claim that it had promised never to begin by."""

    def _on_activate(self, sender: Member, message: ActivateEdge) -> None:
        self.refused = NO_CLAIM
        super()._on_activate(sender, message)


class NeverRetires(StandbyEdge):
    """Goes on though another has taken its place, and takes orders of whatever epoch."""

    def _on_spoken(self, sender: Member, epoch: int, message: Any) -> None:  # noqa: ANN401
        del epoch
        if self.is_active:
            Edge.receive(self, sender, message)


class KeepsOldInputs(MovingReplica):
    """Moves to another edge with the inputs of the old one."""

    def _move(self, claim: PrimaryClaim, edge: str, state: ProgramState) -> None:
        before = self.buffer
        super()._move(claim, edge, state)
        self.buffer = self.execution.inputs = before
        before.received = max(before.received, state.back)


@dataclass(frozen=True)
class BrokenStandby(BrokenProgram):
    """A variant, and the checks of which one must name it."""

    faults: tuple[str, ...] = (*FAULTS, *OUTAGES)
    duration: int = 12

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = ProgramOptions(
            program="counter",
            standby="yes",
            duration=seconds(self.duration),
            faults=self.faults,
            converge_within=seconds(10),
        )
        kind: Any = self.kind
        which = {"edge_kind" if issubclass(kind, Edge) else "replica_kind": kind}
        trial = ProgramTrial(seed, options, **which)
        return {violation.partition(":")[0] for violation in run_trial(trial).violations}


STANDBYS_BROKEN = (
    BrokenStandby(MajorityInstalls, SEQUENCE, first_seed=17),
    BrokenStandby(AsksEdgesOnly, SEQUENCE, first_seed=13),
    BrokenStandby(VotesWithWhatIsStored, SEQUENCE, first_seed=24),
    BrokenStandby(GoesOnBesideTheOldEdge, SEQUENCE),
    BrokenStandby(NeverRetires, LIVENESS),
    BrokenStandby(KeepsOldInputs, (*SEQUENCE, *LIVENESS), first_seed=104),
)
"""Those that random runs catch soon; `llft/test_standby.py` has the others' orders of events."""
