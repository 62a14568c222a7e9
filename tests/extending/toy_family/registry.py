"""The toy in the registries of all sides, for as long as a test needs it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tests.extending.toy_family.engine import NAME
from tests.extending.toy_family.service_side import ToyFamily
from tests.extending.toy_family.simulation_side import SimulatedToys

import coterie.client.sessions
import coterie.journal.engines
import coterie.pipeline.engines
import coterie.service.engines
import coterie.simulation.engines

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: list[tuple[dict[str, Any], Any]] = [
    (coterie.service.engines.FAMILIES, ToyFamily),
    # Its clients open sessions and call in them, as those of stacks do.
    (coterie.client.sessions.FAMILIES, coterie.client.sessions.FAMILIES["stack"]),
    # It writes the records of engines that order entries, so it recovers as they do.
    (coterie.journal.engines.FAMILIES, coterie.journal.engines.FAMILIES["stack"]),
    (coterie.simulation.engines.FAMILIES, SimulatedToys()),
    # By its place, because every task of Spark imports it for itself.
    (coterie.pipeline.engines.FAMILIES, "tests.extending.toy_family.pipeline_side:FAMILY"),
]
"""A registry, and what the toy has to say there; each side adds its own."""


@contextmanager
def registered() -> Iterator[None]:
    """Have the family in all registries until the block ends."""
    with ExitStack() as stack:
        for registry, entry in ENTRIES:
            assert NAME not in registry
            registry[NAME] = entry
            stack.callback(registry.pop, NAME)
        yield
