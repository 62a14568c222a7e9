"""Journals for the pipeline's tests: written by simulated runs, copied to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from msgspec.structs import replace

from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.layers import Layer
from coterie.pipeline.history.replay import Program
from coterie.simulation import Group, Simulation
from coterie.simulation.engines.stack.clients import SETTINGS
from coterie.simulation.faults import Nemesis
from coterie.simulation.world.disk import SimulatedDisk
from coterie.simulation.world.settings import SIMULATED_SETTINGS
from coterie.stacks import LAYERS

OPTIMISTIC = "DYNSEQ:PVSYNC"
SAFE = "SAFE:DYNSEQ:PVSYNC"

COUNTER = Program(name="coterie.ready:Counter", settings=SETTINGS)
"""What a simulated counter runs."""

KEEPS_ALL = KeeperSettings(
    journal=JournalSettings(segment_bytes=15_000),
    retention=Retention(journal_bytes_max=1 << 40),
    snapshot_bytes=1 << 40,
)


def copy(disk: SimulatedDisk, folder: Path) -> None:
    """Write the files of a simulated disk into a folder."""
    for path, inode in disk._files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes(inode.data))


def copy_group(group: Group, folder: Path) -> None:
    for host in group.hosts.values():
        copy(host.disk, folder)


def make_group(  # noqa: PLR0913 -- what a run is made of
    *,
    seed: int = 1,
    stack: str = SAFE,
    names: str = "abc",
    keeper: KeeperSettings = KEEPS_ALL,
    layers: Mapping[str, type[Layer]] = LAYERS,
    has_object: bool = False,
    history_bytes: int = 1 << 20,
    name: str = "group",
) -> Group:
    simulation = Simulation(
        seed=seed,
        stack=stack,
        settings=replace(SIMULATED_SETTINGS, history_bytes=history_bytes),
        layers=layers,
        journal=keeper,
        has_object=has_object,
    )
    return simulation.group(*names, name=name)


def storm(
    group: Group,
    *,
    duration: Duration = seconds(10),
    faults: tuple[str, ...] = ("partition", "crash"),
    heals: bool = True,
) -> None:
    """Let replicas propose (or clients call) while things fail, then heal."""
    simulation = group.simulation
    random = Random(f"{simulation.seed}/storm")  # noqa: S311
    nemesis = Nemesis(group, random, faults)
    is_active = True

    def propose(id: str, serial: int) -> None:
        if is_active:
            count = random.choice([1, 1, 3, 9])
            group[id].propose(*(b"%s/%d/%d" % (id.encode(), serial, n) for n in range(count)))
            simulation.at(int(random.expovariate(1 / milliseconds(100))), propose, id, serial + 1)

    if simulation.has_object:
        group.clients.start(4)
    else:
        for id in group.hosts:
            propose(id, 0)
    nemesis.start()
    simulation.run(duration)
    is_active = False
    group.clients.stop()
    nemesis.stop()
    if heals:
        group.heal()
        for host in group.hosts.values():
            host.slowness = 0
            host.set_drift(1.0)
            host.resume()
            host.start()
        group.run_until_whole(within=seconds(30))
        group.run(seconds(2))
