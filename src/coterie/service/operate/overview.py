"""A group at a glance: who is where, whether it serves, and what an operator should do.

Every replica is asked for its report, and the supervisor, where there is one, for what it knows of
those that do not answer. What follows from it is worked out here, without asking anybody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from coterie.client import ClientSettings, NotWelcome, report_of
from coterie.kernel.engine import Role, Version
from coterie.kernel.errors import CoterieError, Refused
from coterie.kernel.views import NO_VIEW, ChangedConfiguration
from coterie.protocol.messages import Peer, Report
from coterie.service.operate.control import ProcessSeen

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

PRIMARY = Role.PRIMARY.value
IN_SERVICE = frozenset(role.value for role in Role if role.is_in_service)
NOTHING_KNOWN = Version(NO_VIEW, 0)


class ReplicaSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, as far as it can be seen."""

    id: str
    address: str
    report: Report | None = None
    """What it says; None if it does not answer."""
    silence: str = ""
    """Why it does not answer, in words."""
    process: ProcessSeen | None = None
    """What its supervisor says, if it has one."""

    @property
    def is_primary(self) -> bool:
        """Whether it takes updates."""
        return self.report is not None and self.report.role == PRIMARY

    @property
    def is_in_service(self) -> bool:
        """Whether it does its part: takes updates, or follows who does."""
        return self.report is not None and self.report.role in IN_SERVICE

    @property
    def is_sound(self) -> bool:
        """Whether it is up and remembers."""
        return self.report is not None and not self.report.is_zombie

    @property
    def version(self) -> Version:
        """How advanced its history is."""
        if self.report is None or self.report.version is None:
            return NOTHING_KNOWN
        return self.report.version


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All replicas of one group."""

    group: str
    replicas: list[ReplicaSeen]

    @property
    def configuration(self) -> ChangedConfiguration | None:
        """The latest one that any replica tells of; None where members cannot change."""
        found = [each.report.configuration for each in self.up if each.report is not None]
        told = [each for each in found if each is not None]
        return max(told, key=lambda each: each.number, default=None)

    @property
    def named(self) -> list[Peer]:
        """The members, as the replica names them that knows the latest configuration."""
        reports = [each.report for each in self.up if each.report is not None]
        latest = max(reports, key=_number, default=None)
        return [] if latest is None else latest.peers

    def of_members(self) -> Overview:
        """Leave out those who do not belong to the group any more."""
        configuration = self.configuration
        gone = () if configuration is None else configuration.gone
        left = [each for each in self.replicas if each.id not in gone]
        return Overview(group=self.group, replicas=left)

    @property
    def majority(self) -> int:
        """How many replicas of the group are a majority."""
        configuration = self.configuration
        members = self.replicas if configuration is None else configuration.members
        return len(members) // 2 + 1

    @property
    def serves(self) -> bool:
        """Whether some replica takes updates."""
        return any(replica.is_primary for replica in self.replicas)

    @property
    def takes_red(self) -> bool:
        """Whether some replica takes updates that wait for a primary component (COLOURS)."""
        red = Role.NON_PRIMARY.value
        return any(each.report is not None and each.report.role == red for each in self.replicas)

    @property
    def is_blocked(self) -> bool:
        """Whether a majority is in touch, and has found out that it cannot be primary (COLOURS)."""
        red = Role.NON_PRIMARY.value
        reports = [each.report for each in self.up if each.report is not None]
        return not self.serves and any(
            each.role == red and len(each.members) >= self.majority for each in reports
        )

    @property
    def up(self) -> list[ReplicaSeen]:
        """The replicas that answer."""
        return [replica for replica in self.replicas if replica.report is not None]

    @property
    def down(self) -> list[ReplicaSeen]:
        """The replicas that do not answer."""
        return [replica for replica in self.replicas if replica.report is None]

    @property
    def is_well(self) -> bool:
        """Whether every replica is where it should be."""
        return self.serves and all(replica.is_in_service for replica in self.replicas)

    @property
    def cannot_recover(self) -> str:
        """Why it cannot be let go on with loss, in words; empty where it can, or nobody knows."""
        return next((each.report.cannot_recover for each in self.up if each.report), "")

    @property
    def position(self) -> int:
        """The highest position known."""
        return max((each.report.position for each in self.up if each.report), default=0)

    @property
    def has_lost_memory(self) -> bool:
        """Whether too few remember, even if all that are down do."""
        sound = sum(replica.is_sound for replica in self.replicas)
        return not self.serves and sound + len(self.down) < self.majority

    def lag(self, replica: ReplicaSeen) -> int:
        """Give how far a replica is behind the foremost."""
        return self.position - replica.report.position if replica.report is not None else 0

    def advice(self, again: str) -> list[str]:
        """Say what to do, one sentence for each thing; *again* names the group in commands."""
        if self.is_well:
            return []
        if self.has_lost_memory:
            return [self._how_to_recover(again)]
        advice = []
        if not self.serves:
            sound = sum(replica.is_sound for replica in self.replicas)
            if sound < self.majority:
                names = _names(self.down)
                advice.append(
                    f"no majority: {sound} of the {self.majority} replicas it takes are up and "
                    f"remember; start {names}"
                )
            elif len(self.up) >= self.majority:
                advice.append("no primary view yet: the replicas may not reach each other")
        for replica in self.replicas:
            process = replica.process
            if process is not None and process.state in {"given up", "waiting"}:
                advice.append(f"{replica.id} is not running: {process.reason}")
            elif replica.report is None and process is None:
                advice.append(f"{replica.id} does not answer: {replica.silence}")
        return advice

    def _how_to_recover(self, again: str) -> str:
        if self.cannot_recover and self.down:
            return f"too few replicas remember; start {_names(self.down)}: one may be enough"
        if self.cannot_recover:
            return (
                "a majority has lost its state: if no view is formed in a moment, "
                f"{self.cannot_recover}"
            )
        if len(self.up) < self.majority:
            return (
                f"too few replicas remember; start {_names(self.down)} first, with an empty dir if "
                "theirs is lost"
            )
        best = max(self.up, key=lambda each: (each.version, each.is_sound))
        return (
            f"a majority has lost its memory, and the group has stopped: if it cannot be found "
            f"again, go on from what {best.id} knows (up to position {best.version.position}): "
            f"coterie recover {again} --from {best.id} --accept-loss"
        )


def check_recovery(overview: Overview, source: str) -> str:
    """Say what is lost if the group goes on from one replica; raises `Refused` if it must not."""
    known = {replica.id: replica for replica in overview.replicas}
    if source not in known:
        raise CoterieError(f"there is no replica {source!r}; there is {', '.join(known)}")
    chosen = known[source]
    if overview.cannot_recover:
        raise Refused(overview.cannot_recover)
    if overview.serves:
        raise Refused(
            "the group serves, so nothing has to be recovered: replicas that have lost their "
            "memory are brought up to date by the others"
        )
    if not (overview.has_lost_memory or overview.is_blocked):
        raise Refused(
            "too many may still remember: "
            + (
                f"start {_names(overview.down)} first, with an empty dir if theirs is lost for good"
                if overview.down
                else "a majority does, and needs only to reach each other"
            )
        )
    if len(overview.up) < overview.majority:
        raise Refused(
            f"it takes {overview.majority} replicas that are up: start {_names(overview.down)}"
        )
    if chosen.report is None:
        raise Refused(f"replica {source!r} does not answer: {chosen.silence}")
    best = max(overview.up, key=lambda each: each.version)
    if chosen.version < best.version:
        raise Refused(
            f"replica {best.id!r} knows more (up to {best.version.position}) than {source!r} (up "
            f"to {chosen.version.position}): recover from {best.id!r}"
        )
    position = chosen.version.position
    lost = f"everything that {source!r} does not know is lost; it knows {position} entries"
    if overview.down:
        lost += f", and {_names(overview.down)} may know more"
    return lost


def _number(report: Report) -> int:
    return 0 if report.configuration is None else report.configuration.number


def _names(replicas: Sequence[ReplicaSeen]) -> str:
    return ", ".join(replica.id for replica in replicas)


async def look(  # noqa: PLR0913 -- all by name
    *,
    group: str,
    addresses: Mapping[str, str],
    processes: Sequence[ProcessSeen] = (),
    deadline: float,
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> Overview:
    """Ask all replicas at once; raises `NotWelcome` where one will not talk to us at all."""
    settings = ClientSettings(deadline=deadline, connect_timeout=deadline)
    supervised = {each.id: each for each in processes}

    async def see(id: str, address: str) -> ReplicaSeen:
        process = supervised.get(id)
        try:
            report = await report_of(
                address, group=group, secret=secret, tls=tls, settings=settings
            )
        except NotWelcome:
            raise
        except CoterieError as error:
            silence = str(error).removeprefix(f"no replica answered within {deadline} s: ")
            silence = silence.removeprefix(f"{address}: ")
            return ReplicaSeen(id=id, address=address, silence=silence, process=process)
        return ReplicaSeen(id=report.replica, address=address, report=report, process=process)

    replicas = await asyncio.gather(*(see(id, address) for id, address in addresses.items()))
    return Overview(group=group, replicas=list(replicas))
