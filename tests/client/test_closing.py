"""A client that is closed leaves no connection behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests import idle_time
from tests.service.groups import PortGroup

from coterie.client import open_client
from coterie.client.access import Access
from coterie.client.sessions.vsr.transport import PortTransport
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS
from coterie.protocol.messages import Peer
from coterie.runtime.address import parse_address

if TYPE_CHECKING:
    import pytest

    from coterie.client.channel import Channel


def test_no_connection_outlives_its_client() -> None:
    """Two attempts may be on their way to the same replica."""

    async def run() -> None:
        async with PortGroup() as group:
            address = group.addresses["r1"]
            async with open_client(address, spread=False) as client:
                await asyncio.gather(*(client.replicas._dial(address, 5) for _ in range(3)))
                await client.report()
            assert not client.replicas._connections._made
            await group.until(lambda: not group.replicas["r1"].port._callers)

    idle_time.run(run())


def test_a_welcome_after_the_waiting_was_given_up_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that is closed gives up a dial; what was under way arrives all the same."""
    complaints: list[object] = []

    async def dial(access: Access, channel: Channel) -> None:
        await access._network.connect(lambda: channel, parse_address(channel.address))
        channel.greeted.cancel()
        while not channel.is_ready:  # noqa: ASYNC110 -- nobody would set an event
            await asyncio.sleep(0)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, seen: complaints.append(seen))
        async with PortGroup() as group:
            monkeypatch.setattr(Access, "dial", dial)
            async with open_client(group.addresses["r1"], spread=False) as client:
                await client.report()

    idle_time.run(run())
    assert not complaints


def test_who_dials_an_address_forgets_no_other_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that nobody knew of was connected after its client was closed."""
    real = Access.dial
    waits: list[Channel] = []

    async def dial(access: Access, channel: Channel) -> None:
        if not waits:
            waits.append(channel)
            await asyncio.Event().wait()
        await real(access, channel)

    async def run() -> None:
        async with PortGroup() as group:
            address = group.addresses["r2"]
            async with open_client(group.addresses["r1"], spread=False) as client:
                replicas = client.replicas
                monkeypatch.setattr(Access, "dial", dial)
                attempt = asyncio.create_task(replicas._dial(address, 5))
                replicas._dials[address] = attempt
                await asyncio.sleep(0)
                await replicas._dial(address, 5)
                assert replicas._dials == {address: attempt}
            assert attempt.cancelled()
            await group.until(lambda: not group.replicas["r2"].port._callers)

    idle_time.run(run())


def test_a_line_that_was_made_welcome_as_its_client_was_closed_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attempt was given up after the welcome, and nobody held the connection any more."""
    real = Access.dial
    welcomed = asyncio.Event()

    async def dial(access: Access, channel: Channel) -> None:
        await real(access, channel)
        welcomed.set()
        await asyncio.Event().wait()

    async def run() -> None:
        async with PortGroup() as group:
            monkeypatch.setattr(Access, "dial", dial)
            transport = PortTransport(lambda *_: None, Access(), DEFAULT_CLIENT_SETTINGS)
            transport.learn("", [Peer("r1", group.addresses["r1"], is_in_view=True)])
            transport.send("r1", b"\xc0")
            await welcomed.wait()
            await transport.close()
            await group.until(lambda: not group.replicas["r1"].port._callers)

    idle_time.run(run())


def test_a_line_to_an_address_where_another_replica_is_now_is_ended() -> None:
    """Nobody would have closed it, not even with the client."""

    async def run() -> None:
        async with PortGroup() as group:
            transport = PortTransport(lambda *_: None, Access(), DEFAULT_CLIENT_SETTINGS)
            transport.learn("", [Peer("r1", group.addresses["r2"], is_in_view=True)])
            transport.send("r1", b"\xc0")
            port = group.replicas["r2"].port
            await group.until(lambda: bool(port._callers))
            await group.until(lambda: not port._callers)
            await transport.close()

    idle_time.run(run())
