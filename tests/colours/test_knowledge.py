"""ComputeKnowledge and IsQuorum, rule by rule (**transis** slides 24, 31, 32)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coterie.colours.knowledge import Judge, Knowledge
from coterie.colours.messages import State
from coterie.kernel.components import ActionId, Component, Vulnerable, Yellow
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId

ABC = ("a", "b", "c")
VIEW, FIRST, SECOND = ViewId(9, "a", 1), ViewId(3, "a", 1), ViewId(5, "b", 1)
START = Component(0, NO_VIEW, ABC)
PRIM = Component(1, FIRST, ABC)
A, B, C, D, E = (Member(id, 1) for id in "abcde")
ATTEMPT = Vulnerable(1, SECOND, ABC, ())


def state(  # noqa: PLR0913 -- all by name
    prim: Component = PRIM,
    *,
    green: int = 0,
    vulnerable: Vulnerable | None = None,
    yellow: Yellow | None = None,
    is_zombie: bool = False,
    start: int = 0,
) -> State:
    return State(VIEW, 0, [], green, [], prim, vulnerable, yellow, is_zombie, 0, start=start)


def together(configuration: tuple[str, ...] = ABC, **states: State) -> Knowledge:
    members = {Member(id, 1): _sees_itself(id, each) for id, each in states.items()}
    return Judge().compute(members, Configuration(1, configuration))


def _sees_itself(id: str, said: State) -> State:
    """A record names its holder, unless the test says whom it names."""
    record = said.vulnerable
    if record is None or record.seen:
        return said
    return replace(said, vulnerable=replace(record, seen=(id,)))


def names(count: int) -> tuple[ActionId, ...]:
    return tuple(ActionId(A, index) for index in range(1, count + 1))


# ---- the last primary component


def test_the_highest_component_is_the_last_one() -> None:
    later = Component(2, SECOND, ("a", "b"))
    assert together(a=state(later), c=state()).prim == later


def test_a_zombie_s_word_for_a_component_is_not_taken() -> None:
    later = Component(2, SECOND, ("a", "b"))
    assert together(a=state(later, is_zombie=True), c=state()).prim == PRIM


def test_a_group_of_zombies_begins_with_nobody_s_component_and_is_no_quorum() -> None:
    known = together(a=state(is_zombie=True), b=state(is_zombie=True))
    assert known.prim == START
    assert not known.is_quorum


# ---- yellow


def test_yellow_is_what_all_who_can_say_so_say() -> None:
    known = together(a=state(yellow=Yellow(0, names(3))), b=state(yellow=Yellow(0, names(2))))
    assert known.yellow == Yellow(0, names(2))


def test_yellow_lists_that_begin_at_different_places_are_compared_by_their_ends() -> None:
    """One has made two green already, so its list is shorter and goes as far."""
    known = together(
        a=state(green=2, yellow=Yellow(2, names(4)[2:])), b=state(yellow=Yellow(0, names(4)))
    )
    assert known.yellow == Yellow(2, names(4)[2:])


def test_who_crashed_in_the_component_cannot_say_what_is_yellow() -> None:
    known = together(a=state(yellow=None), b=state(yellow=Yellow(0, names(2))))
    assert known.yellow == Yellow(0, names(2))
    assert together(a=state(yellow=None), b=state(yellow=None)).yellow is None


def test_who_missed_the_last_component_has_no_say_in_what_is_yellow() -> None:
    known = together(a=state(yellow=Yellow(0, names(2))), b=state(START, yellow=Yellow(0)))
    assert known.yellow == Yellow(0, names(2))


def test_greens_that_run_ahead_of_a_component_leave_nothing_yellow() -> None:
    """An exchange that was cut short can leave a server with greens of a later component."""
    known = together(a=state(green=5, yellow=Yellow(0, names(3))))
    assert known.yellow == Yellow(5)


# ---- who is vulnerable


def test_alpha_a_later_component_makes_an_attempt_void() -> None:
    later = Component(2, ViewId(7, "c", 1), ("b", "c"))
    known = together(a=state(vulnerable=ATTEMPT), c=state(later))
    assert known.records == {}


def test_alpha_not_if_it_is_that_very_attempt() -> None:
    installed = Component(2, SECOND, ABC)
    holds = state(installed, vulnerable=ATTEMPT)
    assert set(together(a=state(vulnerable=ATTEMPT), c=holds).records) == {"a", "c"}


def test_beta_who_was_to_take_part_and_holds_nothing_knows_what_came_of_it() -> None:
    assert together(a=state(vulnerable=ATTEMPT), b=state()).records == {}


def test_beta_not_by_a_zombie() -> None:
    known = together(a=state(vulnerable=ATTEMPT), b=state(is_zombie=True))
    assert set(known.records) == {"a"}
    assert not known.is_quorum


def test_beta_not_by_who_was_not_to_take_part() -> None:
    few = Vulnerable(1, SECOND, ("a", "b"), ())
    assert set(together(a=state(vulnerable=few), c=state()).records) == {"a"}


def test_gamma_all_who_were_to_take_part_are_as_vulnerable() -> None:
    holds = state(vulnerable=ATTEMPT)
    assert together(a=holds, b=holds, c=holds).is_quorum
    assert set(together(a=holds, b=holds).records) == {"a", "b"}


def test_gamma_through_a_chain_of_meetings() -> None:
    holds = state(vulnerable=ATTEMPT)
    met = together(a=holds, b=holds).records["b"]
    assert met.seen == ("a", "b")
    assert together(b=state(vulnerable=met), c=holds).records == {}


def test_gamma_not_by_one_who_may_have_forgotten_what_it_made_green() -> None:
    holds = state(vulnerable=ATTEMPT)
    forgot = state(vulnerable=replace(ATTEMPT, seen=("b",)))
    known = together(a=forgot, b=holds, c=holds)
    assert {record.seen for record in known.records.values()} == {("b", "c")}
    assert together(a=forgot, b=holds, c=state()).records == {}  # c left it alive


def test_a_zombie_s_own_record_counts_for_gamma() -> None:
    holds = state(vulnerable=ATTEMPT)
    assert not together(a=holds, b=holds, c=replace(holds, is_zombie=True)).records


def test_the_record_of_an_outsider_is_not_void_by_itself() -> None:
    """It would free an insider later, while somebody has installed the component.

    Of five, a to c were the last component; c, d and e attempt the next. Nobody knows whether e
    has installed it. If d, who is not of the last component, were freed when it meets a and b, it
    would free c as well, and a, b and c would be a second component of the same number.
    """
    attempt = Vulnerable(1, SECOND, ("c", "d", "e"), ())
    everybody = ("a", "b", "c", "d", "e")
    known = together(everybody, a=state(), b=state(), d=state(vulnerable=attempt))
    assert set(known.records) == {"d"}
    kept = known.records["d"]
    known = together(everybody, c=state(vulnerable=attempt), d=state(vulnerable=kept))
    assert set(known.records) == {"c", "d"}
    assert not known.is_quorum


# ---- quorum


def test_more_than_half_of_the_last_component_may_follow_it() -> None:
    assert together(a=state(), b=state()).is_quorum
    assert not together(a=state()).is_quorum


def test_half_may_follow_with_the_first_member() -> None:
    pair = Component(3, SECOND, ("b", "c"))
    assert together(b=state(pair)).is_quorum
    assert not together(c=state(pair), a=state(pair)).is_quorum


def test_a_majority_of_the_configuration_is_not_needed() -> None:
    """Dynamic: what counts is who was primary last."""
    few = Component(4, SECOND, ("a", "b", "c"))
    everybody = ("a", "b", "c", "d", "e")
    assert together(everybody, a=state(few), b=state(few)).is_quorum
    assert not together(everybody, c=state(few), d=state(few), e=state(few)).is_quorum


def test_who_needs_a_whole_state_is_left_out_if_the_others_are_a_quorum() -> None:
    full, late = state(green=9, start=5), state(green=4)
    assert together(a=full, b=full, c=late).left_out == ["c"]
    # Nobody else is left out, and not who is needed, or was left out in the view before.
    assert together(a=full, b=full, c=state(green=5)).left_out == []
    assert together(a=full, b=late, c=late).left_out == []
    assert together(a=full, b=replace(full, primary_min=3), c=late).left_out == []
    assert together(a=full, b=full, c=replace(late, was_left_out=True)).left_out == []
    # Nor where anybody keeps what it lacks.
    assert together(a=full, b=state(green=9, start=4), c=late).left_out == []


def test_an_operator_s_word_makes_a_majority_a_quorum() -> None:
    word = replace(state(vulnerable=ATTEMPT), is_by_hand=True)
    assert together(a=word, b=state(is_zombie=True)).is_quorum
    assert not together(a=word).is_quorum


def test_a_component_has_as_many_members_as_anybody_asks_for() -> None:
    pair = Component(3, SECOND, ("a", "b"))
    one, two = state(pair), replace(state(pair), primary_min=2)
    assert together(a=one).is_quorum
    assert not together(a=two).is_quorum
    assert not together(c=replace(two, primary_min=3), a=one).is_quorum
    assert together(a=two, c=one).is_quorum
    assert together(("a",), a=replace(state(Component(1, FIRST, ("a",))), primary_min=2)).is_quorum


def test_everybody_may_follow_if_no_component_can_have_been_of_lost_disks_only() -> None:
    """The first of two has lost its disk, and so the tie with it."""
    pair = Component(3, SECOND, ("a", "b"))
    lost = replace(state(is_zombie=True), primary_min=2)
    two = replace(state(pair), primary_min=2)
    assert together(a=lost, b=two, c=replace(state(), primary_min=2)).is_quorum
    assert not together(a=lost, b=two).is_quorum  # c may have gone on with a
    assert not together(a=lost, b=two, c=lost).is_quorum  # they may have been on their own
    assert not together(a=state(is_zombie=True), b=state(pair), c=state()).is_quorum
    held = replace(two, vulnerable=Vulnerable(3, VIEW, ("a", "c"), ()))
    assert not together(a=lost, b=two, c=held).is_quorum  # a may have installed it


@given(
    members=st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True),
    sides=st.lists(st.sampled_from([0, 1]), min_size=7, max_size=7),
)
def test_two_sides_never_both_follow_a_component(members: list[str], sides: list[int]) -> None:
    prim = Component(1, FIRST, tuple(members))
    one = [id for id, side in zip("abcdefg", sides, strict=True) if side]
    other = [id for id, side in zip("abcdefg", sides, strict=True) if not side]
    assert Judge().is_quorum(prim, one) != Judge().is_quorum(prim, other)


# ---- orders that differ


def test_who_made_other_actions_green_than_most_is_named_and_makes_no_component() -> None:
    most, other = state(green=2), state(green=2)
    known = together(a=replace(most, mark=7), b=replace(most, mark=7), c=replace(other, mark=8))
    assert known.strays == ["c"]
    assert not known.is_quorum
    by_hand = replace(most, mark=7, is_by_hand=True)
    assert not together(a=by_hand, b=replace(most, mark=7), c=replace(other, mark=8)).is_quorum


def test_who_has_fewer_green_actions_is_no_stray() -> None:
    known = together(a=replace(state(green=2), mark=7), b=replace(state(green=1), mark=8))
    assert known.strays == []
    assert known.is_quorum
