"""A whole group in one process, in memory: for a first try, for tests and for notebooks.

    class Counter:
        value: int = 0

        @update
        def add(self, amount: int) -> int:
            self.value += amount
            return self.value

    async with coterie.local(Counter, replicas=3) as counter:
        assert await counter.add(3) == 3

It is a deployment in small: the same replicas, port and client as with `coterie serve` and
`coterie.connect`, over a network in memory. So what a class does here it does in a group of
machines, and a call ends here as it ends there. `group_of` gives access to the replicas, to kill
and start them, to cut them off from each other, to connect more clients, and to change the members
of the group while it serves (`add`, `remove`, `replace`).

Nothing is stored: a replica that is killed comes back as a zombie and fetches the state from the
others, and if a majority is killed at once the group has lost its memory and stops.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary

from coterie.client.connecting import connect
from coterie.client.errors import NotDone, OutcomeUnknown
from coterie.client.methods import RemoteObject
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS
from coterie.kernel.engine import Past, Role
from coterie.kernel.errors import Refused
from coterie.kernel.transfer import encode_now
from coterie.kernel.views import Configuration
from coterie.objects import define
from coterie.service.engines.colours import HostedColours
from coterie.service.engines.colours_front import ColoursFront
from coterie.service.engines.stack import HostedObject
from coterie.service.engines.stack_front import ObjectFront
from coterie.service.in_memory import MemoryDeployment
from coterie.stacks import is_ordered, is_partitioned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from coterie.client.settings import ClientSettings
    from coterie.objects import Definition
    from coterie.runtime.process import LiveProcess
    from coterie.service.port import ClientPort

T = TypeVar("T")

DEFAULT_STACK = "SAFE:DYNSEQ:PVSYNC"
_FORMING_SECONDS_MAX = 30.0
CHANGE_SECONDS_MAX = 30.0
"""How long a change of members may take, unless the caller says otherwise."""
_LOOK_SECONDS = 0.02


class LocalGroup(MemoryDeployment):
    """The replicas: r1, r2 and so on. One that is killed has forgotten everything."""

    def __init__(self, definition: Definition, replicas: int, stack: str) -> None:
        super().__init__([f"r{number}" for number in range(1, replicas + 1)])
        self.definition = definition
        """The class that replicas execute which are started from now on."""
        self.name = definition.name
        self.stack = stack
        self.configuration = Configuration(1, self.ids)
        self.changed = asyncio.Event()
        """Set when the role of a replica has changed."""
        self._hosted: dict[str, HostedObject] = {}
        self._newcomers: set[str] = set()

    # ---- replicas

    def put(self, live: LiveProcess, port: ClientPort) -> None:
        """Host a replica."""
        front_kind, hosted_kind = (
            (ColoursFront, HostedColours)
            if is_partitioned(self.stack)
            else (ObjectFront, HostedObject)
        )
        front = front_kind(port, self.name)
        knows_nothing = live.id in self._newcomers or live.incarnation > 1
        hosted = hosted_kind(
            live,
            group=self.name,
            definition=self.definition,
            stack=self.stack,
            configuration=self._seeds(live.id),
            front=front,
            past=Past(is_zombie=True) if knows_nothing else None,
            take_snapshot=encode_now,
        )
        front.attach(hosted)
        self._hosted[live.id] = hosted
        role: Role | None = None

        def turn_ended() -> None:
            nonlocal role
            status = hosted.status
            if status is not None and status.role is not role:
                role = status.role
                self.changed.set()

        live.driver.turn_ended.append(turn_ended)

    def _seeds(self, id: str) -> Configuration:
        """Whom a replica knows when it starts: the founders each other, a newcomer some members."""
        if id not in self._newcomers:
            return self.configuration
        return Configuration(0, tuple(each for each in self.members if each != id))

    # ---- members

    @property
    def members(self) -> tuple[str, ...]:
        """Who belongs to the group, as far as has settled."""
        return self._newest().members

    def _newest(self) -> Configuration:
        known = [each.configuration for each in self._hosted.values()]
        return max(known, key=lambda each: each.number, default=self.configuration)

    async def add(self, id: str, *, deadline: float = CHANGE_SECONDS_MAX) -> None:
        """Have a new replica join; return when it is a member.

        Raises `Refused` with no effect, or `OutcomeUnknown` if it takes longer than *deadline*.
        """
        self._check_engine()
        if id in self._lives:
            raise Refused(f"{id} belongs to the group, or did, and ids are never used again")
        self._newcomers.add(id)
        self.put_up(id)
        await self._change(
            lambda replica: replica.admit(id),
            is_asked=lambda now: id in now.everyone,
            is_done=lambda now: id in now.members and not now.before,
            deadline=deadline,
        )

    async def remove(self, id: str, *, deadline: float = CHANGE_SECONDS_MAX) -> None:
        """Have a replica removed; return when the group has gone on without it, and it has ended.

        Raises as `add` does.
        """
        self._check_engine()
        if id not in self._newest().everyone:
            raise Refused(f"{id} does not belong to the group; it has {', '.join(self.members)}")
        if self.members == (id,):
            raise Refused(f"{id} is the last member: end the group instead")
        await self._change(
            lambda replica: replica.dismiss(id),
            is_asked=lambda now: id not in now.members,
            is_done=lambda now: id in now.gone,
            deadline=deadline,
        )
        self.take_down(id)

    async def replace(self, old: str, new: str, *, deadline: float = CHANGE_SECONDS_MAX) -> None:
        """Have a new replica join, then an old one removed; raises as they do."""
        if old not in self.members:
            raise Refused(f"{old} is no member; the group has {', '.join(self.members)}")
        await self.add(new, deadline=deadline)
        await self.remove(old, deadline=deadline)

    def _check_engine(self) -> None:
        if not is_ordered(self.stack):
            raise Refused(
                f"the members of {self.stack} cannot change: take a stack with PRIMARY or COLOURS"
            )

    async def _change(
        self,
        ask: Callable[[HostedObject], None],
        *,
        is_asked: Callable[[Configuration], bool],
        is_done: Callable[[Configuration], bool],
        deadline: float,
    ) -> None:
        """Ask replicas in turn until one has taken it, and wait until it has come about."""
        refusal = "no replica is in a primary view"
        try:
            async with asyncio.timeout(deadline):
                while not is_done(self._newest()):
                    asked = self.primary
                    if not is_asked(self._newest()) and asked is not None:
                        try:
                            await asked.in_turn(partial(ask, asked))
                        except Refused as error:
                            refusal = str(error)
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise OutcomeUnknown(
                f"the members have not changed within {deadline} s: {refusal}"
            ) from None

    def kill(self, id: str) -> None:
        """Kill a replica, with all it knew."""
        self._hosted.pop(id, None)
        super().kill(id)

    def __getitem__(self, id: str) -> HostedObject:
        return self._hosted[id]

    @property
    def primary(self) -> HostedObject | None:
        """A replica that takes updates at present."""
        return next((each for each in self._hosted.values() if each.is_primary), None)

    def roles(self) -> list[Role]:
        """What the running replicas may do at present."""
        found = [each.status for each in self._hosted.values()]
        return [Role.FORMING if status is None else status.role for status in found]

    async def open(self) -> None:
        """Start all replicas, and wait until one of them takes updates."""
        for id in self.ids:
            self.start(id)
        try:
            async with asyncio.timeout(_FORMING_SECONDS_MAX):
                while self.primary is None:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise NotDone(f"no view was formed within {_FORMING_SECONDS_MAX} s") from None

    # ---- clients

    def connect(
        self,
        cls: type[T],
        *,
        settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
        at: str = "client",
    ) -> AbstractAsyncContextManager[type[T]]:
        """Connect another client, as `coterie.connect` does, on a machine called *at*.

        That name may be among those that `cut` is given, to have the client on one side.
        """
        network = self.network.host(at)
        return connect(cls, self.addresses, group=self.name, network=network, settings=settings)


_GROUPS: WeakKeyDictionary[RemoteObject, LocalGroup] = WeakKeyDictionary()


def group_of(replicated: object) -> LocalGroup:
    """Give the group behind an object that `local` gave, to kill its replicas and start them."""
    group = _GROUPS.get(replicated) if isinstance(replicated, RemoteObject) else None
    if group is None:
        raise TypeError(f"{replicated!r} is not the object of a local group")
    return group


def local(
    cls: type[T],
    *,
    replicas: int = 3,
    stack: str = DEFAULT_STACK,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
) -> AbstractAsyncContextManager[type[T]]:
    """Run *cls* as a group of *replicas* in this process; give the object to call.

    It is called as through `coterie.connect`, by a client with these *settings*.
    """
    definition = define(cls)

    @asynccontextmanager
    async def run() -> AsyncIterator[type[T]]:
        group = LocalGroup(definition, replicas, stack)
        try:
            await group.open()
            async with group.connect(cls, settings=settings) as replicated:
                _GROUPS[cast("RemoteObject", replicated)] = group
                yield replicated
        finally:
            await group.close()

    return run()
