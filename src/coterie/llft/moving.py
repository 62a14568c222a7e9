"""A replica whose edge has a standby: it can move from one edge to the other.

Beside a silent edge a proposer asks all for their *votes* (`coterie.llft.installing`). Who votes
stops its program, says all that it ever sent, and uses no older edge again, unless the new one
promises never to begin by that claim. With the votes of all that are needed the proposer gets the
longest orders there are, executes them, and has the other edge begin with the state behind them.
Everybody else is told by that edge, and takes that state over.

The guard is that of `coterie.llft.replica`: this adds the second kind of quorum to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from coterie.kernel.errors import BadMessage
from coterie.kernel.records import EdgeMoved, EdgeRefused, EdgeVoted, SideBranchDiscarded
from coterie.llft.connections import EDGE
from coterie.llft.execution import InputBuffer
from coterie.llft.following import ReplicaStanding
from coterie.llft.installing import EdgeInstall, vote_of
from coterie.llft.messages import (
    AskBegun,
    AskRefusal,
    AtEdge,
    ClaimDeclined,
    ClaimSuperseded,
    EdgeBegun,
    EdgeDeclined,
    EdgeVote,
    Handed,
    Nack,
    ProposeEdge,
    standby_decoder,
)
from coterie.llft.replica import ProgramReplica

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from coterie.kernel.claims import PrimaryClaim, ProgramState
    from coterie.kernel.views import Member
    from coterie.llft.memory import ReplicaMemory
    from coterie.llft.orders import OrderLog

ASK_EVERY = 4
"""At every so many beats a doubtful edge is asked."""


class MovingReplica(ProgramReplica):
    """One replica of a program with two edges."""

    install_kind: ClassVar[type[EdgeInstall]] = EdgeInstall

    def __init__(
        self,
        context: Any,  # noqa: ANN401 -- as of all layers
        *,
        memory: ReplicaMemory,
        edges: Sequence[str],
        **parts: Any,  # noqa: ANN401 -- of a replica
    ) -> None:
        self._install: EdgeInstall | None = None
        self.epoch = 0
        """The view with which the edge began that is used here."""
        edge = edges[0]
        if memory.edge is not None:
            self.epoch, edge = memory.edge[0].view, memory.edge[1]
        self.voted: tuple[PrimaryClaim, str] | None = memory.voted
        """Which edge was agreed to since; no other is used until that is settled."""
        self.edges = list(edges)
        self._sent: OrderLog | None = None
        """What a leader that was stopped here had sent, as long as it may count."""
        self._voted_at = self._asked_at = self._begun_at = context.now
        super().__init__(context, edge=edge, memory=memory, **parts)

    # ---- what the process calls

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message."""
        return standby_decoder.decode(message)

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- as the kernel says
        """Take a message."""
        is_edge = sender.id in self.edges
        match message:
            case AtEdge(epoch=epoch, message=inner) if is_edge:
                self._on_edge_spoke(sender, epoch, inner)
            case EdgeBegun() if is_edge:
                self._on_begun(sender, message)
            case EdgeDeclined(claim=claim) if is_edge:
                self._on_declined(sender, claim)
            case _ if is_edge:
                raise BadMessage("which epoch that is of is not said")
            case ProposeEdge() if sender.id in self.others:
                self._on_propose_edge(sender, message)
            case EdgeVote() if sender.id in self.others:
                self._on_vote(sender, message)
            case AtEdge() | EdgeBegun() | EdgeDeclined() | AskBegun() | AskRefusal():
                raise BadMessage("only edges and their users say that")
            case _:
                super().receive(sender, message)

    def _on_edge_spoke(self, sender: Member, epoch: int, inner: Any) -> None:  # noqa: ANN401
        if epoch == self.epoch and sender.id == self.edge:
            if self.voted is None:
                super().receive(sender, inner)
        elif epoch < self.epoch:
            # It does not know yet that another has taken its place.
            self._tell_edge(sender.id, AtEdge(self.epoch, Nack(0, 0)))
        elif self.voted is None or epoch >= self.voted[0].view:
            self._ask_now_and_then(sender.id, AskBegun())

    def _beat(self) -> None:
        now = self.context.now
        if self.voted is not None and now - self._voted_at > self.settings.vote_patience:
            claim, edge = self.voted
            self._ask_now_and_then(edge, AskRefusal(claim))
        if self.leading is not None and self._silent_for(self.settings.edge_patience):
            # Perhaps nobody else is left on the roster to ask for another edge.
            self._stop_leading()
            self._propose()
        super()._beat()

    # ---- all that was ever sent

    def _stop_leading(self) -> None:
        self._remember_sent()
        super()._stop_leading()

    def _remember_sent(self) -> None:
        """Keep a copy of what is here: the edge may have more of it than is known."""
        if self.log.end > self.stored:
            self._sent = self.log.copy()

    def _take_state(self, state: ProgramState) -> None:
        self._make_room_for(state, at_end=False)
        super()._take_state(state)

    def _make_room_for(self, state: ProgramState, *, at_end: bool) -> None:
        """Give up what does not lead to a state; with *at_end* also what is behind it."""
        log = self.log
        is_here = log.claim_at(state.number) == state.claim
        end = state.number if is_here else max(log.base, min(self.stored, log.end))
        if log.end > end and (at_end or not is_here):
            was, count = log.last_claim, log.cut(end)
            self.report(SideBranchDiscarded, number=end, count=count, was_stored=False, claim=was)

    def _recall_sent(self) -> None:
        """Have again what was sent, unless a later leader has learned all that the edge had."""
        sent, log = self._sent, self.log
        if sent is not None and (sent.last_claim, sent.end) > (log.last_claim, log.end):
            self._take_orders(sent.runs(log.end + 1, sent.end - log.end))

    def _ask_now_and_then(self, edge: str, message: msgspec.Struct) -> None:
        now = self.context.now
        if now - self._asked_at >= ASK_EVERY * self.settings.beat:
            self._asked_at = now
            self._tell_edge(edge, message)

    def _tell_edge(self, edge: str, message: msgspec.Struct) -> None:
        self.context.send_to(self.context.group + EDGE, [edge], message)

    def send_edge(self, message: Any) -> None:  # noqa: ANN401 -- of a message
        """Send the edge something, unless another was agreed to."""
        if self.voted is None:
            self._tell_edge(self.edge, AtEdge(self.epoch, message))

    # ---- voting

    @property
    def _is_edge_silent(self) -> bool:
        return self._silent_for(self.settings.suspect_after)

    def _silent_for(self, patience: int) -> bool:
        heard = max(self.edge_heard_at, self._begun_at)
        return self.voted is not None or self.context.now - heard > patience

    def _on_propose_edge(self, sender: Member, message: ProposeEdge) -> None:
        """Vote, unless the edge is there, or a higher claim was promised."""
        claim = message.claim
        self._highest_view = max(self._highest_view, claim.view)
        if claim < self.promised:
            self._send([sender.id], ClaimSuperseded(self.promised, by_edge=False))
            return
        is_known = self.voted == (claim, message.edge)
        if (
            message.epoch != self.epoch
            or message.edge == self.edge
            or not (is_known or self._is_edge_silent)
        ):
            self._send([sender.id], ClaimDeclined(claim, by_edge=False))
            return
        if not is_known:
            if self.standing in {ReplicaStanding.PROPOSING, ReplicaStanding.RECOVERING}:
                self._step_back()
            self._vote(claim, message.edge)
        self._heard_at = self.context.now
        self._send([sender.id], vote_of(self, claim))

    def _vote(self, claim: PrimaryClaim, edge: str) -> None:
        """Stop, keep all that was ever sent, and use no older edge."""
        self._promise(claim)
        if self.voted is None:
            self._voted_at = self.context.now
        self.voted = claim, edge
        self.report(EdgeVoted, claim=claim, edge=edge)
        if self.leading is not None:
            self._stop_leading()
        self._recall_sent()

    def _on_declined(self, sender: Member, claim: PrimaryClaim) -> None:
        """Learn that an edge never begins by a claim: go back to the one before."""
        if self.voted is None or sender.id != self.voted[1] or claim < self.voted[0]:
            return
        self.voted = None
        self.report(EdgeRefused, claim=claim)
        if self.standing in {ReplicaStanding.PROPOSING, ReplicaStanding.RECOVERING}:
            self._step_back()
        self._install = None
        self._remember_sent()
        self._discard(max(self.stored, self.kept.number))
        self._heard_at = self.context.now

    # ---- installing

    def _step_back(self) -> None:
        self._install = None
        super()._step_back()

    def _recover_again(self, now: int) -> None:
        if self._install is not None:
            self._go_on_installing(now)
        elif self._target is None and self._may_install:
            self._begin_installing()
        else:
            super()._recover_again(now)

    @property
    def _may_install(self) -> bool:
        line = self.execution.roster.find(self.me)
        is_whole = line is not None and line.is_whole and not self.has_diverged
        return is_whole and self._silent_for(self.settings.edge_patience)

    def _begin_installing(self) -> None:
        assert self._claim is not None
        [other] = [edge for edge in self.edges if edge != self.edge]
        self._vote(self._claim, other)
        self._since = self.context.now
        self._install = self.install_kind(self, self._claim, other)
        self._go_on_installing(self._since)

    def _go_on_installing(self, now: int) -> None:
        install = self._install
        assert install is not None
        if now - self._since > self.settings.recovery_max:
            self._step_back()
        elif install.gathering is None and not install.is_quorum:
            self._send(install.silent, install.proposal(self.epoch))
        elif install.gathering is None:
            self.execute_log()
            install.gather()
            self._execute()
            self._go_on_gathering()
        else:
            self._go_on_gathering()

    def _go_on_gathering(self) -> None:
        install = self._install
        assert install is not None
        assert install.gathering is not None
        if install.has_longest:
            self._tell_edge(install.edge, install.activation())
        elif install.gathering.is_over:
            self._step_back()
        else:
            install.gathering.ask()

    def _on_vote(self, sender: Member, message: EdgeVote) -> None:
        install = self._install
        if install is not None and message.claim == install.claim and install.gathering is None:
            install.votes[sender] = message
            if install.is_quorum:
                self._go_on_installing(self.context.now)

    def _on_handed(self, sender: Member, message: Handed) -> None:
        install = self._install
        if install is None:
            super()._on_handed(sender, message)
        elif install.gathering is not None and install.message is None:
            install.gathering.take(sender.id, message)
            if install.has_longest:
                self._go_on_gathering()

    def _on_refused(self, message: ClaimSuperseded | ClaimDeclined) -> None:
        is_install = self._install is not None and not message.by_edge
        if is_install and (message.claim == self._claim or isinstance(message, ClaimSuperseded)):
            self._highest_view = max(self._highest_view, message.claim.view)
            self._step_back()
        else:
            super()._on_refused(message)

    def _executable_end(self) -> int:
        # All lives of the roster have voted with what they have: the longest of it stands.
        install = self._install
        if install is not None and install.gathering is not None:
            return self.log.end
        return super()._executable_end()

    # ---- moving

    def _on_begun(self, sender: Member, message: EdgeBegun) -> None:
        """Learn that another edge is active, and take over what it began with."""
        claim = message.claim
        is_older = self.voted is not None and claim.view < self.voted[0].view
        if claim.view <= self.epoch or is_older:
            return
        self._look_at(message.state)
        install, own = self._install, self._claim
        leads = install is not None and claim == own
        if self.leading is not None:
            self.leading = None
            self.context.cancel_timer("llft step")
        self._install = None
        self._move(claim, sender.id, message.state)
        if leads:
            self.edge_heard_at = self.context.now
            self._target = self.log.end
            self._maybe_lead()
        else:
            self._step_back()

    def _move(self, claim: PrimaryClaim, edge: str, state: ProgramState) -> None:
        self.say_executed()
        self._make_room_for(state, at_end=True)
        self.buffer = self.execution.inputs = InputBuffer()
        self.stored, self.outputs, self.delivered = state.number, {}, {}
        self._sent = None
        self._keep(state, is_received=True)
        self.execution.restore(state)
        self.buffer.last = state.back
        self.freed = self.edge_end = state.number
        self.first_input = state.back + 1
        self.has_diverged = self.is_stuck = False
        self.edge, self.epoch, self.voted = edge, claim.view, None
        self.report(EdgeMoved, claim=claim, edge=edge)
        self._promise(claim)
        self.current = self.following = claim
        self._highest_view = max(self._highest_view, claim.view)
