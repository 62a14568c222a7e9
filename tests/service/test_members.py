"""Members change in real processes: those who stay learn and forget peers while they run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.service.test_process import OBJECTS, Deployment

import coterie
from coterie.kernel.errors import CoterieError, Refused
from coterie.ready import Counter
from coterie.service.acquaintances import whereabouts_of
from coterie.service.config import ClusterConfig, ReplicaConfig
from coterie.service.operate.founding import make_config
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


class Changing(Deployment):
    """Founders have one file; each newcomer has one of its own, and nobody else hears of that."""

    def file_for(self, folder: Path, id: str, knows: str) -> ClusterConfig:
        """A file with a newcomer, and only some of those it is to join."""
        ports = make_config(folder, "g", groups=self.config.groups, replicas=1).replicas["a"]
        newcomer = msgspec.structs.replace(ports, dir=str(folder / id), joins=("g",))
        known: dict[str, ReplicaConfig] = {
            each: self.running[each].config.replicas[each] for each in knows
        }
        return msgspec.structs.replace(self.config, replicas={**known, id: newcomer})

    async def join(self, folder: Path, id: str, *, knows: str, at: str) -> ReplicaProcess:
        """Start a newcomer, and have it admitted."""
        config = self.file_for(folder, id, knows)
        process = ReplicaProcess(config, id, objects=OBJECTS)
        await process.__aenter__()
        self.running[id] = process
        hosted = self.running[at].hosted["g"]
        await hosted.in_turn(lambda: hosted.admit(id, whereabouts_of(config, id)))
        await self.until(lambda: id in hosted.configuration.members)
        await self.until(lambda: not hosted.configuration.before)
        await self.until(lambda: process.hosted["g"].is_primary)
        return process

    async def remove(self, id: str, *, at: str) -> None:
        hosted = self.running[at].hosted["g"]
        await hosted.in_turn(lambda: hosted.dismiss(id))
        async with asyncio.timeout(PATIENCE):
            await self.running[id].removed.wait()
        await self.end(id)
        await self.until(lambda: id in hosted.configuration.gone)


def play(
    folder: Path, story: Callable[[Changing], Coroutine[None, None, None]], stack: str = ""
) -> None:
    async def run() -> None:
        deployment = Changing(folder)
        if stack:
            groups = {
                name: msgspec.structs.replace(group, stack=stack)
                for name, group in deployment.config.groups.items()
            }
            deployment.config = msgspec.structs.replace(deployment.config, groups=groups)
        try:
            await story(deployment)
        finally:
            await deployment.end_all()

    idle_time.run(run())


@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "COLOURS:DYNSEQ:VSYNC"])
def test_every_founder_is_replaced_and_nobody_reads_another_file(
    tmp_path: Path, stack: str
) -> None:
    async def story(deployment: Changing) -> None:
        for id in "abc":
            await deployment.start(id, found=True)
        await deployment.until(lambda: deployment.primaries == 3)
        async with coterie.connect(Counter, deployment.seeds) as counter:
            for number, (old, new) in enumerate(zip("abc", "def", strict=True), start=1):
                at = "abcdef"[number]
                await deployment.join(tmp_path, new, knows=at, at=at)
                await deployment.remove(old, at=at)
                assert await counter.add(1) == number
            for id in "def":
                assert deployment.running[id].live.process.peers == tuple(
                    other for other in "def" if other != id
                )
            # They start again with what their journals say, whomever their files name.
            for id in "def":
                config = deployment.running[id].config
                await deployment.end(id)
                process = ReplicaProcess(config, id, objects=OBJECTS)
                await process.__aenter__()
                deployment.running[id] = process
            await deployment.until(lambda: deployment.primaries == 3)
            assert await counter.add(1) == 4
        with pytest.raises(CoterieError, match="was removed from g, and its disk says so"):
            await deployment.start("a")

    play(tmp_path, story, stack)


def test_what_was_decided_on_another_configuration_is_not_done(tmp_path: Path) -> None:
    """Between what an agent has seen and the turn in which it is done another change may be."""

    async def story(deployment: Changing) -> None:
        await deployment.start("a", found=True)
        hosted = deployment.running["a"].hosted["g"]
        with pytest.raises(Refused, match="the configuration is 1 by now, not 4"):
            await hosted.in_turn(lambda: hosted.admit("d"), expected=4)

    play(tmp_path, story)
