"""What an instance of the manager and the agent of a host say to each other.

| Order | The agent |
|---|---|
| `LookAround` | tells its labels, its load and its replicas; notes the fence |
| `PlaceReplica` | keeps addresses and a folder for a replica; answered with the next look |
| `StartReplica` | starts it, and starts it again whenever it ends |
| `AdmitReplica` | has a replica of the group that is here admit a newcomer |
| `DismissReplica` | has a replica of the group that is here dismiss a member |
| `StopReplica` | ends a replica that belongs to its group no more; its folder stays |

Every order bears the fence of who gives it, and those that change something also a *permit*: the
agent's own life and a time by the agent's own clock after which it is void. An agent carries out
none with a lower fence than it has seen, none for an earlier life, none after its time. So an
instance that was paused, cut off or replaced does no harm by what it sent before, or sends after.
`expected` is the number of the configuration that the order was decided on; the group is asked only
while it still has that one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

LISTED_MAX = 1024
"""How many replicas, groups or labels a list has at most; what is said of each is looked for in
those of others."""
KNOWN_MAX = 1 << 16
"""How many ids are known at most: all that were ever given in a group."""
TEXT_MAX = 1000
_Listed = msgspec.Meta(max_length=LISTED_MAX)
Ids = Annotated[tuple[str, ...], _Listed]
KnownIds = Annotated[tuple[str, ...], msgspec.Meta(max_length=KNOWN_MAX)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""On some clock, which is a number that others count on."""


class Permit(msgspec.Struct, frozen=True, array_like=True):
    """By what right something is ordered."""

    fence: int
    life: str = ""
    """Which life of the agent is meant."""
    until: Seconds = 0
    """By the agent's clock."""


class ReplicaPlace(msgspec.Struct, frozen=True):
    """Where a replica is found."""

    id: str
    peers: str
    clients: str


class LookAround(msgspec.Struct, frozen=True, tag=True):
    """Tell how things are."""

    permit: Permit
    known: Annotated[dict[str, KnownIds], _Listed] = {}
    """Whom the replicas of each group have to know, so that they can show who they are."""


class PlaceReplica(msgspec.Struct, frozen=True, tag=True):
    """Keep a place for a replica."""

    permit: Permit
    group: str
    id: str


class StartReplica(msgspec.Struct, frozen=True, tag=True):
    """Start a replica."""

    permit: Permit
    group: str
    id: str
    founds: bool
    others: Annotated[tuple[ReplicaPlace, ...], _Listed]
    """Who else belongs to the group now."""
    settings: dict[str, str | int]
    """What the policy says of the group."""


class AdmitReplica(msgspec.Struct, frozen=True, tag=True):
    """Have a newcomer join."""

    permit: Permit
    group: str
    place: ReplicaPlace
    expected: int


class DismissReplica(msgspec.Struct, frozen=True, tag=True):
    """Have a member, or a learner, go."""

    permit: Permit
    group: str
    id: str
    expected: int


class StopReplica(msgspec.Struct, frozen=True, tag=True):
    """End a replica for good."""

    permit: Permit
    group: str
    id: str


AgentOrder = LookAround | PlaceReplica | StartReplica | AdmitReplica | DismissReplica | StopReplica


class GroupMembers(msgspec.Struct, frozen=True):
    """Who belongs to a group, as one of its replicas has it."""

    number: int
    members: Ids
    learners: Ids = ()
    before: Ids = ()
    gone: KnownIds = ()

    def belongs(self, id: str) -> bool:
        """Say whether a replica is counted, was until now, or is on its way."""
        return id in self.members or id in self.learners or id in self.before


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """A replica on the host of an agent."""

    group: str
    id: str
    state: str
    """placed, starting, running, waiting, given up, removed, or stopped."""
    reason: str = ""
    place: ReplicaPlace
    role: str = ""
    """Empty if it does not answer."""
    is_primary: bool = False
    is_zombie: bool = False
    in_view: Ids = ()
    """The replicas of its view."""
    position: int = 0
    configuration: GroupMembers | None = None
    knows: KnownIds = ()
    """Whose secrets it has; those of all where none are asked for."""
    trouble: str = ""


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent tells."""

    host: str
    life: str
    at: Seconds
    """The agent's clock when it answered."""
    labels: Annotated[dict[str, str], _Listed] = {}
    load: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0
    """Runnable tasks for each core, over the last minute."""
    free_bytes: int = 0
    replicas: Annotated[tuple[ReplicaReport, ...], _Listed] = ()
    """Those that have ended for good are the latest of these only."""
    fence: int = 0
    """The highest it has seen."""

    def find(self, id: str) -> ReplicaReport | None:
        """Give a replica that is here."""
        return next((each for each in self.replicas if each.id == id), None)


class AgentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order."""

    refusal: str = ""
    report: HostReport | None = None


class Turnstile:
    """What an agent lets pass: permits of the highest fence, for its present life, in time."""

    def __init__(self, life: str, fence: int) -> None:
        """*fence* is the highest that earlier lives on this disk have seen."""
        self.life = life
        self.fence = fence
        self.refused: dict[str, int] = {}
        """How many orders were refused, by why."""

    def refusal(self, order: AgentOrder, at: float) -> str:
        """Say why an order is not carried out; its fence is noted if it is the highest so far."""
        permit = order.permit
        kind, why = "", ""
        if permit.fence < self.fence:
            kind, why = "fence", f"fence {permit.fence} is lower than {self.fence}, seen before"
        elif not isinstance(order, LookAround):
            if permit.life != self.life:
                kind, why = "life", "the order is for an earlier life of this agent"
            elif not at < permit.until:  # which is so of what is no number, too
                kind, why = "late", "the order comes after the lease under which it was given"
        if kind:
            self.refused[kind] = self.refused.get(kind, 0) + 1
            return why
        self.fence = permit.fence
        return ""
