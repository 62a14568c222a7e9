"""What agents and gateways have in common: a live process with one replica, and its journal.

    async with Agent(deployment, "r1", say) as agent:
        await agent.wait_failed()

The journal is written before anything of a turn leaves, and synced, too, if the deployment says so:
otherwise what it holds outlives the processes, and not the machine's memory.

What is remembered by the records is followed beside the journal, for snapshots: so the next life
reads what came since the last one, and not everything since the founding. One is taken where the
log is short, because copies of the program have just taken its place. Without copies there are no
snapshots: the log since the founding is the state. Behind snapshots the oldest part of the journal
of a *replica* goes once that is longer than its bound, as nothing rests on it but what the pipeline
has not read. The edge keeps all: where no copy is left, everybody begins with what it has.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coterie.agents.deployment import EDGE_ID
from coterie.assembly import make_context
from coterie.journal.engines.llft import LLFT
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.errors import CoterieError
from coterie.kernel.views import Configuration
from coterie.llft.connections import EDGE
from coterie.llft.memory import EdgeMemory, ReplicaMemory
from coterie.runtime.address import parse_address
from coterie.runtime.process import LiveProcess
from coterie.service.folder import open_folder
from coterie.service.recorder import JournalRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from coterie.agents.deployment import ProgramDeployment
    from coterie.journal.disk import FileDisk
    from coterie.journal.engines.llft import LlftFound
    from coterie.journal.keeper import Keeper
    from coterie.kernel.layers import Context
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.runtime.driver import Driver

SNAPSHOT_BYTES_MAX = 64 << 20
"""A snapshot is due when so much was written, or as much as there is between two copies."""
SHORT_LOG = 50_000
"""With more orders in memory no snapshot is taken: it would hold up the turns behind it."""
_EVERYTHING = 1 << 62


class _FollowingRecorder(JournalRecorder):
    """Writes the journal, and has a memory follow what was written."""

    def __init__(self, keeper: Keeper, memory: ReplicaMemory | EdgeMemory) -> None:
        super().__init__({keeper.group: keeper})
        self._memory = memory

    def record(self, records: Sequence[Record]) -> None:
        super().record(records)
        for each in records:
            self._memory.add(each)


class LlftLife:
    """One process of a replicated program; a subclass builds the engine and does the rest."""

    memory_kind: type[ReplicaMemory | EdgeMemory]

    def __init__(self, deployment: ProgramDeployment, id: str, group: str) -> None:
        self.deployment, self.id, self.group = deployment, id, group
        self.live: LiveProcess
        self._keeper: Keeper
        self._memory: ReplicaMemory | EdgeMemory
        self._stack = AsyncExitStack()

    @property
    def driver(self) -> Driver:
        """What takes the turns."""
        return self.live.driver

    @property
    def configuration(self) -> Configuration:
        """Who belongs to the group of this process."""
        if self.group == self.deployment.name:
            return self.deployment.configuration
        return Configuration(1, (self.id,))

    def build(self, context: Context, memory: Any) -> Replica:  # noqa: ANN401 -- of `memory_kind`
        """Build the engine with what earlier lives left."""
        raise NotImplementedError

    def turn_ended(self) -> None:
        """Do what follows from a turn; its records are written, its frames have left."""

    def close(self) -> None:
        """Let go of what is not the process's."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        await self._stack.__aexit__(kind, error, traceback)

    async def _start(self, stack: AsyncExitStack) -> None:
        deployment, id, group = self.deployment, self.id, self.group
        place = deployment.place(id)
        disk = stack.enter_context(open_folder(Path(place.dir), id, [group]))
        found = self.recover(disk)
        memory = self._memory = self.memory_kind.recall(found.chunks(), found.records)
        if isinstance(memory, ReplicaMemory):
            memory.is_new = memory.is_new and found.is_new
        keeper = self._keeper = LLFT.open(disk, found, self._keeping)
        recorder = JournalRecorder({group: keeper})
        if deployment.makes_copies:
            keeper.checkpoint = memory.checkpoint
            recorder = _FollowingRecorder(keeper, memory)
        self.live = await stack.enter_async_context(
            LiveProcess(
                id=id,
                incarnation=keeper.incarnation,
                cluster=deployment.name,
                listen=parse_address(place.listen),
                peers=deployment.peers(id),
                security=deployment.security(id),
                recorder=recorder,
            )
        )
        context = make_context(self.live.process, group, self.configuration)
        replica = self.build(context, memory)
        self.driver.turn_ended += [self.turn_ended, self._keep_house]
        self.live.host(replica)

    def recover(self, disk: FileDisk) -> LlftFound:
        """Read what earlier lives left."""
        return LLFT.recover(disk, self.group, self.id)

    @property
    def _keeping(self) -> KeeperSettings:
        """How the journal is kept."""
        deployment = self.deployment
        part = min(SNAPSHOT_BYTES_MAX, deployment.copy_bytes or SNAPSHOT_BYTES_MAX)
        bound = _EVERYTHING if self.id == EDGE_ID else deployment.journal_bytes_max
        return KeeperSettings(
            journal=JournalSettings(sync=deployment.sync, segment_bytes=part),
            retention=Retention(journal_bytes_max=bound),
            snapshot_bytes=part,
        )

    def _keep_house(self) -> None:
        """Have a snapshot written, and what is too old removed, in a thread, while turns go on."""
        log = self._memory.log
        if log.end - log.base <= SHORT_LOG:
            work = self._keeper.housekeeping()
            if work is not None:
                self.driver.beside(work)

    async def wait_failed(self) -> None:
        """Wait, perhaps for ever, and raise what stopped the process."""
        await self.driver.wait_failed()


def found_program(deployment: ProgramDeployment) -> None:
    """Found the group on one machine; raises `CoterieError`."""
    for id in [EDGE_ID, *deployment.replicas]:
        found_member(deployment, id)


def found_member(deployment: ProgramDeployment, id: str) -> None:
    """Make the disk of the first life of one process; raises `CoterieError`."""
    group = deployment.name + (EDGE if id == EDGE_ID else "")
    disk: FileDisk
    with open_folder(Path(deployment.place(id).dir), id, [group]) as disk:
        try:
            LLFT.found(disk, group, id)
        except ValueError as error:
            raise CoterieError(
                f"{error}; start it without founding, and it goes on from what is there"
            ) from None
