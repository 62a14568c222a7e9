"""An open action, carried on: what comes next follows from what is seen, not from what was sent.

So it does not matter who began it, who was killed in the middle, or which answer was lost: every
step may be ordered again, and whether it is done is read from the group and from the hosts.

| Action | Steps |
|---|---|
| found | place; note that it starts; start as founders; until a primary view is heard of |
| add | place; start; let others know its secret; admit; until it is a member, nothing is joint |
| remove | dismiss; until the group has gone on without it; its process is stopped afterwards |

An addition is given up if its host is lost or drained, or after `give_up_seconds`: it is dismissed
if it was admitted. A removal is given up if the one that was lost has come back before it was
dismissed, or if those left would be no majority: the next plan decides again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.manager.orders import (
    AdmitReplica,
    DismissReplica,
    Permit,
    PlaceReplica,
    ReplicaPlace,
    StartReplica,
    StopReplica,
)
from coterie.manager.planning import Planner

if TYPE_CHECKING:
    from coterie.manager.management import ManagementState, MemberAction
    from coterie.manager.orders import AgentOrder, ReplicaReport
    from coterie.manager.policy import GroupPolicy
    from coterie.manager.sight import GroupSight, Sight

NO_PERMIT = Permit(0)
"""Replaced by whoever sends the order."""


class ToHost(NamedTuple):
    """An order for a host."""

    host: str
    order: AgentOrder
    says: str


class NoteStart(NamedTuple):
    """A founding may start processes from now on: this has to be entered first."""


class ActionEnded(NamedTuple):
    """An action has come to its end."""

    outcome: str
    stays: bool
    """Whether the replicas it is about stay where they are."""


class Waits(NamedTuple):
    """Nothing can be done at present."""

    says: str


Step = ToHost | NoteStart | ActionEnded | Waits


def settings_of(group: GroupPolicy) -> dict[str, str | int]:
    """Give what an agent has to know of a group to start a replica of it."""
    return {
        "class": group.class_,
        "engine": group.engine,
        "stack": group.stack,
        "sync": group.sync,
        "dump_interval": group.dump_interval,
    }


class ActionCarrier:
    """One open action at one moment."""

    def __init__(  # noqa: PLR0913 -- two of them by name
        self,
        state: ManagementState,
        sight: Sight,
        action: MemberAction,
        now: float,
        *,
        seconds_open: float,
        give_up_seconds: float,
    ) -> None:
        self.state, self.sight, self.action, self.now = state, sight, action, now
        self._is_late = seconds_open > give_up_seconds
        self.seen = sight.group(action.group, now)

    def step(self) -> Step:
        """Give what comes next."""
        policy = self.state.policy
        wanted = None if policy is None else policy.groups.get(self.action.group)
        if wanted is None:
            return self._without_policy()
        match self.action.kind:
            case "found":
                return self._found(wanted)
            case "add":
                return self._add(wanted)
            case "remove":
                return self._remove()

    def _without_policy(self) -> Step:
        if self.action.kind == "add" and self.seen is not None and not self._belongs(self.seen):
            return ActionEnded("the group is in the policy no more", stays=False)
        return Waits("the group is in the policy no more; finish it by hand, or put it back")

    # ---- founding

    def _found(self, wanted: GroupPolicy) -> Step:  # noqa: PLR0911 -- one for each case
        action = self.action
        if self.seen is not None:
            return ActionEnded("it has begun", stays=True)
        places: list[ReplicaPlace] = []
        for placement in action.placements:
            told = self.sight.host(placement.host, self.now)
            if told is None:
                if self._is_late and not action.is_starting:
                    return ActionEnded(f"given up: {placement.host} is not reached", stays=False)
                return Waits(f"{placement.host} is not reached")
            replica = told.report.find(placement.id)
            if replica is None:
                if action.is_starting:
                    return Waits(
                        f"{placement.host} has nothing of {placement.id}, which was to begin the "
                        "group and may have answered clients: its disk was lost. Take the group "
                        "out of the policy, and found it under another name"
                    )
                place = PlaceReplica(NO_PERMIT, action.group, placement.id)
                return ToHost(placement.host, place, f"placing {placement.id}")
            places.append(replica.place)
        if not action.is_starting:
            return NoteStart()
        for placement in action.placements:
            told = self.sight.host(placement.host, self.now)
            replica = None if told is None else told.report.find(placement.id)
            if replica is not None and replica.state == "placed":
                others = tuple(each for each in places if each.id != placement.id)
                order = StartReplica(
                    NO_PERMIT,
                    action.group,
                    placement.id,
                    founds=True,
                    others=others,
                    settings=settings_of(wanted),
                )
                return ToHost(placement.host, order, f"starting {placement.id}")
        return Waits("it is starting")

    # ---- adding

    def _add(self, wanted: GroupPolicy) -> Step:  # noqa: PLR0911 -- one for each case
        action, seen, id = self.action, self.seen, self.action.id
        if seen is None:
            return Waits("no primary view is heard of")
        now = seen.configuration
        if id in now.gone:
            return ActionEnded("given up: it was dismissed", stays=False)
        if id in now.members and not now.before:
            return ActionEnded("it is a member", stays=True)
        told = self.sight.host(action.host, self.now)
        replica = None if told is None else told.report.find(id)
        reason = self._why_give_up(replica, is_reached=told is not None)
        if reason:
            if not self._belongs(seen):
                return ActionEnded(f"given up: {reason}", stays=False)
            if id in now.learners and not now.before:
                return self._dismiss(seen, f"giving {id} up: {reason}")
        if told is None:
            return Waits(f"{action.host} is not reached")
        if replica is None or replica.state == "placed":
            return self._bring_up(wanted, seen, replica)
        return self._bring_in(seen, replica)

    def _bring_up(
        self, wanted: GroupPolicy, seen: GroupSight, replica: ReplicaReport | None
    ) -> Step:
        """Have the newcomer run."""
        action, id = self.action, self.action.id
        if replica is None:
            place = PlaceReplica(NO_PERMIT, action.group, id)
            return ToHost(action.host, place, f"placing {id} on {action.host}")
        members = seen.configuration.members
        others = tuple(
            each.place
            for _, each in self.sight.replicas(action.group, self.now)
            if each.id != id and each.id in members
        )
        start = StartReplica(
            NO_PERMIT, action.group, id, founds=False, others=others, settings=settings_of(wanted)
        )
        return ToHost(action.host, start, f"starting {id} on {action.host}")

    def _bring_in(  # noqa: PLR0911 -- one for each case
        self, seen: GroupSight, replica: ReplicaReport
    ) -> Step:
        """Have the group admit it."""
        action, now, id = self.action, seen.configuration, self.action.id
        if id in now.learners:
            return Waits(f"{id} is learning, at {replica.position} of {seen.primary.position}")
        if self._belongs(seen):
            return Waits(f"{id} is joining")
        if not replica.role:
            return Waits(f"{id} is {replica.state}" + (replica.reason and f" ({replica.reason})"))
        if any(each not in self.state.placed(action.group) for each in now.learners):
            return ActionEnded(
                "given up: another replica is on its way into the group", stays=False
            )
        if seen.is_changing:
            return Waits("another change of the members is on its way")
        for host, primary in seen.primaries:
            if id in primary.knows:
                admit = AdmitReplica(NO_PERMIT, action.group, replica.place, now.number)
                return ToHost(host, admit, f"asking {primary.id} to admit {id}")
        return Waits(f"no replica in touch knows the secret of {id} yet")

    def _why_give_up(self, replica: ReplicaReport | None, *, is_reached: bool) -> str:
        action = self.action
        if replica is not None and replica.state == "given up":
            return f"it cannot be started: {replica.reason}"
        if action.host in self.state.drained:
            return f"{action.host} is drained"
        if replica is None and is_reached and self.seen is not None and self._belongs(self.seen):
            return f"{action.host} has nothing of it: its disk was lost"
        if self._is_late:
            return "it took too long"
        return ""

    # ---- removing

    def _remove(self) -> Step:  # noqa: PLR0911 -- one for each case
        seen, id = self.seen, self.action.id
        if seen is None:
            return Waits("no primary view is heard of")
        now = seen.configuration
        if id in now.gone:
            return ActionEnded("the group has gone on without it", stays=False)
        if now.before:
            return Waits(f"{id} is leaving" if id not in now.members else "members are changing")
        if id in now.learners:
            return self._dismiss(seen, f"dismissing {id}")
        if id not in now.members:
            return Waits(f"{id} is no member, and nobody says that it was removed")
        if now.learners:
            return ActionEnded("given up: another replica is on its way into the group", stays=True)
        planner = self.planner()
        if not planner.may_go(seen, id):
            return ActionEnded("given up: those in touch would be no majority", stays=True)
        if self.action.why.startswith("out of its group") and id in seen.in_view:
            return ActionEnded("given up: it has come back", stays=True)
        return self._dismiss(seen, f"dismissing {id}")

    def planner(self) -> Planner:
        """Give what knows of majorities."""
        return Planner(self.state, self.sight, self.action.group, self.now)

    def _dismiss(self, seen: GroupSight, says: str) -> Step:
        id = self.action.id
        # Another replica is asked if there is one: one that goes may be gone before it answers.
        ranked = sorted(seen.primaries, key=lambda each: (each[1].id == id, each[0]))
        order = DismissReplica(NO_PERMIT, self.action.group, id, seen.configuration.number)
        return ToHost(ranked[0][0], order, says)

    def _belongs(self, seen: GroupSight) -> bool:
        return seen.configuration.belongs(self.action.id)


def strays(state: ManagementState, sight: Sight, now: float) -> list[ToHost]:
    """Give the orders that end replicas which belong to their groups no more.

    Only ids that were given are judged: what is here was put here by this manager, and what it
    knows nothing of yet may have been begun by another instance meanwhile.
    """
    orders = []
    for host, seen in sight.reached(now):
        for replica in seen.report.replicas:
            if replica.state in {"removed", "stopped"}:
                continue
            if not state.has_given(replica.group, replica.id):
                continue
            if replica.id in state.placed(replica.group):
                continue
            group = sight.group(replica.group, now)
            if group is not None and group.configuration.belongs(replica.id):
                continue
            order = StopReplica(NO_PERMIT, replica.group, replica.id)
            orders.append(ToHost(host, order, f"stopping {replica.id}"))
    return orders
