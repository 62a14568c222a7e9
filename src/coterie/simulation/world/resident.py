"""Who lives on a simulated machine: a replica of one group, or a client, life after life.

A resident stays when its process dies; what it builds for each life does not. A family of engines
has a subclass for its replicas, and one for its clients if those have processes of their own.

In each life of its machine a resident is asked, in this order:

    open(incarnation_min)      begin a life in its journal, if it keeps one; number the life
    build(process)             build what takes part in the process's turns
    record(record)             watch what it reported, once that is written down
    end_turn()                 after the frames of a turn have left
    end()                      the process is gone, and everything built with it
"""

from __future__ import annotations

import abc
from random import Random
from typing import TYPE_CHECKING

from coterie.assembly import make_context

if TYPE_CHECKING:
    from coterie.journal.keeper import Keeper
    from coterie.kernel.engine import HistoryKeeper, Past, Version
    from coterie.kernel.layers import Context
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import Configuration
    from coterie.simulation.world.machine import Machine


class Resident(abc.ABC):
    """One replica or client on a machine."""

    keeps_journal = False
    """Whether it writes its turns down on the machine's disk, and begins lives with them."""

    def __init__(self, machine: Machine, group: str, configuration: Configuration) -> None:
        self.machine = machine
        self.group = group
        self.configuration = configuration
        self.replica: Replica | None = None
        """What takes part in the turns of the present life."""
        self.keeper: Keeper | None = None
        """The journal of the present life, if it keeps one."""

    # ---- life and death

    def open(self, incarnation_min: int) -> int:
        """Begin a life with at least this number in the journal; give its number.

        Raises `StorageFailed` or `Died` if the journal cannot be begun: the machine stays down.
        """
        raise NotImplementedError("it keeps no journal")

    @abc.abstractmethod
    def build(self, process: Process) -> Replica:
        """Build the replica of a life that was opened."""

    def end(self) -> None:
        """Forget the life that has ended, or could not begin."""
        self.replica = self.keeper = None

    def disk_was_changed(self) -> None:  # noqa: B027 -- if it wants
        """Learn that an old copy is in the place of the disk, which no promise covers."""

    def make_context(self, process: Process, *, past: Past | None = None) -> Context:
        """Make what the layers of this life's replica are given."""
        random = Random(self.seed)  # noqa: S311 -- reproducible on purpose
        return make_context(process, self.group, self.configuration, random=random, past=past)

    @property
    def seed(self) -> str:
        """What the chance of one life is drawn from."""
        machine = self.machine
        return f"{machine.simulation.seed}/{machine.id}/{self.group}/{machine.incarnation}"

    # ---- turns

    def record(self, record: Record) -> None:  # noqa: B027 -- if it wants
        """Watch a record of this resident, once it is written down."""

    def end_turn(self) -> None:  # noqa: B027 -- if it wants
        """Do what comes after the frames of a turn, such as answering clients."""

    # ---- what faults ask

    @property
    def lacks_memory(self) -> bool:
        """Whether it has lost what it promised, or would have if its process began anew now."""
        return False

    def is_vital(self, path: str) -> bool:
        """Say whether it could not come back without a file of its disk."""
        del path
        return False

    @property
    def history(self) -> HistoryKeeper:
        """Who keeps the history of the present life."""
        assert self.replica is not None, "it does not run"
        assert self.replica.history is not None, "it keeps no history"
        return self.replica.history

    @property
    def version(self) -> Version:
        """How advanced the history is that this running replica knows."""
        return self.history.version

    def accept_loss(self) -> None:
        """Have the operator say that the history known here is to count: `recover --from`."""
        if self.replica is not None:
            machine = self.machine
            machine.simulation.note(f"{machine.id}'s history is to count, whatever was lost")
            machine.call(self.history.recover)
