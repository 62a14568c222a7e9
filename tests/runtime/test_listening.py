"""A server that is closed loses nobody who has just come in."""

from __future__ import annotations

import asyncio
import socket

from coterie.runtime.listening import stop_listening


class Guest(asyncio.Protocol):
    """Leaves as soon as it is in."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Guest.made += 1
        transport.close()


def test_who_was_accepted_is_handed_over_before_the_end() -> None:
    """An open socket that nobody knows would be an error of this test when it is collected."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Guest, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        guests = [socket.create_connection(address) for _ in range(20)]
        # One pass of the loop accepts them, after us; what hands them over is behind us, too.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await stop_listening(server)
        assert not server.is_serving()
        for guest in guests:
            guest.close()
        await asyncio.sleep(0)

    Guest.made = 0
    asyncio.run(story())
    assert Guest.made == 20
