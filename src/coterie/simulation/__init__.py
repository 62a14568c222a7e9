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

There is one world (`world/`) and one menu of faults (`faults/`) for all engines; what an engine
adds is in `engines/`, one folder for each family.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.kernel.clock import milliseconds, seconds
    from coterie.simulation.campaign import SeedRun, run_seed
    from coterie.simulation.engines.stack.group import Group
    from coterie.simulation.engines.stack.host import Host
    from coterie.simulation.engines.stack.simulation import Simulation
    from coterie.simulation.engines.stack.trial import RunOptions

__all__ = [
    "Group",
    "Host",
    "RunOptions",
    "SeedRun",
    "Simulation",
    "milliseconds",
    "run_seed",
    "seconds",
]

_WHERE = {
    "Group": "coterie.simulation.engines.stack.group",
    "Host": "coterie.simulation.engines.stack.host",
    "SeedRun": "coterie.simulation.campaign",
    "RunOptions": "coterie.simulation.engines.stack.trial",
    "Simulation": "coterie.simulation.engines.stack.simulation",
    "milliseconds": "coterie.kernel.clock",
    "run_seed": "coterie.simulation.campaign",
    "seconds": "coterie.kernel.clock",
}


def __getattr__(name: str) -> object:
    """Import what users need only when somebody asks, so that the command line starts quickly."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 -- see above

    return getattr(import_module(_WHERE[name]), name)
