"""Asking the location service of a deployment where a group is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.client.group import GroupClient
from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import CoterieError
from coterie.ready.locations import LOCATIONS, Location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.client.access import Access
    from coterie.client.settings import ClientSettings

_decoder: Decoder[Location | None] = Decoder(Location | None)
_decode = _decoder.decode


async def find_location(
    addresses: Sequence[str],
    group: str,
    *,
    access: Access,
    settings: ClientSettings,
) -> Location | None:
    """Ask the location service at any of these addresses where a group is."""
    client = GroupClient(addresses, group=LOCATIONS, access=access, settings=settings)
    try:
        await client.open(spread=False)
        arguments = msgspec.msgpack.encode([group])
        found = await client.query("find", arguments, _decode, level="weak")
    except CoterieError:
        return None
    finally:
        await client.close()
    return found if isinstance(found, Location) else None
