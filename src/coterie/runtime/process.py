"""A live process: the kernel's process with its transport, recorder and driver.

    async with LiveProcess(id="a", incarnation=1, cluster="demo", listen=..., peers=...) as process:
        member = process.join("group", "DYNSEQ:VSYNC", watcher)
        await member.cast([b"hello"])

Nothing outlives the block: sockets, tasks and timers end with it, also when it is left by an
exception or a cancellation. If a turn fails, the block is cancelled and `TurnFailed` comes out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from coterie.assembly import make_context, make_process
from coterie.journal.writer import StorageFailed
from coterie.kernel.errors import CoterieError
from coterie.kernel.settings import DEFAULT_SETTINGS, Settings
from coterie.kernel.views import Configuration
from coterie.runtime.driver import Driver, TurnFailed
from coterie.runtime.marks import NO_MARKS, Marks
from coterie.runtime.member import LiveMember
from coterie.runtime.network import TCP
from coterie.runtime.recorder import NoRecorder
from coterie.runtime.security import OPEN, Security
from coterie.runtime.settings import DEFAULT_TRANSPORT_SETTINGS, TransportSettings
from coterie.runtime.transport import TcpTransport
from coterie.stacks import build

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from types import TracebackType

    from coterie.kernel.replica import Replica
    from coterie.kernel.views import ReplicaId
    from coterie.runtime.address import Address
    from coterie.runtime.member import Watcher
    from coterie.runtime.network import Network
    from coterie.runtime.port import Recorder

FRAME_OVERHEAD_BYTES = 64 << 10
"""How much of a frame the heads, names and vectors around one packet may take."""


class SettingsError(CoterieError):
    """Two settings contradict each other."""


class LiveProcess:
    """One process of the real world; *peers* are the other processes of its cluster.

    Where all start together, so many seconds for *links_first* let the first turn's heartbeats
    arrive, and save the wait for the second ones.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        *,
        id: ReplicaId,
        incarnation: int,
        cluster: str,
        listen: Address | socket.socket,
        peers: Mapping[ReplicaId, Address],
        recorder: Recorder | None = None,
        settings: Settings = DEFAULT_SETTINGS,
        transport_settings: TransportSettings = DEFAULT_TRANSPORT_SETTINGS,
        security: Security = OPEN,
        network: Network = TCP,
        links_first: float = 0.0,
        marks: Marks = NO_MARKS,
    ) -> None:
        _check(settings)
        self.id = id
        self.incarnation = incarnation
        self.members: dict[str, LiveMember] = {}
        self._settings = settings
        self._ids = tuple(sorted({id, *peers}))
        self._recorder: Recorder = NoRecorder() if recorder is None else recorder
        self.process = make_process(id, incarnation, self._ids, settings)
        self.driver = Driver(self.process, self._recorder, asyncio.get_running_loop())
        self.transport = TcpTransport(
            id=id,
            incarnation=incarnation,
            cluster=cluster,
            listen=listen,
            peers=peers,
            receiver=self.driver,
            frame_bytes_max=settings.frame_bytes_max,
            settings=transport_settings,
            security=security,
            network=network,
            marks=marks,
        )
        self._links_first = links_first
        self._tasks = asyncio.TaskGroup()
        self._failure: asyncio.Task[None] | None = None

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        try:
            await self.transport.open(self._tasks)
            if self._links_first:
                await self.transport.wait_all_up(self._links_first)
        except BaseException as error:
            await self._close(error)
            raise
        self._failure = self._tasks.create_task(self.driver.wait_failed())
        self.driver.start(self.transport)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(error)

    async def _close(self, error: BaseException | None) -> None:
        self.driver.stop()
        if self._failure is not None:
            self._failure.cancel()
        try:
            await self.transport.close()
        finally:
            await self.driver.wait_idle()
            self._recorder.close()
            await self._end_tasks(error)

    async def _end_tasks(self, error: BaseException | None) -> None:
        """Wait for all tasks; a failed turn comes out as itself, not as a group of one."""
        failed = None
        try:
            await self._tasks.__aexit__(type(error) if error else None, error, None)
        except BaseExceptionGroup as group:
            failed = group.subgroup((TurnFailed, StorageFailed))
            if failed is None and group.exceptions != (error,):
                raise
        if failed is not None:
            raise _leaf(failed)

    # ---- use

    def join(self, group: str, stack: str, watcher: Watcher) -> LiveMember:
        """Host a replica of a group from now on; raises `StackError` for a wrong stack."""
        if not group or group in self.members:
            raise CoterieError(f"this process cannot join the group {group!r} (again)")
        member = LiveMember(self.driver, watcher)
        context = make_context(
            self.process,
            group,
            Configuration(1, self._ids),
            recording=not isinstance(self._recorder, NoRecorder),
        )
        replica = build(stack, context, member.application)
        member.attach(replica)
        self.members[group] = member
        self.host(replica)
        return member

    def host(self, replica: Replica) -> None:
        """Host a replica that was built for this process, from the next turn on."""
        self.process.host(replica)
        self.driver.call(_nothing)

    def counters(self) -> dict[str, int]:
        """Give all counters of the process, its transport and its groups, by name."""
        counters = {"driver.turns": self.driver.turns}
        counters |= self.process.counters
        counters |= self.transport.counters
        for group, replica in self.process.replicas.items():
            for name, value in replica.context.counters.items():
                counters[f"{group}/{name}"] = value
        return dict(sorted(counters.items()))


def _check(settings: Settings) -> None:
    """Refuse limits that would let a message be taken that no frame can carry."""
    largest = max(settings.payload_bytes_max, settings.packet_bytes_max) + FRAME_OVERHEAD_BYTES
    if largest > settings.frame_bytes_max:
        raise SettingsError(
            f"frame_bytes_max is {settings.frame_bytes_max}, which is too small: a packet may need "
            f"{largest} bytes with what is around it (payload_bytes_max, packet_bytes_max)"
        )


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _nothing() -> None:
    """Only has a turn taken."""
