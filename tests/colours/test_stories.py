"""Stories of partitions, crashes and lost disks, and what comes of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.colours.stories import (
    STACKS,
    cut,
    cut_others,
    greens,
    is_primary,
    make_group,
    merge,
    reds,
    until,
    until_parts,
)

from coterie.colours.states import ServerState
from coterie.journal.engines.colours import COLOURS
from coterie.journal.format import Sync
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.engine import Role
from coterie.kernel.errors import BacklogFull, PayloadTooLarge
from coterie.kernel.records import StateAdopted
from coterie.simulation.engines.colours.group import ColoursSimulation
from coterie.simulation.world.settings import SIMULATED_JOURNAL

UNSYNCED = replace(SIMULATED_JOURNAL, journal=JournalSettings(sync=Sync.NONE))


@pytest.mark.parametrize("stack", STACKS)
def test_a_minority_takes_actions_that_are_ordered_when_it_comes_back(stack: str) -> None:
    group = make_group(stack=stack)
    cut(group, "ab", "cde")
    assert is_primary(group, "c")
    group["a"].propose(b"x")
    group["d"].propose(b"y")
    group.run(seconds(1))
    assert reds(group, "a") == reds(group, "b") == ["a:1"]
    assert greens(group) == ["d:1"]
    merge(group)
    assert greens(group) == ["d:1", "a:1"]
    group.check()


def test_the_primary_component_shrinks_to_one_and_a_tie_goes_to_the_first() -> None:
    group = make_group("abcd", primary_min=1)
    cut(group, "ab", "cd")
    assert is_primary(group, "a")
    assert not is_primary(group, "c")
    cut(group, "a", "b", "cd")
    assert is_primary(group, "a")
    cut(group, "a", "bcd")
    assert not is_primary(group, "b")  # three of four, and they were not primary last
    group["a"].propose(b"alone")
    group.run(milliseconds(100))
    assert greens(group) == ["a:1"]
    merge(group)
    group.check()


def test_a_primary_component_does_not_shrink_below_its_least_size() -> None:
    group = make_group("abcd", primary_min=2)
    cut(group, "ab", "cd")
    assert is_primary(group, "a")
    cut(group, "a", "b", "cd")
    assert not any(is_primary(group, id) for id in "abcd")
    cut(group, "ac", "b", "d")  # half of two, with the first of them, and a third for the size
    assert is_primary(group, "a")
    merge(group)
    group.check()


def test_a_lost_disk_takes_nothing_green_along_where_two_had_to_have_it() -> None:
    """Found with `sync = "none"`, 4 replicas, seed 14: a component of one lost its machine.

    Now the first of two is lost, and everybody together go on without an operator's word.
    """
    group = make_group("abc", primary_min=2)
    cut(group, "ab", "c")
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    assert greens(group) == ["a:1"]
    group["a"].replace_machine()
    group.heal()
    until_parts(group, "bc")
    assert not is_primary(group, "b")  # a may have gone on, as far as they know
    group["a"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    assert group.engine("a").green_end == 1
    assert group.tracker.words == 0
    group.check()


def test_a_component_of_one_whose_disk_is_lost_is_waited_for_until_an_operator_speaks() -> None:
    """The other side of the choice: what it alone made green is gone, and nobody hides that."""
    group = make_group("abc", primary_min=1)
    cut(group, "a", "bc")
    cut(group, "a", "b", "c")
    assert is_primary(group, "b")
    group["b"].propose(b"x")
    group.run(milliseconds(200))
    group["b"].replace_machine()
    group["b"].start()
    group.heal()
    until(group, lambda: group.is_blocked, "all know that they cannot be primary")
    group.run(seconds(3))
    assert group.is_blocked
    group.speak()
    until(group, lambda: group.is_one, "all are one primary component")
    assert greens(group) == []


def test_who_has_been_seen_crashed_need_not_come_again() -> None:
    """All crash; two of them meet, then one of these meets the third: that is enough."""
    group = make_group("abc")
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    for host in group:
        host.crash()
    group["a"].start()
    group["b"].start()
    until_parts(group, "ab")
    group["a"].crash()
    group["c"].start()
    until_parts(group, "bc")
    assert is_primary(group, "b")
    assert group.engine("c").green_end == 1
    group["a"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    group.check()


def test_who_was_outside_of_an_attempt_does_not_make_up_for_one_who_took_part() -> None:
    """Two of a component crashed in it: three others that were never in it prove nothing."""
    group = make_group("abcde")
    cut(group, "abc", "de")
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    group.partition("a", "bc")
    group["b"].crash()
    group["c"].crash()
    group.heal()
    group.partition("a", "bcde")
    group["b"].start()
    group["c"].start()
    until_parts(group, "bcde")
    assert not is_primary(group, "b")  # four of five, and two of three: a may know more
    merge(group)
    group.check()


def test_a_chain_of_meetings_carries_what_a_lost_member_knew() -> None:
    """The red action of a replica whose disk is lost afterwards, and who never met the primary."""
    group = make_group("abcde")
    cut(group, "a", "b", "cde")
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    cut(group, "ab", "cde")
    group["a"].replace_machine()
    cut_others(group, "b", "cde")
    assert greens(group) == ["a:1"]
    group["a"].start()
    merge(group)
    group.check()


def test_all_crash_in_a_primary_component_and_go_on_when_all_are_back() -> None:
    group = make_group("abc")
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    for host in group:
        host.crash()
    group["a"].start()
    group["b"].start()
    until_parts(group, "ab")
    assert not is_primary(group, "a")
    vulnerable = group.engine("a").vulnerable
    assert vulnerable is not None
    assert vulnerable.seen == ("a", "b")
    group["c"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    assert greens(group) == ["a:1"]
    group.check()


@pytest.mark.parametrize("lost", ["", "a", "abc"])
def test_nothing_green_goes_with_machines_in_silence(lost: str) -> None:
    """With nothing synced, all crash, some of them with their machines.

    What these may have made green nobody else need have: so the group waits for an operator's word,
    although everybody remembers the component. It went on, and what was answered was gone.
    """
    group = make_group("abc", journal=UNSYNCED)
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    for host in group:
        if host.id in lost:
            host.lose_power()
        else:
            host.crash()
    for host in group:
        host.start()
    if lost:
        until(group, lambda: group.is_blocked, "all know that they cannot be primary")
        group["a"].crash()  # what it may have forgotten it does not forget to have forgotten
        group["a"].start()
        group.run(seconds(3))
        assert group.is_blocked
        group.speak()
    until(group, lambda: group.is_one, "all are one primary component")
    assert greens(group) == ["a:1"] or lost == "abc"
    assert group.tracker.words == bool(lost)


def test_a_machine_lost_with_what_was_not_synced_learns_from_those_who_go_on() -> None:
    group = make_group("abc", journal=UNSYNCED)
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    group["a"].lose_power()
    group["a"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    assert group.engine("a").green_end == 1
    assert group.tracker.words == 0
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_all_stop_in_good_order_and_some_go_on_without_the_others(stack: str) -> None:
    """A stop is a cut from everybody, not a crash: nobody waits for who stopped so."""
    group = make_group("abc", stack=stack)
    for number in range(5):
        for host in group:
            host.propose(b"%d" % number)
    for host in group:
        host.leave()
    group.run(seconds(3))
    for id in "abc":
        promises = group.engine(id).promises
        assert promises.vulnerable is None
        assert promises.yellow is not None
        group[id].crash()
    group["a"].start()
    group["b"].start()
    until(group, lambda: is_primary(group, "a"), "two of three are a primary component")
    group["c"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    assert len(greens(group)) == 15
    group.check()


def test_a_member_that_crashed_waits_for_one_that_did_not() -> None:
    group = make_group("abc")
    group.partition("a", "bc")
    group["b"].crash()
    group["c"].crash()
    group["b"].start()
    group["c"].start()
    until_parts(group, "bc")
    assert not is_primary(group, "b")  # a may have made something green
    merge(group)
    group.check()


def test_a_new_disk_is_filled_and_counts_when_it_has_installed_a_component() -> None:
    group = make_group("abc", history_bytes=20)
    for number in range(30):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    group["c"].replace_machine()
    until_parts(group, "ab")
    group["c"].start()
    assert group.engine("c").is_zombie
    until(group, lambda: group.is_one, "all are one primary component")
    assert not group.engine("c").is_zombie
    assert group.engine("c").green_end == 30
    group.check()


def test_a_laggard_is_given_the_state_where_actions_are_discarded() -> None:
    group = make_group("abc", history_bytes=20)
    cut(group, "ab", "c")
    adopted: list[StateAdopted] = []
    record = group.record

    def watch(each: object) -> None:
        if isinstance(each, StateAdopted):
            adopted.append(each)
        record(each)  # type: ignore[arg-type]

    group.record = watch  # type: ignore[method-assign,assignment]
    for number in range(30):
        group["a"].propose(b"%d" % number)
    group["c"].propose(b"red all the while")
    group.run(seconds(1))
    merge(group)
    assert [each.member.id for each in adopted] == ["c"]
    assert greens(group)[-1] == "c:1"
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_nobody_waits_for_a_member_that_needs_a_whole_state(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows when it has it; the others answer meanwhile, in the same view."""
    group = make_group("abc", stack=stack, history_bytes=20)
    cut(group, "ab", "c")
    for number in range(30):
        group["a"].propose(b"%d" % number)
    group["c"].propose(b"red all the while")
    group.run(seconds(1))
    with monkeypatch.context() as patched:
        for id in "ab":
            patched.setattr(group.engine(id), "_give_chunks", lambda: None)
        group.heal()
        until(group, lambda: group.engine("a").is_with("abc"), "all are in touch")
        until(group, lambda: is_primary(group, "a"), "who has the actions goes on")
        assert group.engine("a").prim.members == ("a", "b")
        assert greens(group)[-1] == "c:1"
        group["b"].propose(b"meanwhile")
        group["c"].propose(b"in the same view")
        group.run(seconds(1))
        assert greens(group)[-1] == "b:1"
        assert not is_primary(group, "c")
    group.run(seconds(1))
    merge(group)
    assert group.engine("a").prim.members == ("a", "b", "c")
    assert greens(group)[-1] == "c:2"
    group.check()


def test_who_follows_others_creates_nothing_in_their_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slide 32, case 1b: an action in a view says that somebody has installed its component."""
    group = make_group("abc", history_bytes=20)
    cut(group, "ab", "c")
    for number in range(30):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    with monkeypatch.context() as patched:
        # It is not taken in for now.
        patched.setattr(group.engine("a"), "_is_somebody_back", lambda _: False)
        group.heal()
        until(group, lambda: group.engine("c").follows, "it has the state")
        until(group, lambda: is_primary(group, "a"), "the others go on")
        assert group.engine("c").role is Role.FORMING
        group["c"].propose(b"later")
        group.run(seconds(1))
        assert len(greens(group)) == 30
        assert not reds(group, "c")
    group["a"].propose(b"go on")
    merge(group)
    group.run(seconds(1))
    assert greens(group)[-2:] == ["a:31", "c:1"]
    group.check()


def test_what_is_known_of_a_lost_disk_does_not_bring_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has the state says so in this view; its old line would renew one view after another."""
    group = make_group("abc", history_bytes=20)
    for number in range(30):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    cut(group, "ab", "c")
    merge(group)
    assert group.engine("a").lines == {"a": 30, "b": 30, "c": 30}
    group["c"].replace_machine()
    until_parts(group, "ab")
    with monkeypatch.context() as patched:
        for id in "ab":
            patched.setattr(group.engine(id), "_give_chunks", lambda: None)
        group["c"].start()
        until(group, lambda: group.engine("a").is_with("abc"), "all are in touch")
        until(group, lambda: is_primary(group, "a"), "who has the actions goes on")
        place = group["a"].place
        group.run(seconds(1))
        assert group["a"].place == place
    merge(group)
    assert group.engine("a").prim.members == ("a", "b", "c")
    group.check()


def test_who_was_left_out_once_is_waited_for() -> None:
    """Under load, with little kept, it could be late every time."""
    group = make_group("abc", history_bytes=20)
    cut(group, "ab", "c")
    for number in range(30):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    group.heal()
    for _ in range(500):
        group["a"].propose(bytes(50))  # more than is kept
        group.run(milliseconds(1))
        if is_primary(group, "c"):
            break
    assert is_primary(group, "c")
    assert group.engine("a").prim.members == ("a", "b", "c")
    merge(group)
    group.check()


def test_where_a_lost_disk_blocks_the_group_an_operator_s_word_goes_on() -> None:
    group = make_group("abc")
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    for host in group:
        host.crash()
    group["c"].replace_machine()
    for host in group:
        host.start()
    until(group, lambda: group.is_blocked, "all know that they cannot be primary")
    group.run(seconds(3))
    assert group.is_blocked
    group.speak()
    until(group, lambda: group.is_one, "all are one primary component")
    assert greens(group) == ["a:1"]  # two remembered it
    assert group.tracker.words == 1
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_who_comes_back_with_what_was_given_up_holds_nobody_up_and_says_what_to_do(
    stack: str,
) -> None:
    """An operator spoke while the only one who knew was away: now it is, and knows other greens."""
    group = make_group("abc", stack=stack, primary_min=1)
    cut(group, "ab", "c")
    cut(group, "a", "b", "c")
    assert is_primary(group, "a")
    for number in range(3):
        group["a"].propose(b"given up %d" % number)
    group.run(milliseconds(200))
    group["a"].crash()
    group.heal()
    until(group, lambda: group.engine("b").is_with("bc"), "they are in touch")
    group.run(seconds(2))
    assert not is_primary(group, "b")
    group["b"].accept_loss()
    until(group, lambda: is_primary(group, "b"), "the word counts")
    group["b"].propose(b"after the word")
    group.run(milliseconds(200))
    group["a"].start()
    until(group, lambda: group.engine("b").is_with("abc"), "all are in touch")
    until(group, lambda: is_primary(group, "b"), "they go on")
    lone = group.engine("a")
    assert lone.is_given_up
    assert "gave up what a alone made green" in lone.why
    assert "empty folder" in lone.why
    group["b"].propose(b"still")
    group["a"].propose(b"waits")
    group.run(seconds(1))
    assert group.engine("c").green_end == group.engine("b").green_end == 2
    assert (lone.green_end, len(lone.queue)) == (3, 0)
    group["a"].restart()  # it does not forget that
    until(group, lambda: group.engine("a").is_given_up, "it says so again")
    group["a"].replace_machine()
    group["a"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    assert group.engine("a").green_end == 2


def test_a_word_that_is_not_needed_changes_nothing() -> None:
    group = make_group("abc")
    before = group.engine("a").prim
    group["b"].accept_loss()
    group.run(seconds(1))
    assert group.engine("a").prim == before
    assert group.is_one


def test_a_replica_that_never_was_ready_may_forget_without_being_a_zombie() -> None:
    """Found by seed 27 of TOKEN, 4 replicas: nobody rests on what it knew, so it counts."""
    group = ColoursSimulation(seed=1, stack=STACKS[0]).group("a", "b", "c")
    group.partition("ab", "c")
    until_parts(group, "ab", "c")
    group["c"].crash()
    group["a"].crash()
    for path in [path for path in group["c"].disk.paths if path.endswith(".segment")]:
        group["c"].disk.remove(path)
    for path in [path for path in group["a"].disk.paths if path.endswith(".segment")]:
        group["a"].disk.remove(path)
    assert not COLOURS.recover(group["c"].disk, "group", "c").is_zombie
    assert COLOURS.recover(group["a"].disk, "group", "a").is_zombie


def test_lines_make_actions_white_and_white_ones_are_discarded() -> None:
    group = make_group("abc")
    for number in range(200):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    engine = group.engine("b")
    assert engine.white_end > 100
    assert engine.queue.log.start > 0
    cut(group, "ab", "c")
    for number in range(200):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    assert engine.white_end <= group.engine("c").green_end  # c has no more than that
    merge(group)
    group.check()


def test_red_actions_are_bounded_and_the_refusal_says_what_to_do() -> None:
    group = make_group("abc", red_bytes_max=100)
    cut(group, "ab", "c")
    group["c"].propose(b"x" * 90)
    group.run(milliseconds(50))
    engine = group.engine("c")
    with pytest.raises(BacklogFull, match=r"red_bytes_max is 100.*wait for one, or ask a replica"):
        engine.propose([b"y" * 20])
    merge(group)
    group["c"].propose(b"y" * 20)
    group.run(milliseconds(100))
    assert greens(group) == ["c:1", "c:2"]


def test_an_action_that_is_too_large_is_refused_at_once() -> None:
    group = make_group("a")
    limit = group.engine("a").context.settings.payload_bytes_max
    with pytest.raises(PayloadTooLarge, match="send it in parts"):
        group.engine("a").propose([b"x" * (limit - 10)])


@pytest.mark.long
def test_an_hour_of_a_minority_s_writes_stays_within_its_bounds() -> None:
    """An hour of virtual time, an action every few seconds on the smaller side."""
    limit = 20_000
    group = make_group(
        "abc",
        red_bytes_max=limit,
        # Few signs of life: they are most of what an hour costs.
        heartbeat_interval=milliseconds(600),
        suspect_after_min=seconds(2),
        alive_interval=milliseconds(300),
    )
    cut(group, "ab", "c")
    engine = group.engine("c")
    refusals: list[str] = []
    taken = 0
    for number in range(1200):
        try:
            engine.propose([b"%d" % number + b"x" * 20])
        except BacklogFull as error:
            refusals.append(str(error))
        else:
            taken += 1
        group.run(seconds(3))
        assert engine.queue.bytes <= limit
    assert 800 < taken < 1000
    assert refusals[0] == refusals[-1]
    assert "wait for one, or ask a replica that is in it" in refusals[0]
    assert engine.state is ServerState.NON_PRIM
    merge(group)
    assert len(greens(group)) == taken
    engine.propose([b"taken again"])
    group.check()


def test_a_component_is_on_disk_before_anything_rests_on_it() -> None:
    """With nothing synced but what the slides force, a lost machine still knows its component."""
    group = make_group("abc")
    for host in group:
        keeper = host.keeper
        assert keeper is not None
        assert keeper.writer.synced == keeper.writer.sequence
        found = COLOURS.recover(host.disk, "group", host.id)
        assert found.stored is not None
        assert found.stored.promises.prim == group.engine(host.id).prim
        assert found.stored.promises.vulnerable is not None
        assert found.stored.promises.yellow is None
