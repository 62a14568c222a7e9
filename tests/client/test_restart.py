"""Sessions outlive the whole group, if it keeps its journal."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.service.groups import Counter

import coterie
from coterie.client import ClientSession, ClientSettings, connection_of
from coterie.journal.format import Sync
from coterie.objects import define
from coterie.service.config import ClusterConfig, GroupConfig, ReplicaConfig
from coterie.service.operate.founding import free_port
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from pathlib import Path


def config_in(folder: Path) -> ClusterConfig:
    with ExitStack() as held:
        addresses = [f"127.0.0.1:{free_port(held)}" for _ in range(6)]
    return ClusterConfig(
        cluster="test",
        groups={"counter": GroupConfig(class_="tests.service.groups:Counter", sync=Sync.TURN)},
        replicas={
            id: ReplicaConfig(
                listen=addresses[2 * index],
                clients=addresses[2 * index + 1],
                dir=str(folder / id),
            )
            for index, id in enumerate("abc")
        },
    )


async def start(stack: AsyncExitStack, config: ClusterConfig, *, found: bool) -> None:
    objects = {"counter": define(Counter)}
    for id in config.ids:
        await stack.enter_async_context(ReplicaProcess(config, id, objects=objects, found=found))


@pytest.mark.slow  # three replicas with journals, twice
def test_a_request_is_executed_once_across_a_restart_of_all_replicas(tmp_path: Path) -> None:
    async def story() -> None:
        config = config_in(tmp_path)
        addresses = [replica.clients for replica in config.replicas.values()]
        settings = ClientSettings(deadline=30.0)
        async with asyncio.timeout(PATIENCE), AsyncExitStack() as first:
            await start(first, config, found=True)
            async with coterie.connect(Counter, addresses, settings=settings) as counter:
                assert await counter.add(1, "before") == 1
                session = connection_of(counter).session
                assert isinstance(session, ClientSession)
                id = session.window.id if session.window is not None else 0
                done = await counter.add.detailed(1, "again")

                calls = [asyncio.ensure_future(counter.add(1, f"{n}")) for n in range(20)]
                await asyncio.sleep(0)
                await first.aclose()
                async with AsyncExitStack() as second:
                    await start(second, config, found=False)
                    await asyncio.gather(*calls)
                    assert session.window is not None
                    assert session.window.id == id, "the group still knows the session"
                    assert await counter.add(1, "after") == 23
                    names = await counter.names()
                    assert sorted(names) == sorted(
                        ["before", "again", "after", *(f"{n}" for n in range(20))]
                    )
                    fresh = counter.read.options(level="weak", not_before=done.viewstamp)
                    assert await fresh() == 23

    idle_time.run(story())
