"""What `coterie replica` does between its start and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli.commands.role_lines import RolePace
from coterie.cli.terminal.lines import read_lines
from coterie.cli.terminal.log_lines import logging_lines
from coterie.kernel.errors import CoterieError, Refused
from coterie.kernel.views import ReplicaAddresses
from coterie.runtime.address import parse_address
from coterie.runtime.descriptors import raise_descriptor_limit
from coterie.runtime.events import log
from coterie.runtime.garbage import calm_collector
from coterie.service.config import NAME
from coterie.service.operate.backups import back_up
from coterie.service.operate.control import (
    Admit,
    ControlAnswer,
    Dismiss,
    Recover,
    TakeBackup,
    listening,
)
from coterie.service.process import ReplicaProcess, load_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.engine import Status
    from coterie.service.config import ClusterConfig
    from coterie.service.engines.hosted import HostedReplica
    from coterie.service.operate.control import ControlOrder

STDIN = 0
_LINE_BYTES_MAX = 4096


class ReplicaSession:
    """One run of the command."""

    def __init__(
        self, config: ClusterConfig, id: str, *, found: bool, until_eof: bool, as_json: bool
    ) -> None:
        self._config = config
        self._id = id
        self._found = found
        self._until_eof = until_eof
        self._as_json = as_json
        self._paces: dict[str, RolePace] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        """The backup that is being written."""

    async def run(self) -> None:
        """Be a replica until told to stop; raises what stopped it otherwise."""
        with logging_lines(as_json=self._as_json, level=logging.INFO):
            await self._run()

    async def _run(self) -> None:
        config, id = self._config, self._id
        objects = load_objects(config)
        raise_descriptor_limit()
        stopping = stop_on_signals()
        async with ReplicaProcess(config, id, objects=objects, found=self._found) as process:
            _let_nothing_die_unseen(process)
            process.live.driver.turn_ended.append(lambda: self._tell(process))
            folder = Path(config.replicas[id].dir)
            async with listening(folder, lambda order: self._obey(process, order)):
                log(
                    logging.INFO,
                    "started",
                    replica=id,
                    incarnation=process.live.incarnation,
                    replicas_at=str(process.live.transport.address),
                    clients_at=str(process.port.address),
                    groups=list(process.hosted),
                )
                calm_collector()
                reading = asyncio.ensure_future(self._read(stopping))
                await _first(stopping, process.removed, process.refused)
                reading.cancel()
                if self._telling is not None:
                    self._telling.cancel()
                log(logging.INFO, "stopping", replica=id)
                process.check_refusal()
                await process.leave()
        log(logging.INFO, "stopped", replica=id, is_removed=process.removed.is_set())

    async def _read(self, stopping: asyncio.Event) -> None:
        """Nothing is taken from standard input; its end may be the end of who started us."""
        if self._until_eof:
            async for _ in read_lines(STDIN, line_bytes_max=_LINE_BYTES_MAX):
                pass
            stopping.set()

    async def _obey(self, process: ReplicaProcess, order: ControlOrder) -> ControlAnswer:
        """Do what an operator on this machine asks for."""
        if not isinstance(order, Recover | Admit | Dismiss | TakeBackup):
            raise CoterieError(f"a replica does not take the order {type(order).__name__}")
        hosted = process.hosted.get(order.group)
        if hosted is None:
            raise CoterieError(f"there is no group {order.group!r} here")
        match order:
            case Admit(id=id, peers=peers, clients=clients, expected=expected):
                if not NAME.fullmatch(id):
                    raise Refused(f"{id!r} is no name: use letters, digits, dots and hyphens")
                process.check_secret(id)
                at = ReplicaAddresses(id, str(parse_address(peers)), str(parse_address(clients)))
                await hosted.in_turn(lambda: hosted.admit(id, at), expected=expected)
                log(logging.INFO, "admitting", group=order.group, replica=id)
                return ControlAnswer(is_done=True)
            case Dismiss(id=id, expected=expected):
                await hosted.in_turn(lambda: hosted.dismiss(id), expected=expected)
                log(logging.INFO, "dismissing", group=order.group, replica=id)
                return ControlAnswer(is_done=True)
            case TakeBackup(path=path):
                given = process.config.all_groups[order.group]
                taken, write = back_up(hosted, given, self._id, Path(path))
                await taken
                self._writing = asyncio.ensure_future(self._write(write, order))
                return ControlAnswer(is_done=True)
            case Recover():
                return await self._recover(hosted)

    async def _write(self, write: Callable[[], int], order: TakeBackup) -> None:
        """Have a backup written in a thread, and say what came of it."""
        try:
            size = await asyncio.to_thread(write)
        except CoterieError as error:
            log(logging.ERROR, "no backup", group=order.group, reason=str(error))
        else:
            log(logging.INFO, "backup", group=order.group, path=order.path, bytes=size)

    async def _recover(self, hosted: HostedReplica) -> ControlAnswer:
        """Have a replica count again that has lost its memory."""
        trouble = hosted.trouble
        await hosted.recover()
        position = hosted.version.position
        log(
            logging.WARNING,
            "recovered",
            group=hosted.group,
            replica=self._id,
            position=position,
            lost=trouble,
        )
        return ControlAnswer(is_done=True, text=f"replica {self._id!r} counts again, at {position}")

    # ---- what is told of the groups

    def _tell(self, process: ReplicaProcess) -> None:
        """Log where the replicas stand when that has changed (see `role_lines`)."""
        for group, hosted in process.hosted.items():
            status = hosted.status
            if status is None:
                continue
            place = (status.role, status.view, status.members, status.is_zombie)
            pace = self._paces.setdefault(group, RolePace())
            if pace.seen != place:
                pace.see(place, asyncio.get_running_loop().time())
                self._tell_one(process, hosted, status, pace)

    def _tell_one(
        self, process: ReplicaProcess, hosted: HostedReplica, status: Status, pace: RolePace
    ) -> None:
        loop = asyncio.get_running_loop()
        wait = pace.wait(loop.time(), is_in_service=status.role.is_in_service)
        if wait == 0:
            self._log_status(hosted, status, pace.tell())
        elif wait is not None:
            at = loop.time() + wait
            if self._telling is None or self._telling.when() > at:
                if self._telling is not None:
                    self._telling.cancel()
                self._telling = loop.call_at(at, self._tell_late, process)

    def _tell_late(self, process: ReplicaProcess) -> None:
        """Tell what has waited long enough, and wait on for the rest."""
        self._telling = None
        for group, pace in self._paces.items():
            hosted = process.hosted[group]
            if hosted.status is not None:
                self._tell_one(process, hosted, hosted.status, pace)

    def _log_status(self, hosted: HostedReplica, status: Status, left_out: int) -> None:
        fields: dict[str, object] = {
            "group": hosted.group,
            "replica": self._id,
            "role": status.role.value,
            "view": str(status.view),
            "members": [member.id for member in status.members],
            "position": status.position,
        }
        if status.leader is not None:
            fields["primary"] = status.leader.id
        fields |= hosted.details()
        if status.is_zombie:
            fields["zombie"] = hosted.trouble or "it has lost its memory"
        if left_out:
            fields["left_out"] = left_out
        log(logging.WARNING if status.is_zombie else logging.INFO, "role", **fields)


def stop_on_signals() -> asyncio.Event:
    """Give what is set when a signal asks for the end; a second signal ends us at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return stopping


async def _first(*events: asyncio.Event) -> None:
    """Wait for one of these."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


def _let_nothing_die_unseen(process: ReplicaProcess) -> None:
    """Take an exception in a callback of the loop for what it is, a bug."""

    def on_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            process.live.driver.fail(error)
        else:
            log(logging.ERROR, "loop", message=context.get("message"), error=repr(error))

    asyncio.get_running_loop().set_exception_handler(on_error)
