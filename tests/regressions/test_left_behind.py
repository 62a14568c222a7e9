"""Networks in which not everyone hears everyone: the group comes to rest, and nobody is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.papers.scenes import until
from tests.regressions.wire_tap import propose_view, vsync_of
from tests.simulation.scripted import scripted_group

from coterie.kernel.clock import milliseconds, seconds
from coterie.membership.messages import Install
from coterie.simulation import Simulation

if TYPE_CHECKING:
    from coterie.simulation import Group


def views_installed(group: Group) -> int:
    return sum(len(life.eras) for life in group.history.lives.values())


def nobody_is_left_behind(group: Group) -> bool:
    """Say whether all members of everyone's view are in that view."""
    return all(
        vsync_of(group, member.id).current.id == current.id
        for current in (vsync_of(group, host.id).current for host in group)
        for member in current.members
    )


@pytest.mark.parametrize("deaf", ["bc", "ac"])
def test_a_group_in_which_two_do_not_hear_each_other_comes_to_rest(deaf: str) -> None:
    """A merge request of one that could not be taken in made the contact install its view anew.

    That happened with every request, about twice a second, for as long as the network stayed so.
    """
    group = Simulation(seed=3, stack="DYNSEQ:VSYNC").group("a", "b", "c")
    group.partition(*deaf)
    group.run(seconds(10))
    before = views_installed(group)
    group.run(seconds(20))
    assert views_installed(group) - before < 6
    group.check()


def test_a_member_that_does_not_hear_the_new_contact_learns_that_the_view_went_on() -> None:
    """Only contacts told where their view was.

    A member that did not hear the contact of the next view stayed in the old one for ever, with
    members that it heard well and that had long gone on.
    """
    group = Simulation(seed=5, stack="DYNSEQ:VSYNC").group(*"bcdef")
    group.partition("bc", "def")
    group.run(seconds(5))
    group.heal()
    group.partition("c", "def")
    group.run(seconds(20))
    until(group, lambda: nobody_is_left_behind(group), "nobody is left behind")
    group.check()


def test_a_contact_learns_that_its_member_has_gone_on_with_another() -> None:
    """Who heard from a contact that was behind answered only if it was a contact itself.

    So a contact whose member had gone over to another view was never told.
    """
    group = Simulation(seed=5, stack="DYNSEQ:VSYNC").group(*"bcd")
    group.partition("bc", "d")
    group.run(seconds(5))
    assert vsync_of(group, "c").current.members[0].id == "b"
    group.heal()
    group.partition("b", "d")
    group.run(milliseconds(500))
    propose_view(group, "d", "dc")
    group.run(seconds(20))
    until(group, lambda: nobody_is_left_behind(group), "nobody is left behind")
    group.check()


def test_who_is_about_to_install_a_view_does_not_answer_that_it_is_behind() -> None:
    """Two members answered each other's Alive for ever, faster with every doubled frame.

    One had installed a view, the other was about to; each took the other for left behind.
    """
    group, network = scripted_group("VSYNC", "ab")
    network.lose(lambda _, __, message: isinstance(message, Install))
    group["a"].suspect("b")
    group.run(seconds(2))
    assert network.frames < 1_000
