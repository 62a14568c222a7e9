"""Hostile disks of programs: journals of a replica and an edge with something wrong inside.

Each starts with what it finds, or says in a sentence why it does not. No turn may raise.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.files import Files, wrong_file, wrong_segment, wrong_snapshot, wrong_stable
from tests.fuzz.memory_disk import MemoryDisk
from tests.fuzz.tally import Tally

from coterie.assembly import make_context, make_process
from coterie.journal.engines.llft import LLFT
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.errors import CoterieError
from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.kernel.views import Configuration
from coterie.llft.connections import EDGE
from coterie.llft.edge import Edge
from coterie.llft.memory import EdgeMemory, ReplicaMemory
from coterie.llft.replica import ProgramReplica
from coterie.simulation.engines.llft.programs import PROGRAMS
from coterie.simulation.engines.llft.trial import ProgramOptions, ProgramTrial
from coterie.simulation.world.settings import SIMULATED_SETTINGS

if TYPE_CHECKING:
    from coterie.simulation.engines.llft.world import ProgramWorld

PROGRAM, REPLICA, GATEWAY = "counter", "a", "y"
OF_EDGE = PROGRAM + EDGE
START_EVERY = 8
"""All disks are read back; on every so many of them a replica or an edge starts."""


class _Outside:
    def wrote(self, conn: str, data: bytes) -> int:
        del conn
        return len(data)

    def broke(self, conn: str) -> None:
        pass

    closed = broke

    def told(self, order: object) -> None:
        pass


@cache
def _lived() -> tuple[ProgramWorld, Files]:
    """Give a world that has lived for a while, and the files of its edge and of one replica."""
    trial = ProgramTrial(1, ProgramOptions(program=PROGRAM, faults=()))
    world, clients = trial.world, trial.load()
    clients.start()
    for _ in range(2):
        world.simulation.run(seconds(3))
        for id in (REPLICA, GATEWAY):
            world.machines[id].restart()
    world.simulation.run(seconds(6))
    files: Files = {}
    for id in (REPLICA, GATEWAY):
        disk = world.machines[id].disk
        files |= {path: disk.read(path, 0, disk.size(path)) for path in disk.paths}
    return world, files


def fuzz(seed: int, inputs: int) -> Tally:
    """Have replicas and edges start with journals and snapshots that are wrong inside."""
    random = Random(f"{seed}/program disks")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    world, files = _lived()
    paths = sorted(files)
    for number in range(inputs):
        path = random.choice(paths)
        wrong = wrong_file(files, path, random, _change)
        tally.inputs += 1
        tally.outcomes[_start(world, wrong, path, goes_far=number % START_EVERY == 0)] += 1
    return tally


def _change(data: bytes, random: Random) -> bytes:
    if data.startswith(b"COTJRNL"):
        return wrong_segment(data, random)
    return (
        wrong_snapshot(data, random) if data.startswith(b"COTSNAP") else wrong_stable(data, random)
    )


def _start(world: ProgramWorld, files: Files, path: str, *, goes_far: bool) -> str:
    group, id = (PROGRAM, REPLICA) if path.startswith(f"{PROGRAM}/") else (OF_EDGE, GATEWAY)
    disk = MemoryDisk(files)
    try:
        found = LLFT.recover(disk, group, id)
        kind = EdgeMemory if group == OF_EDGE else ReplicaMemory
        memory = kind.recall(found.chunks(), found.records)
    except CoterieError:
        return "refused"
    if not goes_far:
        return "read, and found something" if found.findings else "read"
    everybody = (*world.configurations[PROGRAM].members, GATEWAY)
    process = make_process(id, found.incarnation, everybody, SIMULATED_SETTINGS)
    configuration = world.configurations[PROGRAM] if group == PROGRAM else Configuration(1, (id,))
    context = make_context(process, group, configuration, random=Random(1))  # noqa: S311
    engine: ProgramReplica | Edge
    try:
        if isinstance(memory, ReplicaMemory):
            engine = ProgramReplica(
                context,
                edge=GATEWAY,
                roster=world.rosters[PROGRAM],
                make_program=PROGRAMS[PROGRAM],
                memory=memory,
                settings=world.llft,
            )
        else:
            engine = Edge(
                context,
                program=PROGRAM,
                replicas=world.configurations[PROGRAM].members,
                roster=world.rosters[PROGRAM],
                memory=memory,
                outside=_Outside(),
                calls={},
                settings=world.llft,
            )
    except CoterieError:
        return "refused"
    process.host(Replica(context, Layer(context), [engine], engine))
    now = 10**9
    for _ in range(4):
        process.turn(now, [], [])
        now += milliseconds(200)
    return "started"
