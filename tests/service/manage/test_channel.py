"""Who may give orders to an agent, and what becomes of everything else."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE

from coterie.manager.orders import AgentAnswer, LookAround, Permit
from coterie.runtime.address import Address
from coterie.service.manage.channel import AgentLink, AgentPort, NoAgent
from coterie.service.operate.founding import LOOPBACK, free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coterie.manager.orders import AgentOrder

SECRET = b"5" * 32
OTHER = b"6" * 32


def serve(use: Callable[[AgentPort, Address], Awaitable[None]]) -> None:
    """Have a port listen, for *use*."""

    async def obey(order: AgentOrder) -> AgentAnswer:
        return AgentAnswer(refusal=f"fence {order.permit.fence}")

    async def run() -> None:
        with ExitStack() as held:
            address = Address(LOOPBACK, free_port(held))
        port = AgentPort("h1", [SECRET], obey)
        async with asyncio.timeout(PATIENCE), port.listening(address):
            await use(port, address)

    asyncio.run(run())


def test_who_knows_the_secret_is_answered_on_one_connection() -> None:
    async def use(_: AgentPort, address: Address) -> None:
        link = AgentLink("h1", address, SECRET)
        answers = await asyncio.gather(
            *(link.ask(LookAround(Permit(n)), seconds=PATIENCE) for n in range(100))
        )
        assert [each.refusal for each in answers] == [f"fence {n}" for n in range(100)]
        await link.close()

    serve(use)


@pytest.mark.parametrize(("host", "secret"), [("h1", OTHER), ("h2", SECRET)])
def test_nobody_else_is(host: str, secret: bytes) -> None:
    async def use(port: AgentPort, address: Address) -> None:
        link = AgentLink(host, address, secret)
        with pytest.raises(NoAgent):
            await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
        assert port.events.counters["wrong_secret"] == 1

    serve(use)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.0\r\n\r\n", b"CA\x01\x00" + b"\xff" * 64])
def test_what_is_not_understood_is_counted(sent: bytes) -> None:
    async def use(port: AgentPort, address: Address) -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(sent)
        assert await reader.read() == b""
        assert port.events.counters["malformed"] == 1
        writer.close()

    serve(use)


def test_an_agent_that_is_not_there_is_no_agent() -> None:
    async def use() -> None:
        with ExitStack() as held:
            address = Address(LOOPBACK, free_port(held))
        with pytest.raises(NoAgent, match="the agent of h1 does not answer"):
            await AgentLink("h1", address, SECRET).ask(LookAround(Permit(1)), seconds=PATIENCE)

    asyncio.run(use())
