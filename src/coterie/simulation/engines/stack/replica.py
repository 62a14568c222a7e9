"""A replica of a stack on a simulated machine, life after life.

A replica of an engine keeps a journal on its machine's disk, as a real one does: each life begins
with what recovery finds there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.engines.stack import recover
from coterie.journal.stable import Stable, found_group
from coterie.kernel.engine import Past
from coterie.kernel.views import Member
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.simulation.engines.stack.ledger import Ledger
from coterie.simulation.engines.stack.old import old_ledger, old_object, write_old_journal
from coterie.simulation.world.disk import Died
from coterie.simulation.world.resident import Resident
from coterie.stacks import build, build_engine, is_ordered

if TYPE_CHECKING:
    from coterie.journal.engines.colours import ColoursKeeper
    from coterie.journal.engines.stack_keeper import JournalKeeper
    from coterie.kernel.layers import Batch, Context
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import View, ViewId
    from coterie.simulation.engines.stack.group import Group
    from coterie.simulation.engines.stack.host import Host
    from coterie.simulation.world.age import Age

Place = tuple["ViewId", tuple[Member, ...]]


class Inbox:
    """The application on a simulated replica: remembers what it was given."""

    def __init__(self) -> None:
        self.delivered: list[bytes] = []
        self.current: View | None = None

    @property
    def place(self) -> Place | None:
        """The view this replica works in, and its members."""
        return None if self.current is None else (self.current.id, self.current.members)

    def deliver(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.delivered.extend(batch.payloads)

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        pass

    def view(self, view: View) -> None:
        self.current = view


class StackReplica(Resident):
    """One replica of a group, and what stands on it."""

    keeper: JournalKeeper | ColoursKeeper | None

    def __init__(self, machine: Host, group: Group) -> None:
        seeds = machine.seeds
        super().__init__(machine, group.name, group.configuration if seeds is None else seeds)
        self._group = group
        self._past: Past | None = None
        self.inbox = Inbox()
        self.ledger: Ledger | SimulatedObject | None = None
        """The object, where the stack has an engine; it outlasts the process, to be looked at."""
        self.keeps_journal = group.simulation.has_engine
        if self.keeps_journal and seeds is None:
            self.found()

    def found(self) -> None:
        """Make the replica one of those with which the group begins."""
        found_group(self.machine.disk, self.group, self.machine.id)
        if self._group.simulation.age is not None:
            self._come_of_age(self._group.simulation.age)

    def _come_of_age(self, age: Age) -> None:
        """Have on disk what a founder has that is old."""
        simulation, configuration = self._group.simulation, self.configuration
        in_order = is_ordered(simulation.stack)
        if simulation.has_object:
            kind, settings = self._group.clients.kind, self._group.clients.settings
            chunks = old_object(
                kind.release(1), settings, self.group, configuration, age, is_ordered=in_order
            )
        else:
            chunks = old_ledger(age, is_ordered=in_order)
        machine = self.machine
        write_old_journal(
            machine.disk,
            simulation.stack,
            self.group,
            machine.id,
            configuration=configuration,
            age=age,
            chunks=chunks,
            settings=simulation.journal,
        )

    @property
    def seed(self) -> str:
        """What the chance of one life is drawn from: there is one group."""
        machine = self.machine
        return f"{machine.simulation.seed}/{machine.id}/{machine.incarnation}"

    # ---- life and death

    def open(self, incarnation_min: int) -> int:
        """Begin a life with what the journal knows of earlier ones."""
        self.keeper = self.open_journal(incarnation_min)
        machine = self.machine
        self._past = self.keeper.past()
        self._group.tracker.inherit(Member(machine.id, self.keeper.incarnation), self._past)
        return self.keeper.incarnation

    def open_journal(self, incarnation_min: int) -> JournalKeeper | ColoursKeeper:
        """Begin a life in the journal."""
        machine, simulation = self.machine, self._group.simulation
        return simulation.keeper(
            machine.disk,
            self.group,
            machine.id,
            simulation.journal,
            incarnation_min=incarnation_min,
            at=machine.clock(),
        )

    def build(self, process: Process) -> Replica:
        """Build the stack, with an object, a ledger or an inbox on top."""
        simulation, keeper = self._group.simulation, self.keeper
        if keeper is None and simulation.age is not None:
            self._past = Past(highest_view=simulation.age.view)
        context = self.make_context(process, past=self._past)
        self._past = None
        self.inbox = Inbox()
        if keeper is None:
            return build(simulation.stack, context, self.inbox, simulation.layers)
        if simulation.has_object:
            self.ledger = self.make_object(context)
            self.ledger.engine_host.copies.dump = keeper.dump
            replica = self.ledger.replica
        else:
            self.ledger = self.make_ledger(context)
            replica = build_engine(simulation.stack, context, self.ledger, simulation.layers)
        assert replica.history is not None, "an engine keeps a history"
        keeper.checkpoint = replica.history.checkpoint
        return replica

    def make_object(self, context: Context) -> SimulatedObject:
        """Make an object of the class that clients use."""
        return SimulatedObject(self._group, context)

    def make_ledger(self, context: Context) -> Ledger:
        """Make the object, where nobody asks for another."""
        return Ledger(context, is_ordered=is_ordered(self._group.simulation.stack))

    def end(self) -> None:
        """Forget the life that has ended."""
        if self.replica is not None:
            self._group.history.crashed(Member(self.machine.id, self.machine.incarnation))
        super().end()

    def disk_was_changed(self) -> None:
        """Learn that an old copy is in the place of the disk."""
        self._group.tracker.disk_was_changed(self.machine.id)

    @property
    def lacks_memory(self) -> bool:
        """Whether this replica is a zombie, or would be one if its process began anew now."""
        if self.replica is not None and self.history.is_zombie:
            return True
        return self.would_be_zombie()

    def would_be_zombie(self) -> bool:
        """Say whether what is on the disk has lost what the replica promised."""
        if self.machine.is_retired:
            return True
        return recover(self.machine.disk, self.group, self.machine.id).is_zombie

    # ---- turns

    def record(self, record: Record) -> None:
        """Put a record on the group's history."""
        self._group.record(record)

    def end_turn(self) -> None:
        """Answer clients."""
        if isinstance(self.ledger, SimulatedObject):
            self.ledger.release_answers()
        replica = self.replica
        if replica is not None and replica.context.is_removed and replica.bottom.has_left:
            self._group.simulation.at(0, self.be_removed)

    def be_removed(self) -> None:
        """Mark the disk of a replica that was removed, and end."""
        machine = self.machine
        if machine.is_retired:
            return
        try:
            Stable(machine.disk, self.group, machine.id).set_removed()
        except (OSError, Died) as error:  # it finds out anew when its disk has been put right
            machine.simulation.note(f"{machine.id}: {error}")
            machine.kill()
            return
        machine.retire()
