"""A client that is closed leaves no connection behind."""

from __future__ import annotations

import asyncio

from tests.service.groups import PortGroup

from coterie.client import open_client


def test_no_connection_outlives_its_client() -> None:
    """Two attempts may be on their way to the same replica."""

    async def run() -> None:
        async with PortGroup() as group:
            address = group.addresses["r1"]
            async with open_client(address, spread=False) as client:
                await asyncio.gather(*(client.replicas._dial(address, 5) for _ in range(3)))
                await client.report()
            await group.until(lambda: not group.replicas["r1"].port._callers)

    asyncio.run(run())
