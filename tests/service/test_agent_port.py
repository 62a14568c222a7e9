"""Strangers and damaged managers at the port of an agent."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.fuzz.mutations import mutate, put_together, take_apart
from tests.patience import PATIENCE
from tests.runtime.test_listening import until

from coterie.kernel.errors import Refused
from coterie.manager.orders import AgentAnswer, LookAround, Permit
from coterie.runtime.address import Address
from coterie.runtime.loop import run
from coterie.service.manage.agent_config import AgentConfig
from coterie.service.manage.channel import (
    _FRAMING,
    CONNECTIONS_MAX,
    AgentLink,
    AgentPort,
    ManagerHello,
)
from coterie.service.manage.keeping import AgentDisk
from coterie.service.operate.founding import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from coterie.manager.orders import AgentOrder

SECRET = b"a secret of some length"


async def obey(order: AgentOrder) -> AgentAnswer:
    return AgentAnswer(refusal=type(order).__name__)


def tell(story: Callable[[AgentPort, Address], Awaitable[None]]) -> None:
    """Run a story with a port, and see to it that a manager is served afterwards."""

    async def begin() -> None:
        port = AgentPort("h1", [SECRET], obey)
        with ExitStack() as held:
            address = Address("127.0.0.1", free_port(held))
        async with port.listening(address):
            await story(port, address)
            link = AgentLink("h1", address, SECRET)
            answer = await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
            assert answer.refusal == "LookAround"
            await link.close()

    run(begin())


def test_a_silent_crowd_keeps_no_manager_out() -> None:
    """Whoever opened as many connections as there may be, again and again, was alone there."""

    async def story(port: AgentPort, address: Address) -> None:
        crowd = [
            await asyncio.open_connection(address.host, address.port)
            for _ in range(2 * CONNECTIONS_MAX)
        ]
        link = AgentLink("h1", address, SECRET)
        answer = await link.ask(LookAround(Permit(1)), seconds=PATIENCE)
        assert answer.refusal == "LookAround"
        assert port.events.counters["too_many"] >= CONNECTIONS_MAX
        for _, writer in crowd:
            writer.close()
        await link.close()

    tell(story)


def test_strangers_cost_no_memory() -> None:
    """Each connection comes from another port, and each port was remembered for good."""

    async def story(port: AgentPort, address: Address) -> None:
        for number in range(60):
            with socket.create_connection((address.host, address.port)) as each:
                each.sendall(b"what is this? " * number)
                each.setblocking(False)  # noqa: FBT003
                await asyncio.sleep(0)
        await until(lambda: sum(port.events.counters.values()) >= 50)
        assert len(port.events._logged_at) < 5

    tell(story)


def test_wrong_greetings_and_orders_end_a_connection_alone() -> None:
    random = Random(7)  # noqa: S311 -- reproducible on purpose
    hello = msgspec.msgpack.encode(ManagerHello("h1", b"n" * 16))

    async def story(port: AgentPort, address: Address) -> None:
        for _ in range(100):
            body = put_together(mutate(take_apart(hello), random, changes=2))
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(_FRAMING.encode(body))
            writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                await reader.read()
            writer.close()
        assert port.events.counters.keys() <= {"malformed", "broken_off", "wrong_secret", "ended"}

    tell(story)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "a\nb", "x" * 100])
def test_names_of_replicas_are_no_paths(tmp_path: Path, name: str) -> None:
    config = AgentConfig(
        host="h1", listen="127.0.0.1:1", dir=str(tmp_path), secret_file=str(tmp_path / "secret")
    )
    disk = AgentDisk(config, SECRET)
    with pytest.raises(Refused, match="is no name"):
        disk.place("group", name)
    with pytest.raises(Refused, match="is no name"):
        disk.place(name, "group-1")
