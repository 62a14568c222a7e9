"""Seeds and faults for the manager: everything that can go wrong, and what must hold nevertheless.

    python -m tests.manager.campaign --seeds 200 --from 0

Hosts die and lose their disks, the network is cut, instances are paused, killed and cut off in the
middle of a change, clocks stand still, group time jumps, hosts are drained and policies changed.
What must hold at every moment:

- **one acts**: no agent obeys a lower fence than one that was obeyed before, anywhere (where a
  clock stood still: than that agent has seen);
- **one change at a time** in each group, and none that leaves no majority in touch;
- **nobody is replaced who was there**: only after `replace_after` out of the group, or a lost disk;
- **ids are given once**, groups are founded once, and nothing acknowledged is lost.

After the faults everything has to become as the policy wants it, with no change left unfinished.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, ClassVar

from tests.manager.world import LATE_SECONDS, World

from coterie.manager.instance import Instance, ManagerReply, ManagerSettings
from coterie.manager.management import Management, MemberAction
from coterie.manager.orders import LookAround, Turnstile
from coterie.manager.policy import GroupPolicy, HostPolicy, Policy

if TYPE_CHECKING:
    from tests.manager.world import Host

    from coterie.manager.instance import ManagerAsk
    from coterie.manager.management import Entered
    from coterie.manager.orders import AgentOrder

REPLACE_AFTER = 20.0
STEP = 0.25
ASK_TIMEOUT = 3.0
SETTINGS = ManagerSettings(give_up_seconds=60.0)


@dataclass
class Runner:
    """One instance on its host, with its clock, and what is under way."""

    campaign: Campaign
    host: str
    instance: Instance
    paused_until: float = -1.0
    behind: float = 0.0
    """By how much its clock has stood still."""
    is_alive: bool = True
    waiting: set[int] = field(default_factory=set)
    arrived: list[ManagerReply] = field(default_factory=list)

    def clock(self) -> float:
        """Give the time as the instance has it."""
        world = self.campaign.world
        return world.hosts[self.host].clock(world.now) - self.behind

    def step(self) -> None:
        """Let it take what has come, again and again."""
        world = self.campaign.world
        if not self.is_alive:
            return
        world.at(STEP, self.step)
        if not world.hosts[self.host].is_up:
            self.die()
            return
        if world.now < self.paused_until:
            return
        replies, self.arrived = self.arrived, []
        for asked in self.instance.step(self.clock(), replies):
            self._send(asked)
        self.campaign.check_acting()

    def die(self) -> None:
        """Be killed; another life begins later."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.campaign.world.at(self.campaign.random.uniform(1, 10), self._live_again)

    def _live_again(self) -> None:
        if self.campaign.world.hosts[self.host].is_up:
            self.campaign.begin_instance(self.host)
        else:
            self.campaign.world.at(1.0, self._live_again)

    def _send(self, asked: ManagerAsk) -> None:
        world = self.campaign.world
        self.waiting.add(asked.number)
        world.at(ASK_TIMEOUT, lambda: self._arrive(ManagerReply(asked.number, None)))
        delay = world.delay(60.0 if asked.host else 20.0)
        world.at(delay, lambda: self._reach(asked))

    def _reach(self, asked: ManagerAsk) -> None:
        world = self.campaign.world
        if isinstance(asked.what, tuple) or not asked.host:
            if not world.management_is_at(self.host):
                return
            answer = world.call(asked.what.method, asked.what.arguments)  # type: ignore[union-attr]
        elif world.are_connected(self.host, asked.host):
            answer = world.obey(world.hosts[asked.host], asked.what)  # type: ignore[assignment, arg-type]
        else:
            return
        reply = ManagerReply(asked.number, answer)

        def come_back() -> None:
            if not asked.host or world.are_connected(self.host, asked.host):
                self._arrive(reply)

        world.at(world.delay(), come_back)

    def _arrive(self, reply: ManagerReply) -> None:
        if self.is_alive and reply.number in self.waiting:
            self.waiting.discard(reply.number)
            self.arrived.append(reply)


class Campaign:
    """One seed."""

    instance_class: ClassVar[type[Instance]] = Instance
    management_class: ClassVar[type[Management]] = Management
    turnstile_class: ClassVar[type[Turnstile]] = Turnstile

    def __init__(
        self,
        seed: int,
        *,
        seconds: float = 400.0,
        clocks_stop: bool | None = None,
        hosts: int = 6,
        slow_share: float = 0.02,
    ) -> None:
        self.seed = seed
        self.seconds = seconds
        self.random = Random(seed)  # noqa: S311 -- repeatable on purpose
        self.clocks_stop = self.random.random() < 0.4 if clocks_stop is None else clocks_stop
        self.world = World(
            self.random,
            hosts,
            management_class=self.management_class,
            turnstile_class=self.turnstile_class,
        )
        self.world.slow_share = slow_share
        self.runners: dict[str, Runner] = {}
        self.lives = 0
        self.highest_obeyed = 0
        self.faults: dict[str, int] = {}
        self.lost_disks: set[str] = set()
        """Replicas whose disks are gone."""
        self.begun: dict[int, MemberAction] = {}
        self.policy = Policy(
            number=1,
            hosts={host: HostPolicy(agent=f"{host}:1") for host in self.world.hosts},
            groups={
                name: GroupPolicy(
                    class_="m:C",
                    replicas=self.random.choice([1, 2, 3, 3, 3, 5]),
                    spread=("zone",),
                    replace_after=REPLACE_AFTER,
                )
                for name in ("g", "k", "s")
            },
            changes_per_hour=10_000,
            changes_at_once=self.random.choice([1, 2, 3]),
        )
        self.world.on_obeyed = self._on_obeyed
        self.world.on_entered = self._on_entered
        self.world.call("want", (self.policy,))
        for host in self.world.management_hosts:
            self.begin_instance(host)

    def begin_instance(self, host: str) -> None:
        """Begin the life of an instance on a host."""
        self.lives += 1
        runner = Runner(self, host, self.instance_class(f"{host}#{self.lives}", SETTINGS))
        self.runners[host] = runner
        self.world.at(self.random.uniform(0, 1), runner.step)

    # ---- one run

    def run(self) -> list[str]:
        """Do everything; give what was violated."""
        world = self.world
        world.run_until(60.0)
        while world.now < self.seconds and not world.violations:
            self._fault()
            world.run_until(world.now + self.random.uniform(2, 25))
        self.heal()
        self.healed_at = world.now
        deadline = world.now + 1200.0
        while world.now < deadline and not world.violations:
            world.run_until(world.now + 1.0)
            if not self.missing():
                break
        self.whole_after = world.now - self.healed_at
        if not world.violations and self.missing():
            world.fail(f"not whole {world.now - self.healed_at:.0f} s later: {self.missing()}")
        return world.violations

    def heal(self) -> None:
        """End all faults."""
        world = self.world
        for host in world.hosts.values():
            world.sides[host.name] = 0
            if not host.is_up:
                self._power_on(host)
        for runner in self.runners.values():
            runner.paused_until = -1.0
        for host_name in list(world.management.drained):
            world.call("bring_back", (host_name,))

    def missing(self) -> str:  # noqa: PLR0911 -- one for each
        """Say what is not as it is wanted; nothing if all is."""
        world = self.world
        management = world.management
        assert management.policy is not None
        if management.open:
            return f"unfinished: {management.open}"
        for name, wanted in management.policy.groups.items():
            group = world.groups.get(name)
            if group is None:
                return f"{name} has not begun"
            now = group.configuration
            if now.before or now.learners:
                return f"{name} is changing: {now}"
            if len(now.members) != wanted.replicas or set(group.primary) != set(now.members):
                return f"{name} wants {wanted.replicas} and has {group.primary} of {now.members}"
            at = {id: host for id, (host, _) in world.replicas_of(name).items()}
            if len({at[id].name for id in now.members}) < len(now.members):
                return f"{name} has two replicas on a host"
            running = [
                id for id, (_, each) in world.replicas_of(name).items() if each.state == "running"
            ]
            if sorted(running) != sorted(now.members):
                return f"{name} runs {running}, and has the members {now.members}"
            if sorted(each.id for each in management.placements if each.group == name) != sorted(
                now.members
            ):
                return f"{name}: placements are {management.placements}"
        return ""

    # ---- faults

    def _fault(self) -> None:
        kinds = (
            *("kill host", "kill host", "lose disk", "lose disk", "cut", "cut", "cut manager"),
            *("pause", "pause", "kill instance", "kill in a change", "kill in a change"),
            *("drain", "policy", "group time", "mend", "mend", "mend"),
        )
        kind = self.random.choice(kinds)
        if kind == "pause" and self.clocks_stop:
            kind = "stop clock"
        self.faults[kind] = self.faults.get(kind, 0) + 1
        getattr(self, "_" + kind.replace(" ", "_"))()

    def _any_host(self) -> Host:
        return self.world.hosts[self.random.choice(sorted(self.world.hosts))]

    def _acting(self) -> Runner:
        for runner in self.runners.values():
            if runner.is_alive and runner.instance.fence == self.world.management.fence:
                return runner
        return self.runners[self.random.choice(sorted(self.runners))]

    def _kill_host(self) -> None:
        host = self._any_host()
        if host.is_up:
            host.is_up = False
            self.world.at(
                self.random.choice([3.0, 15.0, 60.0, 200.0]), lambda: self._power_on(host)
            )

    def _power_on(self, host: Host) -> None:
        if not host.is_up:
            for replica in host.replicas.values():
                replica.up_from = self.world.now + self.random.uniform(0.5, 3)
            host.start()

    def _lose_disk(self) -> None:
        """Lose a disk, where the groups can stand it: a majority must keep its memory."""
        host = self._any_host()
        for group in self.world.groups.values():
            replicas = self.world.replicas_of(group.name)
            for members in (group.configuration.members, group.configuration.before):
                left = [
                    id
                    for id in members
                    if id in replicas
                    and replicas[id][0] is not host
                    and replicas[id][1].position > 0
                    and id in group.primary
                ]
                on_it = any(id in members for id in host.replicas)
                if members and on_it and 2 * len(left) <= len(members):
                    return
        action = next((each for each in self.world.management.open if each.kind == "found"), None)
        if action is not None and any(each.host == host.name for each in action.placements):
            return  # what one has begun alone is lost with it
        self.lost_disks |= set(host.replicas)
        host.replicas.clear()
        host.fence = 0
        host.is_up = False
        self.world.at(self.random.uniform(2, 30), lambda: self._power_on(host))

    def _cut(self) -> None:
        for host in self.world.sides:
            self.world.sides[host] = self.random.randrange(2)

    def _cut_manager(self) -> None:
        host = self._acting().host
        self.world.sides = {each: int(each == host) for each in self.world.sides}

    def _mend(self) -> None:
        self.world.sides = dict.fromkeys(self.world.sides, 0)

    def _pause(self) -> None:
        runner = self._acting()
        runner.paused_until = self.world.now + self.random.uniform(1, 40)

    def _stop_clock(self) -> None:
        runner = self._acting()
        if runner.paused_until < self.world.now:
            seconds = self.random.uniform(1, 40)
            runner.paused_until = self.world.now + seconds
            runner.behind += seconds

    def _kill_instance(self) -> None:
        self._acting().die()

    def _kill_in_a_change(self) -> None:
        self.kill_at_begin = True

    kill_at_begin = False

    def _drain(self) -> None:
        management = self.world.management
        if len(management.drained) < 2:
            self.world.call("drain", (self._any_host().name,))
        else:
            self.world.call("bring_back", (management.drained[0],))

    def _policy(self) -> None:
        before = self.world.management.policy
        assert before is not None
        groups = {
            name: GroupPolicy(
                class_=group.class_,
                replicas=self.random.choice([1, 2, 3, 3, 4, 5]),
                spread=group.spread,
                replace_after=group.replace_after,
            )
            for name, group in before.groups.items()
        }
        self.policy = Policy(
            number=before.number + 1,
            hosts=before.hosts,
            groups=groups,
            changes_per_hour=before.changes_per_hour,
            changes_at_once=before.changes_at_once,
        )
        self.world.call("want", (self.policy,))

    def _group_time(self) -> None:
        self.world.group_time_ahead += self.random.choice([3.0, 20.0, 4000.0])

    # ---- what must hold

    def check_acting(self) -> None:
        """See to it that one acts, where clocks go on: one that is paused may wake up any time."""
        acting = [
            each.instance.name
            for each in self.runners.values()
            if each.is_alive and each.instance.acts(each.clock())
        ]
        if len(acting) > 1 and not self.clocks_stop:
            self.world.fail(f"{' and '.join(acting)} act at once")

    def _on_obeyed(self, _host: Host, order: AgentOrder) -> None:
        world, fence = self.world, order.permit.fence
        if isinstance(order, LookAround):
            return
        if not self.clocks_stop and fence < self.highest_obeyed:
            world.fail(f"fence {fence} is obeyed after {self.highest_obeyed}: {order}")
        self.highest_obeyed = max(self.highest_obeyed, fence)
        group = world.groups.get(order.group)
        kind = type(order).__name__
        if kind in {"AdmitReplica", "DismissReplica"} and group is not None:
            silent = world.now - group.majority_at
            if silent > LATE_SECONDS:
                world.fail(f"{kind} in {order.group}, without a majority for {silent:.0f} s")

    def _on_entered(self, method: str, _arguments: tuple[object, ...], entered: Entered) -> None:
        if method != "begin" or entered.refusal:
            return
        if self.kill_at_begin:
            self.kill_at_begin = False
            self.world.at(self.random.uniform(0, 6), lambda: self._acting().die())
        action = entered.state.open[-1]
        self._check_lost(action)

    def _check_lost(self, action: MemberAction) -> None:
        """See to it that nobody is replaced who was there."""
        world = self.world
        group = world.groups.get(action.group)
        id, why = action.id, action.why
        if action.kind == "add" and why.startswith("in the place of "):
            id, _, why = why.removeprefix("in the place of ").partition(": ")
        if group is None or "out of its group" not in why:
            if "its disk was lost" in why and id not in self.lost_disks:
                world.fail(f"{id} is replaced for a lost disk, which was not lost")
            return
        away = group.was_out_for(id, world.now, LATE_SECONDS)
        if away < 0.8 * REPLACE_AFTER:
            world.fail(f"{id} is replaced, and was out of its group for {away:.1f} s only")


def main() -> int:
    """Run seeds; give how many failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seconds", type=float, default=400.0)
    args = parser.parse_args()
    failed, times = 0, []
    for seed in range(args.first, args.first + args.seeds):
        campaign = Campaign(seed, seconds=args.seconds)
        violations = campaign.run()
        failed += bool(violations)
        times.append(campaign.whole_after)
        for violation in violations:
            print(f"seed {seed}: {violation}")  # noqa: T201
    times.sort()
    print(  # noqa: T201
        f"{args.seeds} seeds, {failed} failed; whole again after {times[len(times) // 2]:.0f} s "
        f"(median), {times[-1]:.0f} s (longest)"
    )
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
