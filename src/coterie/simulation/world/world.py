"""The simulated world: machines on a network, whoever lives on them, and what can be done to all.

There is one world for all families of engines. A family puts residents on machines, says what a
crash takes with it, and looks after its own groups; faults (`coterie.simulation.faults`) are done
to worlds and machines, and know nothing of engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from coterie.journal.format import Sync
from coterie.kernel.wire import decode_frame
from coterie.simulation.world.machine import Machine
from coterie.simulation.world.settings import SIMULATED_JOURNAL, SIMULATED_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.clock import Duration
    from coterie.kernel.settings import Settings
    from coterie.kernel.wire import Frame
    from coterie.simulation.world.age import Age
    from coterie.simulation.world.network import Link
    from coterie.simulation.world.resident import Resident
    from coterie.simulation.world.virtual_time import VirtualTime

FRAMES_READ_MAX = 100
"""Frames that are remembered as read; whoever else gets one of them does so soon."""


class World:
    """Machines, and who lives on them."""

    crash_takes_machine: ClassVar[bool] = False
    """What the faults `crash` and `restart` mean: the death of the process, which loses nothing
    that was written, or that of the machine, which loses what was not synced. A family takes its
    paper's meaning; there are faults for the other."""

    machines_count_lives: ClassVar[bool] = False
    """Who numbers the lives of a machine with journals: its one journal, which may lose count when
    its disk is exchanged, or the machine, so that several journals count alike."""

    def __init__(
        self,
        simulation: VirtualTime,
        *,
        settings: Settings = SIMULATED_SETTINGS,
        journal: KeeperSettings = SIMULATED_JOURNAL,
        may_lose_majority: bool = False,
    ) -> None:
        self.simulation = simulation
        self.settings = settings
        self.journal = journal
        """How residents keep their journals."""
        self.may_lose_majority = may_lose_majority
        """Whether machines may forget although a group would lose its memory for ever."""
        self.machines: dict[str, Machine] = {}
        self.replaceable: list[str] = []
        """Machines whose work another takes over if they are away for long."""
        self._read: dict[bytes, Frame] = {}

    def machine(self, id: str) -> Machine:
        """Give a machine; it is built if there is none of this name yet."""
        if id not in self.machines:
            self.machines[id] = Machine(self, id)
        return self.machines[id]

    def begin_old(self, age: Age) -> None:
        """Have all machines count their lives on from those that they have had."""
        for machine in self.machines.values():
            machine.incarnation = machine.lives = age.lives

    def start(self) -> None:
        """Start all machines."""
        for machine in self.machines.values():
            machine.start()

    # ---- who lives here

    @property
    def has_journals(self) -> bool:
        """Whether anybody keeps a journal."""
        return any(
            resident.keeps_journal
            for machine in self.machines.values()
            for resident in machine.residents.values()
        )

    @property
    def syncs_every_turn(self) -> bool:
        """Whether what was written down survives the loss of its machine."""
        return self.journal.journal.sync is Sync.TURN

    def residents_of(self, group: str) -> list[Resident]:
        """Give the replicas of a group, in the order of their machines."""
        return [
            machine.residents[group]
            for machine in self.machines.values()
            if group in machine.residents
        ]

    def peers_of(self, machine: Machine) -> Sequence[str]:
        """Give the processes that one knows when it starts."""
        del machine
        return tuple(self.machines)

    # ---- who belongs to a group

    @property
    def can_change_members(self) -> bool:
        """Whether replicas can be added and removed while a group serves."""
        return False

    def join(self, random: Random) -> str:
        """Have a new machine join a group; give its name, or nothing if none can."""
        del random
        return ""

    def dismiss(self, random: Random, *, after: str = "") -> None:
        """Have a replica removed from its group; *after* another one has become a member."""

    # ---- what may be forgotten

    def may_crash(self, machine: Machine) -> bool:
        """Say whether every group survives that this machine loses what it had not synced."""
        is_durable = self.syncs_every_turn and not machine.is_damaged
        return is_durable or self.may_forget(machine)

    def may_forget(self, machine: Machine) -> bool:
        """Say whether every group keeps a majority with a memory if this machine loses its own.

        A group in which none does stops, and says so, until its operator accepts the loss.
        """
        if self.may_lose_majority:
            return True
        for group, resident in machine.residents.items():
            if not resident.keeps_journal:
                continue
            everyone = self.residents_of(group)
            forgetful = sum(each is resident or each.lacks_memory for each in everyone)
            if forgetful > len(everyone) - resident.configuration.majority:
                return False
        return True

    def recover_by_hand(self, random: Random | None = None) -> None:
        """Have an operator look at every group and let the most advanced history there count.

        That is for a group whose majority has lost its memory; see `recover --from` in the
        operator's tools. Where it has not, nothing is done. With *random*, the operator lets
        anybody's history count, which loses more.
        """
        groups = [group for machine in self.machines.values() for group in machine.residents]
        for group in dict.fromkeys(groups):
            everyone = [each for each in self.residents_of(group) if each.keeps_journal]
            running = [each for each in everyone if each.machine.is_up]
            remembering = sum(not each.lacks_memory for each in everyone)
            if not running or remembering >= everyone[0].configuration.majority:
                continue
            best = max(running, key=lambda each: each.version)
            (best if random is None else random.choice(running)).accept_loss()

    # ---- the network

    def arrive(self, source: str, destination: str, frame: bytes, delay: int) -> None:
        """Have a frame arrive at its destination."""
        del source
        machine = self.machines.get(destination)
        if machine is not None:  # or it is not put up yet
            self.simulation.at(delay, machine.take, frame)

    def read(self, frame: bytes) -> Frame:
        """Read what a frame says, once for all to whom it is sent; raises `FrameError`."""
        found = self._read.get(frame)
        if found is None:
            found = decode_frame(frame, frame_bytes_max=self.settings.frame_bytes_max)
            if len(self._read) >= FRAMES_READ_MAX:
                self._read.clear()
            self._read[frame] = found
        return found

    def links_between(self, *sides: Iterable[str]) -> list[Link]:
        """Give all links, both ways, between machines of different sides."""
        groups = [list(side) for side in sides]
        return [
            (one, other)
            for mine in groups
            for others in groups
            if mine is not others
            for one in mine
            for other in others
        ]

    def partition(self, *sides: Iterable[str]) -> None:
        """Cut every link between different sides; "ab", "cde" names machines by letters."""
        named = [list(side) for side in sides]
        self.simulation.network.cut(self.links_between(*named))
        self.simulation.note("partition " + " | ".join("".join(side) for side in named))

    def cut(self, source: str, destination: str) -> None:
        """Cut one link in one direction."""
        self.simulation.network.cut([(source, destination)])
        self.simulation.note(f"cut {source} to {destination}")

    def heal(self) -> None:
        """End all faults of the network; machines stay as they are."""
        self.simulation.network.heal(self.arrive)
        self.simulation.note("heal")

    def mend(self) -> None:
        """End everything that was done to machines, and have all of them run."""
        for machine in self.machines.values():
            machine.mend()

    # ---- time

    def run(self, duration: Duration) -> None:
        """Let time pass."""
        self.simulation.run(duration)

    def run_until(self, condition: Callable[[], bool], *, within: Duration) -> bool:
        """Let time pass until *condition* holds; say whether it did within the time."""
        return self.simulation.run_until(condition, within=within)
