"""Hostile peers and clients of cohorts: frames with something wrong inside, while a bank works.

Whatever is sent, no turn may raise, and when it has stopped all groups become whole again.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from tests.fuzz.peers import CHANGE_EVERY, PAUSES, wrong
from tests.fuzz.tally import Tally

from coterie.kernel.clock import milliseconds, seconds
from coterie.simulation.engines.vsr.trial import TransactionOptions, TransactionTrial

CLIENTS = frozenset("xyz")
INPUTS_A_RUN = 500


def fuzz(
    seed: int, inputs: int = INPUTS_A_RUN, *, of_clients: bool, has_changes: bool = False
) -> None:
    """Give two groups wrong frames of clients or of each other."""
    random = Random(f"{seed}/hostile")  # noqa: S311 -- reproducible on purpose
    trial = TransactionTrial(seed, TransactionOptions(groups=2))
    world, simulation = trial.world, trial.world.simulation
    seen: deque[tuple[str, bytes]] = deque(maxlen=300)
    note_frame = simulation.note_frame

    def keep(source: str, destination: str, frame: bytes) -> None:
        if (source in CLIENTS) is of_clients and destination not in CLIENTS:
            seen.append((destination, frame))
        note_frame(source, destination, frame)

    simulation.note_frame = keep  # type: ignore[method-assign]
    world.start()
    world.run_until_whole()
    load = trial.load()
    load.start()
    simulation.run(seconds(2))
    for number in range(inputs):
        if has_changes and number % CHANGE_EVERY == 0:
            random.choice((world.join, world.dismiss))(random)
        destination, frame = random.choice(seen)
        world.machines[destination].take(wrong(frame, random))
        simulation.run(milliseconds(random.choice(PAUSES)))
    load.stop()
    assert simulation.run_until(world.are_whole, within=seconds(60)), (
        f"after {inputs} wrong frames: {world.describe()}; seed {seed}"
    )


def run(seed: int, inputs: int) -> Tally:
    """Fuzz what peers say or what clients say, by turns, and by turns while members change."""
    of_clients, has_changes = bool(seed % 2), bool(seed // 2 % 2)
    fuzz(seed, inputs, of_clients=of_clients, has_changes=has_changes)
    who = "of clients" if of_clients else "of peers"
    return Tally(inputs, Counter({who + (", members change" if has_changes else ""): inputs}))
