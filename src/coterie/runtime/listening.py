"""How a listening socket is closed without losing those who have just come in."""

from __future__ import annotations

import asyncio


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server.

    A connection that asyncio has accepted, and not handed over yet, would be forgotten with its
    socket open. So nobody else is let in first, and those who are in get their turn.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    try:
        await asyncio.sleep(0)
    finally:
        server.close()
