"""Who belongs to a group, and by which steps that changes."""

from __future__ import annotations

from itertools import chain, combinations, pairwise, product

import pytest

from coterie.kernel.configuration import (
    ChunksAfter,
    admitting,
    changed,
    decode_change,
    dismissing,
    encode_change,
    first_chunk,
    follows,
    left,
    promoting,
    take_off,
)
from coterie.kernel.engine import Chunks
from coterie.kernel.errors import Refused
from coterie.kernel.views import ChangedConfiguration, Configuration

FIRST = Configuration(1, ("a", "b", "c"))


def subsets(names: str) -> list[frozenset[str]]:
    sizes = range(len(names) + 1)
    return [frozenset(some) for some in chain(*(combinations(names, size) for size in sizes))]


def test_while_joint_every_quorum_meets_every_majority_of_both() -> None:
    joint = ChangedConfiguration(2, ("c", "d", "e"), (), ("a", "b", "c"))
    quorums = [some for some in subsets("abcde") if joint.is_quorum(some)]
    for members in (("a", "b", "c"), ("c", "d", "e")):
        alone = Configuration(1, members)
        majorities = [some for some in subsets("abcde") if alone.is_quorum(some)]
        assert all(one & other for one, other in product(quorums, majorities))
    assert not joint.is_quorum({"a", "b"})
    assert not joint.is_quorum({"d", "e"})


def test_a_learner_counts_for_nothing() -> None:
    now = admitting(FIRST, "d")
    assert now.everyone == ("a", "b", "c", "d")
    assert not now.is_quorum({"a", "d"})


def test_a_replica_joins_and_another_goes() -> None:
    steps = [FIRST, admitting(FIRST, "d")]
    steps.append(promoting(steps[-1], ["d"]))
    assert steps[-1].before == ("a", "b", "c")
    steps.append(left(steps[-1]))
    assert steps[-1].members == ("a", "b", "c", "d")
    steps.append(dismissing(steps[-1], "a", {"b", "c", "d"}))
    assert steps[-1].is_quorum({"b", "c", "d"})
    steps.append(left(steps[-1]))
    assert steps[-1] == ChangedConfiguration(6, ("b", "c", "d"), (), (), ("a",))
    for now, to in pairwise(steps):
        assert isinstance(to, ChangedConfiguration)
        assert follows(to, now)


@pytest.mark.parametrize(
    "to",
    [
        ChangedConfiguration(3, ("a", "b", "c"), ("d",)),
        ChangedConfiguration(2, ("a", "b", "c", "d")),
        ChangedConfiguration(2, ("d",), (), ("a", "b")),
        ChangedConfiguration(2, (), (), ("a", "b", "c")),
    ],
    ids=["a number left out", "not joint", "joint with others", "nobody left"],
)
def test_what_does_not_follow_is_void(to: ChangedConfiguration) -> None:
    assert not follows(to, FIRST)


def test_joint_is_left_for_one_configuration_only() -> None:
    joint = promoting(admitting(FIRST, "d"), ["d"])
    assert not follows(ChangedConfiguration(4, ("a", "b", "c")), joint)
    assert not follows(ChangedConfiguration(4, ("x",), (), joint.members), joint)


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (lambda: admitting(FIRST, "a"), "belongs to the group already"),
        (
            lambda: admitting(ChangedConfiguration(5, ("b",), (), (), ("a",)), "a"),
            "ids are never used again",
        ),
        (lambda: dismissing(Configuration(1, ("a",)), "a", {"a"}), "the last member"),
        (lambda: dismissing(FIRST, "x", {"a", "b", "c"}), "it has a, b, c"),
        (lambda: dismissing(FIRST, "a", {"a", "b"}), "no majority: c not in touch"),
        (
            lambda: admitting(ChangedConfiguration(2, ("a", "d"), (), ("a",)), "e"),
            "wait until that is done",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(step: object, sentence: str) -> None:
    assert callable(step)
    with pytest.raises(Refused, match=sentence):
        step()


def test_who_joined_later_begins_with_the_first_change_it_meets() -> None:
    seeds = Configuration(0, ("a", "b"))
    assert follows(admitting(FIRST, "d"), seeds)
    assert not follows(ChangedConfiguration(7, ("a", "d")), seeds)


def test_an_entry_is_told_from_commands() -> None:
    to = admitting(FIRST, "d")
    assert decode_change(encode_change(to)) == to
    for payload in (b"", b"\x93\x0b", b"\x93\x0b\x00\x90", b"any words"):
        assert decode_change(payload) is None


def test_a_configuration_travels_before_its_state() -> None:
    assert first_chunk(FIRST) is None
    to = admitting(FIRST, "d")
    first = first_chunk(to)
    assert first is not None
    found, state = take_off(ChunksAfter(first, Chunks([b"one", b"two"])))
    assert found == to
    assert list(state) == [b"one", b"two"]
    found, state = take_off([b"one", b"two"])
    assert found is None
    assert list(state) == [b"one", b"two"]
    assert take_off([])[0] is None
    polled = ChunksAfter(first, Chunks([b"one"]))
    assert (polled.poll(), polled.poll()) == (first, b"one")


def test_a_first_configuration_has_all_that_can_be_said_of_one() -> None:
    assert changed(FIRST) == ChangedConfiguration(1, ("a", "b", "c"))
    assert changed(admitting(FIRST, "d")) == admitting(FIRST, "d")
