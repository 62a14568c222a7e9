"""The gateway's ports, as the program's process hears of them."""

from __future__ import annotations

import asyncio
import socket

import pytest

from coterie.agents import gateway as gateways
from coterie.agents.gateway import Gateway


class Opening(Gateway):
    """A gateway whose earlier life had a port, and that does nothing but open it."""

    def __init__(self, port: int) -> None:
        self._servers, self._wanted, self._tls = {}, set(), None
        self._ports = {"listening 77": port}
        self._say = lambda name, fields: self.said.put_nowait((name, fields["port"]))
        self.said: asyncio.Queue[tuple[str, object]] = asyncio.Queue()
        self.answers: list[tuple[int, int]] = []

    def _answer(self, listener: int, value: int) -> None:
        self.answers.append((listener, value))


def test_a_port_of_an_earlier_life_that_another_process_has_is_opened_once_that_lets_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program listens, by its own account, so it cannot be told that it does not."""
    monkeypatch.setattr(gateways, "REOPEN_SECONDS", 0.001)

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            gateway = Opening(port)
            opening = asyncio.create_task(gateway._open(77, 0, "5 127.0.0.1"))
            assert await gateway.said.get() == ("no port", port)
        await opening
        assert await gateway.said.get() == ("listens", port)
        assert gateway.said.empty()
        assert gateway.answers == [(77, port)]
        gateway.close()

    asyncio.run(story())


def test_a_port_that_the_program_closes_meanwhile_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateways, "REOPEN_SECONDS", 0.001)

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            gateway = Opening(taken.getsockname()[1])
            opening = asyncio.create_task(gateway._open(77, 0, "5 127.0.0.1"))
            await gateway.said.get()
            gateway._deafen("77")
            await opening
        assert not gateway._servers
        assert not gateway.answers

    asyncio.run(story())
