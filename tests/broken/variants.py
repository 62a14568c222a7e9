"""Deliberately broken variants of group communication: each leaves out one thing that matters.

They are how the checks are checked. Each is the product's own class with the one line changed, so
that a variant that stops being caught means a check has gone blind, or the line is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.format import Sync
from coterie.kernel.layers import Layer
from coterie.kernel.records import Delivery
from coterie.membership.change import Proposal, ViewChange
from coterie.membership.messages import Flush, Install
from coterie.membership.multicast import Multicast
from coterie.membership.vsync import Vsync
from coterie.ordering.dynseq import DynamicSequencer
from coterie.ordering.token import RotatingToken, Token
from coterie.simulation import RunOptions, seconds
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.stack.trial import StackTrial
from coterie.simulation.faults import ALL_FAULTS
from coterie.stacks import LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.layers import Batch, Context, Ending
    from coterie.kernel.views import Member, View
    from coterie.membership.vsync import InViewMessage


# ---- view changes


class _InstallsAtOnce(ViewChange):
    def _decide_cuts(self, proposal: Proposal) -> None:
        super()._decide_cuts(proposal)
        proposal.ready.update(proposal.members)
        self._install_if_ready(proposal)

    def on_install(self, sender: Member, message: Install) -> None:
        if message.view == self.promised and sender == self._proposer:
            self._proposer = self._answer = self._cut = None
            self._vsync.install(message)


class FlushWithoutWaiting(Vsync):
    """Goes on without waiting until all have the packets of the cut."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.change = _InstallsAtOnce(self)


class _AsksNobody(ViewChange):
    def on_flush(self, sender: Member, message: Flush) -> None:
        proposal = self._proposal
        if proposal is not None and message.view == proposal.view and sender == self._vsync.me:
            for member in proposal.members:
                if member in message.previous_members:
                    proposal.flushes[member] = message
        super().on_flush(sender, message)

    def on_install(self, sender: Member, message: Install) -> None:
        if message.view > max(self.promised, self._vsync.current.id):
            self.promised = message.view
            self._proposer = sender
            self._vsync.freeze()
            width = len(self._vsync.current.members)
            if len(message.cut) != width or self._vsync.multicast.lacks(message.cut):
                return
        super().on_install(sender, message)


class InstallWithoutConsent(Vsync):
    """Installs a view that its members did not stop for."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.change = _AsksNobody(self)


class StaleMessagesAccepted(Vsync):
    """Takes messages of an earlier view for messages of the current one."""

    def _receive_in_view(self, sender: Member, message: InViewMessage) -> None:
        super()._receive_in_view(sender, replace(message, view=self.current.id))


class _NoLaggards(ViewChange):
    def on_flush(self, sender: Member, message: Flush) -> None:
        flush = Flush(
            message.view,
            message.previous,
            (sender,) * len(message.received),
            message.received,
            message.stable,
            message.value,
            message.configuration,
        )
        super().on_flush(sender, flush)


class LaggardsComeAlong(Vsync):
    """Lets a member skip a view that others of its old view went through."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.change = _NoLaggards(self)


class DeliversAfterStopping(Vsync):
    """Passes packets up after it has told the proposer what it has."""

    def _take_packet(self, rank: int, packet: object) -> None:
        was_stopped, self.multicast.is_frozen = self.multicast.is_frozen, False
        super()._take_packet(rank, packet)  # type: ignore[arg-type]
        self.multicast.is_frozen = was_stopped
        if was_stopped:
            self.change.packets_arrived()


class _Forgetful(Multicast):
    def is_next(self, rank: int, number: int) -> bool:
        del rank, number
        return False  # it forgets by the longer way

    def pass_up(self, rank: int) -> list[Batch]:
        batches = super().pass_up(rank)
        packets = self._packets[rank]
        for number in [n for n in packets if n <= self._passed[rank]]:
            packets[number].payloads = []
        return batches


class ReceiversForget(Vsync):
    """Forgets the content of others' packets before all members have them."""

    def new_multicast(self, view: View) -> Multicast:
        return _Forgetful(self.context, view.id, view.members, repairs_itself=self._repairs_itself)


# ---- order


class SequencerKeepsNumbers(DynamicSequencer):
    """Goes on counting from the old view in the new one."""

    def view(self, view: View) -> None:
        kept = self._numbered
        above, self.above = self.above, _Silent(self.context)
        super().view(view)
        self._numbered = kept
        self.above = above
        self.above.view(view)


class _Silent(Layer):
    name = "SILENT"

    def view(self, view: View) -> None:
        pass


class SafeWithoutAcknowledgements(DynamicSequencer):
    """Delivers safe messages as if they were agreed."""

    def _is_stable(self, batch: Batch, ordered_by: int) -> bool:
        del batch, ordered_by
        return True


class SafeWithoutWhatCameBefore(DynamicSequencer):
    """Forgets that a safe message needs everything before it to be everywhere."""

    def _is_stable(self, batch: Batch, ordered_by: int) -> bool:
        stable = self._stable if self._stable is not None else self.below.stable
        del ordered_by
        return stable[batch.rank] >= batch.packet


class OwnStabilityAtTheEnd(DynamicSequencer):
    """Ends a view by what it alone knows of stability."""

    def adopt_stability(self, ending: Ending) -> None:
        self._stable = list(self.below.stable)
        del ending


class HolesUnmarked(DynamicSequencer):
    """Numbers what comes after a hole as if there were none."""

    def _hand_up(self, batches: Iterable[Batch], delivery: Delivery) -> None:
        if delivery is Delivery.AFTER_HOLE:
            delivery = Delivery.TRANSITIONAL
        super()._hand_up(batches, delivery)


class TokenFromOldCopy(RotatingToken):
    """Regenerates a lost token from the copy of an earlier visit."""

    _old: Token | None = None

    def _take(self, token: Token) -> None:
        if token.hop > 1 and self._old is None:
            self._old = token
        super()._take(token)

    def begin_order(self) -> None:
        self._old = None
        super().begin_order()

    def _resend(self) -> None:
        if self._passed is not None and self._old is not None:
            token, member = self._passed
            old = self._old
            stale = Token(token.hop, old.order, old.have, old.sent, old.wanted, old.idle)
            self._passed = (stale, member)
        super()._resend()


class TokenUsedTwice(RotatingToken):
    """Does not notice that a token is a copy of one it had."""

    def _pass_to(self, member: Member, token: Token) -> None:
        super()._pass_to(member, token)
        self._hop = 0


class TokenSafeTooEarly(RotatingToken):
    """Takes what most members have for what all members have."""

    def _learn_safe(self, safe_to: int) -> None:
        del safe_to
        super()._learn_safe(self._have)


class TokenActsWhenStopped(RotatingToken):
    """Uses the token after it has told the proposer what it knows."""

    def finish_turn(self) -> None:
        below, self.below = self.below, _NeverStopped(self.below)
        super().finish_turn()
        self.below = below


class _NeverStopped(Layer):
    name = "NEVER-STOPPED"
    is_stopped = False

    def __init__(self, below: Layer) -> None:
        super().__init__(below.context)
        self.below = below


FORGETTING = (
    "power",
    "new-machine",
    "partition",
    "isolation",
    "one-way",
    "crash",
    "delay",
    "pause",
)
"""Faults under which many replicas lose their memory, where journals are not synced."""


@dataclass(frozen=True)
class Broken:
    """A variant, the stack it runs in, and the check that must name it."""

    kind: type[Layer | JournalKeeper]
    stack: str
    caught_by: tuple[str, ...]
    first_seed: int = 0
    """A seed known to catch it, to begin with; the next 199 may be needed when code changes."""
    sync: Sync = Sync.TURN
    faults: tuple[str, ...] = ALL_FAULTS

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.kind.__name__

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = RunOptions(
            stack=self.stack, duration=seconds(15), sync=self.sync, faults=self.faults
        )
        run = run_trial(StackTrial(seed, options, layers=self.layers, keeper=self.keeper))
        return {violation.partition(":")[0] for violation in run.violations}

    @property
    def layers(self) -> dict[str, type[Layer]]:
        """The registry with the variant in its place, if it is a layer."""
        return {**LAYERS, self.kind.name: self.kind} if issubclass(self.kind, Layer) else LAYERS

    @property
    def keeper(self) -> type[JournalKeeper]:
        """Who keeps the journals."""
        return self.kind if issubclass(self.kind, JournalKeeper) else JournalKeeper


BROKEN = (
    Broken(FlushWithoutWaiting, "VSYNC", ("view atomicity",)),
    Broken(InstallWithoutConsent, "VSYNC", ("view atomicity",)),
    Broken(StaleMessagesAccepted, "VSYNC", ("integrity",)),
    Broken(LaggardsComeAlong, "VSYNC", ("agreement on successors",)),
    Broken(DeliversAfterStopping, "VSYNC", ("view atomicity",), first_seed=45),
    Broken(ReceiversForget, "VSYNC", ("integrity", "view atomicity")),
    Broken(SequencerKeepsNumbers, "DYNSEQ:VSYNC", ("strong prefix",)),
    Broken(SafeWithoutAcknowledgements, "DYNSEQ:VSYNC", ("safe delivery",)),
    Broken(SafeWithoutWhatCameBefore, "DYNSEQ:VSYNC", ("safe delivery",)),
    Broken(OwnStabilityAtTheEnd, "DYNSEQ:VSYNC", ("transitional agreement",)),
    Broken(HolesUnmarked, "DYNSEQ:VSYNC", ("strong prefix",)),
    Broken(TokenFromOldCopy, "TOKEN:VSYNC", ("strong prefix", "assertion")),
    Broken(TokenUsedTwice, "TOKEN:VSYNC", ("strong prefix", "assertion")),
    Broken(TokenSafeTooEarly, "TOKEN:VSYNC", ("safe delivery",)),
    Broken(TokenActsWhenStopped, "TOKEN:VSYNC", ("transitional agreement",), first_seed=41),
)
