"""Everything that can be done to a simulated world, and the nemesis that does it."""

from coterie.simulation.faults.menu import ALL_FAULTS, CHANGES, FAULTS, LOSSES, Fault
from coterie.simulation.faults.nemesis import Nemesis

__all__ = ["ALL_FAULTS", "CHANGES", "FAULTS", "LOSSES", "Fault", "Nemesis"]
