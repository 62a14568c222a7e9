"""Simulated programs on machines: replicas, edges, and what they remember through their deaths.

Both keep journals on their machines' disks, synced every turn, as real ones do. A crash is the
death of the machine. What they remember is followed beside the journal, for snapshots; each life
begins with what its journal tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from coterie.checking.llft import ProgramTracker
from coterie.journal.engines.llft import LLFT
from coterie.journal.format import Sync
from coterie.kernel.claims import Roster, RosterLine
from coterie.kernel.clock import milliseconds
from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.kernel.views import Configuration, Member
from coterie.llft.connections import EDGE, PeerEdge
from coterie.llft.edge import Edge
from coterie.llft.following import ReplicaStanding
from coterie.llft.memory import EdgeMemory, ReplicaMemory
from coterie.llft.moving import MovingReplica
from coterie.llft.replica import ProgramReplica
from coterie.llft.settings import Backups, Guard, LlftSettings
from coterie.llft.standby import StandbyEdge
from coterie.simulation.engines.llft.describe import describe
from coterie.simulation.engines.llft.programs import PROGRAMS
from coterie.simulation.world.resident import Resident
from coterie.simulation.world.settings import SIMULATED_JOURNAL
from coterie.simulation.world.virtual_time import VirtualTime
from coterie.simulation.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coterie.kernel.claims import Order
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.simulation.engines.llft.programs import CounterProgram
    from coterie.simulation.world.machine import Machine


EDGE_PATIENCE = milliseconds(700)
"""How soon another edge takes the place of one: there is little time in a run."""

SYNCED = replace(SIMULATED_JOURNAL, journal=replace(SIMULATED_JOURNAL.journal, sync=Sync.TURN))
"""How journals are kept: nothing leaves before what it rests on is on disk."""


class LlftResident(Resident):
    """A replica or an edge of a program on a machine, with its journal."""

    keeps_journal = True
    memory: ReplicaMemory | EdgeMemory
    kind: ClassVar[type[ReplicaMemory | EdgeMemory]]

    def __init__(
        self, machine: Machine, group: str, configuration: Configuration, world: ProgramWorld
    ) -> None:
        super().__init__(machine, group, configuration)
        self._world = world
        self._watched: Record | None = None
        """The last record that was watched."""
        LLFT.found(machine.disk, group, machine.id)

    def open(self, incarnation_min: int) -> int:
        """Begin a life with what the journal knows of earlier ones."""
        machine = self.machine
        found = LLFT.recover(machine.disk, self.group, machine.id, incarnation_min=incarnation_min)
        machine.simulation.note(f"{self.group}/{machine.id} recovers: {found.reason}")
        self.memory = self.kind.recall(found.chunks(), found.records)
        self._watch_last_turn(found.records)
        if isinstance(self.memory, ReplicaMemory):
            self.memory.is_new = self.memory.is_new and found.is_new
        self.keeper = LLFT.open(machine.disk, found, self._world.journal, at=machine.clock())
        self.keeper.checkpoint = self.memory.checkpoint
        return self.keeper.incarnation

    def record(self, record: Record) -> None:
        """Follow a record that was stored, and have it watched."""
        self.memory.add(record)
        self._watch(record)

    def _watch(self, record: Record) -> None:
        self._watched = record
        self._world.record(record)

    def _watch_last_turn(self, records: list[Record]) -> None:
        """Have the turn watched, too, that was written down and in which the process died."""
        places = [place for place, each in enumerate(records) if each == self._watched]
        for record in records[places[-1] + 1 if places else 0 :]:
            self._watch(record)

    def is_vital(self, path: str) -> bool:
        """Say that nothing can be done without on an edge's disk."""
        del path
        return self.group.endswith(EDGE)


class ProgramResident(LlftResident):
    """A replica of a program on a machine."""

    kind = ReplicaMemory
    memory: ReplicaMemory

    def __init__(self, machine: Machine, group: str, world: ProgramWorld) -> None:
        super().__init__(machine, group, world.configurations[group], world)

    @property
    def engine(self) -> ProgramReplica | None:
        """The replica, while its process lives."""
        if self.replica is None:
            return None
        bottom = self.replica.bottom
        assert isinstance(bottom, ProgramReplica)
        return bottom

    def build(self, process: Process) -> Replica:
        """Build the replica with its memory."""
        context, world = self.make_context(process), self._world
        edges = world.edges[self.group]
        engine = world.replica_kind(
            context,
            **({"edges": edges} if len(edges) > 1 else {"edge": edges[0]}),
            roster=world.rosters[self.group],
            make_program=world.programs[self.group],
            memory=self.memory,
            settings=world.llft,
        )
        return Replica(context, Layer(context), [engine], engine)


class EdgeResident(LlftResident):
    """The edge of a program on a machine."""

    kind = EdgeMemory
    memory: EdgeMemory

    def __init__(self, machine: Machine, program: str, world: ProgramWorld) -> None:
        super().__init__(machine, program + EDGE, Configuration(1, (machine.id,)), world)
        self._program = program
        self._leaving: list[Callable[[], None]] = []
        """What clients see when the present turn is written down."""

    @property
    def engine(self) -> Edge | None:
        """The edge, while its process lives."""
        if self.replica is None:
            return None
        bottom = self.replica.bottom
        assert isinstance(bottom, Edge)
        return bottom

    def build(self, process: Process) -> Replica:
        """Build the edge with its memory."""
        context, world, program = self.make_context(process), self._world, self._program
        edges = world.edges[program]
        engine = world.edge_kind(
            context,
            **({"edges": edges, "neighbours": world.neighbours(program)} if len(edges) > 1 else {}),
            program=program,
            replicas=world.configurations[program].members,
            roster=world.rosters[program],
            memory=self.memory,
            outside=self,
            calls=world.calls[program],
            settings=world.llft,
        )
        return Replica(context, Layer(context), [engine], engine)

    def wrote(self, conn: str, data: bytes) -> int:
        """Have bytes leave once the turn is written down; say how many a client takes at once."""
        count = self._world.takes_of(conn, data)
        self._leaving.append(lambda: self._world.wrote_to(conn, data[:count], data[count:]))
        return count

    def closed(self, conn: str) -> None:
        """Have a client find its connection closed."""
        self._leaving.append(lambda: self._world.closed_at(conn))

    def told(self, order: Order) -> None:
        """Simulated programs tell their edges nothing."""

    def broke(self, conn: str) -> None:
        """Have a client find its connection broken."""
        self._leaving.append(lambda: self._world.broke_at(conn))

    def end_turn(self) -> None:
        """Let clients see what left: before that, the turn might have died in a write."""
        leaving, self._leaving = self._leaving, []
        for each in leaving:
            each()

    def end(self) -> None:
        """Clients find their connections broken."""
        self._leaving = []
        if self.replica is not None:
            self._world.edges_lost += 1
        super().end()
        self._world.edge_died(self._program, self.machine.id)


class ProgramWorld(World):
    """Machines with replicas of one program, or of two that speak with each other."""

    crash_takes_machine: ClassVar[bool] = True
    machines_count_lives: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        *,
        seed: int,
        program: str,
        replicas: int,
        guard: Guard,
        replica_kind: type[ProgramReplica] | None = None,
        edge_kind: type[Edge] | None = None,
        settings: LlftSettings | None = None,
        backups: Backups = Backups.ACTIVE,
        has_standby: bool = False,
    ) -> None:
        super().__init__(VirtualTime(seed=seed), journal=SYNCED)
        self.llft = settings or LlftSettings(
            guard=guard, state_every=64, backups=backups, edge_patience=EDGE_PATIENCE
        )
        self.replica_kind: Any = replica_kind or (MovingReplica if has_standby else ProgramReplica)
        self.edge_kind: Any = edge_kind or (StandbyEdge if has_standby else Edge)
        names = tuple("abcdefg"[:replicas])
        self.front = program
        """The program that clients speak with."""
        server = PROGRAMS[program].server
        groups = [server, program] if server else [program]
        self.programs: Mapping[str, Callable[[], CounterProgram]] = {g: PROGRAMS[g] for g in groups}
        self.configurations = {group: Configuration(1, names) for group in groups}
        places = ("yu", "zv") if has_standby else ("y", "z")
        self.edges: dict[str, tuple[str, ...]] = {
            group: tuple(ids) for group, ids in zip(groups, places, strict=False)
        }
        """The machines of each program's edge: the first, and its standby if there is one."""
        lives = tuple(
            RosterLine(Member(id, 1), rank, is_whole=True) for rank, id in enumerate(names, 1)
        )
        self.rosters = {group: Roster(lives, replicas + 1) for group in groups}
        self.calls: dict[str, dict[str, PeerEdge]] = {
            group: {
                conn: PeerEdge(server + EDGE, self.edges[server][0])
                for conn in PROGRAMS[group].calls
            }
            for group in groups
        }
        self.trackers = {
            group: ProgramTracker(group, is_guarded=guard is Guard.QUORUM) for group in groups
        }
        self.edges_lost = 0
        """How often a life of an edge ended."""
        self.takes_of: Callable[[str, bytes], int] = lambda _conn, data: len(data)
        """How much of what the program wrote a client takes at once."""
        self.wrote_to: Callable[[str, bytes, bytes], None] = lambda _conn, _data, _rest: None
        self.closed_at: Callable[[str], None] = lambda _conn: None
        self.broke_at: Callable[[str], None] = lambda _conn: None
        self.died: Callable[[str], None] = lambda _edge: None
        """Called when a machine with an edge that clients speak with dies."""
        for group in groups:
            for id in names:
                machine = self.machine(id)
                machine.put(ProgramResident(machine, group, self))
        for group in groups:
            for id in self.edges[group]:
                machine = self.machine(id)
                machine.put(EdgeResident(machine, group, self))
                self.replaceable.append(id)

    def record(self, record: Record) -> None:
        """Watch a record."""
        self.trackers[record.group.removesuffix(EDGE)].add(record)
        if self.simulation.trace is not None:
            self.simulation.note(f"{record.group}/{record.member} {describe(record)}")

    def neighbours(self, program: str) -> dict[str, tuple[str, ...]]:
        """Give the edges of the programs that one speaks with."""
        return {group + EDGE: ids for group, ids in self.edges.items() if group != program}

    def edge_died(self, program: str, id: str) -> None:
        """Break all connections of clients that were there."""
        if program == self.front:
            self.died(id)

    # ---- looking

    def edge(self, program: str, id: str = "") -> Edge | None:
        """Give the edge of a program, if it is up; of two the one that began last, or one."""
        found = []
        for each in [id] if id else self.edges[program]:
            resident = self.machines[each].residents[program + EDGE]
            assert isinstance(resident, EdgeResident)
            if resident.engine is not None and is_active(resident.engine):
                found.append(resident.engine)
        return max(found, key=epoch_of, default=None)

    def replicas_of(self, program: str) -> list[ProgramReplica]:
        """Give the replicas of a program that are up."""
        found = []
        for resident in self.residents_of(program):
            assert isinstance(resident, ProgramResident)
            if resident.engine is not None:
                found.append(resident.engine)
        return found

    def is_whole(self, program: str) -> bool:
        """Say whether all replicas are on the roster, with the state, behind one primary."""
        edge, replicas = self.edge(program), self.replicas_of(program)
        if edge is None or len(replicas) < len(self.configurations[program].members):
            return False
        primaries = [each for each in replicas if each.standing is ReplicaStanding.PRIMARY]
        settled = {ReplicaStanding.PRIMARY, ReplicaStanding.BACKUP}
        return (
            len(primaries) == 1
            and primaries[0].current == edge.fence
            and set(edge.roster.whole) == {each.me for each in replicas}
            and all(each.standing in settled for each in replicas)
            and all(each.execution.view == edge.fence for each in replicas)
            and all(each.edge == edge.context.me.id for each in replicas)
        )

    def describe(self) -> str:
        """Say how everybody stands."""
        words = []
        for group in self.configurations:
            edge = self.edge(group)
            words.append(f"{group}: edge " + ("down" if edge is None else f"{edge.log.end}"))
            words += [
                f"{each.me} {each.standing.value} {each.execution.number}/{each.log.end}"
                for each in self.replicas_of(group)
            ]
        return ", ".join(words)


def is_active(edge: Edge) -> bool:
    """Say whether an edge takes clients: a standby does not."""
    return not isinstance(edge, StandbyEdge) or edge.is_active


def epoch_of(edge: Edge) -> int:
    """Give when an edge began."""
    return edge.epoch.view if isinstance(edge, StandbyEdge) else 0
