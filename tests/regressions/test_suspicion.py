"""A peer that is dead, and a failure detector that once did not see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.papers.scenes import whole_group

from coterie.kernel.clock import Duration, milliseconds, seconds

if TYPE_CHECKING:
    from coterie.simulation import Group


def alone_within(group: Group, time: Duration) -> bool:
    return group.simulation.run_until(lambda: group["a"].view == "a", within=time)


@pytest.mark.parametrize("pause", [seconds(5), seconds(60)])
def test_a_peer_that_died_while_we_were_paused_is_suspected_soon(pause: Duration) -> None:
    """The length of a pause was added even to signs of life that were taken after it.

    They then lay in the future, and a dead peer counted as alive for as long as the pause had been.
    """
    group = whole_group("VSYNC", "ab")
    group["a"].pause()
    group.run(milliseconds(300))
    group["b"].crash()
    group.run(pause)
    group["a"].resume()
    assert alone_within(group, seconds(4))


def test_a_process_that_is_always_late_suspects_the_dead() -> None:
    """A late tick forgave all peers their silence; where every tick was late, nobody ever died."""
    group = whole_group("VSYNC", "ab")
    group["a"].slowness = milliseconds(150)
    group.run(seconds(3))
    group["b"].crash()
    assert alone_within(group, seconds(60))


def test_a_partition_teaches_no_patience() -> None:
    """The silence of a partition was learned as an interval between heartbeats.

    The next death was then noticed only after the longest patience there is.
    """
    group = whole_group("VSYNC", "ab")
    group.partition("a", "b")
    group.run(seconds(30))
    group.heal()
    group.run_until_whole()
    group.run(seconds(1))
    group["b"].crash()
    assert alone_within(group, seconds(1))
