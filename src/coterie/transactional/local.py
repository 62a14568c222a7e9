"""Groups with transactions over them, in one process and in memory: for a first try and for tests.

    async with local_groups(eu=Bank, us=Bank) as groups:
        async with groups.transaction() as t:
            await t.eu.withdraw("alice", 10)
            await t.us.deposit("bob", 10)
        assert await groups.us.balance("bob") == 110      # a transaction of its own

The cohorts are real: every machine has its own process state and failure detector, and they talk
in encoded frames; only the network is a function call, and stable storage a dictionary. A machine
that is killed has lost its state when it comes back, as in the paper.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from coterie.assembly import make_context, make_process
from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.kernel.wire import decode_frame
from coterie.objects import define
from coterie.runtime.driver import Driver, clock
from coterie.runtime.port import Syncing
from coterie.transactional.executor import ObjectExecutor
from coterie.transactional.face import GroupFace, TransactionBlock, Turns
from coterie.vsr import Memory, VsrSettings, build_cohort, remember
from coterie.vsr.client import Client
from coterie.vsr.cohort import Cohort
from coterie.vsr.server import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from coterie.kernel.records import Record
    from coterie.objects import Method

_CLIENT = "client"


class _Memory:
    """A transport that hands frames over within the process."""

    def __init__(self, groups: LocalGroups, id: str) -> None:
        self._groups = groups
        self._id = id
        self.counters: dict[str, int] = {}

    def send(self, destination: str, frame: bytes) -> None:
        self._groups.carry(self._id, destination, frame)

    def multicast(self, destinations: Sequence[str], frame: bytes) -> None:
        for destination in destinations:
            self._groups.carry(self._id, destination, frame)

    def flush(self) -> None:
        pass


class _StableStorage:
    """A recorder that keeps what the cohorts of a machine must not forget."""

    def __init__(self, memories: dict[str, Memory]) -> None:
        self._memories = memories

    def record(self, records: Sequence[Record]) -> None:
        for record in records:
            memory = self._memories.get(record.group)
            if memory is not None:
                self._memories[record.group] = remember(memory, record)

    def syncing(self, now: int) -> Syncing:  # noqa: ARG002 -- there is no disk
        return Syncing.NOT_NOW

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class LocalGroups:
    """The machines, and one client. Its attributes are the groups."""

    def __init__(self, classes: Mapping[str, type], replicas: int, settings: VsrSettings) -> None:
        machines = [f"m{number}" for number in range(1, replicas + 1)]
        self._classes = dict(classes)
        self._settings = settings
        # Each group begins with another machine, so that their primaries are spread (section 5).
        self._directory = {
            group: Configuration(
                1, tuple(machines[place % replicas :] + machines[: place % replicas])
            )
            for place, group in enumerate(classes)
        }
        self.machines = tuple(machines)
        self._everyone = (*machines, _CLIENT)
        self._memories: dict[str, dict[str, Memory]] = {
            machine: dict.fromkeys(classes, Memory()) for machine in machines
        }
        self._lives = dict.fromkeys(self._everyone, 0)
        self._drivers: dict[str, Driver] = {}
        for machine in machines:
            self.start(machine)
        definitions = {group: define(cls, may_wait=True) for group, cls in classes.items()}
        client = self._start_client()
        self._turns = Turns(client, self._drivers[_CLIENT].call, definitions)

    # ---- use

    def transaction(self, coordinator: str = "") -> TransactionBlock:
        """Begin a transaction; *coordinator* is the group that commits it, the first if none."""
        return TransactionBlock(self._turns, coordinator or next(iter(self._classes)))

    def __getattr__(self, group: str) -> Any:  # noqa: ANN401 -- it has the methods of a class
        definitions = self.__dict__["_turns"].definitions
        if group not in definitions:
            raise AttributeError(f"there is no group {group!r}")

        async def call(method: Method, arguments: bytes) -> object:
            async with self.transaction(group) as block:
                return await block.call(group, method, arguments)

        return GroupFace(definitions[group], call)

    # ---- machines

    def start(self, machine: str) -> None:
        """Start a machine; what its cohorts knew before is lost, but not what they promised."""
        if machine in self._drivers:
            return
        self._lives[machine] += 1
        process = make_process(machine, self._lives[machine], self._everyone, DEFAULT_SETTINGS)
        for group, cls in self._classes.items():
            context = make_context(process, group, self._directory[group])
            executor = ObjectExecutor(cls, clock)
            server = Server(context, executor, self._directory, self._settings)
            memory = self._memories[machine][group]
            process.host(build_cohort(context, server, memory=memory, settings=self._settings))
        self._drive(machine, Driver(process, _StableStorage(self._memories[machine]), _loop()))

    def _start_client(self) -> Client:
        self._lives[_CLIENT] += 1
        process = make_process(_CLIENT, 1, self._everyone, DEFAULT_SETTINGS)
        context = make_context(process, _CLIENT, Configuration(1, (_CLIENT,)))
        client = Client(context, self._directory, self._settings)
        process.host(Replica(context, Layer(context), [client], client))
        self._drive(_CLIENT, Driver(process, _StableStorage({}), _loop()))
        return client

    def _drive(self, id: str, driver: Driver) -> None:
        self._drivers[id] = driver
        driver.start(_Memory(self, id))

    def kill(self, machine: str) -> None:
        """Kill a machine, with all it knew."""
        driver = self._drivers.pop(machine, None)
        if driver is not None:
            driver.stop()

    def carry(self, source: str, destination: str, frame: bytes) -> None:
        """Hand a frame to another machine, if it is there."""
        driver = self._drivers.get(destination)
        if driver is not None and source in self._drivers:
            limit = DEFAULT_SETTINGS.frame_bytes_max
            driver.frame_arrived(decode_frame(frame, frame_bytes_max=limit))

    def primary(self, group: str) -> str | None:
        """Give the machine whose cohort leads a group at present, if one does."""
        leading = [
            cohort
            for id in self._directory[group].members
            if id in self._drivers
            and isinstance(cohort := self._drivers[id].process.replicas[group].bottom, Cohort)
            and cohort.is_serving
        ]
        best = max(leading, key=lambda cohort: cohort.cur_viewid, default=None)
        return None if best is None else best.me.id

    def close(self) -> None:
        """Stop all machines."""
        for id in list(self._drivers):
            self.kill(id)


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@asynccontextmanager
async def local_groups(
    *, replicas: int = 3, settings: VsrSettings | None = None, **classes: type
) -> AsyncIterator[LocalGroups]:
    """Run groups of these classes, by name, each with so many replicas."""
    groups = LocalGroups(classes, replicas, settings or VsrSettings())
    try:
        yield groups
    finally:
        groups.close()
