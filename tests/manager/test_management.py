"""The management object: one holder, one change at a time in each group, ids given once."""

from __future__ import annotations

import pytest
from tests.ready.clocks import at, make

from coterie.manager.management import Management
from coterie.manager.policy import GroupPolicy, HostPolicy, Policy


def policy(number: int = 1, *, hosts: int = 4, changes: int = 60) -> Policy:
    return Policy(
        number=number,
        hosts={f"h{n}": HostPolicy(agent=f"10.0.0.{n}:1") for n in range(1, hosts + 1)},
        groups={
            "g": GroupPolicy(class_="m:C", replicas=3),
            "k": GroupPolicy(class_="m:C", replicas=3),
        },
        changes_per_hour=changes,
        changes_at_once=2,
    )


def begun(management: Management) -> int:
    """Put a policy in force and have g begin; give the fence."""
    at(0, lambda: management.want(policy()))
    fence = at(0, lambda: management.hold("one", 10)).state.fence
    at(0, lambda: management.begin(fence, 0, "found", "g", ["h1"], "new"))
    at(0, lambda: management.end(fence, 1, "it has begun", stays=True))
    return fence


def test_one_holds_the_lease_and_the_next_has_a_higher_fence() -> None:
    management = make(Management)
    assert at(0, lambda: management.hold("one", 10)).refusal == ""
    assert at(5, lambda: management.hold("two", 10)).refusal == "one acts"
    assert at(9, lambda: management.hold("one", 10)).state.fence == 1
    assert at(18, lambda: management.hold("two", 10)).refusal == "one acts"
    taken = at(19, lambda: management.hold("two", 10))
    assert (taken.refusal, taken.state.fence) == ("", 2)
    assert "not the present one" in at(20, lambda: management.end(1, 1, "x", stays=True)).refusal
    assert "has ended" in at(30, lambda: management.end(2, 1, "x", stays=True)).refusal


def test_a_lease_that_ended_is_not_held_on_to() -> None:
    management = make(Management)
    at(0, lambda: management.hold("one", 10))
    assert at(11, lambda: management.hold("one", 10)).state.fence == 2


def test_one_change_of_a_group_at_a_time_and_ids_are_given_once() -> None:
    management = make(Management)
    fence = begun(management)
    first = at(1, lambda: management.begin(fence, 1, "add", "g", ["h2"], "fewer"))
    assert first.refusal == ""
    assert first.state.open[0].id == "g-2"
    again = at(1, lambda: management.begin(fence, 2, "add", "g", ["h3"], "fewer"))
    assert "is under way in g" in again.refusal
    at(2, lambda: management.end(fence, 2, "given up: it took too long", stays=False))
    third = at(2, lambda: management.begin(fence, 2, "add", "g", ["h3"], "fewer"))
    assert third.state.open[0].id == "g-3"
    assert "g-2" not in third.state.placed("g")


def test_what_was_decided_before_the_last_action_is_refused() -> None:
    management = make(Management)
    fence = begun(management)
    at(1, lambda: management.begin(fence, 1, "add", "g", ["h2"], "fewer"))
    at(2, lambda: management.end(fence, 2, "it is a member", stays=True))
    late = at(3, lambda: management.begin(fence, 1, "add", "g", ["h2"], "fewer"))
    assert "since this one was decided" in late.refusal


def test_a_group_is_founded_once() -> None:
    management = make(Management)
    fence = begun(management)
    assert (
        "has begun" in at(1, lambda: management.begin(fence, 1, "found", "g", ["h2"], "")).refusal
    )
    at(1, lambda: management.begin(fence, 0, "found", "k", ["h1"], "new"))
    at(1, lambda: management.end(fence, 2, "given up: h1 is not reached", stays=False))
    assert "k" not in at(1, management.state).founded
    at(2, lambda: management.begin(fence, 2, "found", "k", ["h2"], "new"))
    at(2, lambda: management.start(fence, 3))
    at(2, lambda: management.end(fence, 3, "lost", stays=False))
    assert "k" in at(3, management.state).founded, "it may have answered clients"


def test_so_many_changes_an_hour() -> None:
    management = make(Management)
    fence = begun(management)
    at(1, lambda: management.want(policy(2, changes=1)))
    at(1, lambda: management.begin(fence, 1, "add", "g", ["h2"], ""))
    at(2, lambda: management.end(fence, 2, "it is a member", stays=True))
    refused = at(3, lambda: management.begin(fence, 2, "add", "g", ["h3"], ""))
    assert refused.refusal == "1 changes were begun within the last hour"
    at(3600, lambda: management.hold("one", 10))
    fence = at(3602, lambda: management.hold("one", 10)).state.fence
    assert at(3602, lambda: management.begin(fence, 2, "add", "g", ["h3"], "")).refusal == ""


def test_policies_and_maintenance() -> None:
    management = make(Management)
    assert "no host 'h1'" in at(0, lambda: management.drain("h1")).refusal
    at(0, lambda: management.want(policy(5)))
    assert "higher number" in at(0, lambda: management.want(policy(4))).refusal
    assert at(0, lambda: management.want(policy(5))).refusal == ""
    assert "another policy" in at(0, lambda: management.want(policy(5, hosts=5))).refusal
    assert at(0, lambda: management.drain("h1")).state.drained == ("h1",)
    assert at(0, lambda: management.bring_back("h1")).state.drained == ()
    assert "was not drained" in at(0, lambda: management.bring_back("h1")).refusal


@pytest.mark.parametrize(
    ("group", "places", "said"),
    [
        ("x", ["h1"], "no group 'x'"),
        ("g", ["h9"], "not in the policy"),
        ("g", [], "about one replica"),
        ("g", ["h1", "h2"], "about one replica"),
    ],
)
def test_what_makes_no_sense_is_refused(group: str, places: list[str], said: str) -> None:
    management = make(Management)
    fence = begun(management)
    last = 1 if group == "g" else 0
    entered = at(1, lambda: management.begin(fence, last, "add", group, places, ""))
    assert said in entered.refusal
