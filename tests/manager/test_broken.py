"""Managers that are wrong on purpose: the campaign has to catch each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.manager.campaign import Campaign

from coterie.manager.carrying import ActionCarrier
from coterie.manager.instance import Instance
from coterie.manager.management import Management
from coterie.manager.orders import Turnstile
from coterie.manager.planning import Planner

if TYPE_CHECKING:
    from collections.abc import Collection

    from coterie.manager.management import ActionKind, ManagementState, MemberAction
    from coterie.manager.orders import AgentOrder
    from coterie.manager.sight import GroupSight


class NoFence(Turnstile):
    """Obeys whoever was the manager once."""

    def refusal(self, order: AgentOrder, at: float) -> str:
        self.fence = 0
        return super().refusal(order, at)


class NoTime(Turnstile):
    """Obeys orders that were under way for longer than the lease."""

    def refusal(self, order: AgentOrder, at: float) -> str:
        del at
        return super().refusal(order, -1e12)


class OneMoreChange(Management):
    """Lets a change begin beside another one."""

    def _refusal_of(self, kind: ActionKind, group: str, places: list[str]) -> str:
        before, self.open = self.open, []
        refusal = super()._refusal_of(kind, group, places)
        self.open = before
        return refusal


class NeverLooksForOpenOnes(Instance):
    """Begins a change whatever is under way."""

    def _has_open(self, group: str) -> bool:
        del group
        return False


class _WithoutMajority(Planner):
    def has_majority(self, seen: GroupSight, members: Collection[str]) -> bool:
        del seen, members
        return True


class _CarriesWithoutMajority(ActionCarrier):
    def planner(self) -> Planner:
        return _WithoutMajority(self.state, self.sight, self.action.group, self.now)


class ActsWithoutMajority(Instance):
    """Has members go although those left are no majority."""

    planner_class = _WithoutMajority
    carrier_class = _CarriesWithoutMajority


class _Impatient(Planner):
    def why_lost(self, seen: GroupSight, id: str) -> str:
        why = super().why_lost(seen, id)
        return why or ("" if id in seen.in_view else "out of its group, at this moment")


class ReplacesWhoIsSlow(Instance):
    """Takes whoever is out of the view for lost, at once."""

    planner_class = _Impatient


class _Distrustful(Planner):
    def why_lost(self, seen: GroupSight, id: str) -> str:
        host = self.placed.get(id, "")
        told = self.sight.hosts.get(host)
        if told is not None and self.now - told.got > self.wanted.replace_after:
            return f"out of its group, as {host} is not reached"
        return super().why_lost(seen, id)


class ReplacesWhomItCannotReach(Instance):
    """Does not ask the group whether it is without a member."""

    planner_class = _Distrustful


class ForgetsUnfinished(Instance):
    """Knows nothing of what another instance has begun."""

    def unfinished(self) -> tuple[MemberAction, ...]:
        return tuple(each for each in super().unfinished() if each.fence == self.fence)


class ActsAtOnce(Instance):
    """Does not wait until the one before has surely stopped."""

    def _begin_to_act(self, state: ManagementState, sent: float, now: float) -> None:
        super()._begin_to_act(state, sent, now)
        self.acts_from = now


class CountsFromTheAnswer(Instance):
    """Counts the lease from when it was answered, and all of it, twice."""

    def acts(self, now: float) -> bool:
        return bool(self.fence) and self.acts_from <= now < self.lease_until + 20.0


def caught(  # noqa: PLR0913 -- all by name
    first: int = 0,
    *,
    seeds: int = 60,
    clocks_stop: bool | None = None,
    slow_share: float = 0.02,
    instance: type[Instance] = Instance,
    management: type[Management] = Management,
    turnstile: type[Turnstile] = Turnstile,
) -> str:
    """Give what the first seed that finds something says."""

    class Broken(Campaign):
        instance_class = instance
        management_class = management
        turnstile_class = turnstile

    for seed in range(first, first + seeds):
        violations = Broken(seed, clocks_stop=clocks_stop, slow_share=slow_share).run()
        if violations:
            return f"seed {seed}: {violations[0]}"
    return ""


NO_STOPS = {"clocks_stop": False}


@pytest.mark.parametrize(
    ("said", "broken"),
    [
        ("obeys fence", {"turnstile": NoFence, "clocks_stop": True}),
        ("without a majority", {"turnstile": NoTime, "first": 33, "slow_share": 0.3, **NO_STOPS}),
        ("two changes are open", {"management": OneMoreChange, "instance": NeverLooksForOpenOnes}),
        ("no majority", {"instance": ActsWithoutMajority, "first": 60}),
        ("was out of its group", {"instance": ReplacesWhoIsSlow}),
        ("was out of its group", {"instance": ReplacesWhomItCannotReach}),
        ("unfinished", {"instance": ForgetsUnfinished}),
        ("act at once", {"instance": ActsAtOnce, **NO_STOPS}),
        ("act at once", {"instance": CountsFromTheAnswer, **NO_STOPS}),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(map(_name, given.values())),
)
def test_a_broken_manager_is_caught(said: str, broken: dict[str, object]) -> None:
    assert said in caught(**broken)  # type: ignore[arg-type]


def _name(given: object) -> str:
    return given.__name__ if isinstance(given, type) else str(given)
