"""What `coterie replica` does between its start and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli.lines import read_lines
from coterie.cli.log_lines import logging_lines
from coterie.kernel.errors import CoterieError
from coterie.runtime.events import log
from coterie.runtime.garbage import calm_collector
from coterie.service.control import Answer, Recover, listening
from coterie.service.hosted_cohort import HostedCohort
from coterie.service.process import ReplicaProcess, load_objects

if TYPE_CHECKING:
    from coterie.kernel.engine import Status
    from coterie.service.config import ClusterConfig
    from coterie.service.control import Order
    from coterie.service.hosted import HostedObject

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
        self._told: dict[str, tuple[object, ...]] = {}

    async def run(self) -> None:
        """Be a replica until told to stop; raises what stopped it otherwise."""
        with logging_lines(as_json=self._as_json, level=logging.INFO):
            await self._run()

    async def _run(self) -> None:
        config, id = self._config, self._id
        objects = load_objects(config)
        stopping = _stop_on_signals()
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
                    groups=list(process.groups),
                )
                calm_collector()
                reading = asyncio.ensure_future(self._read(stopping))
                await stopping.wait()
                reading.cancel()
                log(logging.INFO, "stopping", replica=id)
                await process.leave()
        log(logging.INFO, "stopped", replica=id)

    async def _read(self, stopping: asyncio.Event) -> None:
        """Nothing is taken from standard input; its end may be the end of who started us."""
        if self._until_eof:
            async for _ in read_lines(STDIN, line_bytes_max=_LINE_BYTES_MAX):
                pass
            stopping.set()

    async def _obey(self, process: ReplicaProcess, order: Order) -> Answer:
        """Do what an operator on this machine asks for."""
        if not isinstance(order, Recover):
            raise CoterieError(f"a replica does not take the order {type(order).__name__}")
        if order.group in process.cohorts:
            raise CoterieError(
                "a group under vsr that has lost what it promised does not go on: give the cohorts "
                "back their folders, or found another group"
            )
        hosted = process.hosted.get(order.group)
        if hosted is None:
            raise CoterieError(f"there is no group {order.group!r} here")
        trouble = hosted.trouble
        await hosted.recover()
        position = hosted.primary.log.end
        log(
            logging.WARNING,
            "recovered",
            group=order.group,
            replica=self._id,
            position=position,
            lost=trouble,
        )
        return Answer(is_done=True, text=f"replica {self._id!r} counts again, at {position}")

    # ---- what is told of the groups

    def _tell(self, process: ReplicaProcess) -> None:
        """Log every change of role or view, once; of cohorts, of the members, too."""
        for group, hosted in process.hosted.items():
            status = hosted.status
            if status is None:
                continue
            now = (status.role, status.view, status.is_zombie)
            if self._told.get(group) != now:
                self._told[group] = now
                self._log_status(hosted, status)
        for group, cohort in process.cohorts.items():
            if self._told.get(group) != cohort.standing:
                self._told[group] = cohort.standing
                self._log_status(cohort, cohort.status)

    def _log_status(self, hosted: HostedObject | HostedCohort, status: Status) -> None:
        group, trouble = hosted.group, hosted.trouble
        fields: dict[str, object] = {
            "group": group,
            "replica": self._id,
            "role": status.role.value,
            "view": str(status.view),
            "members": [member.id for member in status.members],
            "position": status.position,
        }
        if isinstance(hosted, HostedCohort):
            cohort = hosted.cohort
            fields["viewstamp"] = str(cohort.log.last)
            fields["primary"] = cohort.cur_view.primary.id if cohort.is_active else ""
            fields["transactions"] = hosted.transactions
        if status.is_zombie:
            fields["zombie"] = trouble or "it has lost its memory"
        log(logging.WARNING if status.is_zombie else logging.INFO, "role", **fields)


def _stop_on_signals() -> asyncio.Event:
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


def _let_nothing_die_unseen(process: ReplicaProcess) -> None:
    """Take an exception in a callback of the loop for what it is, a bug."""

    def on_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            process.live.driver.fail(error)
        else:
            log(logging.ERROR, "loop", message=context.get("message"), error=repr(error))

    asyncio.get_running_loop().set_exception_handler(on_error)
