"""The policy: which groups there are to be, how many replicas each, and on which hosts.

    number = 1

    [hosts.h1]
    agent = "10.0.0.1:7300"

    [groups.seats]
    class = "airline.seats:Seats"
    replicas = 3
    spread = ["zone"]                 # as few replicas as can be under one value of a label
    prefer = ["h1", "h2"]
    replace_after = 30

The paper leaves the policy open ("not of our concern", 1); this is ours. A policy has a number, and
the one with the highest is in force: two people who change it at once do not undo each other's.
"""

from __future__ import annotations

import re
import tomllib

import msgspec

from coterie.kernel.errors import CoterieError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
"""Of a group or a host. Replicas are called by their group, a dash, and a number."""
HOSTS_MAX = 256
GROUPS_MAX = 256
REPLICAS_MAX = 31
"""One less than a group can have: a replacement joins before the lost one goes."""
REPLACE_AFTER_MIN = 1.0
SECONDS_MAX = 30 * 86_400.0


class PolicyError(CoterieError):
    """A policy that cannot be used; says what is wrong, and where."""


class HostPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine that replicas may be on."""

    agent: str
    """Where its agent listens."""


class GroupPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is wanted of one group."""

    class_: str = msgspec.field(name="class")
    replicas: int
    """How many there are to be."""
    engine: str = "stack"
    stack: str = ""
    sync: str = "none"
    dump_interval: int = 0
    spread: tuple[str, ...] = ()
    """Labels, the most important first: replicas are spread over their values."""
    prefer: tuple[str, ...] = ()
    """Hosts that are taken before others, where the labels leave the choice."""
    only: dict[str, str] = {}
    """Labels that a host must have."""
    replace_after: float = 60.0
    """For how many seconds a replica must have been out of its group before another takes its
    place. Longer than a restart takes."""

    @property
    def can_change(self) -> bool:
        """Whether members come and go while the group serves."""
        return self.engine == "stack" and not self.stack.upper().startswith("PVSYNC")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is wanted of all groups."""

    number: int
    """Rises with every change; a policy does not replace one of a higher number."""
    hosts: dict[str, HostPolicy]
    groups: dict[str, GroupPolicy]
    changes_per_hour: int = 60
    """How many members may be added and removed in an hour, in all groups together."""
    changes_at_once: int = 2
    """In how many groups members may change at the same time; in one group it is one change."""


def parse_policy(text: str, *, source: str) -> Policy:
    """Read the text of a policy; raises `PolicyError` with a sentence."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{source} is not valid TOML: {error}") from None
    except RecursionError:
        raise PolicyError(f"{source} is not what we read: it is nested too deeply") from None
    told.pop("manager", None)  # where the manager itself runs, which is no matter of policy
    try:
        policy = msgspec.convert(told, Policy)
    except msgspec.ValidationError as error:
        reason = str(error).encode("unicode_escape").decode()
        raise PolicyError(f"{source}: {reason}; $ is the file itself") from None
    problem = problem_of(policy)
    if problem:
        raise PolicyError(f"{source}: {problem}")
    return policy


def problem_of(policy: Policy) -> str:  # noqa: PLR0911 -- one for each rule
    """Say what is wrong with a policy; nothing if it can be followed."""
    if not 1 <= policy.number < 1 << 62:
        return "number rises with every change of the policy, from 1"
    if not 1 <= len(policy.hosts) <= HOSTS_MAX or not len(policy.groups) <= GROUPS_MAX:
        return f"a policy has 1 to {HOSTS_MAX} hosts and up to {GROUPS_MAX} groups"
    for name in (*policy.hosts, *policy.groups):
        if not NAME.fullmatch(name):
            return (
                f"{name!r} is no name: up to 48 letters, digits, dots, dashes and underscores, "
                "beginning with a letter or digit"
            )
    if policy.changes_per_hour < 1 or policy.changes_at_once < 1:
        return "changes_per_hour and changes_at_once are 1 or more, or nothing is ever repaired"
    agents = [host.agent for host in policy.hosts.values()]
    for address in agents:
        if agents.count(address) > 1:
            return f"two hosts have their agent at {address}"
    for name, group in policy.groups.items():
        problem = _problem_of_group(group, policy)
        if problem:
            return f"group {name}: {problem}"
    return ""


def _problem_of_group(group: GroupPolicy, policy: Policy) -> str:
    if not 1 <= group.replicas <= REPLICAS_MAX:
        return f"replicas is 1 to {REPLICAS_MAX}, not {group.replicas}"
    if group.replicas > len(policy.hosts):
        return (
            f"{group.replicas} replicas are wanted, each on a host of its own, and the policy has "
            f"{len(policy.hosts)} host{'s' if len(policy.hosts) != 1 else ''}"
        )
    if not REPLACE_AFTER_MIN <= group.replace_after <= SECONDS_MAX:
        return "replace_after is 1 second to 30 days"
    for host in group.prefer:
        if host not in policy.hosts:
            return f"prefer names {host!r}, which is none of the hosts"
    return ""
