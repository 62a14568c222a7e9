"""Real groups whose messages are changed on their way: no turn may end in an exception.

Nothing is asked of what the groups deliver meanwhile; lying peers are outside of the fault model.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest
from tests.kernel.puppet import TooLong, time_limit
from tests.kernel.tampering import Tampering
from tests.seeded import seeded

from coterie.kernel.clock import milliseconds
from coterie.simulation import Simulation
from coterie.stacks import STACKS

if TYPE_CHECKING:
    from coterie.simulation import Group

SEEDS = 15

# What the tests named test_bug_... in this folder show one by one. Each of them fails when its bug
# is mended; then its line has to go from here as well, or the fuzzer stays blind for it.
KNOWN = {
    ("TooLong", "time_limit"),
    ("OverflowError", "process.send"),
    ("OverflowError", "token._pass_to"),
    ("OverflowError", "token._send_backlog"),
    ("IndexError", "change._fetch"),
    ("IndexError", "dynseq.next_in_order"),
    ("IndexError", "vsync.install"),
    ("IndexError", "vsync.repair"),
    ("IndexError", "views.came_along"),
    ("MemoryError", "dynseq.deliver"),
    ("ValueError", "views.came_along"),
    ("ValueError", "views.rank"),
    ("ValueError", "change._decide_cuts"),
    ("ValueError", "change._install_if_ready"),
    ("AssertionError", "change.on_install"),
    ("AssertionError", "token.deliver"),
}


def place_of(error: BaseException) -> tuple[str, str]:
    """The kind of an error and the named function of ours in which it was raised."""
    if isinstance(error, TooLong):
        return ("TooLong", "time_limit")
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "coterie" in PurePath(frame.filename).parts and not frame.name.startswith("<")
    ]
    return (type(error).__name__, f"{PurePath(ours[-1].filename).stem}.{ours[-1].name}")


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


@pytest.mark.parametrize("stack", STACKS)
def test_changed_messages_stop_no_process(stack: str) -> None:
    counters: dict[str, int] = {}
    whole_runs = changed = 0
    for seed in range(SEEDS):
        try:
            group, network = run(stack, seed)
        except Exception as error:
            if place_of(error) not in KNOWN:
                error.add_note(f"run({stack!r}, {seed}) raises it: {place_of(error)}")
                raise
            continue
        whole_runs += 1
        changed += network.changed
        for host in group:
            assert host.process is not None
            assert host.replica is not None
            for counts in (host.process.counters, host.replica.context.counters):
                for name, count in counts.items():
                    counters[name] = counters.get(name, 0) + count
    assert whole_runs > SEEDS / 4
    assert changed > 100
    assert counters["process.messages_malformed"] > 10
    assert counters["vsync.of_another_view"] > 0
