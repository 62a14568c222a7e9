"""How a process tells the location service where its groups are."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from coterie.client import ClientSettings, connect
from coterie.kernel.errors import CoterieError
from coterie.ready.locations import LOCATIONS, Location, Locations
from coterie.runtime.events import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coterie.runtime.network import Network
    from coterie.service.config import ClusterConfig
    from coterie.service.engines.hosted import HostedReplica

    Registrations = Mapping[str, Location]

DEADLINE_SECONDS = 30.0
PAUSE_SECONDS = 1.0


def locations_of(config: ClusterConfig) -> dict[str, Location]:
    """Say where the groups of a deployment are."""
    return {
        name: Location(
            1,
            list(config.members(name)),
            [str(config.replicas[id].client_address) for id in config.members(name)],
        )
        for name in config.groups
    }


def located(hosted: Mapping[str, HostedReplica], addresses: Mapping[str, str]) -> Registrations:
    """Say where those groups here are whose members have changed; *addresses* take clients."""
    return {
        name: Location(now.number, list(now.members), [addresses.get(id, "") for id in now.members])
        for name, each in hosted.items()
        if (now := each.configuration).number > 1 and name != LOCATIONS
    }


class Registrar:
    """Registers the groups of a process that are not where the location service says.

    Its own replica of that service is at *address* in *network*, which is inside the process: a
    replica is no client of the others.
    """

    def __init__(self, config: ClusterConfig, id: str, address: str, network: Network) -> None:
        self._config = config
        self._id = id
        self._address = address
        self._network = network
        self.moved = asyncio.Event()
        """Set when members of groups here have come or gone."""

    async def run(self, found: Callable[[], Registrations]) -> None:
        """Register what the file says, then what *found* gives whenever the members change."""
        await self._register(lambda: locations_of(self._config))
        while True:
            await self._register(found)
            await self.moved.wait()

    async def _register(self, what: Callable[[], Registrations]) -> None:
        """Go on until it is done: there may be no majority for a long time, and all else works."""
        settings = ClientSettings(deadline=DEADLINE_SECONDS)
        while True:
            self.moved.clear()
            locations = what()
            if not locations:
                return
            try:
                await self._tell(locations, settings)
            except CoterieError as error:
                log(logging.WARNING, "not registered yet", replica=self._id, reason=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return

    async def _tell(self, groups: Registrations, settings: ClientSettings) -> None:
        async with connect(
            Locations, self._address, group=LOCATIONS, network=self._network, settings=settings
        ) as locations:
            for name, location in groups.items():
                if self._id not in location.members:
                    continue
                known = await locations.find(name)
                if known is not None and known.configuration > location.configuration:
                    continue
                if known != location:
                    await locations.register(name, location)
                    log(logging.INFO, "registered", replica=self._id, group=name)
