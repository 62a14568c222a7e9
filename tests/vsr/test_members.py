"""The members of a group of cohorts change while it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.broken.cohort_member_variants import ManagersOwnCounts
from tests.vsr.bank_world import EU, BankWorld, is_committed
from tests.vsr.chain import Chain, ChainWorld, run_chain

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.errors import Refused, ReplicaBroken
from coterie.kernel.views import Configuration, Viewstamp
from coterie.simulation.engines.vsr.world import COHORT_FAULTS
from coterie.simulation.faults import CHANGES
from coterie.vsr import Cohort
from coterie.vsr.views.formation import Response, winning_configuration
from coterie.vsr.views.messages import NewView

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = "chain"


def whole(names: str = "abc", **options: object) -> ChainWorld:
    world = ChainWorld(names, **options)  # type: ignore[arg-type]
    world.run_until_whole()
    return world


def leader(world: ChainWorld) -> Cohort:
    found = world.primary(GROUP)
    assert found is not None, world.describe()
    return found


def at_primary(world: ChainWorld, what: Callable[[Cohort], None]) -> str:
    """Have something done at the primary; give why it refused, if it did."""
    said: list[str] = []

    def do() -> None:
        try:
            what(cohort)
        except Refused as refusal:
            said.append(str(refusal))

    cohort = leader(world)
    world.machines[cohort.me.id].call(do)
    world.run(milliseconds(1))
    return "".join(said)


def settled(world: ChainWorld) -> Configuration:
    return world.changing_group(GROUP).operator.configuration


def add(world: ChainWorld, id: str) -> None:
    world.put_newcomer(id, GROUP, Configuration(0, settled(world).members))
    assert not at_primary(world, lambda cohort: cohort.admit(id))

    def is_member() -> bool:
        now = settled(world)
        return id in now.members and not now.before

    assert world.run_until(is_member, within=seconds(5)), world.describe()


def remove(world: ChainWorld, id: str, *, within: Duration = milliseconds(5000)) -> None:
    assert not at_primary(world, lambda cohort: cohort.dismiss(id))
    assert world.run_until(lambda: id in settled(world).gone, within=within), world.describe()


def test_one_becomes_three_and_five_and_three_and_one_and_nothing_is_lost() -> None:
    world = whole("a")
    world.tell(b"one")
    for id in "bcde":
        add(world, id)
        world.tell(b"with " + id.encode())
    assert settled(world).members == ("a", "b", "c", "d", "e")
    world.run_until_whole()
    for id in "bdea":
        remove(world, id)
        world.run(milliseconds(200))
        world.tell(b"without " + id.encode())
        world.run(milliseconds(50))
        assert world.machines[id].is_retired
    assert settled(world).members == ("c",)
    world.run_until_whole()
    module = leader(world).module
    assert isinstance(module, Chain)
    assert module.count == 9, "what was told, and no change of members"
    world.check()


def test_a_primary_that_is_removed_hands_over_within_a_tenth_of_a_second() -> None:
    world = whole()
    world.tell(b"one")
    world.run(milliseconds(20))
    view = world["a"].cur_viewid
    remove(world, "a", within=milliseconds(100))
    assert leader(world).me.id == "b"
    assert leader(world).cur_viewid > view
    world.tell(b"two")
    world.run(milliseconds(50))
    assert world["b"].log.last == world["c"].log.last
    assert world.machines["a"].is_retired
    world.check()


def test_a_backup_is_removed_without_a_view_change() -> None:
    world = whole()
    remove(world, "c")
    world.run(seconds(1))
    assert world.tracker.views == 1
    assert leader(world).cur_view.members == (world["a"].me, world["b"].me)


def test_a_newcomer_counts_for_nothing_until_it_is_a_member() -> None:
    world = whole()
    world.put_newcomer("n", GROUP, Configuration(0, ("a", "b", "c")))
    world.run(seconds(3))
    assert world["n"].members.is_blank
    world.partition("an", "bc")
    world.run(seconds(3))
    assert leader(world).me.id in "bc"
    assert not world["a"].is_serving


def test_one_that_was_away_when_it_was_removed_finds_out() -> None:
    world = whole("abcd")
    world.machines["d"].kill()
    world.run(milliseconds(500))
    remove(world, "d")
    world.machines["d"].start()
    assert world.run_until(lambda: world.machines["d"].is_retired, within=seconds(5))


def test_one_that_was_away_while_all_others_were_replaced_finds_them() -> None:
    world = whole("ab")
    add(world, "c")
    world.tell(b"one")
    world.machines["c"].kill()
    for id in "de":
        add(world, id)
    world.run_until(lambda: leader(world).forced >= 0, within=seconds(1))
    for id in "ab":
        world.machines["c"].start()
        world.run_until_whole()
        remove(world, id)
        world.machines["c"].kill()
        world.run(milliseconds(500))
    world.tell(b"two")
    world.run(seconds(1))
    world.machines["c"].start()
    world.run_until_whole()
    assert settled(world).members == ("c", "d", "e")
    world.check()


def test_a_member_that_lost_its_disk_is_replaced_under_another_name() -> None:
    world = whole()
    world.tell(b"one")
    world.run(milliseconds(20))
    world.machines["c"].retire()
    add(world, "n")
    remove(world, "c")
    world.run_until_whole()
    assert settled(world).members == ("a", "b", "n")
    assert settled(world).gone == ("c",)


def test_an_empty_disk_under_a_members_name_is_not_counted() -> None:
    world = whole()
    add(world, "n")
    now = leader(world).members.counted
    world.put_newcomer("m", GROUP, Configuration(0, ("a", "b", "c")))
    blank = world["m"]
    blank.me = world["n"].me  # as if this were its disk
    view = leader(world).cur_view
    with pytest.raises(ReplicaBroken, match="replace it by a replica with a new id"):
        blank._on_new_view(view.primary, NewView(view, (Viewstamp(view.id, 0),), 0, None, now))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (lambda cohort: cohort.admit("b"), "b belongs to the group already"),
        (lambda cohort: cohort.dismiss("x"), "x does not belong to the group; it has a, b, c"),
        (lambda cohort: cohort.admit("d") or cohort.admit("e"), "the members are being changed"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    what: Callable[[Cohort], None], says: str
) -> None:
    assert says in at_primary(whole(), what)


def test_the_last_member_and_a_majority_stay() -> None:
    assert "a is the last member" in at_primary(whole("a"), lambda cohort: cohort.dismiss("a"))
    world = whole()
    world.machines["b"].kill()
    world.run(milliseconds(600))
    said = at_primary(world, lambda cohort: cohort.dismiss("c"))
    assert said.startswith("without c the group would have no majority: b not in touch")


def test_who_was_removed_does_not_come_back() -> None:
    world = whole()
    remove(world, "c")
    said = at_primary(world, lambda cohort: cohort.admit("c"))
    assert "c was removed from the group, and ids are never used again" in said


def test_a_change_goes_on_when_its_primary_dies() -> None:
    for after in range(0, 4000, 250):
        world = whole()
        id = world.changing_group(GROUP).operator.join()
        until_asked(world)
        world.run(Duration(after))
        world.machines["a"].kill()
        world.run(seconds(2))
        world.machines["a"].start()
        world.run_until_whole()
        assert settled(world).members == ("a", "b", "c", id)
        world.check()


def until_asked(world: ChainWorld) -> None:
    """Let time pass until the primary has begun to change the members."""
    assert world.run_until(lambda: world["a"].members.now.number > 1, within=seconds(2))


def test_a_learner_that_leads_makes_itself_a_member() -> None:
    """It leads where it knows most of those who are left, and waited for its own word for ever."""
    world = whole()
    world.put_newcomer("n", GROUP, Configuration(0, ("a", "b", "c")))
    world.run(seconds(1))
    world["a"].members.look_for_a_step = lambda: None  # type: ignore[method-assign]
    assert not at_primary(world, lambda cohort: cohort.admit("n"))
    world.run(seconds(1))
    assert settled(world).learners == ("n",)
    assert not at_primary(world, lambda cohort: cohort.manage(successor="n"))
    assert world.run_until(lambda: world["n"].is_primary, within=seconds(1)), world.describe()
    assert world.run_until(lambda: "n" in settled(world).members, within=seconds(1))
    assert leader(world).me.id == "n"
    world.run_until_whole()
    world.check()


def test_a_view_says_who_counts_before_that_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a member's empty disk would be counted in a view in which nothing is forced yet."""
    world = whole()
    add(world, "n")
    cohort = leader(world)
    assert cohort.buffer is not None
    cohort.members.settled = Configuration(1, ("a", "b", "c"))
    told: list[object] = []
    monkeypatch.setattr(cohort.context, "send", lambda _ids, message: told.append(message))
    cohort.buffer._announce(["n"])
    [message] = told
    assert isinstance(message, NewView)
    assert message.configuration is None
    assert message.counted == ("a", "b", "c", "n")


def test_one_that_starts_again_can_say_who_belongs_to_a_group_in_which_nothing_happens() -> None:
    """Seed 21150009 of two banks: a client knew nobody else, and was told of a stranger."""
    world = whole()
    add(world, "n")
    world.run(seconds(1))
    world.machines["c"].kill()
    world.run(seconds(1))
    world.machines["c"].start()
    world.run_until_whole()
    world.run(seconds(1))
    assert world["c"].members.told() == settled(world)


def one_that_was_away_meets_a_part(kind: type[Cohort] = Cohort) -> ChainWorld:
    """Two of the first three, of whom one has been away, are no majority of the five by now."""
    world = whole(kind=kind)
    world.machines["c"].kill()
    world.run(milliseconds(500))
    for id in "de":
        add(world, id)
    world.partition("ade", "bc")
    world.tell(b"known to three of five")
    world.run(milliseconds(100))
    world.machines["c"].start()
    world.run(seconds(3))
    world.heal()
    world.run_until_whole()
    return world


def test_one_that_was_away_forms_no_view_by_what_it_remembers() -> None:
    world = one_that_was_away_meets_a_part()
    world.check()
    module = leader(world).module
    assert isinstance(module, Chain)
    assert module.count == 1


def test_by_what_the_manager_remembers_a_forced_event_is_lost() -> None:
    world = one_that_was_away_meets_a_part(ManagersOwnCounts)
    assert "forced events survive" in {each.check for each in world.tracker.violations}


def test_the_configuration_is_that_of_the_history_that_wins() -> None:
    """The higher number may be that of a change which was given up."""
    world = whole()
    lower, higher = Configuration(1, ("a",)), Configuration(2, ("a", "b"))
    view = world["a"].cur_viewid

    def response(id: str, number: int, now: Configuration | None) -> Response:
        known = Viewstamp(view, number)
        return Response(world[id].me, now is None, known, was_primary=False, configuration=now)

    responses = [response("a", 2, lower), response("b", 1, higher), response("c", 3, None)]
    assert winning_configuration(responses, higher) == lower
    assert winning_configuration(responses[2:], higher) == higher


@pytest.mark.parametrize("seed", range(12))
def test_random_changes_among_all_faults(seed: int) -> None:
    run_chain(15_300_000 + seed, kinds=(*COHORT_FAULTS, *CHANGES), duration=seconds(8)).check()


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_more_random_changes_among_all_faults(first: int) -> None:
    for seed in range(15_310_000 + first, 15_310_000 + first + 20):
        run_chain(seed, kinds=(*COHORT_FAULTS, *CHANGES), duration=seconds(10)).check()


def test_a_client_that_spoke_with_one_primary_alone_finds_those_who_took_its_place() -> None:
    """Whoever it knew is gone, and there is no other group that it could ask."""
    world = BankWorld(replicas=1)

    def primary() -> Cohort:
        found = world.primary(EU)
        assert found is not None, world.describe()
        return found

    def change(what: Callable[[Cohort], None], is_done: Callable[[Configuration], bool]) -> None:
        world.machines[world.leads(EU)].call(lambda: what(primary()))
        world.wait(lambda: is_done(world.changing_group(EU).configuration))

    assert is_committed(world.story().commit())
    for id in ("k", "l"):
        world.put_newcomer(id, EU, Configuration(0, ("a",)))
        change(
            lambda cohort, id=id: cohort.admit(id),  # type: ignore[misc]
            lambda now, id=id: id in now.members and not now.before,  # type: ignore[misc]
        )
    story = world.story()
    assert story.call(EU, "deposit", "ada", 1) is not None
    assert is_committed(story.commit())
    world.run(seconds(1))  # until the new ones are in touch
    change(lambda cohort: cohort.dismiss("a"), lambda now: now.members == ("k", "l"))
    for machine in ("a", "f"):
        world.machines[machine].kill()
    assert is_committed(world.story().commit())
