"""All connections of one client, from the first attempt to the end of the last one.

Whoever dials may be gone, or have lost interest, by the time the other end answers. So a connection
is known here as soon as there may be one and until it is lost, whatever became of the attempt, and
closing the client ends them all.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from coterie.client.access import Access
    from coterie.client.channel import Channel


class Connections:
    """The connections; their owner says which it has `lost`."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._made: set[Channel] = set()

    async def dial(self, channel: Channel, patience: float) -> str:
        """Open a channel; it is ready then, or the reason why it is not is given."""
        self._made.add(channel)
        reason = ""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(patience):
                await self._access.dial(channel)
        except TimeoutError:
            reason = f"{channel.address} did not answer within {patience} s"
        except OSError as error:
            reason = f"{channel.address}: {_why(error)}"
        finally:
            if not channel.is_connected:
                self._made.discard(channel)
            elif channel.welcome is None:
                channel.abort(reason or channel.reason)
        if channel.welcome is not None:
            channel.welcome_after = asyncio.get_running_loop().time() - began
            return ""
        return reason or f"{channel.address}: {channel.reason}"

    def lost(self, channel: Channel) -> None:
        """Forget a connection that has ended."""
        self._made.discard(channel)

    async def close(self, dials: Collection[asyncio.Task[None]], patience: float) -> None:
        """Give up the attempts, let what was asked for leave, and end all connections."""
        for task in dials:
            task.cancel()
        channels = [channel for channel in self._made if channel.is_connected]
        for channel in channels:
            channel.close()
        waiting = [*dials, *(channel.ended for channel in channels)]
        if waiting:
            await asyncio.wait(waiting, timeout=patience)
        for channel in channels:
            channel.transport.abort()


def _why(error: OSError) -> str:
    """Say in words why there is no connection, for the cases that users meet."""
    match error:
        case ConnectionRefusedError():
            return "connection refused: no replica listens there"
        case socket.gaierror():
            return "the host has no address"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"no encrypted connection: {error.reason or error}"
        case _:
            return (error.strerror or str(error)).lower()
