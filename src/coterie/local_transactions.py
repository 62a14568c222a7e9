"""Groups with transactions over them, in one process and in memory: for a first try and for tests.

    async with coterie.local_groups(eu=Bank, us=Bank) as groups:
        async with groups.transaction() as t:
            await t.eu.withdraw("alice", 10)
            await t.us.deposit("bob", 10)
        assert await groups.us.balance("bob") == 110      # a transaction of its own

It is a deployment in small, as `coterie.local` is: the same cohorts, ports and client as with
`coterie serve --engine vsr` and `coterie.connect`, over a network in memory, and with a dictionary
for stable storage. A machine that is killed has lost its state when it comes back, as in the paper.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from coterie.client.connecting import connect_object, open_client
from coterie.client.sessions.vsr import open_calls
from coterie.client.sessions.vsr.transactions import transaction
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS
from coterie.kernel.engine import Role
from coterie.kernel.views import Configuration
from coterie.objects import define
from coterie.runtime.port import Syncing
from coterie.service.engines.vsr import HostedCohort
from coterie.service.engines.vsr_front import CohortFront
from coterie.service.in_memory import MemoryDeployment
from coterie.vsr import DEFAULT_VSR_SETTINGS, CohortPast, VsrSettings, remember
from coterie.vsr.calls.primary_requests import UnknownGroup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from coterie.client.methods import RemoteObject
    from coterie.client.settings import ClientSettings
    from coterie.kernel.records import Record
    from coterie.runtime.process import LiveProcess
    from coterie.service.port import ClientPort
    from coterie.transactional.face import TransactionBlock


class _StableStorage:
    """A recorder that keeps what the cohorts of a machine must not forget."""

    def __init__(self, memories: dict[str, CohortPast]) -> None:
        self._memories = memories

    def record(self, records: Sequence[Record]) -> None:
        for record in records:
            memory = self._memories.get(record.group)
            if memory is not None:
                self._memories[record.group] = remember(memory, record)

    def may_follow(self, records: Sequence[Record]) -> bool:  # noqa: ARG002 -- as they come
        return False

    def syncing(self, now: int) -> Syncing:  # noqa: ARG002 -- there is no disk
        return Syncing.NOT_NOW

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class LocalGroups(MemoryDeployment):
    """The machines m1, m2 and so on, and one client. Its attributes are the groups."""

    def __init__(self, classes: Mapping[str, type], replicas: int, settings: VsrSettings) -> None:
        machines = [f"m{number}" for number in range(1, replicas + 1)]
        super().__init__(machines)
        self._settings = settings
        self._definitions = {group: define(cls, may_wait=True) for group, cls in classes.items()}
        # Each group begins with another machine, so that their primaries are spread (section 5).
        self._directory = {
            group: Configuration(
                1, tuple(machines[place % replicas :] + machines[: place % replicas])
            )
            for place, group in enumerate(classes)
        }
        self._memories = {machine: dict.fromkeys(classes, CohortPast()) for machine in machines}
        self._hosted: dict[str, dict[str, HostedCohort]] = {}
        self._objects: dict[str, RemoteObject] = {}

    # ---- use

    def transaction(
        self, coordinator: str = "", *, deadline: float | None = None
    ) -> TransactionBlock:
        """Begin a transaction; *coordinator* is the group that commits it, the first if none."""
        objects = self._objects
        coordinator = coordinator or next(iter(objects))
        if coordinator not in objects:
            known = ", ".join(sorted(objects))
            raise UnknownGroup(f"there is no group {coordinator!r}; there are {known}")
        others = [objects[group] for group in objects if group != coordinator]
        return transaction(objects[coordinator], *others, deadline=deadline)

    def __getattr__(self, group: str) -> Any:  # noqa: ANN401 -- it has the methods of a class
        objects = self.__dict__.get("_objects", {})
        if group not in objects:
            raise AttributeError(f"there is no group {group!r}")
        return objects[group]

    # ---- machines

    @property
    def machines(self) -> tuple[str, ...]:
        """The names of all machines."""
        return self.ids

    def recorder(self, id: str) -> _StableStorage:
        """Keep what the cohorts of a machine have promised."""
        return _StableStorage(self._memories[id])

    def put(self, live: LiveProcess, port: ClientPort) -> None:
        """Host a cohort of every group."""
        self._hosted[live.id] = {}
        for group, definition in self._definitions.items():
            front = CohortFront(port, group)
            hosted = HostedCohort(
                live,
                group=group,
                definition=definition,
                directory=self._directory,
                front=front,
                memory=self._memories[live.id][group],
                settings=self._settings,
            )
            front.attach(hosted)
            self._hosted[live.id][group] = hosted

    def kill(self, id: str) -> None:
        """Kill a machine; what its cohorts knew is lost, but not what they promised."""
        self._hosted.pop(id, None)
        super().kill(id)

    def primary(self, group: str) -> str | None:
        """Give the machine whose cohort leads a group at present, if one does."""
        leading = {
            id: hosted[group].status.view
            for id, hosted in self._hosted.items()
            if hosted[group].status.role is Role.PRIMARY
        }
        return max(leading, key=leading.__getitem__, default=None)

    # ---- the client

    async def open(self, stack: AsyncExitStack, settings: ClientSettings) -> None:
        """Start all machines, and connect to all groups until *stack* is closed."""
        for machine in self.machines:
            self.start(machine)
        calls = partial(open_calls, settings=self._settings)
        for group, definition in self._definitions.items():
            opening = open_client(
                self.addresses,
                group=group,
                network=self.network.host("client"),
                settings=settings,
            )
            connecting = connect_object(definition.cls, opening, calls)
            self._objects[group] = await stack.enter_async_context(connecting)


@asynccontextmanager
async def local_groups(
    *,
    replicas: int = 3,
    settings: VsrSettings = DEFAULT_VSR_SETTINGS,
    client_settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
    **classes: type,
) -> AsyncIterator[LocalGroups]:
    """Run groups of these classes, by name, each with so many replicas."""
    groups = LocalGroups(classes, replicas, settings)
    try:
        async with AsyncExitStack() as stack:
            await groups.open(stack, client_settings)
            yield groups
    finally:
        await groups.close()
