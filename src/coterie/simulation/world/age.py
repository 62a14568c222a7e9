"""Ages: what runs begin with that start old.

Some things only age brings: counters near the limits of a format, histories that were trimmed many
times, hundreds of lives and views, sessions that are evicted. To wait for them takes years, so a
run can begin with what such years leave: journals, snapshots and stable values are on the disks
before the first life. What they hold is an *age*, drawn from the seed.

Each counter stands, on its own, a little below one of the limits that numbers meet in formats,
shifts and other people's tables, so that most runs cross some of them. None begins above what a
journal may lead to (`coterie.journal.life`).
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from coterie.journal.life import NUMBER_MAX

LIMITS = (1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 53, NUMBER_MAX - (1 << 20))
"""Where numbers have been known to break; the last is below the end of all numbers."""

VIEW_LIMITS = (1 << 8, 1 << 16, 1 << 24, 1 << 31)
"""The same for views: a replica on an empty disk takes no number above 2³² for that of a view
(`coterie.membership.vsync`), and no group has had so many."""

LIVES = 200
"""Of so many of its earlier lives a replica has entries that are remembered."""
VIEWS = 300
"""So many views an old history goes back."""


class Age(NamedTuple):
    """How far everything has been counted when a run begins."""

    lives: int
    """How often every machine has been started."""
    view: int
    """The number of the last view."""
    position: int
    """How many entries the history has."""
    number: int
    """How many requests, entries or events one of those who count them has had."""


def draw_age(seed: int) -> Age:
    """Draw an age: it depends on the seed, and nothing else that is drawn depends on it."""
    random = Random(f"{seed}/age")  # noqa: S311 -- reproducible on purpose
    return Age(
        lives=random.choice(LIMITS) - random.randrange(1, 8),
        view=random.choice(VIEW_LIMITS) - random.randrange(1, 40),
        position=random.choice(LIMITS) - random.randrange(1, 200),
        number=random.choice(LIMITS) - random.randrange(1, 40),
    )
