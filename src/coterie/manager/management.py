"""The manager's own state, as a replicated object: the policy, the lease, and every action.

It runs as a group of Coterie itself, on any ordered stack with `SAFE`. Nothing is done that is not
written here first, so whoever acts next finds what was begun, and the journals of this group tell
who changed which members, when and why: the pipeline reads them like those of any other group.

| Kept here | Rule |
|---|---|
| lease, fence | who acts; each new holder has a higher fence, a lower one is refused |
| actions | one of a group; begun before it is carried out, ended when it is seen to be done |
| placements | which replica was put on which host; an id is given once and never again |
| policy, drained | what is wanted; the policy of the highest number |

What must never happen: two holders of one fence, two open actions of one group, an id given twice.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from coterie.manager.policy import Policy, problem_of
from coterie.objects import now, query, update

Short = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Sentence = Annotated[str, msgspec.Meta(max_length=1000)]
LeaseSeconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]

ActionKind = Literal["found", "add", "remove"]
HOUR = 3_600_000_000
_SECOND = 1_000_000
_DIGITS_MAX = 18


def has_given(next_numbers: dict[str, int], group: str, id: str) -> bool:
    """Say whether an id was ever given to a replica of a group."""
    prefix, _, number = id.rpartition("-")
    if prefix != group or not number.isdecimal() or len(number) > _DIGITS_MAX:
        return False
    return 1 <= int(number) < next_numbers.get(group, 1)


class Placement(msgspec.Struct, frozen=True):
    """A replica that was put on a host."""

    group: str
    id: str
    host: str


class MemberAction(msgspec.Struct, frozen=True):
    """A change of the members of one group, from its beginning to its end."""

    number: int
    kind: ActionKind
    group: str
    placements: tuple[Placement, ...]
    """Whom it is about; a founding may be of several."""
    why: str
    begun: int
    """Group time, microseconds."""
    fence: int
    """Under which it was begun; it may be ended under a higher one."""
    is_starting: bool = False
    """Of a founding: whether a process may have been started, and may have answered clients."""
    outcome: str = ""
    """What came of it; empty while it is open."""
    ended: int = 0

    @property
    def id(self) -> str:
        """The one replica it is about, or the first."""
        return self.placements[0].id

    @property
    def host(self) -> str:
        """Where that is."""
        return self.placements[0].host


class HostNote(msgspec.Struct, frozen=True, kw_only=True):
    """A host, for people."""

    is_reached: bool
    labels: dict[str, str] = {}
    load: float = 0
    replicas: tuple[str, ...] = ()
    text: str = ""


class GroupNote(msgspec.Struct, frozen=True, kw_only=True):
    """A group, for people."""

    members: tuple[str, ...] = ()
    clients_at: dict[str, str] = {}
    """Where clients find its replicas."""
    roles: dict[str, str] = {}
    doing: str = ""
    why_not: str = ""
    """Why it has not what is wanted, and nothing is done about it."""


class ManagerNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What the acting instance sees, and why it does not do more."""

    hosts: dict[str, HostNote] = {}
    groups: dict[str, GroupNote] = {}


class ManagementState(msgspec.Struct, frozen=True, kw_only=True):
    """All that an instance has to know, as of one moment of group time."""

    at: int
    """Group time, microseconds."""
    holder: str
    """Which instance acts; empty if none does."""
    fence: int
    policy: Policy | None
    drained: tuple[str, ...]
    founded: tuple[str, ...]
    """The groups that have begun, or begin now."""
    placements: tuple[Placement, ...]
    next_numbers: dict[str, int]
    last_actions: dict[str, int]
    """The number of the last action that was begun in each group."""
    open: tuple[MemberAction, ...]
    done: tuple[MemberAction, ...]
    """The last that ended, the newest last."""
    recent: int
    """How many changes were begun in the last hour."""

    def open_of(self, group: str) -> MemberAction | None:
        """Give the action that is under way in a group."""
        return next((each for each in self.open if each.group == group), None)

    def placed(self, group: str) -> dict[str, str]:
        """Give the hosts of a group's replicas, by their ids."""
        return {each.id: each.host for each in self.placements if each.group == group}

    def has_given(self, group: str, id: str) -> bool:
        """Say whether an id was ever given to a replica of the group."""
        return has_given(self.next_numbers, group, id)


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an entry, and everything as it is now."""

    refusal: str
    """Why nothing was changed; empty if it was."""
    state: ManagementState


class Management:
    """The policy, who acts on it, and what is done."""

    done_max: ClassVar[int] = 32
    """How many ended actions are remembered; the journals have all of them."""

    policy: Policy | None = None
    drained: list[str] = []  # noqa: RUF012 -- each object has its own copy
    holder: str = ""
    fence: int = 0
    expires: int = 0
    placements: list[Placement] = []  # noqa: RUF012
    founded: list[str] = []  # noqa: RUF012
    next_numbers: dict[str, int] = {}  # noqa: RUF012
    open: list[MemberAction] = []  # noqa: RUF012
    done: list[MemberAction] = []  # noqa: RUF012
    notes: ManagerNotes = ManagerNotes()
    recent: list[int] = []  # noqa: RUF012
    """When changes were begun, within the last hour."""
    next_action: int = 1
    last_actions: dict[str, int] = {}  # noqa: RUF012

    # ---- who acts

    @update
    def hold(self, instance: Short, lease: LeaseSeconds) -> Entered:
        """Take the lease, or hold on to it, for *lease* seconds of group time.

        A new holder has a new fence. An instance that starts again has a new name, so it waits for
        the lease of its earlier life like anybody else.
        """
        if self._holds(self.holder) and self.holder != instance:
            return self._entered(f"{self.holder} acts")
        if not self._holds(instance):
            self.holder, self.fence = instance, self.fence + 1
        self.expires = now() + round(lease * _SECOND)
        return self._entered()

    @update
    def resign(self, fence: int) -> Entered:
        """Give the lease back."""
        if fence == self.fence:
            self.holder, self.expires = "", 0
        return self._entered()

    # ---- what is wanted

    @update
    def want(self, policy: Policy) -> Entered:
        """Put a policy in force, unless one of a higher number is."""
        problem = problem_of(policy)
        if problem:
            return self._entered(problem)
        if self.policy is not None and policy.number < self.policy.number:
            return self._entered(
                f"policy {self.policy.number} is in force, and this one is number {policy.number}: "
                "give it a higher number"
            )
        if self.policy is not None and policy.number == self.policy.number:
            if policy != self.policy:
                return self._entered(
                    f"another policy has the number {policy.number}: give this one a higher number"
                )
            return self._entered()
        self.policy = policy
        self.drained = [host for host in self.drained if host in policy.hosts]
        return self._entered()

    @update
    def drain(self, host: Short) -> Entered:
        """Have no replica on a host: those that are there are replaced one by one."""
        if self.policy is None or host not in self.policy.hosts:
            known = ", ".join([] if self.policy is None else self.policy.hosts)
            return self._entered(f"there is no host {host!r} in the policy; it has {known}")
        if host not in self.drained:
            self.drained = [*self.drained, host]
        return self._entered()

    @update
    def bring_back(self, host: Short) -> Entered:
        """Let replicas be on a host again that was drained."""
        if host not in self.drained:
            return self._entered(f"{host!r} was not drained")
        self.drained = [each for each in self.drained if each != host]
        return self._entered()

    # ---- what is done

    @update
    def begin(  # noqa: PLR0913, PLR0917 -- all of it is in the journal
        self,
        fence: int,
        after: int,
        kind: ActionKind,
        group: Short,
        places: list[Short],
        why: Sentence,
    ) -> Entered:
        """Begin an action: *places* are hosts for new replicas, or the one that is to go.

        It was decided *after* that action of the group, and is refused if there was another one
        since: a call that comes late would do a second time what was done meanwhile.
        """
        refusal = self._refusal(fence)
        if not refusal and after != self.last_actions.get(group, 0):
            refusal = f"another action was begun in {group} since this one was decided"
        refusal = refusal or self._refusal_of(kind, group, places)
        if refusal:
            return self._entered(refusal)
        if kind == "remove":
            known = next((each for each in self.placements if each.id == places[0]), None)
            placements: tuple[Placement, ...] = (known or Placement(group, places[0], ""),)
        else:
            placements = tuple(Placement(group, self._new_id(group), host) for host in places)
            self.placements = [*self.placements, *placements]
        if kind == "found":
            self.founded = [*self.founded, group]
        else:
            self.recent = [*self._recent(), now()]
        action = MemberAction(self.next_action, kind, group, placements, why, now(), fence)
        self.last_actions = {**self.last_actions, group: self.next_action}
        self.next_action += 1
        self.open = [*self.open, action]
        return self._entered()

    @update
    def start(self, fence: int, number: int) -> Entered:
        """Note that a founding may now start processes: from here on it is never begun again."""
        action = self._find(number)
        refusal = self._refusal(fence)
        if refusal or action is None:
            return self._entered(refusal or f"action {number} is not open")
        changed = msgspec.structs.replace(action, is_starting=True)
        self.open = [changed if each is action else each for each in self.open]
        return self._entered()

    @update
    def end(self, fence: int, number: int, outcome: Short, stays: bool) -> Entered:  # noqa: FBT001
        """End an action; *stays* says whether the replicas it is about stay where they are."""
        action = self._find(number)
        refusal = self._refusal(fence)
        if refusal or action is None:
            return self._entered(refusal or f"action {number} is not open")
        self.open = [each for each in self.open if each is not action]
        ended = msgspec.structs.replace(action, outcome=outcome, ended=now())
        self.done = [*self.done, ended][-self.done_max :]
        if action.kind == "found" and not stays and not action.is_starting:
            self.founded = [each for each in self.founded if each != action.group]
        if not stays:
            gone = {each.id for each in action.placements}
            self.placements = [each for each in self.placements if each.id not in gone]
        return self._entered()

    @query
    def state(self) -> ManagementState:
        """Give everything, as it is now."""
        return ManagementState(
            at=now(),
            holder=self.holder if self._holds(self.holder) else "",
            fence=self.fence,
            policy=self.policy,
            drained=tuple(self.drained),
            founded=tuple(self.founded),
            placements=tuple(self.placements),
            next_numbers=dict(self.next_numbers),
            last_actions=dict(self.last_actions),
            open=tuple(self.open),
            done=tuple(self.done),
            recent=len(self._recent()),
        )

    @update
    def tell(self, fence: int, notes: ManagerNotes) -> Entered:
        """Keep what the acting instance sees, for `coterie status`."""
        refusal = self._refusal(fence)
        if not refusal:
            self.notes = notes
        return self._entered(refusal)

    @query
    def noted(self) -> ManagerNotes:
        """Give what the acting instance told last."""
        return self.notes

    # ---- rules

    def _holds(self, instance: str) -> bool:
        return bool(instance) and self.holder == instance and now() < self.expires

    def _refusal(self, fence: int) -> str:
        """Say why who has this fence may enter nothing."""
        if fence != self.fence:
            return f"fence {fence} is not the present one, {self.fence}"
        if now() >= self.expires:
            return f"the lease of fence {fence} has ended"
        return ""

    def _refusal_of(  # noqa: C901, PLR0911 -- one for each rule
        self, kind: ActionKind, group: str, places: list[str]
    ) -> str:
        policy = self.policy
        if policy is None or group not in policy.groups:
            return f"there is no group {group!r} in the policy"
        under_way = next((each for each in self.open if each.group == group), None)
        if under_way is not None:
            return f"action {under_way.number} is under way in {group}"
        if (kind == "found") == (group in self.founded):
            return f"{group} has {'' if kind == 'found' else 'not '}begun"
        if not places or len(set(places)) < len(places) or (kind != "found" and len(places) > 1):
            return "an action is about one replica, or a founding about some on different hosts"
        if kind == "remove":
            if not has_given(self.next_numbers, group, places[0]):
                return f"there is no replica {places[0]!r} of {group}"
        elif not all(host in policy.hosts for host in places):
            return "a host is not in the policy"
        if kind == "found":
            return ""
        if len(self._recent()) >= policy.changes_per_hour:
            return f"{policy.changes_per_hour} changes were begun within the last hour"
        if len(self.open) >= policy.changes_at_once:
            return f"changes are under way in {len(self.open)} groups"
        return ""

    def _new_id(self, group: str) -> str:
        number = self.next_numbers.get(group, 1)
        self.next_numbers = {**self.next_numbers, group: number + 1}
        return f"{group}-{number}"

    def _recent(self) -> list[int]:
        return [when for when in self.recent if when > now() - HOUR]

    def _find(self, number: int) -> MemberAction | None:
        return next((each for each in self.open if each.number == number), None)

    def _entered(self, refusal: str = "") -> Entered:
        return Entered(refusal=refusal, state=self.state())
