"""Type checkers follow a class to its clients; mypy runs over this file with all others."""

from __future__ import annotations

import asyncio
from typing import assert_type

from tests import idle_time
from tests.service.groups import Counter, PortGroup

from coterie import connect, connect_blocking
from coterie.client import detailed, options
from coterie.kernel.engine import Standing


def test_the_async_face() -> None:
    async def story() -> None:
        async with PortGroup() as group, connect(Counter, group.addresses["r1"]) as counter:
            assert_type(await counter.add(3), int)
            done = await counter.add.detailed(4)
            assert_type(done.value, int)
            assert (done.value, done.standing) == (7, Standing.AUTHORITATIVE)
            assert await counter.add.options(deadline=2.0)(1) == 8
            assert await counter.read.options(level="weak")() == 8
            assert "add" in dir(counter)
            assert repr(counter) == "<Counter of group 'counter'>"

    idle_time.run(story())


def test_the_blocking_face() -> None:
    def use(address: str) -> None:
        with connect_blocking(Counter, address) as counter:
            assert_type(counter.add(3), int)
            done = detailed(counter.add)(4)
            assert_type(done.value, int)
            assert (done.value, done.settled().standing) == (7, Standing.AUTHORITATIVE)
            assert options(counter.add, deadline=2.0)(1) == 8
            assert options(counter.read, level="dirty")() == 8

    async def story() -> None:
        async with PortGroup() as group:
            await asyncio.to_thread(use, group.addresses["r2"])

    idle_time.run(story())
