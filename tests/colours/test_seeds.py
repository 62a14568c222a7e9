"""Runs in which something was found once, by their seeds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.colours.stories import STACKS

from coterie.journal.format import Sync
from coterie.simulation import RunOptions, seconds
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.colours.trial import ColoursTrial
from coterie.simulation.faults import ALL_FAULTS, CHANGES
from coterie.simulation.parallel import run_many

DYNSEQ, TOKEN = STACKS


@dataclass(frozen=True)
class Found:
    """What a seed showed; where `primary_min` is 0, the seed draws it."""

    what: str
    seed: int
    duration: int
    stack: str = DYNSEQ
    replicas: int = 3
    primary_min: int = 1
    sync: Sync = Sync.TURN
    object: str = ""
    members_change: bool = False
    past_lives: tuple[int, ...] = (64,)
    """Of which number of lives that are over a seed draws; older ones ran without."""


FOUND = (
    Found(
        "a learner asked as red for what was green by then",
        *(20210001, 20),
        replicas=5,
        object="dictionary",
        primary_min=0,
        members_change=True,
    ),
    Found(
        "who became a member as a view ended did not count in the next",
        *(20320017, 20),
        stack=TOKEN,
        replicas=4,
        object="dictionary",
        primary_min=0,
        members_change=True,
        past_lives=ColoursTrial.past_lives,
    ),
    Found(
        "a change of members was on a disk, and its sync failed before anybody was told",
        *(20400040, 20),
        object="dictionary",
        primary_min=0,
        members_change=True,
        past_lives=ColoursTrial.past_lives,
    ),
    Found(
        "members left until there was one, which is a primary component",
        *(20400069, 20),
        object="dictionary",
        primary_min=0,
        members_change=True,
        past_lives=ColoursTrial.past_lives,
    ),
    Found("a process died as its installation was written", 14140003, 18),
    Found(
        "the only member died as its attempt and its installation were written",
        *(43030013, 20),
        replicas=4,
        object="tally",
        primary_min=0,
        past_lives=ColoursTrial.past_lives,
    ),
    Found(
        "group time went by how commands were cut into runs",
        *(16410700, 20),
        object="dictionary",
        primary_min=0,
    ),
    Found(
        "the turn behind a snapshot went bad",
        *(16410585, 20),
        replicas=4,
        object="dictionary",
        primary_min=0,
    ),
    Found(
        "the head of a life without records went bad",
        *(16410283, 20),
        object="dictionary",
        primary_min=0,
    ),
)


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.what.replace(" ", "-"))
def test_what_was_found_stays_cured(found: Found) -> None:
    options = RunOptions(
        stack=found.stack,
        replicas=found.replicas,
        duration=seconds(found.duration),
        sync=found.sync,
        object=found.object,
        faults=(*ALL_FAULTS, *(CHANGES if found.members_change else ())),
    )

    class Trial(ColoursTrial):
        least_sizes = (found.primary_min,) if found.primary_min else ColoursTrial.least_sizes
        past_lives = found.past_lives

    assert run_trial(Trial(found.seed, options)).violations == []


def failures(stack: str, replicas: int, seeds: range, duration: int, *more: str) -> str:
    """Say what random runs with all faults violate, and how each is run again."""
    options = RunOptions(
        stack=stack,
        replicas=replicas,
        duration=seconds(duration),
        object="tally" if replicas == 4 else "dictionary",
        faults=(*ALL_FAULTS, *more),
    )
    return "\n".join(
        f"{run.violations[0]}\n  coterie sim --stack {stack} --replicas {replicas} --object "
        f"{options.object} --seed {run.seed} --duration {duration} "
        f"--faults {','.join(('all', *more))} --trace"
        for run in run_many(seeds, options, jobs=1)
        if run.violations
    )


@pytest.mark.slow  # half a minute of simulated time
@pytest.mark.parametrize("stack", STACKS)
def test_members_change_in_the_middle_of_everything(stack: str) -> None:
    assert not failures(stack, 3, range(20210000, 20210002), 15, *CHANGES)


@pytest.mark.long
@pytest.mark.parametrize("replicas", [3, 4, 5])
@pytest.mark.parametrize("stack", STACKS)
def test_a_sample_of_the_campaigns(stack: str, replicas: int) -> None:
    assert not failures(stack, replicas, range(20210000, 20210002), 60)
    assert not failures(stack, replicas, range(20210000, 20210003), 20, *CHANGES)
