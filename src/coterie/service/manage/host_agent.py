"""The agent of a host: starts and stops replicas as it is told, and tells how they are.

It decides nothing. An order is carried out if its permit is good (`coterie.manager.orders`), and
the fence of every order is on the disk before anything is done under it. Replicas are processes of
their own, started again when they end, as under `coterie serve`; they stop when the agent is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.client import ClientSettings, report_of
from coterie.kernel.errors import CoterieError, Refused
from coterie.manager.orders import (
    TEXT_MAX,
    AdmitReplica,
    AgentAnswer,
    DismissReplica,
    GroupMembers,
    HostReport,
    LookAround,
    PlaceReplica,
    ReplicaReport,
    StartReplica,
    StopReplica,
    Turnstile,
)
from coterie.runtime.events import log
from coterie.runtime.security import read_secret, read_secrets
from coterie.service.folder import lock_folder
from coterie.service.manage.channel import AgentPort
from coterie.service.manage.keeping import AgentDisk
from coterie.service.operate.control import Admit, Dismiss, give_order
from coterie.service.operate.overview import PRIMARY
from coterie.service.operate.supervisor import WatchedProcess

if TYPE_CHECKING:
    from coterie.manager.orders import AgentOrder
    from coterie.protocol.messages import Report
    from coterie.service.manage.agent_config import AgentConfig
    from coterie.service.manage.keeping import KeptReplica

LOOK_SECONDS = 0.5
"""How often replicas are asked how they are."""
ANSWER_SECONDS = 2.0
FRESH_SECONDS = 4.0
"""For how long counts what a replica has said."""
_TROUBLE = (CoterieError, OSError, ValueError, OverflowError)
"""What an order may end in that cannot be carried out: the disk, the settings, a number."""


class HostAgent:
    """What runs on each host."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self._watched: dict[str, WatchedProcess] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._reports: dict[str, tuple[float, Report]] = {}
        self._changing = asyncio.Lock()
        self._disk: AgentDisk
        self.turnstile: Turnstile

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until told to stop."""
        config = self.config
        taken = f"an agent works in {config.dir} already"
        shown = read_secrets(Path(config.secret_file))
        with lock_folder(Path(config.dir), taken):
            self._disk = AgentDisk(config, shown[0])
            self.turnstile = Turnstile(secrets.token_hex(8), self._disk.fence)
            for replica in self._disk.replicas.values():
                if replica.state == "started":
                    self._keep(replica.id)
            looking = asyncio.ensure_future(self._look_again_and_again())
            port = AgentPort(config.host, shown, self.obey)
            try:
                async with port.listening(config.address):
                    log(
                        logging.INFO,
                        "agent",
                        host=config.host,
                        address=config.listen,
                        replicas=list(self._watched),
                    )
                    await _first(looking, stopping)
            finally:
                looking.cancel()
                await asyncio.gather(*(each.end() for each in self._watched.values()))
                await asyncio.gather(*self._keeping.values(), return_exceptions=True)

    # ---- orders

    async def obey(self, order: AgentOrder) -> AgentAnswer:
        """Carry out an order, if its permit is good; whatever comes of it is an answer."""
        try:
            return await self._obey(order)
        except _TROUBLE as error:
            return _refused(order, error)

    async def _obey(self, order: AgentOrder) -> AgentAnswer:
        refusal = self.turnstile.refusal(order, time.monotonic())
        self._disk.keep_fence(self.turnstile.fence)
        if refusal:
            return _refused(order, refusal)
        if isinstance(order, LookAround):
            self._introduce(order)
            return AgentAnswer(report=self.report())
        log(
            logging.INFO,
            "order",
            order=_name(order),
            fence=order.permit.fence,
            id=_id(order),
        )
        try:
            async with self._changing:
                # While it waited another order may have come, from who acts now.
                refusal = self.turnstile.refusal(order, time.monotonic())
                if not refusal:
                    await self._carry_out(order)
        except _TROUBLE as error:
            refusal = str(error) or repr(error)
        report = self.report()
        return _refused(order, refusal, report) if refusal else AgentAnswer(report=report)

    async def _carry_out(self, order: AgentOrder) -> None:
        match order:
            case PlaceReplica(group=group, id=id):
                self._disk.place(group, id)
            case StartReplica():
                self._start(order)
            case StopReplica(id=id):
                await self._stop(id)
            case AdmitReplica(group=group, place=place, expected=expected):
                asked = Admit(group, place.id, place.peers, place.clients, expected)
                await self._ask_group(group, asked)
            case DismissReplica(group=group, id=id, expected=expected):
                await self._ask_group(group, Dismiss(group, id, expected))

    def _start(self, order: StartReplica) -> None:
        replica = self._disk.replicas.get(order.id)
        if replica is None or replica.group != order.group:
            raise Refused(f"{order.id} was not placed here")
        if replica.state != "placed":
            return
        self._disk.prepare(replica, order)
        self._note(replica, "started")
        self._keep(replica.id)

    async def _stop(self, id: str) -> None:
        replica = self._disk.replicas.get(id)
        if replica is None:
            return
        if replica.state in {"placed", "started"}:
            self._note(replica, "stopped")
        watched = self._watched.pop(id, None)
        if watched is not None:
            await watched.end()

    async def _ask_group(self, group: str, order: Admit | Dismiss) -> None:
        """Have a replica here ask its group, if that still is what the order was decided on.

        The replica looks again in the turn in which it does it: it may be slow, and what was
        ordered by who acted a while ago must not be done beside what was ordered since.
        """
        for replica in list(self._disk.replicas.values()):
            if replica.group != group or replica.id not in self._watched:
                continue
            report = await self._ask(replica)
            number = None if report.configuration is None else report.configuration.number
            if report.role != PRIMARY or number is None:
                raise Refused(f"{replica.id} is not in a primary view")
            if number != order.expected:
                raise Refused(f"the configuration is {number} by now, not {order.expected}")
            answer = await asyncio.to_thread(give_order, self._disk.folder(replica.id), order)
            if not answer.is_done:
                raise Refused(answer.text)
            return
        raise Refused(f"no replica of {group} runs here")

    def _introduce(self, order: LookAround) -> None:
        for replica in self._disk.replicas.values():
            ids = order.known.get(replica.group, ())
            if replica.id in self._watched and not {*ids} <= {
                *self._disk.knows(replica),
                replica.id,
            }:
                self._disk.introduce(replica, ids)

    # ---- processes

    def command(self, id: str) -> list[str]:
        """Give the command line of a replica's process."""
        file = str(self._disk.config_file(id))
        replica = ["replica", "--until-eof", "--json", "--config", file, "--id", id]
        return [sys.executable, "-m", "coterie.cli", *replica]

    def say(self, name: str, fields: dict[str, object]) -> None:
        """Log what happens to the processes."""
        level = logging.WARNING if name in {"ended", "given up", "killed"} else logging.INFO
        log(level, name, **fields)

    def _keep(self, id: str) -> None:
        watched = self._watched[id] = WatchedProcess(self, id)
        self._keeping[id] = asyncio.ensure_future(self._keep_until_removed(id, watched))

    async def _keep_until_removed(self, id: str, watched: WatchedProcess) -> None:
        await watched.keep()
        if watched.seen().state == "removed":
            self._note(self._disk.replicas[id], "removed")

    def _note(self, replica: KeptReplica, state: str) -> None:
        self._disk.keep(msgspec.structs.replace(replica, state=state))

    # ---- looking

    async def _look_again_and_again(self) -> None:
        while True:
            started = [each for each in self._disk.replicas.values() if each.id in self._watched]
            await asyncio.gather(*(self._look(each) for each in started))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, replica: KeptReplica) -> None:
        try:
            await self._ask(replica)
        except (CoterieError, OSError):
            self._reports.pop(replica.id, None)

    async def _ask(self, replica: KeptReplica) -> Report:
        asked = time.monotonic()
        report = await report_of(
            replica.clients,
            group=replica.group,
            secret=read_secret(self._disk.owner_secret(replica.group)),
            settings=ClientSettings(deadline=ANSWER_SECONDS, connect_timeout=ANSWER_SECONDS),
        )
        self._reports[replica.id] = asked, report
        return report

    def report(self) -> HostReport:
        """Tell how things are."""
        return HostReport(
            host=self.config.host,
            life=self.turnstile.life,
            at=time.monotonic(),
            labels=self.config.labels,
            load=os.getloadavg()[0] / (os.cpu_count() or 1),
            free_bytes=shutil.disk_usage(self.config.dir).free,
            replicas=tuple(self._report(each) for each in self._disk.told()),
            fence=self.turnstile.fence,
        )

    def _report(self, replica: KeptReplica) -> ReplicaReport:
        state, reason = replica.state, ""
        watched = self._watched.get(replica.id)
        if watched is not None and state == "started":
            seen = watched.seen()
            state, reason = seen.state, seen.reason
        at, report = self._reports.get(replica.id, (0.0, None))
        if report is None or time.monotonic() - at > FRESH_SECONDS or watched is None:
            return ReplicaReport(
                group=replica.group,
                id=replica.id,
                state=state,
                reason=reason[:TEXT_MAX],
                place=replica.place,
            )
        return ReplicaReport(
            group=replica.group,
            id=replica.id,
            state=state,
            reason=reason[:TEXT_MAX],
            place=replica.place,
            role=report.role,
            is_primary=report.role == PRIMARY,
            is_zombie=report.is_zombie,
            in_view=tuple(each.partition("#")[0] for each in report.members),
            position=report.position,
            configuration=_members(report),
            knows=self._disk.knows(replica),
            trouble=report.trouble[:TEXT_MAX],
        )


def _members(report: Report) -> GroupMembers | None:
    now = report.configuration
    if now is None:
        # Members of such a group never change: those it has are those it was founded with.
        ids = tuple(sorted(each.id for each in report.peers))
        return GroupMembers(1, ids) if ids else None
    return GroupMembers(now.number, now.members, now.learners, now.before, now.gone)


def _refused(
    order: AgentOrder, why: str | Exception, report: HostReport | None = None
) -> AgentAnswer:
    reason = str(why) or repr(why)
    log(logging.WARNING, "refused", order=_name(order), reason=reason)
    return AgentAnswer(refusal=reason, report=report)


def _name(order: AgentOrder) -> str:
    return type(order).__name__


def _id(order: AgentOrder) -> str:
    if isinstance(order, AdmitReplica):
        return order.place.id
    return "" if isinstance(order, LookAround) else order.id


async def _first(looking: asyncio.Task[None], stopping: asyncio.Event) -> None:
    """Wait until told to stop; raises what ended the looking."""
    waiting = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([looking, waiting], return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            looking.result()
    finally:
        waiting.cancel()
