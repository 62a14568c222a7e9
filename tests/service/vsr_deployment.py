"""A deployment with groups under viewstamped replication, in one event loop over real TCP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from tests import idle_time
from tests.patience import PATIENCE
from tests.transactional.banks import ClassBank, Plain

import coterie
from coterie.client import ClientSettings
from coterie.ready import Counter
from coterie.service.config import GroupConfig
from coterie.service.operate.founding import make_config
from coterie.service.operate.overview import Overview, look
from coterie.service.process import ReplicaProcess, load_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from coterie.service.config import ClusterConfig

BANK = "tests.transactional.banks:ClassBank"
GROUPS = {
    "eu": GroupConfig(class_=BANK, engine="vsr"),
    "us": GroupConfig(class_=BANK, engine="vsr"),
    "plain": GroupConfig(class_="tests.transactional.banks:Plain", engine="vsr"),
    "hits": GroupConfig(class_="coterie.ready:Counter"),
}
SETTINGS = ClientSettings(deadline=20.0)


class Deployment:
    """Processes that can be started and ended one by one."""

    def __init__(
        self,
        folder: Path,
        groups: dict[str, GroupConfig] | None = None,
        places: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        config = make_config(folder, "world", groups=groups or GROUPS, replicas=3)
        for group, ids in (places or {}).items():
            placed = msgspec.structs.replace(config.groups[group], replicas=ids)
            config = msgspec.structs.replace(config, groups={**config.groups, group: placed})
        self.config: ClusterConfig = config
        self.running: dict[str, ReplicaProcess] = {}
        self.seeds = [each.clients for each in config.replicas.values()]

    async def start(self, id: str, *, found: bool = False) -> ReplicaProcess:
        objects = load_objects(self.config)
        process = ReplicaProcess(self.config, id, objects=objects, found=found)
        await process.__aenter__()
        self.running[id] = process
        return process

    async def start_all(self, *, found: bool = True) -> None:
        """Start everything, and wait until every group serves."""
        for id in self.config.ids:
            await self.start(id, found=found)
        await self.until(lambda: all(map(self.serves, self.config.groups)))

    async def end(self, id: str) -> None:
        await self.running.pop(id).__aexit__(None, None, None)

    async def end_all(self) -> None:
        for id in list(self.running):
            await self.end(id)

    async def until(self, is_so: Callable[[], bool]) -> None:
        changed = asyncio.Event()
        for process in self.running.values():
            process.live.driver.turn_ended.append(changed.set)
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                changed.clear()
                await changed.wait()

    def primary(self, group: str) -> str:
        """Give who leads a group, or nothing."""
        for id, process in self.running.items():
            if group in process.hosted and process.hosted[group].is_primary:
                return id
        return ""

    def serves(self, group: str) -> bool:
        """Say whether all replicas of a group do their part."""
        replicas = [
            process.hosted[group] for process in self.running.values() if group in process.hosted
        ]
        roles = [each.status.role for each in replicas if each.status is not None]
        return (
            bool(self.primary(group))
            and len(roles) == len(replicas)
            and all(role.is_in_service for role in roles)
        )

    def bank(self, group: str) -> AbstractAsyncContextManager[type[ClassBank]]:
        return coterie.connect(ClassBank, self.seeds, group=group, settings=SETTINGS)

    def plain(self) -> AbstractAsyncContextManager[type[Plain]]:
        return coterie.connect(Plain, self.seeds, group="plain", settings=SETTINGS)

    def hits(self) -> AbstractAsyncContextManager[type[Counter]]:
        return coterie.connect(Counter, self.seeds, group="hits", settings=SETTINGS)

    async def look(self, group: str) -> Overview:
        addresses = {
            id: self.config.replicas[id].clients for id in sorted(self.config.members(group))
        }
        return await look(group=group, addresses=addresses, deadline=PATIENCE)


def play(
    folder: Path,
    story: Callable[[Deployment], Coroutine[None, None, None]],
    groups: dict[str, GroupConfig] | None = None,
    places: dict[str, tuple[str, ...]] | None = None,
    make: Callable[[Path], Deployment] | None = None,
) -> None:
    """Tell a story in a deployment of its own, one of a special kind if *make* makes it."""

    async def run() -> None:
        deployment = Deployment(folder, groups, places) if make is None else make(folder)
        try:
            await story(deployment)
        finally:
            await deployment.end_all()

    idle_time.run(run())
