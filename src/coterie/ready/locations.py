"""The location service: which replicas a group has, and where they take clients (**vsr** 3).

It is a small replicated object of Coterie's own, in every deployment that takes transactions, with
a replica in each of its processes. So whoever knows the address of any process finds every group
of the deployment. What it says is what the processes registered when they started.
"""

from __future__ import annotations

import msgspec

from coterie.objects import query, update

LOCATIONS = "coterie.locations"
"""The name of its group in every deployment."""


class Location(msgspec.Struct, frozen=True):
    """Where one group is."""

    configuration: int
    """The number of the configuration."""
    members: list[str]
    """The replicas; where one leads, in the order of preference."""
    addresses: list[str]
    """Where each of them takes clients."""


class Locations:
    """Where the groups of a deployment are."""

    groups: dict[str, Location] = {}  # noqa: RUF012 -- copied for each object

    @update
    def register(self, group: str, location: Location) -> None:
        """Say where a group is; a lower configuration does not replace a higher one."""
        known = self.groups.get(group)
        if known is None or location.configuration >= known.configuration:
            self.groups[group] = location

    @query
    def find(self, group: str) -> Location | None:
        """Give the place of a group, if it is known."""
        return self.groups.get(group)

    @query
    def names(self) -> list[str]:
        """Give the names of all groups."""
        return sorted(self.groups)
