"""Votes for another edge: the quorum of all lives, beside that of the edge and one replica.

Every replica that ever led beside an edge is needed to say what that edge may have stored, and
shown to clients. Who that can be is what rosters say: a leader is on the edge's roster by name, and
orders its own life onto it before anything else. So those are needed who are on the newest roster
that is known to be stored, and on any that an order behind it says (it may be stored, too). A life
that has ended cannot answer; then only the old edge helps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from coterie.kernel.claims import OrderKind
from coterie.llft.longest import LongestOrders, is_ahead
from coterie.llft.messages import ActivateEdge, EdgeVote, Promised, ProposeEdge
from coterie.llft.orders import decode_roster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.claims import PrimaryClaim
    from coterie.kernel.views import Member
    from coterie.llft.following import Following


def vote_of(replica: Following, claim: PrimaryClaim) -> EdgeVote:
    """Say all that is known here, with everything that the program ever sent."""
    log, kept = replica.log, replica.kept
    roster, pending = kept.roster, []
    for number in range(max(kept.number, log.base) + 1, log.end + 1):
        order = log.order(number)
        if order.kind is not OrderKind.ROSTER:
            continue
        if number <= replica.stored:
            roster = decode_roster(order.data)
        else:
            pending.append((number, decode_roster(order.data)))
    inputs = max(replica.buffer.received, replica.buffer.last)
    return EdgeVote(claim, log.end, log.spans, replica.stored, inputs, roster, pending)


def needed(votes: Mapping[Member, EdgeVote]) -> set[Member]:
    """Give the lives that have to vote, by what those say who have voted."""
    newest = max(votes.values(), key=lambda vote: vote.stored)
    rosters = [newest.roster]
    for vote in votes.values():
        rosters += [roster for number, roster in vote.pending if number > newest.stored]
    return {life.member for roster in rosters for life in roster.lives}


class EdgeInstall:
    """One proposer's way to another edge."""

    def __init__(self, replica: Following, claim: PrimaryClaim, edge: str) -> None:
        self._replica = replica
        self.claim = claim
        self.edge = edge
        self.votes: dict[Member, EdgeVote] = {replica.me: vote_of(replica, claim)}
        self.gathering: LongestOrders | None = None
        self.message: ActivateEdge | None = None

    @property
    def is_quorum(self) -> bool:
        """Whether all have voted who have to, and the proposer is one of them."""
        return self._replica.me in self._wanted and self._wanted <= self.votes.keys()

    @property
    def _wanted(self) -> set[Member]:
        return needed(self.votes)

    def proposal(self, epoch: int) -> ProposeEdge:
        """Give the question."""
        return ProposeEdge(self.claim, self.edge, epoch)

    @property
    def silent(self) -> list[str]:
        """Those who have not voted."""
        have = {member.id for member in self.votes}
        return [id for id in self._replica.others if id not in have]

    def gather(self) -> None:
        """Begin to get the longest orders."""
        answers = {
            member.id: Promised(self.claim, vote.last, vote.spans)
            for member, vote in self.votes.items()
            if member != self._replica.me
        }
        self.gathering = LongestOrders(self._replica, self.claim, answers)

    @property
    def has_longest(self) -> bool:
        """Whether everything that anybody who voted has is here, and executed."""
        replica = self._replica
        answers = (Promised(self.claim, vote.last, vote.spans) for vote in self.votes.values())
        return replica.has_executed and not any(is_ahead(each, replica) for each in answers)

    def activation(self) -> ActivateEdge:
        """Give what the edge is to begin with; the same however often it is asked for."""
        if self.message is None:
            replica = self._replica
            log, execution = replica.log, replica.execution
            # What was not read of inputs so far is void with its connections, which end.
            inputs = max(vote.inputs for vote in self.votes.values())
            ended = tuple(sorted(execution.ended))
            state = replace(execution.state(), back=inputs, finished=ended)
            first = max(replica.kept.number, log.base) + 1
            runs = log.runs(first, log.end - first + 1)
            self.message = ActivateEdge(self.claim, state, runs)
        return self.message
