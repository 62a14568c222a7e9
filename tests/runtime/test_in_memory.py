"""Streams in memory behave as TCP does between machines."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

from coterie.runtime.address import Address
from coterie.runtime.in_memory import HIGH_BYTES, MemoryHost, MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = Address("b", 1)


class End(asyncio.Protocol):
    """Writes down what happens to it."""

    made: list[End] = []  # noqa: RUF012 -- cleared by `joined`

    def __init__(self) -> None:
        self.heard = b""
        self.told: list[str] = []
        self.transport: asyncio.Transport
        End.made.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.told.append("lost")


async def passes() -> None:
    """Let everything arrive that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def joined() -> AsyncIterator[tuple[MemoryNetwork, MemoryHost, MemoryHost, End, End]]:
    End.made.clear()
    network = MemoryNetwork()
    a, b = network.host("a"), network.host("b")
    await b.listen(End, HERE)
    one = await a.connect(End, HERE)
    [other] = [end for end in End.made if end is not one]
    yield network, a, b, one, other


def test_bytes_arrive_in_order_and_who_closes_is_heard_to_the_end() -> None:
    async def story() -> None:
        async with joined() as (_, _, _, one, other):
            for part in (b"one ", b"two ", b"three"):
                one.transport.write(part)
            one.transport.close()
            one.transport.write(b"never")
            await passes()
            assert other.heard == b"one two three"
            assert one.told == other.told == ["lost"]

    asyncio.run(story())


def test_who_aborts_takes_back_what_is_on_its_way() -> None:
    async def story() -> None:
        async with joined() as (_, _, _, one, other):
            one.transport.write(b"lost")
            one.transport.abort()
            await passes()
            assert (other.heard, other.told) == (b"", ["lost"])

    asyncio.run(story())


def test_a_cut_holds_everything_back_and_nobody_is_told() -> None:
    async def story() -> None:
        async with joined() as (network, a, _, one, other):
            network.cut("a", "b")
            one.transport.write(b"later")
            dialling = asyncio.ensure_future(a.connect(End, HERE))
            await passes()
            assert (other.heard, other.told, dialling.done()) == (b"", [], False)
            one.transport.close()
            await passes()
            assert (one.told, other.told) == (["lost"], [])
            network.heal()
            await passes()
            assert (other.heard, other.told, dialling.done()) == (b"later", ["lost"], True)

    asyncio.run(story())


def test_who_writes_faster_than_the_other_reads_is_told_to_pause() -> None:
    async def story() -> None:
        async with joined() as (_, _, _, one, other):
            other.transport.pause_reading()
            one.transport.write(bytes(HIGH_BYTES))
            assert one.told == []
            one.transport.write(b"!")
            assert one.told == ["pause"]
            assert one.transport.get_write_buffer_size() == HIGH_BYTES + 1
            other.transport.resume_reading()
            await passes()
            assert one.told == ["pause", "resume"]
            assert len(other.heard) == HIGH_BYTES + 1

    asyncio.run(story())


def test_who_crashes_is_gone_at_once_and_may_come_back() -> None:
    async def story() -> None:
        async with joined() as (network, a, b, one, other):
            other.transport.write(b"last words")
            b.crash()
            await passes()
            assert (one.heard, one.told) == (b"last words", ["lost"])
            with pytest.raises(ConnectionRefusedError):
                await a.connect(End, HERE)
            with pytest.raises(ConnectionRefusedError):
                await b.connect(End, HERE)  # whoever is down has nobody to tell
            with pytest.raises(OSError, match="down"):
                await b.listen(End, HERE)
            again = network.host("b")
            await again.listen(End, HERE)
            assert (await a.connect(End, HERE)).told == []

    asyncio.run(story())


def test_addresses_are_used_once_and_by_their_own_host() -> None:
    async def story() -> None:
        async with joined() as (network, a, b, _, _):
            with pytest.raises(OSError, match="in use"):
                await b.listen(End, HERE)
            with pytest.raises(OSError, match="assign"):
                await a.listen(End, HERE)
            listener = await a.listen(End, Address("a", 0))
            assert listener.address.port > 0
            await listener.close()
            assert listener.address not in network.listeners
            with pytest.raises(ValueError, match="nothing is encrypted"):
                await a.connect(End, HERE, tls=ssl.create_default_context())

    asyncio.run(story())
