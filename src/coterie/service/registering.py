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
    from coterie.runtime.network import Network
    from coterie.service.config import ClusterConfig

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


async def register(config: ClusterConfig, id: str, address: str, network: Network) -> None:
    """Register the groups of a process that are not where the location service says.

    Its own replica of that service is at *address* in *network*, which is inside the process: a
    replica is no client of the others. It ends when that is done: there may be no majority for a
    long time, and meanwhile everything else works.
    """
    settings = ClientSettings(deadline=DEADLINE_SECONDS)
    while True:
        try:
            async with connect(
                Locations, address, group=LOCATIONS, network=network, settings=settings
            ) as locations:
                for name, location in locations_of(config).items():
                    if id in location.members and await locations.find(name) != location:
                        await locations.register(name, location)
                        log(logging.INFO, "registered", replica=id, group=name)
        except CoterieError as error:
            log(logging.WARNING, "not registered yet", replica=id, reason=str(error))
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return
