"""What agents, the gateway and a rehearsal are told by damaged peers and programs."""

import asyncio
import errno
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fuzz.agents import WORDS, _Gateway
from tests.runtime.test_listening import few_descriptors, until

from coterie.agents.app import ClientName
from coterie.agents.gateway import Gateway
from coterie.kernel.claims import Order, OrderKind
from coterie.program.wire import WireKind


@pytest.mark.parametrize("word", WORDS)
def test_a_name_is_a_clients_or_none(word: str) -> None:
    """`x@y` raised at whoever met it in the order, and again at every start."""
    name = ClientName.parse(word)
    assert name is None or str(name) == word


def test_what_no_program_tells_is_passed_over() -> None:
    async def story() -> None:
        gateway = _Gateway()
        for conn, data in (("x", b"0 5 a"), ("1", b"x"), ("1", b"0 5 \xff"), ("1", b"")):
            for kind in (WireKind.LISTEN, WireKind.EXITED, WireKind.CLOSED, WireKind.SAID):
                gateway.told(Order(OrderKind.TOLD, 0, kind, conn, data))
        gateway.turn_ended()

    asyncio.run(story())


@pytest.mark.parametrize("words", ["5 \x00", "x 127.0.0.1", "5 " + "a" * 80])
def test_a_port_that_cannot_be_is_an_error_to_the_program(words: str) -> None:
    """The program waited for ever: the task that opened it had raised."""

    async def story() -> None:
        gateway = _Gateway()
        answers: list[tuple[int, int]] = []
        gateway.engine = cast("Any", SimpleNamespace(inputs={}))
        gateway._answer = lambda listener, value: answers.append(  # type: ignore[method-assign]
            (listener, value)
        )
        await Gateway._open(gateway, 3, 0, words)
        await Gateway._open(gateway, 3, 1 << 20, "5 127.0.0.1")
        assert answers == [(3, -errno.EINVAL)] * 2

    asyncio.run(story())


def test_a_crowd_of_clients_leaves_descriptors_for_the_journal() -> None:
    """An edge that cannot begin the next segment ends, and with it all connections."""

    async def story() -> None:
        gateway, arrived, gone = _Gateway(), list[str](), list[str]()
        ports: list[int] = []
        gateway.engine = cast("Any", SimpleNamespace(inputs={}))
        crowd = cast("Any", gateway)
        crowd._answer = lambda _, port: ports.append(port)
        crowd.arrived = lambda client, _: arrived.append(client.conn)
        crowd.lost = lambda client: gone.append(client.conn)
        await Gateway._open(gateway, 3, 0, "5000 127.0.0.1")
        with few_descriptors(200), ExitStack() as stack:
            for _ in range(90):  # each takes two: this process has both ends
                stack.enter_context(socket.create_connection(("127.0.0.1", ports[0])))
                await asyncio.sleep(0)
            await until(lambda: len(arrived) + gateway.turned_away == 90)
            assert gateway.turned_away > 0
            assert arrived
            for _ in range(10):
                stack.enter_context(socket.socket())
        await until(lambda: len(gone) == len(arrived))
        gateway.close()

    asyncio.run(story())
