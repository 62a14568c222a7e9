"""Engine families as the pipeline knows them: their records, tables, checks and reports.

A family is looked up by its name, which is the same on every side of the product, or by the stack
that the replicas of a group wrote into their journals. What stands in `FAMILIES` is where a family
is to be found, `module:attribute`: it is imported when it is needed, here and in every task of
Spark, and a family of one's own is added by `register`.

The pipeline reads records by their format and imports no code of any engine.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.pipeline.engines.family import Family
    from coterie.pipeline.lake.lake import Lake

FAMILIES: dict[str, str] = {
    "colours": "coterie.pipeline.engines.colours:FAMILY",
    "llft": "coterie.pipeline.engines.llft:FAMILY",
    "stack": "coterie.pipeline.engines.stack:FAMILY",
    "vsr": "coterie.pipeline.engines.vsr:FAMILY",
}
"""Where each family is to be found, by its name."""


def register(places: Mapping[str, str]) -> None:
    """Add families, each by its name and as `module:attribute`."""
    FAMILIES.update(places)


def family_named(name: str) -> Family:
    """Give a family by its name."""
    return _at(FAMILIES[name])


@cache
def _at(place: str) -> Family:
    """Give the family at a place. Whoever reads a segment asks a hundred times."""
    module, _, attribute = place.partition(":")
    found: Family = getattr(importlib.import_module(module), attribute)
    return found


def families() -> dict[str, Family]:
    """Give all families by their names."""
    return {name: family_named(name) for name in FAMILIES}


def family_of(stack: str) -> Family:
    """Give the family whose replicas call their stack so; without a name, that of the stacks."""
    every = families()
    return next((each for each in every.values() if each.owns(stack)), every["stack"])


def families_of(lake: Lake) -> dict[str, Family]:
    """Give the family of each group in a lake."""
    return {group: family_in(lake, group) for group in lake.groups()}


def family_in(lake: Lake, group: str) -> Family:
    """Give the family of a group, by the first life that says what it is of."""
    for lives in lake.parts("lives", group):
        for stack in lives["stack"].to_pylist():
            if stack:
                return family_of(stack)
    return family_of("")
