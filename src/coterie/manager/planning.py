"""What a group lacks, and the one change that comes next; or a sentence why there is none.

A group grows before it shrinks: the replacement joins, then the lost one goes. So a group with
*n* replicas wanted has up to *n* + 1 for a while. In this order:

1. a group that has not begun is founded, with one replica where members can change: what one has
   begun alone nobody can begin a second time;
2. who was removed in another way is struck out, and who joined after it was given up goes;
3. with more members than wanted one goes: one that is lost, one on a drained host, or the one that
   the spread needs least;
4. with fewer good members than wanted one comes.

Nothing is changed unless a primary view is heard of, and nobody goes unless those in touch are a
majority before and after. A member is lost if its host says that it has nothing of it, or if it has
been out of its group for `replace_after`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.manager.management import HOUR

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coterie.manager.management import ActionKind, ManagementState
    from coterie.manager.policy import GroupPolicy, Policy
    from coterie.manager.sight import GroupSight, Sight


class ProposedChange(NamedTuple):
    """A change that is to be begun."""

    kind: ActionKind
    places: list[str]
    """Hosts, or the replica that is to go."""
    why: str


class Planner:
    """Looks at one group at one moment."""

    def __init__(self, state: ManagementState, sight: Sight, group: str, now: float) -> None:
        assert state.policy is not None, "without a policy there is nothing to plan"
        self.state, self.sight, self.group, self.now = state, sight, group, now
        self.policy: Policy = state.policy
        self.wanted: GroupPolicy = self.policy.groups[group]
        self.placed = state.placed(group)

    def plan(self) -> ProposedChange | str:  # noqa: PLR0911 -- one for each case
        """Give the next change, a sentence why there is none, or nothing if all is as wanted."""
        if self.group not in self.state.founded:
            return self._found()
        seen = self.sight.group(self.group, self.now)
        if seen is None:
            return self._without_primary()
        if not self.wanted.can_change:
            return self._fixed(seen)
        for id in (*seen.configuration.learners, *seen.configuration.members):
            if id not in self.placed and self.state.has_given(self.group, id):
                # Whoever was asked to admit it did so when nobody waited for it any more.
                if id in seen.configuration.members and not self.may_go(seen, id):
                    continue
                return ProposedChange("remove", [id], "its addition was given up, and it came late")
        if seen.is_changing:
            return "its members are being changed, and not by the manager: nothing else is begun"
        for id in self.placed:
            if id in seen.configuration.gone:
                return ProposedChange(
                    "remove", [id], "it was removed already, and not by the manager"
                )
        return self._change(seen)

    # ---- changes

    def _found(self) -> ProposedChange | str:
        count = 1 if self.wanted.can_change else self.wanted.replicas
        hosts = self.candidates([])
        if len(hosts) < count:
            return (
                f"it cannot begin: {count} host{'s are' if count > 1 else ' is'} needed, and "
                f"{self._hosts_there(hosts)}"
            )
        chosen: list[str] = []
        while len(chosen) < count:
            chosen.append(self.candidates(chosen)[0])
        return ProposedChange("found", chosen, "it is in the policy and has not begun")

    def _change(self, seen: GroupSight) -> ProposedChange | str:
        members = seen.configuration.members
        lost = {id: why for id in members if (why := self.why_lost(seen, id))}
        left = [id for id in members if id not in lost]
        unwanted = {id: why for id in left if (why := self._why_unwanted(id, left))}
        good = [id for id in members if id not in lost and id not in unwanted]
        n = self.wanted.replicas
        if len(members) > n:
            return self._remove(seen, good, lost, unwanted)
        if len(good) < n:
            return self._add(good, lost, unwanted)
        absent = [id for id in members if id not in seen.in_view]
        if absent:
            return (
                f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} out of the group for "
                f"less than {self.wanted.replace_after:g} s"
            )
        return ""

    def _remove(
        self,
        seen: GroupSight,
        good: Sequence[str],
        lost: dict[str, str],
        unwanted: dict[str, str],
    ) -> ProposedChange | str:
        members = seen.configuration.members
        choice = [id for id in (*lost, *unwanted) if id in self.placed]
        if not choice and not lost and not unwanted:
            placed = [id for id in good if id in self.placed]
            # One that is out of the group at the moment is missed least, if it comes back or not.
            choice = sorted(self._by_use(placed), key=lambda id: id in seen.in_view)
        if not choice:
            strangers = [id for id in members if id not in self.placed]
            return (
                f"it has {len(members)} members and {self.wanted.replicas} are wanted, but "
                f"{', '.join(strangers)} came without the manager, which leaves them alone"
            )
        id = choice[0]
        if not self.may_go(seen, id):
            return (
                f"{id} is to go, and without it those in touch would be no majority: "
                f"{', '.join(seen.in_view) or 'nobody'} of {', '.join(members)}"
            )
        why = lost.get(id) or unwanted.get(id) or "there are more members than wanted"
        return ProposedChange("remove", [id], why)

    def _add(
        self, good: Sequence[str], lost: dict[str, str], unwanted: dict[str, str]
    ) -> ProposedChange | str:
        missing = self.wanted.replicas - len(good)
        hosts = self.candidates([self.placed[id] for id in good if id in self.placed], lost)
        reasons = [f"{id}: {why}" for id, why in (*lost.items(), *unwanted.items())]
        if not hosts:
            what = f"{missing} of {self.wanted.replicas} replicas missing"
            because = f" ({'; '.join(reasons)})" if reasons else ""
            return f"{what}{because}, and no host can take one: {self._hosts_there(hosts)}"
        why = f"in the place of {reasons[0]}" if reasons else "there are fewer than wanted"
        return ProposedChange("add", [hosts[0]], why)

    # ---- what is and is not

    def why_lost(self, seen: GroupSight, id: str) -> str:
        """Say why a member will not come back; nothing if it may."""
        if id in seen.in_view:
            return ""
        host = self.placed.get(id)
        told = None if host is None else self.sight.host(host, self.now)
        if told is not None and told.report.find(id) is None:
            return f"{host} has nothing of it: its disk was lost"
        if self.sight.absent_seconds(self.group, id) >= self.wanted.replace_after:
            where = f", and {host} is not reached" if told is None and host is not None else ""
            return f"out of its group for {self.wanted.replace_after:g} s{where}"
        return ""

    def _why_unwanted(self, id: str, members: Sequence[str]) -> str:
        host = self.placed.get(id)
        if host is None:
            return ""
        if host in self.state.drained:
            return f"{host} is drained"
        if host not in self.policy.hosts:
            return f"{host} is in the policy no more"
        if any(self.placed.get(each) == host for each in members[: members.index(id)]):
            return f"{host} has another one"
        return ""

    def may_go(self, seen: GroupSight, id: str) -> bool:
        """Say whether those in touch are a majority with a member and without it."""
        members = seen.configuration.members
        return self.has_majority(seen, members) and self.has_majority(
            seen, [each for each in members if each != id]
        )

    def has_majority(self, seen: GroupSight, members: Collection[str]) -> bool:
        """Say whether those in touch are more than half of these."""
        return 2 * sum(1 for each in members if each in seen.in_view) > len(members)

    # ---- hosts

    def candidates(self, taken: Collection[str], lost: Collection[str] = ()) -> list[str]:
        """Give the hosts that can take a replica, the best first.

        *taken* are those with good replicas, which decide the spread; a host whose replica is
        *lost* can take another one if it says so itself.
        """
        occupied = {host for id, host in self.placed.items() if id not in lost} | set(taken)
        hosts = []
        for host, seen in self.sight.reached(self.now):
            labels = seen.report.labels
            if (
                host in self.policy.hosts
                and host not in self.state.drained
                and host not in occupied
                and not any(
                    each.group == self.group and each.state not in {"removed", "stopped"}
                    for each in seen.report.replicas
                )
                and all(labels.get(name) == value for name, value in self.wanted.only.items())
            ):
                hosts.append(host)
        return sorted(hosts, key=lambda host: self._rank(host, taken))

    def _rank(self, host: str, taken: Collection[str]) -> tuple[object, ...]:
        prefer = self.wanted.prefer
        report = self.sight.hosts[host].report
        here = sum(1 for each in self.state.placements if each.host == host)
        failed = sum(
            1
            for each in self.state.done
            if each.group == self.group
            and each.host == host
            and each.outcome.startswith("given up")
            and each.ended > self.state.at - HOUR
        )
        return (
            failed,
            *(self._sharing(host, name, taken) for name in self.wanted.spread),
            prefer.index(host) if host in prefer else len(prefer),
            here,
            round(report.load),
            host,
        )

    def _sharing(self, host: str, name: str, taken: Collection[str]) -> int:
        """Count the replicas that are on hosts with the same value of a label."""
        value = self.sight.labels(host).get(name, "")
        return sum(1 for other in taken if self.sight.labels(other).get(name, "") == value)

    def _by_use(self, ids: Sequence[str]) -> list[str]:
        """Sort members, the one that the spread needs least first."""

        def use(id: str) -> tuple[object, ...]:
            others = [self.placed[each] for each in ids if each != id]
            rank = self._rank(self.placed[id], others) if self._is_known(id) else ()
            return (not self._is_known(id), rank, int(id.rpartition("-")[2]))

        return sorted(ids, key=use, reverse=True)

    def _is_known(self, id: str) -> bool:
        return self.placed[id] in self.sight.hosts

    def _hosts_there(self, hosts: Sequence[str]) -> str:
        """Say for every host why it takes none."""
        reasons = []
        for host in self.policy.hosts:
            if host in hosts:
                continue
            seen = self.sight.host(host, self.now)
            if host in self.state.drained:
                reason = "drained"
            elif seen is None:
                reason = "not reached"
            elif any(
                seen.report.labels.get(name) != value for name, value in self.wanted.only.items()
            ):
                wanted = ", ".join(f"{name}={value}" for name, value in self.wanted.only.items())
                reason = f"without {wanted}"
            else:
                reason = "has one"
            reasons.append(f"{host} {reason}")
        return ", ".join(reasons)

    # ---- groups that are not to be changed

    def _without_primary(self) -> str:
        seen = [
            f"{each.id} on {host} is {each.role or each.state}"
            + (f" ({each.trouble or each.reason})" if each.trouble or each.reason else "")
            for host, each in self.sight.replicas(self.group, self.now)
            if each.id in self.placed
        ]
        missing = sorted(
            {
                f"{host} is not reached"
                for host in self.placed.values()
                if self.sight.host(host, self.now) is None
            }
        )
        told = "; ".join([*seen, *missing]) or "nothing is seen of it"
        return f"no primary view is heard of, and without a majority nothing is changed: {told}"

    def _fixed(self, seen: GroupSight) -> str:
        absent = [id for id in self.placed if id not in seen.primary.in_view]
        if absent:
            return (
                f"{', '.join(absent)} out of the group: members do not change under "
                f"{self.wanted.engine}, so agents start them again, and nothing more is done"
            )
        if len(self.placed) != self.wanted.replicas:
            return (
                f"it has {len(self.placed)} replicas, {self.wanted.replicas} are wanted, and "
                f"members do not change under {self.wanted.engine}"
            )
        return ""
