"""What an instance sees: hosts, groups, and for how long each replica has been out of its group.

Only what was told within the last moments counts. Of several replicas that say they are primary the
one with the latest configuration is believed, and none with an earlier one than was seen before: a
replica that is behind, or cut off, tells of members that have changed since.

Whether a replica is out of its group is the group's word, not ours: a host that we cannot reach may
serve well, and one that is slow to answer is not lost. It is *absent* only if a primary view that
we hear of is without it; and for as long as we have heard that without a gap, because while we
heard nothing it may have been there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.manager.orders import GroupMembers, HostReport, ReplicaReport


@dataclass(slots=True)
class HostSight:
    """What a host told last, and when."""

    report: HostReport
    got: float
    """By our clock, when its answer came."""
    since: float
    """From when on it has answered again and again."""


@dataclass(frozen=True, slots=True)
class GroupSight:
    """A group as one of its primary replicas shows it."""

    primary: ReplicaReport
    host: str
    """Where that replica is."""
    configuration: GroupMembers
    primaries: tuple[tuple[str, ReplicaReport], ...]
    """All replicas that say the same, with their hosts."""

    @property
    def in_view(self) -> tuple[str, ...]:
        """The members that are in touch; learners are not counted."""
        members = self.configuration.members
        return tuple(each for each in self.primary.in_view if each in members)

    @property
    def is_changing(self) -> bool:
        """Whether a change of the members is on its way."""
        return bool(self.configuration.before or self.configuration.learners)


@dataclass(slots=True)
class _Absence:
    since: float
    last: float


@dataclass(slots=True)
class Sight:
    """All that is seen."""

    fresh_seconds: float
    hosts: dict[str, HostSight] = field(default_factory=dict)
    _latest: dict[str, int] = field(default_factory=dict)
    """The highest configuration seen, by group."""
    _absences: dict[tuple[str, str], _Absence] = field(default_factory=dict)

    def take(self, host: str, report: HostReport, now: float) -> None:
        """Take the answer of a host."""
        before = self.hosts.get(host)
        since = now
        if before is not None and self._is_fresh(before, now):
            since = before.since
        self.hosts[host] = HostSight(report, now, since)

    def host(self, host: str, now: float) -> HostSight | None:
        """Give what a host told within the last moments, if it did."""
        seen = self.hosts.get(host)
        return seen if seen is not None and self._is_fresh(seen, now) else None

    def reached(self, now: float) -> Iterator[tuple[str, HostSight]]:
        """Give all hosts that have told something within the last moments."""
        for host in sorted(self.hosts):
            seen = self.host(host, now)
            if seen is not None:
                yield host, seen

    def replicas(self, group: str, now: float) -> Iterator[tuple[str, ReplicaReport]]:
        """Give the replicas of a group that are seen, with their hosts."""
        for host, seen in self.reached(now):
            for replica in seen.report.replicas:
                if replica.group == group:
                    yield host, replica

    def group(self, group: str, now: float) -> GroupSight | None:
        """Give what is known of a group from its primary view; None if no primary is heard of."""
        primaries = [
            (host, each, each.configuration)
            for host, each in self.replicas(group, now)
            if each.is_primary and each.configuration is not None
        ]
        if not primaries:
            return None
        latest = max(configuration.number for _, _, configuration in primaries)
        if latest < self._latest.get(group, 0):
            return None
        self._latest[group] = latest
        same = [each for each in primaries if each[2].number == latest]
        # The view is that of the most advanced replica: one that was cut off is behind.
        host, primary, configuration = max(same, key=lambda each: (each[1].position, each[0]))
        return GroupSight(primary, host, configuration, tuple((h, r) for h, r, _ in same))

    def note_absences(self, group: str, now: float) -> None:
        """Count on for whom the group is without."""
        seen = self.group(group, now)
        if seen is None:
            return
        told = self.hosts[seen.host].got
        for id in seen.configuration.members:
            key = (group, id)
            if id in seen.primary.in_view:
                self._absences.pop(key, None)
                continue
            absence = self._absences.get(key)
            if absence is None or told - absence.last > self.fresh_seconds:
                self._absences[key] = _Absence(told, told)
            else:
                absence.last = max(absence.last, told)

    def absent_seconds(self, group: str, id: str) -> float:
        """Give for how long we have heard, without a gap, that a member is out of its group."""
        absence = self._absences.get((group, id))
        return 0.0 if absence is None else absence.last - absence.since

    def is_absent(self, group: str, id: str) -> bool:
        """Say whether we heard last that a member is out of its group."""
        return (group, id) in self._absences

    def labels(self, host: str) -> dict[str, str]:
        """Give the labels that a host told last."""
        seen = self.hosts.get(host)
        return {} if seen is None else seen.report.labels

    def forget_times(self) -> None:
        """Begin to count anew; for who begins to act."""
        self._absences.clear()

    def _is_fresh(self, seen: HostSight, now: float) -> bool:
        return now - seen.got <= self.fresh_seconds
