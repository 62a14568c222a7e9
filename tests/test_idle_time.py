"""The clock of tests passes no time in which somebody works."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests import idle_time

from coterie.runtime.driver import clock


def test_work_takes_no_time_and_waiting_does() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        begun, turns_begun = loop.time(), clock()
        time.sleep(0.05)  # noqa: ASYNC251 -- as if the machine were busy with others
        assert loop.time() - begun < 0.01
        await asyncio.sleep(0.05)
        assert 0.05 <= loop.time() - begun < 0.06
        assert 50_000 <= clock() - turns_begun < 60_000

    idle_time.run(story())


def test_what_arrived_is_taken_before_a_time_out() -> None:
    async def story() -> None:
        theirs = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await theirs.wait()
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"are you there?\n")
        theirs.set()
        async with asyncio.timeout(0.02):
            waiting = asyncio.ensure_future(reader.readline())
            await asyncio.sleep(0)
            time.sleep(0.05)  # noqa: ASYNC251 -- as if the machine were busy with others
            assert await waiting == b"are you there?\n"
        writer.close()
        server.close()

    idle_time.run(story())


def test_what_nobody_does_times_out() -> None:
    async def story() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.02)

    idle_time.run(story())


def test_who_asks_again_and_again_gets_what_time_brings() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        is_due = loop.create_future()
        loop.call_later(0.01, is_due.set_result, None)
        seen = [loop.time()]
        while not is_due.done():
            await asyncio.sleep(0)
            seen.append(loop.time())
        assert seen == sorted(set(seen)), "each look is later than the one before"

    idle_time.run(story())
