"""ComputeKnowledge and IsQuorum: what a set of servers know together (**transis** slide 32).

Pure functions of the `State`s of all members of a configuration, so that all of them come to the
same conclusion. A *zombie* has lost its disk: what actions it holds, and which are green, is true
all the same, but that it remembers no attempt proves nothing.

When is a record of an attempt *void*, so that its holder is vulnerable no longer? Judged on all
records as they were sent:

- (alpha) a primary component is known that came after the one the attempt was made from, and is
  not this attempt: it was formed by a quorum that knew better;
- (beta) a server that was to take part is here, is no zombie, and does not hold the record. So it
  never said that it was ready, and nobody installed the component; or it left it knowing all that
  any member may have made green;
- (gamma) all that were to take part have been seen holding it: all crashed, and what any of them
  had made green came to whoever has seen them. Who lost its machine in the component, with what was
  not synced, has not: its record does not name itself among those seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.kernel.components import Component, Vulnerable, Yellow, no_component, part_at
from coterie.replication.vectors import Vector, add

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coterie.colours.messages import State
    from coterie.kernel.views import Configuration, Member, ReplicaId

States = "Mapping[Member, State]"


class Knowledge(NamedTuple):
    """What the members of a configuration know together."""

    prim: Component
    yellow: Yellow | None
    records: dict[ReplicaId, Vulnerable]
    """Who is still vulnerable, by which record."""
    red_cut: Vector
    green_end: int
    holders: list[Member]
    """Who has all green actions that anybody has."""
    lines: dict[ReplicaId, int]
    time: int
    is_quorum: bool
    """Whether they may become the primary component."""
    least: int
    """How many members it must have."""
    strays: list[ReplicaId]
    """Who has made other actions green than most of those that came as far."""
    given_up: list[ReplicaId]
    """Whose green actions an operator gave up: others go on without them."""
    is_by_hand: bool
    """Whether an operator's word makes them a quorum."""
    left_out: list[ReplicaId]
    """Who needs a whole state, and is not waited for: the others are a quorum without it."""


class Judge:
    """The rules, each by itself; a test puts in broken ones."""

    def compute(self, states: Mapping[Member, State], configuration: Configuration) -> Knowledge:
        """Find what the senders of *states*, all members of a configuration, know together."""
        sound = {member: state for member, state in states.items() if self.counts(state)}
        prim = self.highest(sound, configuration)
        given_up = self.given_up(states, prim)
        states = {m: state for m, state in states.items() if m.id not in given_up}
        sound = {m: state for m, state in sound.items() if m.id not in given_up}
        is_by_hand = any(state.is_by_hand for state in states.values())
        records = {} if is_by_hand else self.standing(states, sound, prim)
        green_end = max(state.green_end for state in states.values())
        cut: Vector = {}
        lines: dict[ReplicaId, int] = {}
        for member, state in states.items():
            add(cut, state.red_cut)
            for replica, position in (*state.lines, (member.id, state.green_end)):
                lines[replica] = max(lines.get(replica, 0), position)
        here = [member.id for member in states]
        members = set(here).intersection(configuration.members)
        least = self.least(states, configuration)
        strays = self.strays(states, green_end)
        is_quorum = not strays and (
            configuration.is_quorum(set(here))
            if is_by_hand
            else len(members) >= least
            and not records
            and (
                self.is_quorum(prim, [member.id for member in sound])
                or self.is_everybody(states, sound, configuration, least)
            )
        )
        slow = self.slow(states, green_end) if is_quorum and not is_by_hand else []
        rest = [member.id for member in sound if member.id not in slow]
        is_enough = len(members.difference(slow)) >= least and self.is_quorum(prim, rest)
        return Knowledge(
            prim=prim,
            yellow=self.yellow(sound, prim, green_end),
            records=records,
            red_cut=cut,
            green_end=green_end,
            holders=[m for m, state in states.items() if state.green_end == green_end],
            lines=lines,
            time=max(state.time for state in states.values()),
            is_quorum=is_quorum,
            least=least,
            strays=strays,
            given_up=given_up,
            is_by_hand=is_by_hand,
            left_out=slow if is_enough else [],
        )

    def counts(self, state: State) -> bool:
        """Say whether it proves something that a server does not remember something."""
        return not state.is_zombie

    def highest(self, sound: Mapping[Member, State], configuration: Configuration) -> Component:
        """Give the last primary component that anybody knows of."""
        prims = [state.prim for state in sound.values()]
        return max(
            prims,
            key=lambda prim: prim.rank,
            default=no_component(configuration.members),
        )

    def given_up(self, states: Mapping[Member, State], prim: Component) -> list[ReplicaId]:
        """Give whose green actions are not in the history of the last component.

        An operator said that they will not come back, and a component was installed without them.
        """
        found: list[ReplicaId] = []
        for member, state in states.items():
            end = part_at(state.words, prim.words)
            if end is not None and state.green_end > end:
                found.append(member.id)
        return found

    def yellow(
        self, sound: Mapping[Member, State], prim: Component, green_end: int
    ) -> Yellow | None:
        """Give what may be green somewhere: what all who can say so, say.

        Their lists are parts of one order that begin at different places, so what they have in
        common ends at the lowest of their ends. None can say so where all were lost or crashed.
        """
        valid = [
            state.yellow
            for state in sound.values()
            if state.prim == prim and state.yellow is not None
        ]
        if not valid:
            return None
        shortest = min(valid, key=lambda yellow: yellow.end)
        return shortest.above(green_end)

    def standing(
        self, states: Mapping[Member, State], sound: Mapping[Member, State], prim: Component
    ) -> dict[ReplicaId, Vulnerable]:
        """Give the records that are not void, by their holders, with all who hold them seen."""
        standing: dict[ReplicaId, Vulnerable] = {}
        for member, state in states.items():
            record = state.vulnerable
            if record is None or state.prim.rank[0] < prim.rank[0]:
                continue  # what came of it was given up by an operator's word
            seen: set[ReplicaId] = set()
            for each in states.values():
                if each.vulnerable is not None and record.is_same(each.vulnerable):
                    seen.update(self.seen(each.vulnerable))
            if not self.is_void(record, seen, sound, prim):
                standing[member.id] = Vulnerable(
                    record.index,
                    record.attempt,
                    record.members,
                    tuple(each for each in record.members if each in seen),
                )
        return standing

    def seen(self, record: Vulnerable) -> Iterable[ReplicaId]:
        """Give whose green actions of the attempt are known to the holder of a record."""
        return record.seen

    def is_void(
        self,
        record: Vulnerable,
        seen: Iterable[ReplicaId],
        sound: Mapping[Member, State],
        prim: Component,
    ) -> bool:
        """Say whether a record of an attempt says nothing any more."""
        return self.alpha(record, prim) or self.beta(record, sound) or self.gamma(record, set(seen))

    def alpha(self, record: Vulnerable, prim: Component) -> bool:
        """Say whether a primary component is known that came instead of the attempt."""
        return prim.index > record.index and prim.attempt != record.attempt

    def beta(self, record: Vulnerable, sound: Mapping[Member, State]) -> bool:
        """Say whether somebody is here that was to take part, and knows what came of it."""
        return any(
            member.id in record.members and not record.is_same(state.vulnerable)
            for member, state in sound.items()
        )

    def gamma(self, record: Vulnerable, seen: set[ReplicaId]) -> bool:
        """Say whether all that were to take part have been seen as vulnerable as we are."""
        return seen.issuperset(record.members)

    def least(self, states: Mapping[Member, State], configuration: Configuration) -> int:
        """Give how many members a primary component must have: the most that anybody asks for.

        Whoever takes part holds all that the others do, so a zombie counts here. Settings may
        differ while replicas are restarted one by one; all must conclude the same.
        """
        asked = max(state.primary_min for state in states.values())
        return min(asked, len(configuration.members))

    def slow(self, states: Mapping[Member, State], green_end: int) -> list[ReplicaId]:
        """Give who lacks green actions that nobody keeps any more, so that it needs a whole state.

        Whoever was left out once already is waited for: under load it could be late every time.
        """
        start = min(state.start for state in states.values() if state.green_end == green_end)
        return [
            member.id
            for member, state in states.items()
            if state.green_end < start and not state.was_left_out
        ]

    def strays(self, states: Mapping[Member, State], green_end: int) -> list[ReplicaId]:
        """Give who has made other actions green than most of those that came as far.

        In this algorithm that cannot be, whatever fails: somebody lied, or a disk did. Nobody can
        be brought to another order of what is green, so there is no primary component with them.
        Where as many say one thing as another, the first ones are believed.
        """
        marks = [state.mark for state in states.values() if state.green_end == green_end]
        believed = max(marks, key=marks.count)
        return [
            member.id
            for member, state in states.items()
            if state.green_end == green_end and state.mark != believed
        ]

    def is_everybody(
        self,
        states: Mapping[Member, State],
        sound: Mapping[Member, State],
        configuration: Configuration,
        least: int,
    ) -> bool:
        """Say whether all are here, and too few have lost their disks to have been on their own.

        A later component than the last one known here would have had a member that remembers: it
        knows it, or is vulnerable by the attempt. So there was none, and the last one known, too,
        had a member that remembers what it made green. Then nobody who is missing can object: a
        single lost disk needs no operator, whoever it was.
        """
        present = {member.id for member in states}
        remembering = {member.id for member in sound}
        everybody = {*configuration.members, *configuration.before}
        return everybody <= present and len(everybody - remembering) < least

    def is_quorum(self, prim: Component, here: Iterable[ReplicaId]) -> bool:
        """Say whether replicas may follow a primary component: dynamic linear voting.

        More than half of the last one, or exactly half with its first member. So two sets of
        replicas never both may, however small components become.
        """
        present = [replica for replica in prim.members if replica in set(here)]
        if 2 * len(present) == len(prim.members):
            return present[0] == prim.members[0]
        return 2 * len(present) > len(prim.members)
