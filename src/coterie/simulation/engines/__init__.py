"""The families of engines that can be simulated, by name: the one place that knows all of them.

A test or a later engine adds its own with `register`; see `coterie.simulation.engines.family`.
"""

from coterie.simulation.engines.colours import ColoursFamily
from coterie.simulation.engines.family import Asked, Extra, Family, NotOffered
from coterie.simulation.engines.llft import LlftFamily
from coterie.simulation.engines.stack import StackFamily
from coterie.simulation.engines.vsr import VsrFamily

__all__ = [
    "DEFAULT",
    "FAMILIES",
    "SIMULATED_ONLY",
    "Asked",
    "Extra",
    "Family",
    "NotOffered",
    "all_families",
    "family_named",
    "register",
]

FAMILIES: dict[str, Family] = {}
"""Those that every side of the project knows."""

SIMULATED_ONLY: dict[str, Family] = {LlftFamily.name: LlftFamily()}
"""Those that are proven here first: journal and pipeline know them, and nobody serves them."""

DEFAULT = StackFamily.name
"""The family that is meant where none is named."""


def register(family: Family) -> None:
    """Add a family; its name must be new."""
    assert family.name not in FAMILIES, f"there is a family {family.name} already"
    FAMILIES[family.name] = family


def all_families() -> dict[str, Family]:
    """Give all families that can be simulated, by name."""
    return {**FAMILIES, **SIMULATED_ONLY}


def family_named(name: str) -> Family:
    """Give the family of a name. Raises `NotOffered` if there is none."""
    families = all_families()
    if name not in families:
        raise NotOffered(f"there is no engine '{name}'; there are {', '.join(families)}")
    return families[name]


register(StackFamily())
register(VsrFamily())
register(ColoursFamily())
