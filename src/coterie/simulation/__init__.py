"""The simulator: whole groups in one process, with virtual time, and every fault on demand.

It drives the very code that runs in production; only time, network and chance are its own. The
same seed gives the same run, byte for byte, on any machine. Scripted scenarios read like stories:

    sim = Simulation(seed=7, stack="DYNSEQ:VSYNC")
    group = sim.group("a", "b", "c", "d", "e")
    group.run_until_whole()
    group.partition("ab", "cde")
    group["a"].cast(b"one")
    group.run(seconds(2))
    group.heal()
    group.run_until_whole()
    group.check()

Random runs (`coterie.simulation.campaign`) have a safety phase, in which anything may fail, and a
liveness phase, in which everything is healed and the group must come together and answer.
"""

from coterie.kernel.clock import milliseconds, seconds
from coterie.simulation.campaign import Run, RunOptions, run_seed
from coterie.simulation.group import Group
from coterie.simulation.host import Host
from coterie.simulation.simulation import Simulation

__all__ = [
    "Group",
    "Host",
    "Run",
    "RunOptions",
    "Simulation",
    "milliseconds",
    "run_seed",
    "seconds",
]
