"""Whole processes of a deployment, several in one event loop, over TCP and with their journals."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.patience import PATIENCE

import coterie
from coterie.client import NotWelcome
from coterie.journal.format import Sync
from coterie.kernel.errors import CoterieError, Refused
from coterie.objects import define
from coterie.ready import Counter
from coterie.runtime.transport import ListenError
from coterie.service.config import ClusterConfig, GroupConfig
from coterie.service.folder import FolderTaken
from coterie.service.operate.founding import make_config
from coterie.service.operate.overview import Overview, look
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

OBJECTS = {"g": define(Counter)}


def config_in(folder: Path) -> ClusterConfig:
    return make_config(
        folder,
        "g",
        groups={
            "g": GroupConfig(
                class_="coterie.ready:Counter", stack="SAFE:DYNSEQ:PVSYNC", sync=Sync.NONE
            )
        },
        replicas=3,
    )


class Deployment:
    """Three processes that can be started and ended one by one."""

    def __init__(self, folder: Path) -> None:
        self.config = config_in(folder)
        self.running: dict[str, ReplicaProcess] = {}
        self.seeds = [each.clients for each in self.config.replicas.values()]

    async def start(self, id: str, *, found: bool = False) -> ReplicaProcess:
        process = ReplicaProcess(self.config, id, objects=OBJECTS, found=found)
        await process.__aenter__()
        self.running[id] = process
        return process

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

    @property
    def primaries(self) -> int:
        return sum(process.hosted["g"].is_primary for process in self.running.values())

    async def look(self) -> Overview:
        addresses = {id: each.clients for id, each in self.config.replicas.items()}
        return await look(group="g", addresses=addresses, deadline=PATIENCE)


def play(folder: Path, story: Callable[[Deployment], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        deployment = Deployment(folder)
        try:
            await story(deployment)
        finally:
            await deployment.end_all()

    idle_time.run(run())


def test_a_group_goes_on_from_its_journals(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        for life in (1, 2):
            for id in "abc":
                await deployment.start(id, found=life == 1)
            await deployment.until(lambda: deployment.primaries == 3)
            async with coterie.connect(Counter, deployment.seeds) as counter:
                assert await counter.add(3) == 3 * life
            overview = await deployment.look()
            assert overview.is_well
            assert [each.report.incarnation for each in overview.replicas if each.report] == [
                life
            ] * 3
            await deployment.end_all()

    play(tmp_path, story)


def test_one_that_leaves_in_good_order_is_gone_at_once(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        for id in "abc":
            await deployment.start(id, found=True)
        await deployment.until(lambda: deployment.primaries == 3)
        await deployment.running["b"].leave()
        assert deployment.running["b"].hosted["g"].has_left
        await deployment.end("b")
        hosted = deployment.running["a"].hosted["g"]
        await deployment.until(
            lambda: hosted.status is not None and len(hosted.status.members) == 2
        )
        await deployment.until(lambda: deployment.primaries == 2)

    play(tmp_path, story)


def test_a_group_that_lost_its_memory_goes_on_when_told_to(tmp_path: Path) -> None:
    """The way out of **objects** appendix A's zombies, and nowhere else."""

    async def story(deployment: Deployment) -> None:
        for id in "abc":
            await deployment.start(id, found=True)
        await deployment.until(lambda: deployment.primaries == 3)
        hosted = deployment.running["a"].hosted["g"]
        with pytest.raises(Refused, match="in a primary view: nothing has to be recovered"):
            await hosted.recover()
        async with coterie.connect(Counter, deployment.seeds) as counter:
            await counter.add(3)
        await deployment.end_all()

        for id in "bc":
            shutil.rmtree(deployment.config.replicas[id].dir)
        alone = (await deployment.start("a")).hosted["g"]
        await deployment.until(lambda: alone.status is not None and bool(alone.status.members))
        await deployment.until(
            lambda: alone.status is not None and alone.status.role.value == "minority"
        )
        with pytest.raises(Refused, match=r"in touch with too few to go on \(a\): start more"):
            await alone.recover()
        for id in "bc":
            zombie = (await deployment.start(id)).hosted["g"]
            assert "not even a bootstrap mark" in zombie.trouble
        await deployment.until(
            lambda: (
                alone.status is not None
                and len(alone.status.members) == 3
                and alone.status.role.value == "minority"
            )
        )
        overview = await deployment.look()
        assert overview.has_lost_memory
        assert "--from a " in overview.advice("g")[0]
        await alone.recover()
        await deployment.until(lambda: deployment.primaries == 3)
        async with coterie.connect(Counter, deployment.seeds) as counter:
            assert await counter.add(4) == 7
        assert all(not each.hosted["g"].trouble for each in deployment.running.values())

    play(tmp_path, story)


def test_one_process_hosts_replicas_of_several_groups(tmp_path: Path) -> None:
    one = config_in(tmp_path)
    group = one.groups["g"]
    config = msgspec.structs.replace(one, groups={"g": group, "h": group})

    async def run() -> None:
        objects = {name: define(Counter) for name in config.groups}
        processes = [ReplicaProcess(config, id, objects=objects, found=True) for id in config.ids]
        async with AsyncExitStack() as stack:
            for process in processes:
                await stack.enter_async_context(process)
            address = config.replicas["a"].clients
            with pytest.raises(NotWelcome, match="say which group you mean; there is g, h"):
                await stack.enter_async_context(coterie.connect(Counter, address))
            for name, amount in (("g", 3), ("h", 4)):
                async with coterie.connect(Counter, address, group=name) as counter:
                    assert await counter.add(amount) == amount

    idle_time.run(run())


def test_a_second_process_with_the_same_id_is_refused(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start("a", found=True)
        with pytest.raises(FolderTaken, match="a replica 'a' is running already"):
            await ReplicaProcess(deployment.config, "a", objects=OBJECTS).__aenter__()

    play(tmp_path, story)


def test_a_taken_port_leaves_the_folder_free(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        host, _, port = deployment.config.replicas["a"].clients.rpartition(":")
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), host, int(port))
        with pytest.raises(ListenError, match="cannot take clients at"):
            await deployment.start("a", found=True)
        server.close()
        await server.wait_closed()
        await deployment.start("a")

    play(tmp_path, story)


def test_an_id_that_is_not_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(CoterieError, match="no replica 'x' in the configuration; it has a, b, c"):
        ReplicaProcess(config_in(tmp_path), "x", objects=OBJECTS)


def test_a_replica_that_has_lived_cannot_found_again(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start("a")  # empty, and no founder: a zombie
        await deployment.end("a")
        with pytest.raises(CoterieError, match="start it without founding, and it goes on from"):
            await deployment.start("a", found=True)

    play(tmp_path, story)
