"""A replica of a program: leader-determined membership over `Following` and `Leading`.

Who leads holds the highest claim. A backup that hears of no primary waits by its rank, proposes
itself (phase one), has the edge fence all lower claims and tell what it holds (phase two), executes
all of that, and orders the virtual synchrony point. With the guard the edge must answer, and its
orders are the base. Without, a silent edge is waited for only so long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.kernel.claims import NO_CLAIM, PrimaryClaim
from coterie.kernel.decoding import COUNT_MAX
from coterie.kernel.errors import BadMessage
from coterie.kernel.records import LeadingBegun, Started
from coterie.llft.following import Following, ReplicaStanding
from coterie.llft.leading import Leading
from coterie.llft.longest import LongestOrders, hand_over
from coterie.llft.messages import (
    AcceptBackup,
    AskOrders,
    Beat,
    ClaimDeclined,
    ClaimSuperseded,
    Handed,
    Inputs,
    NewPrimaryView,
    Promised,
    ProposeBackup,
    ProposePrimary,
    Reflected,
    Resigned,
    StateSent,
    ViewAnswer,
    decoder,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from coterie.kernel.views import Member
    from coterie.llft.memory import ReplicaMemory

STACK = "LLFT"
"""What replicas of programs call their stack in journals, before a colon and their guard."""

JOIN_EVERY = 3
"""A joiner asks at every third beat."""

STUCK_BEATS = 10
"""Who has orders and executes none for so many beats is sent a state."""

APART_MAX = 3
"""Without a guard: so often a proposer gives way to a branch at the edge that it cannot follow."""


class ProgramReplica(Following):
    """One replica."""

    def __init__(self, context: Any, *, memory: ReplicaMemory, **parts: Any) -> None:  # noqa: ANN401
        super().__init__(context, memory=memory, **parts)
        self._is_founder = memory.is_new
        self.leading: Leading | None = None
        self._claim: PrimaryClaim | None = None
        """What it proposes itself with."""
        self._promises: dict[str, Promised] = {}
        self._heard_at = 0
        """When somebody was last heard to lead, or to be about to."""
        self._led_at = 0
        """When the leader that is followed here was last heard."""
        self._resends = 0
        self._since = 0
        self._target: int | None = None
        """Recovering: the edge has orders up to here."""
        self._gathering: LongestOrders | None = None
        """Recovering without an edge: getting what others have."""
        self._highest_view = max(self.promised.view, self.current.view)
        self._beats = 0
        self._last_number = self._stuck_beats = 0
        self._times_apart = 0

    # ---- what the process calls

    def start(self) -> None:
        """Begin: founders are backups of nobody, everybody else has to join."""
        now = self.context.now
        stack = f"{STACK}:{self.settings.guard}" + (":logged" if self.is_logged else "")
        self.report(Started, stack=stack, configuration=self.context.configuration)
        self._heard_at = self._led_at = now
        if self._is_founder and self.execution.roster.find(self.me) is not None:
            self.standing = ReplicaStanding.BACKUP
            self._heard_at = now - self.settings.suspect_after
        self._beat()

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message."""
        return decoder.decode(message)

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """With the guard, be quick: the edge decides, so nothing rests on who seems to be gone."""
        del restarted
        if self.standing is ReplicaStanding.BACKUP and self._is_leader_gone:
            self._try_at_once()

    @property
    def _is_leader_gone(self) -> bool:
        """Whether the failure detector says so; without the guard it is not asked."""
        leader = self.current.life.id
        return self.is_guarded and leader in self.others and not self.context.reaches(leader)

    def _try_at_once(self) -> None:
        """Go without waiting for the leader's silence; others still wait by their rank."""
        now = self.context.now
        self._heard_at = min(self._heard_at, now - self.settings.suspect_after - 1)
        if self._suspects(now):
            self._propose()

    def receive(  # noqa: C901, PLR0912 -- one line a kind
        self,
        sender: Member,
        message: Any,  # noqa: ANN401 -- as the kernel says
    ) -> None:
        """Take a message."""
        if sender.id != self.edge and sender.id not in self.others:
            raise BadMessage("only the edge and replicas of the program are listened to")
        match message:
            case Reflected():
                self._on_reflected(message)
                self._go_on()
            case Inputs():
                self._on_inputs(message)
                self._go_on()
            case Beat():
                self._on_beat(sender, message)
            case ProposePrimary(claim=claim):
                self._on_propose(sender, claim)
            case Promised():
                self._on_promised(sender, message)
            case ClaimSuperseded() | ClaimDeclined():
                self._on_refused(message)
            case ViewAnswer():
                self._on_view_answer(message)
            case ProposeBackup() if self.leading is not None:
                self.leading.propose_backup(sender, message)
            case AcceptBackup():
                self._on_accepted(message)
            case StateSent():
                self._on_state(message)
            case AskOrders():
                self._send([sender.id], hand_over(self, message))
            case Handed():
                self._on_handed(sender, message)
            case Resigned(claim=claim) if claim == self.current:
                self._heard_at = self.context.now - self.settings.suspect_after
                if self.is_guarded and self.standing is ReplicaStanding.BACKUP:
                    self._try_at_once()
            case Resigned() | ProposeBackup():
                pass
            case _:
                raise BadMessage("a message for the edge")

    @property
    def _leads(self) -> bool:
        return self.leading is not None

    @property
    def _leads_alone(self) -> bool:
        return self.leading is not None and not self.leading.with_edge

    def _go_on(self) -> None:
        if self.leading is not None:
            self.leading.stored()
        elif self.standing is ReplicaStanding.RECOVERING:
            self._maybe_lead()

    def _beat(self) -> None:  # noqa: C901 -- one part a standing
        now = self.context.now
        self._beats += 1
        match self.standing:
            case ReplicaStanding.PRIMARY:
                assert self.leading is not None
                self.leading.tick()
                if self.leading.is_stalled:
                    self._resign()
                elif not self.leading.with_edge:
                    self._ask_edge()
            case ReplicaStanding.PROPOSING:
                self._resends += 1
                if self._resends > self.settings.resend_max:
                    self._recover()
                else:
                    self._propose_again()
            case ReplicaStanding.RECOVERING:
                self._recover_again(now)
            case ReplicaStanding.JOINING | ReplicaStanding.BACKUP:
                self._look_whether_stuck()
                if self.needs_state or self._was_removed:
                    self.standing = ReplicaStanding.JOINING
                is_joining = self.standing is ReplicaStanding.JOINING and not self.is_hopeless
                if is_joining and self._beats % JOIN_EVERY == 0:
                    self._ask_to_join()
                if self._suspects(now):
                    self._propose()
        self.ask_again()
        self._tell(is_leading=self._vouches_for_itself)
        self.context.set_timer("llft beat", self.settings.beat, self._beat)

    @property
    def _was_removed(self) -> bool:
        """Without a guard: whether it was let join when it had been removed again."""
        is_off = self.execution.roster.find(self.me) is None
        return not self.is_guarded and is_off and self.has_executed

    def _look_whether_stuck(self) -> None:
        """Without a guard what a branch consumed may be gone with the leader that held it."""
        number, log = self.execution.number, self.log
        if (
            number == log.end
            or number != self._last_number
            or self.is_guarded
            # A program in another process may only be slow.
            or (number >= log.base and not self.execution.lacks_input(log.order(number + 1)))
        ):
            self._last_number, self._stuck_beats, self.is_stuck = number, 0, False
        else:
            self._stuck_beats += 1
            self.is_stuck = self._stuck_beats > STUCK_BEATS

    def _ask_to_join(self) -> None:
        """Say how far the orders here go; who names none is sent the state."""
        spans = [] if self.needs_state else self.log.spans
        self._send(self.others, ProposeBackup(self.log.end, spans))

    @property
    def _vouches_for_itself(self) -> bool:
        """Whether it leads, and can: with the guard that takes an edge."""
        if self.leading is None:
            return False
        heard = self.context.now - self.edge_heard_at < self.settings.suspect_after
        return heard or not self.is_guarded

    # ---- phase one

    def _suspects(self, now: int) -> bool:
        """Say whether it is this replica's turn to propose itself."""
        if self.has_diverged or (self.needs_state and self.is_guarded):
            return False
        settings = self.settings
        rank = self.execution.roster.rank(self.me.id, self.current.life.id)
        wait = settings.suspect_after + (rank - 2) * settings.rank_step
        if self.standing is ReplicaStanding.JOINING:
            wait += 2 * settings.rank_step  # those on the roster first
        if self.needs_state:
            wait += 10 * settings.rank_step  # nobody can give one
        return now - self._heard_at > wait

    def _propose(self) -> None:
        roster = self.execution.roster
        line = roster.named(self.me.id)
        precedence = roster.next_precedence if line is None else line.precedence
        self._highest_view = min(self._highest_view + 1, COUNT_MAX)
        self._claim = PrimaryClaim(self._highest_view, precedence, self.me)
        self._promise(self._claim)
        self._promises = {}
        self._resends = 0
        self.standing = ReplicaStanding.PROPOSING
        self._propose_again()
        if self._have_promised:
            self._recover()

    def _propose_again(self) -> None:
        assert self._claim is not None
        silent = [id for id in self.others if id not in self._promises]
        self._send(silent, ProposePrimary(self._claim))

    def _on_propose(self, sender: Member, claim: PrimaryClaim) -> None:
        self._highest_view = max(self._highest_view, claim.view)
        if claim < self.promised:
            self._send([sender.id], ClaimSuperseded(self.promised, by_edge=False))
            return
        is_led = self.context.now - self._heard_at < self.settings.vouch
        if claim > self.promised and (self._vouches_for_itself or is_led) and self._has_primary:
            self._send([sender.id], ClaimDeclined(claim, by_edge=False))
            return
        if self.standing in {ReplicaStanding.PROPOSING, ReplicaStanding.RECOVERING}:
            self._step_back()
        self._promise(claim)
        self._heard_at = self.context.now
        self._send([sender.id], Promised(claim, self.log.end, self.log.spans))

    @property
    def _has_primary(self) -> bool:
        """Whether the one that was heard leads, and is not a proposer that was promised."""
        return self.promised <= self.current

    def _on_promised(self, sender: Member, message: Promised) -> None:
        if self.standing is ReplicaStanding.PROPOSING and message.claim == self._claim:
            self._promises[sender.id] = message
            if self._have_promised:
                self._recover()

    @property
    def _have_promised(self) -> bool:
        """Whether all have that have the state; with the guard, all of them that are there."""
        needed = {member.id for member in self.execution.roster.whole} - {self.me.id}
        if self.is_guarded:
            needed = {id for id in needed if self.context.reaches(id)}
        return needed <= self._promises.keys()

    def _on_refused(self, message: ClaimSuperseded | ClaimDeclined) -> None:
        self._highest_view = max(self._highest_view, message.claim.view)
        is_final = message.by_edge or not self.is_guarded
        is_mine = isinstance(message, ClaimSuperseded) or message.claim == self._claim
        if (
            is_final
            and is_mine
            and self.standing in {ReplicaStanding.PROPOSING, ReplicaStanding.RECOVERING}
        ):
            self._step_back()
            if self._is_leader_gone:
                # The edge has not noticed yet.
                self._heard_at -= self.settings.suspect_after - 2 * self.settings.beat
        elif message.by_edge and isinstance(message, ClaimSuperseded) and self.leading is not None:
            self._superseded_by(message.claim)

    def _step_back(self) -> None:
        """Let others try."""
        self._claim, self._target = None, None
        line = self.execution.roster.find(self.me)
        is_on = line is not None and line.is_whole and self._is_sure
        self.standing = ReplicaStanding.BACKUP if is_on else ReplicaStanding.JOINING
        self._heard_at = self.context.now

    @property
    def _is_sure(self) -> bool:
        """Whether its orders are known to be the group's."""
        return self.is_guarded or self.following == self.current

    # ---- phase two

    def _recover(self) -> None:
        self.standing = ReplicaStanding.RECOVERING
        self._gathering = None
        self._since = self.context.now
        self._target = None
        self._ask_edge()

    def _ask_edge(self) -> None:
        claim = self._claim if self.leading is None else self.leading.claim
        assert claim is not None
        is_leading = self.leading is not None
        roster = self.kept.roster
        self.send_edge(NewPrimaryView(claim, self.log.end, self.log.spans, roster, is_leading))

    def _recover_again(self, now: int) -> None:
        if self._target is None:
            self._ask_edge()
            if not self.is_guarded and self._claim is not None:
                self._send(self.others, ProposePrimary(self._claim))  # it is still at it
            if not self.is_guarded and now - self._since > self.settings.patience:
                self._gather()
        elif now - self._since > self.settings.recovery_max:
            self._step_back()
        if self.is_guarded and now - self._since > self.settings.recovery_max:
            self._step_back()

    def _gather(self) -> None:
        """Without an edge, and a guard: lead with the longest orders of those who answered."""
        assert self._claim is not None
        if self._gathering is None:
            self._gathering = LongestOrders(self, self._claim, self._promises)
            self.current = self.following = self._claim
        if self._gathering.is_over:
            self._lead_without_edge()
        else:
            self._gathering.ask()

    def _on_handed(self, sender: Member, message: Handed) -> None:
        if self.standing is ReplicaStanding.RECOVERING and self._gathering is not None:
            self._gathering.take(sender.id, message)
            if self._gathering.is_over:
                self._lead_without_edge()

    def _on_view_answer(self, message: ViewAnswer) -> None:
        if self.leading is not None and message.claim == self.leading.claim:
            if message.is_leading and not self.leading.with_edge:
                self.leading.found_edge(message.common)
            return
        is_asked = self.standing is ReplicaStanding.RECOVERING and message.claim == self._claim
        if not is_asked or self._target is not None or self._gathering is not None:
            return
        self.current = self.following = message.claim
        self.edge_heard_at = self.context.now
        self.freed, self.edge_end = message.freed, message.stored
        self.delivered.update(message.delivered)
        self.buffer.last = max(self.buffer.last, message.inputs)
        # The answer may be to a question that was asked before more orders came from the edge.
        common = max(message.common, self.stored) if self.is_guarded else message.common
        if common < max(message.freed, self.kept.number):
            self._is_apart(message)
            return
        self._times_apart = 0
        self._discard(common)
        self._target = message.stored
        self._store_up_to(min(self.log.end, message.stored))
        self._execute()
        self.ask_again()
        self._maybe_lead()

    def _is_apart(self, message: ViewAnswer) -> None:
        """Learn that what is here cannot become what the edge has: only a leader's state helps.

        Without a guard, if nobody leads and nobody can, somebody's branch has to be the group's.
        """
        self._times_apart += 1
        if not self.is_guarded and self._times_apart > APART_MAX:
            self.current = self.following = message.claim
            self._lead_without_edge()
            return
        self._step_back()
        self.standing = ReplicaStanding.JOINING

    def _maybe_lead(self) -> None:
        """Lead once everything that the edge holds is executed here."""
        if (
            self._target is not None
            and self.log.end >= self._target
            and self.execution.number == self.log.end
            and not self.has_diverged
        ):
            self._lead(with_edge=True)

    def _lead_without_edge(self) -> None:
        """Go on with what is executed here, as published: nobody can say what clients have seen."""
        assert self._claim is not None
        self.current = self.following = self._claim
        self._execute()
        self._discard(self.execution.number)
        self._lead(with_edge=False)

    def _lead(self, *, with_edge: bool) -> None:
        assert self._claim is not None
        self.execute_log()
        if self.execution.number != self.log.end or self.has_diverged:
            self.log_again()
            self._step_back()
            return
        self.report(LeadingBegun, claim=self._claim, base=self.log.end, with_edge=with_edge)
        self.standing = ReplicaStanding.PRIMARY
        self.leading = Leading(self, self._claim, with_edge=with_edge)
        self.leading.begin()

    def _resign(self) -> None:
        assert self.leading is not None
        message = Resigned(self.leading.claim)
        self._send(self.others, message)
        self.send_edge(message)
        self._stop_leading()
        self._heard_at -= self.settings.vouch  # nobody leads now, and whoever asks is promised
        if self.execution.number > self.kept.number:
            self._rebuild()

    # ---- following somebody else

    def _superseded_by(self, claim: PrimaryClaim) -> None:
        self._highest_view = max(self._highest_view, claim.view)
        if claim <= self.current:
            return
        self.current = claim
        if self.leading is not None:
            self._stop_leading()
        elif (
            self.standing in {ReplicaStanding.PROPOSING, ReplicaStanding.RECOVERING}
            and claim != self._claim
        ):
            self._step_back()
        if not self.is_guarded and claim.life != self.me:
            self.standing = (
                ReplicaStanding.JOINING
            )  # what is here stays until it is known what stands

    def _stop_leading(self) -> None:
        self.leading = None
        self.context.cancel_timer("llft step")
        self.log_again()
        if self.is_guarded:
            # Output left only behind what the edge has: the rest has never happened.
            self._discard(max(self.stored, self.kept.number))
        self._step_back()

    def _roster_changed(self) -> None:
        line = self.execution.roster.find(self.me)
        if self.standing is ReplicaStanding.BACKUP and line is None:
            self.standing = ReplicaStanding.JOINING
        elif self.standing is ReplicaStanding.JOINING and line is not None and line.is_whole:
            self.standing = ReplicaStanding.BACKUP if self.is_guarded else ReplicaStanding.JOINING

    def _on_beat(self, sender: Member, message: Beat) -> None:
        self._highest_view = max(self._highest_view, message.claim.view)
        if self.leading is not None:
            if message.is_leading and message.claim > self.leading.claim and not self.is_guarded:
                self._superseded_by(message.claim)
            else:
                self.leading.heard(sender, message)
            return
        if not message.is_leading:
            return
        now = self.context.now
        if self._branch_is_dead(message.claim):
            self.current = NO_CLAIM
        if message.claim >= self.current:
            self._heard_at = self._led_at = now
            if not self.is_guarded and message.claim > self.current:
                self._superseded_by(message.claim)

    def _branch_is_dead(self, claim: PrimaryClaim) -> bool:
        """Without a guard: say whether somebody leads while nobody leads the higher branch here."""
        silent = self.context.now - self._led_at > self.settings.suspect_after
        return not self.is_guarded and claim < self.current and silent

    def _on_accepted(self, message: AcceptBackup) -> None:
        if self.standing is not ReplicaStanding.JOINING or message.claim < self.current:
            return
        if message.common < max(self.kept.number, self.log.base):
            return  # asked before a state was kept
        line = self.execution.roster.find(self.me)
        if not self.is_guarded:
            self._discard(message.common)
            self.current = self.following = message.claim
            self.standing = ReplicaStanding.BACKUP
        elif line is not None and line.is_whole:
            self.standing = ReplicaStanding.BACKUP
        self._heard_at = self.context.now

    def _on_state(self, message: StateSent) -> None:
        is_late = message.claim < self.current or self.leading is not None
        if self.is_logged and self.standing is ReplicaStanding.BACKUP and not is_late:
            self._look_at(message.state)
            self._take_checkpoint(message.state)
        if is_late or self.standing is not ReplicaStanding.JOINING:
            return
        state = message.state
        if self.is_guarded and state.number <= self.execution.number:
            return
        self._look_at(state)
        self.current = self.following = message.claim
        self._heard_at = self.context.now
        self._take_state(state)
        line = self.execution.roster.find(self.me)
        if not self.is_guarded or (line is not None and line.is_whole):
            self.standing = ReplicaStanding.BACKUP

    # ---- what the driver of a program in another process calls

    def went_on(self) -> None:
        super().went_on()
        self._go_on()

    def program_ended(self) -> None:
        """Learn that the program's process is gone: another replica leads, and it runs anew."""
        if self.leading is not None:
            self._resign()
        self._rebuild()

    def run_anew(self) -> None:
        """Execute once more what has diverged; if it does so again at the same order, it is out."""
        self.has_diverged = False
        self._rebuild()

    # ---- what leading uses

    def step(self) -> None:
        """Let the program go on, if this replica still leads."""
        if self.leading is not None:
            self.leading.step()
