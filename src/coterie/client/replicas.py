"""Which replicas a client is connected to, and which of them it prefers.

All replicas of a primary view take updates, so there is no leader to find. A client stays with
one replica, its *home*, as long as that one answers. It begins with the one that puts calls into
order, where a single call takes fewest turns, while that one has room and the client asks for
little; otherwise with one chosen by chance, so that the work is shared. With `nearest` it is with
the one that made it welcome soonest, in or out of a primary view. When it does not answer,
or is lost, the home moves to another that is connected, and if there is none, others are sought:
the addresses in the order of how promising they are, two at a time, until one makes us welcome.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from coterie.client.addresses import Places
from coterie.client.channel import Channel
from coterie.client.connections import Connections
from coterie.kernel.errors import CoterieError
from coterie.runtime.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.client.access import Access
    from coterie.client.channel import Owner
    from coterie.client.settings import ClientSettings
    from coterie.protocol.messages import Peer, Welcome

DIALS_MAX = 2
"""How many addresses are tried at the same time, unless all replicas are wanted."""


class Replicas:
    """The channels of one client. What they bring goes to *owner*."""

    def __init__(
        self,
        owner: Owner,
        addresses: Sequence[str],
        *,
        group: str,
        access: Access,
        settings: ClientSettings,
    ) -> None:
        if not addresses:
            raise CoterieError("give at least one address of a replica, as host:port")
        for address in addresses:
            parse_address(address)
        self.home: Channel | None = None
        self.last_reason = "no replica could be reached"
        """Why the last attempt to reach one failed."""
        self._owner = owner
        self._group = group
        self._access = access
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._random = Random()  # noqa: S311 -- spreads clients and attempts, protects nothing
        self._places = Places(addresses, settings, self._random)
        self._channels: dict[str, Channel] = {}
        self._connections = Connections(access)
        self._dials: dict[str, asyncio.Task[None]] = {}
        self._redial: asyncio.TimerHandle | None = None
        self._wants_all = False
        self._is_preferring = False
        """Whether we are where few calls are answered soonest, and ask for few."""
        self._is_closed = False
        self._news = asyncio.Event()
        """Set when a channel became ready, or an attempt has failed."""

    # ---- opening and closing

    async def find_home(self) -> Channel:
        """Give the first channel that is ready; raise `NotWelcome` if none will ever be."""
        while self.home is None:
            hopeless = self._places.why_hopeless()
            if hopeless is not None:
                raise hopeless
            self._news.clear()
            self.seek()
            await self._news.wait()
        return self.home

    async def spread(self) -> None:
        """Move to the replica that answers soonest while it has room, or to one chosen by chance.

        By chance, so that clients with one address do not crowd. It is any in touch with the
        first, or another if the first takes no updates.
        """
        first = self.home
        if first is None or first.welcome is None:
            return
        if self._settings.nearest:
            await self._move_to_nearest(first.welcome)
            return
        if await self._move_to_preferred(first, first.welcome):
            self._is_preferring = True
            return
        peers = [peer for peer in first.welcome.peers if peer.address]
        if first.is_primary:
            peers = [peer for peer in peers if peer.is_in_view]
        else:
            peers = [peer for peer in peers if peer.id != first.replica]
        if not peers:
            return
        chosen = self._random.choice(peers)
        if chosen.id == first.replica or chosen.address in self._channels:
            return
        await self._try(chosen.address)
        channel = self._channels.get(chosen.address)
        if channel is not None and channel.is_ready and channel.is_primary:
            self.home = channel
            first.close()

    async def _move_to_nearest(self, welcome: Welcome) -> None:
        """Ask all that can be reached at once; move to the one that was the first to answer."""
        others = [
            peer.address
            for peer in welcome.peers
            if peer.address and peer.address not in self._channels
        ]
        await asyncio.gather(*(self._try(address) for address in others))
        ready = sorted(self.ready(), key=lambda each: each.welcome_after)
        if ready:
            self.home = ready[0]
        for channel in ready[1:]:
            channel.close()

    async def _move_to_preferred(self, first: Channel, welcome: Welcome) -> bool:
        """Move to the replica that is preferred; say whether that is where we are then."""
        preferred = welcome.preferred
        if preferred in {"", first.replica}:
            return bool(preferred)
        address = next((peer.address for peer in welcome.peers if peer.id == preferred), "")
        if address and address not in self._channels:
            await self._try(address)
        channel = self._channels.get(address)
        if channel is None or channel.welcome is None or not channel.is_ready:
            return False
        if channel.welcome.preferred != preferred:
            channel.close()  # it has no room, or is not the one any more
            return False
        self.home = channel
        first.close()
        return True

    def spread_out(self) -> None:
        """Go to a replica chosen by chance, because we ask for much; what is asked for stays."""
        home = self.home
        if not self._is_preferring or self._is_closed or home is None or home.welcome is None:
            return
        self._is_preferring = False
        peers = [peer for peer in home.welcome.peers if peer.address and peer.is_in_view]
        chosen = self._random.choice(peers) if peers else None
        if chosen is None or chosen.id == home.replica or chosen.address in self._dials:
            return
        move = self._move_to(chosen.address)
        self._dials[chosen.address] = self._loop.create_task(move, name=f"move {chosen.address}")

    async def _move_to(self, address: str) -> None:
        if address not in self._channels:
            await self._dial(address, self._settings.connect_timeout)
        self._forget_attempt(address)
        channel = self._channels.get(address)
        if channel is not None and channel.is_ready and channel.is_primary:
            self.home = channel

    async def close(self) -> None:
        """Let what was asked for leave, and end all connections."""
        self._is_closed = True
        if self._redial is not None:
            self._redial.cancel()
        await self._connections.close(list(self._dials.values()), self._settings.retry_max)

    # ---- choosing

    def ready(self) -> list[Channel]:
        """Give the channels at which requests can be made."""
        return [channel for channel in self._channels.values() if channel.is_ready]

    def choose(self, last: Channel | None) -> Channel | None:
        """Give the best channel for a request, another than its *last* if there is a choice."""
        home = self.home
        if home is not None and home is not last and home.is_ready and not home.is_suspect:
            return home
        ready = self.ready()
        others = [channel for channel in ready if channel is not last] or ready
        chosen = min(
            others,
            key=lambda each: (each.is_suspect, not each.is_primary, each.chosen_at),
            default=None,
        )
        if chosen is not None:
            # So that a request that is refused everywhere makes the round of all replicas.
            chosen.chosen_at = self._loop.time()
        return chosen

    def suspect(self, channel: Channel) -> None:
        """A replica does not answer, or cannot: prefer another, and seek one if there is none."""
        channel.is_suspect = True
        self.prefer_another(channel)
        self.seek()

    def prefer_another(self, channel: Channel) -> None:
        """Move home away from a replica, if another is known to be better."""
        if self.home is channel:
            others = [each for each in self.ready() if each.is_primary and not each.is_suspect]
            if others and self._settings.nearest:
                self.home = min(others, key=lambda each: each.welcome_after)
            elif others:
                self.home = self._random.choice(others)

    def has_spare(self) -> bool:
        """Say whether there are two channels to choose from; if not, seek another."""
        if len(self.ready()) > 1:
            return True
        self.seek(spare=True)
        return False

    def want_all(self) -> None:
        """Be connected to all replicas from now on."""
        if not self._wants_all:
            self._wants_all = True
            self.seek()

    # ---- what channels report

    def learn(self, peers: Iterable[Peer]) -> None:
        """Take over what a replica says of all of them."""
        self._places.learn(peers)

    def on_ready(self, channel: Channel) -> None:
        """Take a channel into use."""
        earlier = self._channels.get(channel.address)
        self._channels[channel.address] = channel
        if earlier is not None:
            earlier.close()  # two were on their way to the same replica
        self._places.succeeded(channel.address, channel.replica)
        home = self.home
        if home is None or not home.is_ready or home.is_suspect:
            self.home = channel
        self._news.set()

    def on_lost(self, channel: Channel) -> None:
        """Learn that a channel is lost, and seek another where it is needed."""
        self._connections.lost(channel)
        if self._channels.get(channel.address) is channel:
            del self._channels[channel.address]
        if channel.welcome is None or self._is_closed:
            return  # whoever dialled sees to it
        if not channel.is_let_go:
            self.last_reason = f"{channel.address}: {channel.reason}"
            self._places.failed(channel.address, self._loop.time(), channel.unwelcome)
        if self.home is channel:
            self.home = min(self.ready(), key=lambda each: each.is_suspect, default=None)
        self.seek()

    # ---- seeking

    def seek(self, *, spare: bool = False) -> None:
        """See to it that there is a good channel, or one more, or as many as are wanted."""
        ready = self.ready()
        limit = DIALS_MAX
        if self._wants_all:
            limit = 1 << 30
        elif not spare and any(not channel.is_suspect for channel in ready):
            return
        now = self._loop.time()
        replicas = {channel.replica for channel in ready}
        while len(self._dials) < limit and not self._is_closed:
            busy = {*self._channels, *self._dials}
            address, later = self._places.choose(now, avoid=busy, replicas=replicas)
            if address is None:
                if later is not None and self._redial is None:
                    self._redial = self._loop.call_at(later, self._seek_again)
                return
            dial = self._dial(address, self._settings.connect_timeout)
            self._dials[address] = self._loop.create_task(dial, name=f"dial {address}")

    def _seek_again(self) -> None:
        self._redial = None
        self.seek()

    async def _try(self, address: str) -> None:
        """Wait a moment for a channel to an address, one that is on its way already if there is."""
        patience = self._settings.hedge_after
        under_way = self._dials.get(address)
        if under_way is None:
            await self._dial(address, patience)
        else:
            await asyncio.wait([under_way], timeout=patience)

    async def _dial(self, address: str, patience: float) -> None:
        """Try one address; it ends with a channel that is ready, or with a failure noted."""
        channel = Channel(self._owner, address, self._group, self._access.secret)
        try:
            reason = await self._connections.dial(channel, patience)
        finally:
            self._forget_attempt(address)
        if reason:
            self.last_reason = reason
            self._places.failed(address, self._loop.time(), channel.unwelcome)
            self._news.set()
            self.seek()

    def _forget_attempt(self, address: str) -> None:
        """Forget the attempt that this task is; another at the same address stays known."""
        if self._dials.get(address) is asyncio.current_task():
            del self._dials[address]
