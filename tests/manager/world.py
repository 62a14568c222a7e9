"""A world for the manager: hosts, agents, groups and clocks, all made up, with true time.

Groups are models of what the ordered stacks promise: a view with a majority is primary, a newcomer
learns before it counts, a change goes through a joint step. What they do not do is protect anybody
from a bad manager: every change that the rules of a quorum allow is carried out.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.ready.clocks import SECOND, START, make

from coterie.manager.management import Entered, Management
from coterie.manager.orders import (
    AdmitReplica,
    AgentAnswer,
    AgentOrder,
    DismissReplica,
    GroupMembers,
    HostReport,
    LookAround,
    PlaceReplica,
    ReplicaPlace,
    ReplicaReport,
    StartReplica,
    StopReplica,
    Turnstile,
)
from coterie.objects import standing_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

TICK = 0.25
LATE_SECONDS = 28.0
"""How old an order may be, with what it was decided on."""
BELIEVES_SECONDS = 2.0
"""For how long a replica that is cut off takes itself for primary."""


@dataclass
class Replica:
    """A replica on the disk of a host."""

    group: str
    id: str
    state: str = "placed"
    up_from: float = 0.0
    position: int = 0
    primary_at: float = -1e9
    view: tuple[str, ...] = ()
    known: GroupMembers | None = None
    secrets: frozenset[str] = frozenset()


@dataclass
class Host:
    """A machine: its disk survives until it is lost, its clock is its own."""

    name: str
    labels: dict[str, str]
    rate: float
    offset: float
    turnstile_class: type[Turnstile]
    is_up: bool = True
    life: int = 1
    fence: int = 0
    replicas: dict[str, Replica] = field(default_factory=dict)
    turnstile: Turnstile = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin another life of the agent."""
        self.is_up = True
        self.life += 1
        self.turnstile = self.turnstile_class(f"{self.name}#{self.life}", self.fence)

    def clock(self, now: float) -> float:
        """Give the time as it is there."""
        return self.offset + now * self.rate


class Group:
    """One group, as its history has it."""

    def __init__(self, name: str, founders: tuple[str, ...]) -> None:
        self.name = name
        self.configuration = GroupMembers(1, founders)
        self.acknowledged = 0
        self.primary: tuple[str, ...] = ()
        """Who is in the primary view now."""
        self.ready_at = 0.0
        self.last_in_view: dict[str, float] = {}
        self.absences: list[tuple[str, float, float]] = []
        """Who was out for a while, from when to when."""
        self.primaries: list[tuple[float, tuple[str, ...]]] = []
        """Who was in the primary view, at which times."""
        self.majority_at = -1e9
        """When it last had a primary view."""
        self.lost = ""

    def begin_moment(self) -> None:
        """Forget who was primary."""
        self.primary = ()

    def was_out_for(self, id: str, now: float, within: float) -> float:
        """Give for how long a member was out, at any time within the last seconds."""
        over = [
            end - start
            for other, start, end in self.absences
            if other == id and now - end <= within
        ]
        return max(*over, 0.0, now - self.last_in_view.get(id, -1e9))

    def had_majority_of(self, members: tuple[str, ...], since: float) -> bool:
        """Say whether a majority of these were in the primary view at some time."""
        return any(when >= since and _majority(members, view) for when, view in self.primaries)

    def change(self, **fields: tuple[str, ...]) -> None:
        """Go on with another configuration."""
        now = self.configuration
        told = {
            "members": now.members,
            "learners": now.learners,
            "before": now.before,
            "gone": now.gone,
            **fields,
        }
        self.configuration = GroupMembers(now.number + 1, **told)


class World:
    """Everything, and the events to come."""

    def __init__(
        self,
        random: Random,
        hosts: int,
        *,
        management_class: type[Management] = Management,
        turnstile_class: type[Turnstile] = Turnstile,
    ) -> None:
        self.random = random
        self.now = 0.0
        self.group_time_ahead = 0.0
        self.slow_share = 0.02
        """How many messages take far too long."""
        self.turnstile_class = turnstile_class
        self.hosts = {
            f"h{n}": Host(
                f"h{n}",
                {"zone": "abc"[n % 3]},
                random.uniform(0.98, 1.02),
                random.uniform(0, 1e5),
                turnstile_class,
            )
            for n in range(1, hosts + 1)
        }
        self.sides: dict[str, int] = dict.fromkeys(self.hosts, 0)
        self.groups: dict[str, Group] = {}
        self.management = make(management_class)
        self.management_hosts = ("h1", "h2", "h3")
        self.violations: list[str] = []
        self.obeyed: list[tuple[float, int, str, AgentOrder]] = []
        self.shown: dict[tuple[str, int], int] = {}
        """The highest fence that was shown to each life of an agent."""
        self.on_entered: Callable[[str, tuple[object, ...], Entered], None] = lambda *_: None
        self.on_obeyed: Callable[[Host, AgentOrder], None] = lambda _host, _order: None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.at(TICK, self._tick)

    # ---- time

    def at(self, delay: float, do: Callable[[], None]) -> None:
        """Have something happen later."""
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), do))

    def run_until(self, end: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= end and not self.violations:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = max(self.now, end)

    def fail(self, what: str) -> None:
        """Note what must never happen."""
        self.violations.append(f"at {self.now:.1f}: {what}")

    # ---- the network

    def are_connected(self, one: str, other: str) -> bool:
        """Say whether two hosts reach each other."""
        return (
            self.hosts[one].is_up
            and self.hosts[other].is_up
            and (one == other or self.sides[one] == self.sides[other])
        )

    def management_is_at(self, host: str) -> bool:
        """Say whether the group of the manager serves who is on this host."""
        there = sum(self.are_connected(host, each) for each in self.management_hosts)
        return 2 * there > len(self.management_hosts)

    def delay(self, longest: float = 20.0) -> float:
        """Give how long a message takes; now and then far too long."""
        if self.random.random() < self.slow_share:
            return self.random.uniform(1, longest)
        return self.random.expovariate(1 / 0.02)

    # ---- groups

    def replicas_of(self, group: str) -> dict[str, tuple[Host, Replica]]:
        """Give the replicas that are on disks somewhere."""
        return {
            replica.id: (host, replica)
            for host in self.hosts.values()
            for replica in host.replicas.values()
            if replica.group == group
        }

    def _tick(self) -> None:
        for group in self.groups.values():
            self._serve(group)
        self.at(TICK, self._tick)

    def _serve(self, group: Group) -> None:
        now = group.configuration
        replicas = self.replicas_of(group.name)
        up = {
            id: (host, replica)
            for id, (host, replica) in replicas.items()
            if host.is_up and replica.state == "running" and replica.up_from <= self.now
        }
        group.begin_moment()
        for side in sorted({self.sides[host.name] for host, _ in up.values()}):
            view = [id for id, (host, _) in up.items() if self.sides[host.name] == side]
            if _majority(now.members, view) and (not now.before or _majority(now.before, view)):
                self._serve_in(group, sorted(view), up)
        for id, (_, replica) in up.items():
            if id in now.gone and group.primary:
                replica.state = "removed"

    def _serve_in(self, group: Group, view: list[str], up: dict[str, tuple[Host, Replica]]) -> None:
        now = group.configuration
        counted = [id for id in view if id in {*now.members, *now.before}]
        best = max(up[id][1].position for id in counted)
        if best < group.acknowledged:
            self.fail(
                f"{group.name}: {group.acknowledged - best} acknowledged entries are lost in {view}"
            )
        group.acknowledged += 1
        group.primary = tuple(counted)
        group.majority_at = self.now
        recent = [each for each in group.primaries if each[0] > self.now - 60.0]
        group.primaries = [*recent, (self.now, group.primary)]
        learning = [id for id in view if id in now.learners]
        for id in [*counted, *learning]:
            replica = up[id][1]
            replica.known, replica.view = now, tuple(view)
            if id in counted:
                replica.position = group.acknowledged
                replica.primary_at = self.now
                before = group.last_in_view.get(id, self.now)
                if self.now - before > 1.0:
                    group.absences.append((id, before, self.now))
                group.last_in_view[id] = self.now
        if self.now < group.ready_at:
            return
        if now.before:
            gone = tuple(each for each in now.before if each not in now.members)
            group.change(before=(), gone=(*now.gone, *gone))
        elif learning:
            id = learning[0]
            up[id][1].position = group.acknowledged
            rest = tuple(each for each in now.learners if each != id)
            group.change(members=(*now.members, id), before=now.members, learners=rest)
            group.ready_at = self.now + self.random.uniform(0, 1)

    # ---- agents

    def report(self, host: Host) -> HostReport:
        """Tell how things are on a host."""
        return HostReport(
            host=host.name,
            life=host.turnstile.life,
            at=host.clock(self.now),
            labels=host.labels,
            load=self.random.random(),
            replicas=tuple(self._report_replica(each) for each in host.replicas.values()),
            fence=host.turnstile.fence,
        )

    def _report_replica(self, replica: Replica) -> ReplicaReport:
        is_up = replica.state == "running" and replica.up_from <= self.now
        is_primary = is_up and self.now - replica.primary_at < BELIEVES_SECONDS
        return ReplicaReport(
            group=replica.group,
            id=replica.id,
            state=replica.state,
            place=ReplicaPlace(replica.id, f"{replica.id}:1", f"{replica.id}:2"),
            role=("primary" if is_primary else "minority") if is_up else "",
            is_primary=is_primary,
            in_view=replica.view if is_primary else (replica.id,),
            position=replica.position,
            configuration=replica.known,
            knows=tuple(sorted(replica.secrets)),
        )

    def obey(self, host: Host, order: AgentOrder) -> AgentAnswer:
        """Do what an agent does."""
        refusal = host.turnstile.refusal(order, host.clock(self.now))
        shown = self.shown.get((host.name, host.life), 0)
        if not refusal and order.permit.fence < shown:
            self.fail(f"{host.name} obeys fence {order.permit.fence} after {shown}")
        self.shown[host.name, host.life] = max(shown, order.permit.fence)
        host.fence = host.turnstile.fence  # on its disk before it answers
        if refusal:
            return AgentAnswer(refusal=refusal, report=None)
        if not isinstance(order, LookAround):
            self.obeyed.append((self.now, order.permit.fence, host.name, order))
            self.on_obeyed(host, order)
        refusal = self._carry_out(host, order)
        return AgentAnswer(refusal=refusal, report=self.report(host))

    def _carry_out(self, host: Host, order: AgentOrder) -> str:
        match order:
            case LookAround(known=known):
                for replica in host.replicas.values():
                    replica.secrets |= frozenset(known.get(replica.group, ()))
            case PlaceReplica(group=group, id=id):
                host.replicas.setdefault(id, Replica(group, id))
            case StartReplica():
                return self._start(host, order)
            case StopReplica(id=id):
                if id in host.replicas:
                    host.replicas[id].state = "stopped"
            case AdmitReplica(group=group, place=place, expected=expected):
                return self._admit(host, group, place.id, expected)
            case DismissReplica(group=group, id=id, expected=expected):
                return self._dismiss(host, group, id, expected)
        return ""

    def _start(self, host: Host, order: StartReplica) -> str:
        replica = host.replicas.get(order.id)
        if replica is None:
            return f"{order.id} was not placed here"
        if replica.state != "placed":
            return ""
        replica.state, replica.up_from = "running", self.now + self.random.uniform(0.5, 3)
        if order.founds:
            if order.group in self.groups:
                self.fail(f"{order.group} was founded twice")
            self.groups[order.group] = Group(order.group, (order.id,))
        return ""

    def _asked(self, host: Host, name: str, expected: int) -> Group | str:
        group = self.groups.get(name)
        here = [each.id for each in host.replicas.values() if each.group == name]
        if group is None or not any(id in group.primary for id in here):
            return "no replica here is in a primary view"
        if group.configuration.number != expected:
            return f"the configuration is {group.configuration.number}, not {expected}"
        return group

    def _admit(self, host: Host, name: str, id: str, expected: int) -> str:
        group = self._asked(host, name, expected)
        if isinstance(group, str):
            return group
        now = group.configuration
        if now.before or now.learners:
            self.fail(f"{name}: {id} is admitted during another change")
        if id in now.gone or id in now.members:
            self.fail(f"{name}: the id {id} is used again")
        group.change(learners=(*now.learners, id))
        group.ready_at = self.now + self.random.uniform(1, 8)
        return ""

    def _dismiss(self, host: Host, name: str, id: str, expected: int) -> str:
        group = self._asked(host, name, expected)
        if isinstance(group, str):
            return group
        now = group.configuration
        if now.before:
            self.fail(f"{name}: {id} is dismissed during another change")
        if id in now.learners:
            rest = tuple(each for each in now.learners if each != id)
            group.change(learners=rest, gone=(*now.gone, id))
        elif id in now.members and len(now.members) > 1:
            left = tuple(each for each in now.members if each != id)
            if not group.had_majority_of(left, self.now - LATE_SECONDS):
                self.fail(f"{name}: without {id} those in touch are no majority of {left}")
            if not _majority(left, group.primary):
                return f"without {id} those in touch are no majority"
            group.change(members=left, before=now.members)
            group.ready_at = self.now + self.random.uniform(0, 1)
        return ""

    # ---- the management object

    def call(self, method: str, arguments: tuple[object, ...]) -> Entered:
        """Call the management object, as a command in its order."""
        time = START + round((self.now + self.group_time_ahead) * SECOND)
        with standing_in(time=time):
            entered: Entered = getattr(self.management, method)(*arguments)
        open_in = [each.group for each in self.management.open]
        if len(set(open_in)) < len(open_in):
            self.fail(f"two changes are open at once: {open_in}")
        self.on_entered(method, arguments, entered)
        return entered


def _majority(members: tuple[str, ...], there: list[str] | tuple[str, ...]) -> bool:
    return 2 * sum(1 for each in members if each in there) > len(members)
