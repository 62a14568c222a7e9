"""Where a client may look for replicas.

It begins with the addresses it was given and learns the others from the replicas themselves. A
place that cannot be reached is tried again after a pause that doubles; one that has said that we
are not welcome, after a long one: it may be given another secret or release while we wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from coterie.client.errors import NotWelcome
    from coterie.client.settings import ClientSettings
    from coterie.protocol.messages import Peer

UNWELCOME_PAUSE = 5.0
"""Seconds before a place is tried again that has said that we are not welcome."""
PLACES_MAX = 256
"""More addresses than any group has; what is beyond is not learned."""


class Place:
    """One address, and what the client has found there."""

    __slots__ = ("address", "failures", "is_in_view", "is_seed", "replica", "retry_at", "unwelcome")

    def __init__(self, address: str, *, is_seed: bool) -> None:
        self.address = address
        self.is_seed = is_seed
        self.replica = ""
        """Who is there, as far as known."""
        self.is_in_view = True
        self.failures = 0
        self.retry_at = 0.0
        self.unwelcome: NotWelcome | None = None


class Places:
    """All addresses a client knows."""

    def __init__(self, seeds: Sequence[str], settings: ClientSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._places = {address: Place(address, is_seed=True) for address in seeds}

    def __getitem__(self, address: str) -> Place:
        return self._places[address]

    def learn(self, peers: Iterable[Peer]) -> None:
        """Take over what a replica says; addresses nobody names any more are forgotten."""
        named: set[str] = set()
        for peer in peers:
            if not peer.address or len(named) >= PLACES_MAX:
                continue
            named.add(peer.address)
            place = self._places.get(peer.address)
            if place is None:
                place = self._places[peer.address] = Place(peer.address, is_seed=False)
            place.replica = peer.id
            if peer.is_in_view and not place.is_in_view:
                place.retry_at = 0.0  # it is back
            place.is_in_view = peer.is_in_view
        for address, place in list(self._places.items()):
            # What we were given stays: it may be all that is right after a long absence.
            if address not in named and not place.is_seed:
                del self._places[address]

    def failed(self, address: str, now: float, unwelcome: NotWelcome | None) -> None:
        """Note that an address was of no use."""
        place = self._places.get(address)
        if place is not None:
            settings = self._settings
            pause = min(settings.retry_first * 2 ** min(place.failures, 20), settings.retry_max)
            if unwelcome is not None:
                pause = UNWELCOME_PAUSE
            place.failures += 1
            place.retry_at = now + pause * self._random.uniform(0.5, 1.5)
            place.unwelcome = unwelcome

    def succeeded(self, address: str, replica: str) -> None:
        """Note who answered at an address."""
        place = self._places.get(address)
        if place is not None:
            place.failures = 0
            place.retry_at = 0.0
            place.unwelcome = None
            place.replica = replica

    def choose(
        self, now: float, *, avoid: set[str], replicas: set[str]
    ) -> tuple[str | None, float | None]:
        """Choose an address to try: not one of *avoid*, nor that of one of *replicas*.

        Gives None if there is none at present, and then the time when there is, if ever.
        """
        candidates = [
            place
            for place in self._places.values()
            if place.address not in avoid and not (place.replica and place.replica in replicas)
        ]
        ready = [place for place in candidates if place.retry_at <= now]
        if ready:
            best = min(
                ready,
                key=lambda place: (not place.is_in_view, place.failures, self._random.random()),
            )
            return best.address, None
        return None, min((place.retry_at for place in candidates), default=None)

    def why_hopeless(self) -> NotWelcome | None:
        """Say why no address is of use, if all say that we are not welcome."""
        for place in self._places.values():
            if place.unwelcome is None:
                return None
        return next((place.unwelcome for place in self._places.values()), None)
