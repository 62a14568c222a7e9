"""A policy that cannot be kept ends in a sentence."""

from __future__ import annotations

import pytest

from coterie.manager.policy import PolicyError, parse_policy

GOOD = """
number = 1
[hosts.h1]
agent = "10.0.0.1:7300"
[hosts.h2]
agent = "10.0.0.2:7300"
[groups.g]
class = "m:C"
replicas = 2
prefer = ["h2"]
"""


def test_a_good_one_is_read() -> None:
    policy = parse_policy(GOOD, source="policy.toml")
    assert policy.groups["g"].replicas == 2
    assert policy.groups["g"].can_change


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("replicas = 2", "replicas = 3", "3 replicas are wanted, each on a host of its own"),
        ("replicas = 2", "replicas = 0", "replicas is 1 to 31"),
        ("number = 1", "number = 0", "number rises"),
        ("number = 1", "number = 1\nspeed = 3", "unknown field `speed`"),
        ('["h2"]', '["h3"]', "prefer names 'h3', which is none of the hosts"),
        ("10.0.0.2:", "10.0.0.1:", "two hosts have their agent at 10.0.0.1:7300"),
        ("replicas = 2", "replicas = 2\nreplace_after = 0.1", "replace_after is 1 second"),
        ("[groups.g]", '[groups."g/h"]', "is no name"),
        ("number = 1", "number = 1\nchanges_per_hour = 0", "nothing is ever repaired"),
        ("number = 1", "number =", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(before: str, after: str, said: str) -> None:
    assert before in GOOD
    with pytest.raises(PolicyError, match=said):
        parse_policy(GOOD.replace(before, after), source="policy.toml")
