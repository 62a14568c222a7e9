"""Random runs of a server group: the stack below, unaware clients above, and RSP-1 and RSP-2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.servers import ServerTracker
from coterie.simulation.engines.servers.clients import UnawareClients
from coterie.simulation.engines.stack.group import Group
from coterie.simulation.engines.stack.simulation import Simulation
from coterie.simulation.engines.stack.trial import StackTrial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.checking.history import Violation
    from coterie.kernel.records import Record
    from coterie.simulation.campaign import SeedRun


class ServerGroup(Group):
    """A group of servers."""

    clients: UnawareClients
    clients_kind = UnawareClients

    def __init__(self, simulation: Simulation, name: str, names: Sequence[str]) -> None:
        self.servers = ServerTracker()
        super().__init__(simulation, name, names)

    def record(self, record: Record) -> None:
        """Take a record from a replica."""
        super().record(record)
        self.servers.add(record)

    def violations(self) -> list[Violation]:
        """Check every promise of the stack, and those of the protocol."""
        return [*super().violations(), *self.servers.violations()]


class ServerSimulation(Simulation):
    """Virtual time with a group of servers in it."""

    def group(self, *names: str, name: str = "group") -> ServerGroup:
        """Make a group of servers with these names and start them all."""
        return ServerGroup(self, name, names)


class ServerTrial(StackTrial):
    """The run of one seed."""

    world: ServerGroup
    simulation_kind = ServerSimulation

    def _clients_end(self) -> list[Violation]:
        """All clients must be done, and then be answered once more, whatever they gave up."""
        found = super()._clients_end()
        if found:
            return found
        self.world.clients.last_words()
        return super()._clients_end()

    def report(self, run: SeedRun) -> None:
        """Count requests and how often one was ordered twice."""
        super().report(run)
        run.figures["requests"] = self.world.servers.requests
        run.figures["ordered again"] = self.world.servers.ordered_again
