"""What agents, the gateway and a rehearsal are told by damaged peers and programs."""

import asyncio
import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fuzz.agents import WORDS, _Gateway

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
