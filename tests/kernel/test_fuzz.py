"""Real groups whose messages are changed on their way: no turn may end in an exception.

Nothing is asked of what the groups deliver meanwhile; lying peers are outside of the fault model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kernel.puppet import time_limit
from tests.kernel.tampering import Tampering
from tests.seeded import seeded

from coterie.kernel.clock import milliseconds
from coterie.simulation import Simulation
from coterie.stacks import STACKS

if TYPE_CHECKING:
    from coterie.simulation import Group


def run(stack: str, seed: int) -> tuple[Group, Tampering]:
    """One short life of a group with partitions, losses, restarts and changed messages."""
    random = seeded(stack, seed)
    simulation = Simulation(seed=seed, stack=stack)
    network = Tampering(random, share=random.choice([0.005, 0.02, 0.1]))
    simulation.network = network
    group = simulation.group(*"abcd")
    for step in range(12):
        for host in group:
            for _ in range(random.randrange(4)):
                if simulation.has_engine:
                    host.propose(b"%d" % step)
                else:
                    host.cast(b"%d" % step, safe=random.random() < 0.4)
        match random.randrange(8):
            case 0:
                group.partition("ab", "cd")
            case 1:
                group.heal()
            case 2:
                network.loss = 0.1
            case 3 if random.random() < 0.5:
                group[random.choice("abcd")].restart()
        with time_limit(0.25):
            group.run(milliseconds(random.choice([5, 50, 300])))
    return group, network


@pytest.mark.parametrize(
    ("stack", "seeds"),
    [*((stack, 15) for stack in STACKS), ("SAFE:DYNSEQ:PVSYNC", 8), ("SAFE:TOKEN:PVSYNC", 8)],
)
def test_changed_messages_stop_no_process(stack: str, seeds: int) -> None:
    counters: dict[str, int] = {}
    changed = 0
    for seed in range(seeds):
        try:
            group, network = run(stack, seed)
        except Exception as error:
            error.add_note(f"run({stack!r}, {seed}) raises it")
            raise
        changed += network.changed
        for host in group:
            assert host.process is not None
            assert host.replica is not None
            for counts in (host.process.counters, host.replica.context.counters):
                for name, count in counts.items():
                    counters[name] = counters.get(name, 0) + count
    assert changed > 100
    assert counters["process.messages_malformed"] > 10
    assert counters["vsync.of_another_view"] > 0
