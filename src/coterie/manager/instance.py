"""One instance of the manager: a state machine without input and output.

    asks = instance.step(now, replies)

It is told the time and what came back, and says what to ask next: of the management object or of
the agent of a host. Whoever drives it does so and tells the answer, or that there was none.

Of several instances one acts: the one whose lease the management object has. It counts the lease
from before it asked, by its own clock, and stops at `lease_share` of it. A new holder first waits
for a whole lease, so the one before has stopped by then even if group time jumped; meanwhile it
looks around, and so shows its fence to every agent that it reaches. Clocks that run at about the
same rate are all that this needs; where one stood still, the fence at the agents, the fence at the
management object and the expected configuration of each group are what is left, and enough to
change nothing twice (`docs/operate/manager.md`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec

from coterie.manager.carrying import ActionCarrier, ActionEnded, NoteStart, ToHost, Waits, strays
from coterie.manager.management import (
    Entered,
    GroupNote,
    HostNote,
    ManagementState,
    ManagerNotes,
    MemberAction,
)
from coterie.manager.orders import AgentAnswer, LookAround, Permit
from coterie.manager.planning import Planner, ProposedChange
from coterie.manager.sight import Sight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.manager.orders import AgentOrder

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """How fast an instance is."""

    lease_seconds: float = 10.0
    lease_share: float = 0.75
    """Which part of the lease is used; the rest is for clocks that do not run at the same rate."""
    hold_seconds: float = 2.5
    """How often it holds on to the lease, or tries to get it."""
    look_seconds: float = 1.0
    fresh_seconds: float = 5.0
    """For how long counts what a host has told."""
    give_up_seconds: float = 600.0
    """How long an addition may take."""
    tell_seconds: float = 2.0
    """How often the notes for people are renewed at most, if they have changed."""


class CallManagement(msgspec.Struct, frozen=True):
    """A call of the management object."""

    method: str
    arguments: tuple[object, ...]


class ManagerAsk(msgspec.Struct, frozen=True):
    """Something to ask: of the management object, or of the agent of a host."""

    number: int
    host: str
    """Empty for the management object."""
    what: CallManagement | AgentOrder


class ManagerReply(msgspec.Struct, frozen=True):
    """What came back."""

    number: int
    answer: Entered | AgentAnswer | None
    """None if nothing came in time, or nobody was there; it may have been carried out."""


@dataclass(slots=True)
class _Pending:
    about: str
    """The same thing is not asked twice at the same time."""
    host: str
    sent: float


@dataclass(slots=True)
class _Times:
    hold_at: float = 0.0
    tell_at: float = 0.0
    look_at: dict[str, float] = field(default_factory=dict)


class Instance:
    """One of the processes that can act as the manager."""

    planner_class: ClassVar[type[Planner]] = Planner
    carrier_class: ClassVar[type[ActionCarrier]] = ActionCarrier

    def __init__(self, name: str, settings: ManagerSettings | None = None) -> None:
        """*name* is of this life alone: whoever starts again has another one."""
        self.name = name
        self.settings = ManagerSettings() if settings is None else settings
        self.sight = Sight(self.settings.fresh_seconds)
        self.state: ManagementState | None = None
        """As the management object told last."""
        self.fence = 0
        """Zero while another instance acts, or nobody is known to."""
        self.lease_until = 0.0
        self.acts_from = 0.0
        self.said: dict[str, str] = {}
        """What is being done, by group."""
        self.why_not: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        """What an agent or the management object last refused, by group."""
        self._pending: dict[int, _Pending] = {}
        self._next = 1
        self._times = _Times()
        self._told = ManagerNotes()

    def acts(self, now: float) -> bool:
        """Say whether this instance may change something now."""
        return bool(self.fence) and self.acts_from <= now < self.lease_until

    def step(self, now: float, replies: Iterable[ManagerReply] = ()) -> list[ManagerAsk]:
        """Take what came back, and give what to ask next."""
        for reply in replies:
            self._take(reply, now)
        asks: list[ManagerAsk] = []
        self._hold(asks, now)
        if not self.fence or now >= self.lease_until or self.state is None:
            return asks
        policy = self.state.policy
        if policy is None:
            return asks
        self._look_around(asks, now)
        if not self.acts(now):
            return asks
        for group in policy.groups:
            self.sight.note_absences(group, now)
        for action in self.unfinished():
            self._carry(asks, action, now)
        self._plan(asks, now)
        for stray in strays(self.state, self.sight, now):
            self._order(asks, stray, f"{stray.says} {stray.host}", now)
        self._tell(asks, now)
        return asks

    # ---- what came back

    def _take(self, reply: ManagerReply, now: float) -> None:
        pending = self._pending.pop(reply.number, None)
        if pending is None or reply.answer is None:
            return
        if isinstance(reply.answer, AgentAnswer):
            self._take_from_agent(reply.answer, pending, now)
        else:
            self._take_from_management(reply.answer, pending, now)

    def _take_from_agent(self, answer: AgentAnswer, pending: _Pending, now: float) -> None:
        if answer.report is not None and answer.report.host == pending.host:
            self.sight.take(pending.host, answer.report, now)
        if answer.refusal:
            self.refused[pending.about] = answer.refusal
        else:
            self.refused.pop(pending.about, None)

    def _take_from_management(self, entered: Entered, pending: _Pending, now: float) -> None:
        state = entered.state
        if self.state is None or state.at >= self.state.at:
            self.state = state
        if pending.about == "hold":
            if entered.refusal:
                self.fence = 0
            elif state.fence != self.fence:
                self._begin_to_act(state, pending.sent, now)
            else:
                share = self.settings.lease_seconds * self.settings.lease_share
                self.lease_until = max(self.lease_until, pending.sent + share)
        elif entered.refusal:
            self.refused[pending.about] = entered.refusal
            if state.fence != self.fence:
                self.fence = 0
        else:
            self.refused.pop(pending.about, None)

    def _begin_to_act(self, state: ManagementState, sent: float, now: float) -> None:
        self.fence = state.fence
        self.lease_until = sent + self.settings.lease_seconds * self.settings.lease_share
        # The very first holder waits for nobody.
        self.acts_from = now if state.fence == 1 else now + self.settings.lease_seconds
        self.sight.forget_times()
        self._told = ManagerNotes()

    # ---- asking

    def _hold(self, asks: list[ManagerAsk], now: float) -> None:
        if now < self._times.hold_at:
            return
        call = CallManagement("hold", (self.name, self.settings.lease_seconds))
        if self._ask(asks, "", call, "hold", now):
            self._times.hold_at = now + self.settings.hold_seconds

    def _look_around(self, asks: list[ManagerAsk], now: float) -> None:
        assert self.state is not None
        assert self.state.policy is not None
        known = {
            group: tuple(sorted(self.state.placed(group))) for group in self.state.policy.groups
        }
        for host in self.state.policy.hosts:
            if now >= self._times.look_at.get(host, 0.0):
                order = LookAround(Permit(self.fence), known)
                if self._ask(asks, host, order, f"look {host}", now):
                    self._times.look_at[host] = now + self.settings.look_seconds

    def unfinished(self) -> tuple[MemberAction, ...]:
        """Give the actions that are to be carried on, whoever began them."""
        assert self.state is not None
        return self.state.open

    def _carry(self, asks: list[ManagerAsk], action: MemberAction, now: float) -> None:
        assert self.state is not None
        about = f"action {action.number}"
        carrier = self.carrier_class(
            self.state,
            self.sight,
            action,
            now,
            seconds_open=(self.state.at - action.begun) / _MICROSECONDS,
            give_up_seconds=self.settings.give_up_seconds,
        )
        match carrier.step():
            case ToHost() as order:
                self.said[action.group] = order.says
                self._order(asks, order, about, now)
            case NoteStart():
                call = CallManagement("start", (self.fence, action.number))
                self._ask(asks, "", call, about, now)
            case ActionEnded(outcome=outcome, stays=stays):
                call = CallManagement("end", (self.fence, action.number, outcome[:200], stays))
                self._ask(asks, "", call, about, now)
            case Waits(says=says):
                self.said[action.group] = says

    def _plan(self, asks: list[ManagerAsk], now: float) -> None:
        assert self.state is not None
        policy = self.state.policy
        assert policy is not None
        self.why_not = {}
        for group in policy.groups:
            if self._has_open(group):
                continue
            self.said.pop(group, None)
            proposal = self.planner_class(self.state, self.sight, group, now).plan()
            if isinstance(proposal, ProposedChange) and proposal.kind != "found":
                limit = self._limit()
                if limit:
                    proposal = f"{proposal.kind} ({proposal.why}) has to wait: {limit}"
            if isinstance(proposal, str):
                if proposal:
                    self.why_not[group] = proposal
                continue
            places = list(proposal.places)
            last = self.state.last_actions.get(group, 0)
            arguments = (self.fence, last, proposal.kind, group, places, proposal.why[:1000])
            self._ask(asks, "", CallManagement("begin", arguments), f"begin {group}", now)

    def _has_open(self, group: str) -> bool:
        assert self.state is not None
        return self.state.open_of(group) is not None

    def _limit(self) -> str:
        assert self.state is not None
        policy = self.state.policy
        assert policy is not None
        if self.state.recent >= policy.changes_per_hour:
            return f"{policy.changes_per_hour} changes were begun within the last hour"
        if len(self.state.open) >= policy.changes_at_once:
            groups = ", ".join(each.group for each in self.state.open)
            return f"changes are under way in {groups}, as many as may be at once"
        return ""

    def _order(self, asks: list[ManagerAsk], step: ToHost, about: str, now: float) -> None:
        seen = self.sight.host(step.host, now)
        if seen is None:
            return
        # Whatever time it was there when it answered, it was not later than when that came here.
        until = seen.report.at + (self.lease_until - seen.got)
        permit = Permit(self.fence, seen.report.life, until)
        order = msgspec.structs.replace(step.order, permit=permit)
        self._ask(asks, step.host, order, about, now)

    def _ask(
        self,
        asks: list[ManagerAsk],
        host: str,
        what: CallManagement | AgentOrder,
        about: str,
        now: float,
    ) -> bool:
        if any(each.about == about for each in self._pending.values()):
            return False
        self._pending[self._next] = _Pending(about, host, now)
        asks.append(ManagerAsk(self._next, host, what))
        self._next += 1
        return True

    # ---- for people

    def notes(self, now: float) -> ManagerNotes:
        """Say what is seen, done, and why no more is."""
        state = self.state
        assert state is not None
        assert state.policy is not None
        hosts = {host: self._host_note(host, now) for host in state.policy.hosts}
        return ManagerNotes(
            hosts=hosts,
            groups={group: self._group_note(group, now) for group in state.policy.groups},
        )

    def _host_note(self, host: str, now: float) -> HostNote:
        assert self.state is not None
        seen = self.sight.host(host, now)
        text = "drained" if host in self.state.drained else ""
        if seen is None:
            return HostNote(is_reached=False, labels=self.sight.labels(host), text=text)
        return HostNote(
            is_reached=True,
            labels=seen.report.labels,
            load=float(round(seen.report.load)),
            replicas=tuple(sorted(each.id for each in seen.report.replicas)),
            text=text or self.refused.get(f"look {host}", ""),
        )

    def _group_note(self, group: str, now: float) -> GroupNote:
        assert self.state is not None
        seen = self.sight.group(group, now)
        replicas = [each for _, each in self.sight.replicas(group, now)]
        action = self.state.open_of(group)
        doing = ""
        if action is not None:
            refused = self.refused.get(f"action {action.number}", "")
            doing = f"{action.kind} {action.id} on {action.host} ({action.why}): "
            doing += self.said.get(group, "begun") + (f"; refused: {refused}" if refused else "")
        return GroupNote(
            members=() if seen is None else seen.configuration.members,
            clients_at={each.id: each.place.clients for each in replicas if each.role},
            roles={each.id: each.role or each.state for each in replicas},
            doing=doing,
            why_not=self.why_not.get(group, ""),
        )

    def _tell(self, asks: list[ManagerAsk], now: float) -> None:
        if now < self._times.tell_at:
            return
        notes = self.notes(now)
        if notes != self._told:
            call = CallManagement("tell", (self.fence, notes))
            if self._ask(asks, "", call, "tell", now):
                self._told = notes
                self._times.tell_at = now + self.settings.tell_seconds
