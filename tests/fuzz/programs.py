"""Hostile peers of a program: wrong frames among the replicas and the edge that lead and follow it.

Whatever is sent, no turn may raise, and nobody's work may be without bound. What the group does
then is not looked at: an edge believes who leads, and orders that were made up in well-formed words
stay (`docs/use/guarantees.md`).
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.peers import PAUSES, wrong
from tests.fuzz.tally import Tally

from coterie.kernel.clock import milliseconds, seconds
from coterie.simulation.engines.llft.trial import ProgramOptions, ProgramTrial

if TYPE_CHECKING:
    from coterie.simulation.engines.llft.world import ProgramWorld

VARIANTS = (
    ProgramOptions(program="counter"),
    ProgramOptions(program="relay"),
    ProgramOptions(program="timers"),
    ProgramOptions(program="counter", guard="none"),
    ProgramOptions(program="relay", standby="yes"),
    ProgramOptions(program="pages", backups="logged"),
)


LOSE_EVERY = 100
"""Where edges have standbys, one dies after so many, for longer than another waits for it."""


def lose_an_edge(world: ProgramWorld, random: Random) -> None:
    """Have all machines of edges run but one."""
    edges = [id for ids in world.edges.values() for id in ids]
    for id in edges:
        if not world.machines[id].is_up:
            world.machines[id].start()
    world.machines[random.choice(edges)].kill()


def fuzz(options: ProgramOptions, seed: int, inputs: int) -> str:
    """Give the replicas and edges of a program wrong frames; say in a word how it ended."""
    random = Random(f"{seed}/programs")  # noqa: S311 -- reproducible on purpose
    trial = ProgramTrial(seed, options)
    world, simulation = trial.world, trial.world.simulation
    seen: deque[tuple[str, bytes]] = deque(maxlen=300)
    note_frame = simulation.note_frame

    def keep(source: str, destination: str, frame: bytes) -> None:
        seen.append((destination, frame))
        note_frame(source, destination, frame)

    simulation.note_frame = keep  # type: ignore[method-assign]
    trial.load().start()
    simulation.run(seconds(1))
    for number in range(inputs):
        if options.standby == "yes" and number % LOSE_EVERY == 0:
            lose_an_edge(world, random)
        destination, frame = random.choice(seen)
        world.machines[destination].take(wrong(frame, random))
        simulation.run(milliseconds(random.choice(PAUSES)))
    world.mend()
    is_over = simulation.run_until(lambda: _are_whole(world), within=seconds(10))
    return "whole" if is_over else "apart"


def _are_whole(world: ProgramWorld) -> bool:
    return all(map(world.is_whole, world.configurations))


def run(seed: int, inputs: int) -> Tally:
    """Fuzz the program that is the seed's turn."""
    return Tally(inputs, Counter({fuzz(VARIANTS[seed % len(VARIANTS)], seed, inputs): inputs}))
