"""How a client reaches the ports of replicas: over which network, and what it shows there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.protocol.proof import check_secret
from coterie.runtime.address import parse_address
from coterie.runtime.local_groups import find_local_secret
from coterie.runtime.network import TCP

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from coterie.client.channel import Channel
    from coterie.runtime.network import Network


class Access:
    """What all connections of a client have in common; by default plain TCP, showing nothing."""

    def __init__(
        self,
        *,
        secret: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        network: Network = TCP,
    ) -> None:
        if secret is not None:
            check_secret(secret)
        self.secret = secret
        self._tls = tls
        self._network = network

    async def dial(self, channel: Channel) -> None:
        """Open a channel's connection, and wait until it was made welcome or never will be.

        Raises `OSError` if there is no connection.
        """
        address = parse_address(channel.address)
        await self._network.connect(lambda: channel, address, tls=self._tls)
        await channel.greeted


def find_access(
    addresses: Sequence[str],
    *,
    secret: bytes | None,
    tls: ssl.SSLContext | None,
    network: Network,
) -> Access:
    """Give the way to replicas at some addresses; one's own local group needs no secret given."""
    if secret is None and tls is None and network is TCP:
        secret = find_local_secret(addresses)
    return Access(secret=secret, tls=tls, network=network)
