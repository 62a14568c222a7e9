"""Simulated groups over a partitioned network, and what they promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.colours import ColoursTracker
from coterie.checking.group_communication import check_views
from coterie.checking.history import Violation
from coterie.colours.layer import Colours
from coterie.colours.states import ServerState
from coterie.journal.engines.colours import COLOURS
from coterie.kernel.engine import Run
from coterie.kernel.views import NO_VIEW
from coterie.objects.applied_once import AppliedOnce
from coterie.simulation.engines.colours.describe import describe
from coterie.simulation.engines.colours.ledger import ColoursLedger
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.simulation.engines.stack.group import Group
from coterie.simulation.engines.stack.replica import StackReplica
from coterie.simulation.engines.stack.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.journal.engines.colours import ColoursKeeper
    from coterie.kernel.components import Action
    from coterie.kernel.layers import Context
    from coterie.kernel.records import Record
    from coterie.objects import Answer
    from coterie.simulation.engines.stack.host import Host
    from coterie.simulation.world.machine import Machine


CHECK_EVERY = 16
"""After how many turns it is checked again what was applied once."""


class ColoursObject(SimulatedObject):
    """An object whose clients wait for green: a red answer is given again when it is."""

    def answer(self, answers: list[Answer]) -> None:
        super().answer([answer for answer in answers if answer.standing.is_final])


class ColoursReplica(StackReplica):
    """A replica with a journal of its own kind."""

    _boot = ""
    _turns = 0
    _is_unsure = False
    """Whether its machine was lost with turns that were not synced, and it has not been in a
    primary component since: all members may not forget the same actions."""

    @property
    def lacks_memory(self) -> bool:
        """Whether this replica has forgotten what others may rest on."""
        return self._is_unsure or super().lacks_memory

    def found(self) -> None:
        """Make the replica one of those with which the group begins."""
        COLOURS.found(self.machine.disk, self.group, self.machine.id)

    def open_journal(self, incarnation_min: int) -> ColoursKeeper:
        """Begin a life in the journal."""
        machine = self.machine
        found = COLOURS.recover(
            machine.disk, self.group, machine.id, incarnation_min=incarnation_min
        )
        machine.simulation.note(f"{machine.id} recovers: {found.reason}")
        boot = machine.disk.boot_id
        self._is_unsure |= boot != self._boot and not machine.world.syncs_every_turn
        self._boot = boot
        return COLOURS.open(machine.disk, found, machine.world.journal, at=machine.clock())

    def would_be_zombie(self) -> bool:
        """Say whether what is on the disk has lost what the replica promised."""
        return COLOURS.recover(self.machine.disk, self.group, self.machine.id).is_zombie

    def make_object(self, context: Context) -> ColoursObject:
        """Make an object of the class that clients use."""
        return ColoursObject(self._group, context)

    def make_ledger(self, context: Context) -> ColoursLedger:
        """Make the object, where nobody asks for another."""
        return ColoursLedger(context)

    @property
    def engine(self) -> Colours | None:
        """The engine of the present life."""
        if self.replica is None:
            return None
        engine = self.replica.layers[0]
        assert isinstance(engine, Colours), "COLOURS is the top of its stack"
        return engine

    def _check_dirty(self, copies: AppliedOnce, actions: Sequence[Action]) -> None:
        """Compare what was applied once, as it came, with all that applied in order."""
        green = copies.authoritative
        assert green is not None, "something is red"
        twin = green.copy()
        twin.sessions = twin.sessions.without_order()
        for action in actions:
            at = twin.position + 1
            twin.execute([Run(NO_VIEW, 0, at, action.creator, action.index, [action.command])])
        if vars(twin.object) != vars(copies.machine.object):
            self._group.tracker.violations.append(
                Violation(
                    "dirty is green plus red",
                    f"{self.machine.id} shows {vars(copies.machine.object)}, and what is green and "
                    f"red makes {vars(twin.object)}",
                )
            )

    def end_turn(self) -> None:
        """Answer clients, and compare what the object was shown with what is known."""
        super().end_turn()
        engine, ledger = self.engine, self.ledger
        if engine is None or ledger is None:
            return
        if engine.state is ServerState.REG_PRIM:
            self._is_unsure = False
        shown = (
            ledger.engine_host.position
            if isinstance(ledger, SimulatedObject)
            else ledger.state.position
        )
        if isinstance(ledger, SimulatedObject):
            copies = ledger.engine_host.copies
            self._turns += 1
            is_time = self._turns % CHECK_EVERY == 0
            if is_time and isinstance(copies, AppliedOnce) and copies.authoritative is not None:
                self._check_dirty(copies, engine.queue.shown())
        dirty = 0 if engine.state is ServerState.REG_PRIM else len(engine.queue)
        if shown != engine.green_end + dirty:
            self._group.tracker.violations.append(
                Violation(
                    "dirty is green plus red",
                    f"{self.machine.id} shows {shown} actions, with {engine.green_end} green and "
                    f"{dirty} others",
                )
            )


class ColoursGroup(Group):
    """The replicas of one group, and what can be done to all of them."""

    tracker: ColoursTracker

    def make_tracker(self) -> ColoursTracker:
        """Make what follows the records of the engine."""
        return ColoursTracker(
            self.configuration,
            keeps_all=self.syncs_every_turn,
            primary_min=self.settings.primary_min,
        )

    def make_replica(self, host: Host) -> ColoursReplica:
        """Make the replica that lives on a machine."""
        return ColoursReplica(host, self)

    def engine(self, id: str) -> Colours:
        """Give the engine of a replica that runs."""
        resident = self.hosts[id].resident
        assert isinstance(resident, ColoursReplica), "a replica of this group"
        engine = resident.engine
        assert engine is not None, f"{id} does not run"
        return engine

    def may_forget(self, machine: Machine) -> bool:
        """Say whether a machine may lose what it remembers: one at a time, if another holds it.

        Green actions are safe with the members of a primary component that go on. Two of them that
        fail at once, one with its disk, may take some along, and so may the only member of one.
        """
        mine = self._resident(machine).engine
        others = [each for each in self if each is not machine]
        if mine is None or any(
            each.is_damaged or self._resident(each).lacks_memory for each in others
        ):
            return False
        return any(self._holds_all_of(mine, each) for each in others)

    def _holds_all_of(self, lost: Colours, machine: Machine) -> bool:
        """Say whether a machine that runs has all that another may have made green.

        It is in the last primary component, or left it alive. Where machines lose what was not
        synced, that does not suffice: who crashes now forgets what it has received and not yet
        delivered, and nobody would wait for the lost one, which is no zombie.
        """
        engine = self._resident(machine).engine
        if engine is None or engine.prim != self.tracker.newest:
            return False
        if not self.syncs_every_turn and engine.green_end < lost.green_end:
            return False
        is_in_it = engine.state in {ServerState.REG_PRIM, ServerState.TRANS_PRIM}
        return is_in_it or engine.yellow_is_valid

    def _resident(self, machine: Machine) -> ColoursReplica:
        resident = next(iter(machine.residents.values()))
        assert isinstance(resident, ColoursReplica), "a replica of this group"
        return resident

    def record(self, record: Record) -> None:
        """Take a record from a replica."""
        self.history.add(record, true_time=self.simulation.now)
        self.tracker.add(record)
        if self.simulation.trace is not None:
            self.simulation.note(f"{record.member} {describe(record)}")

    def violations(self) -> list[Violation]:
        """Check every promise against what happened so far."""
        self.tracker.finish()
        has_clients = self.simulation.has_object and not self.tracker.has_lost
        seen = self.clients.violations() if has_clients else []
        return [*check_views(self.history), *self.tracker.violations, *seen]

    # ---- who belongs to it

    @property
    def can_change_members(self) -> bool:
        return True

    def may_dismiss(self, id: str) -> bool:
        """Say whether the members that stay remember all when this one goes.

        A member that goes and one that has forgotten are two at once.
        """
        members = self.operator.configuration.members
        staying = [host for host in self if host.id != id and host.id in members]
        return not any(host.is_damaged or host.lacks_memory for host in staying)

    # ---- coming together

    @property
    def is_one(self) -> bool:
        """Whether all are in one primary component, and nothing is red anywhere."""
        if not self.is_whole() or not self.operator.is_done:
            return False
        engines = [self.engine(host.id) for host in self]
        return all(
            engine.state is ServerState.REG_PRIM
            and engine.green_end == engines[0].green_end
            and not len(engine.queue)
            for engine in engines
        )

    @property
    def is_blocked(self) -> bool:
        """Whether all are in touch, and have found out that they cannot be primary."""
        if not all(host.is_up for host in self):
            return False
        engines = [self.engine(host.id) for host in self]
        here = [host.id for host in self if host.id in self.operator.configuration.everyone]
        return all(
            engine.state is ServerState.NON_PRIM and engine.is_with(here)
            for engine in engines
            if engine.me.id in here
        )

    def speak(self) -> None:
        """Have an operator let the most advanced of them count."""
        here = [host.id for host in self]
        remembering = [id for id in here if not self.engine(id).is_zombie]
        best = max(
            remembering or here,
            key=lambda id: (self.engine(id).prim.index, self.engine(id).green_end),
        )
        self.hosts[best].accept_loss()


class ColoursSimulation(Simulation):
    """Virtual time with such groups in it."""

    def group(self, *names: str, name: str = "group") -> ColoursGroup:
        """Make a group of replicas with these names and start them all."""
        return ColoursGroup(self, name, names)
