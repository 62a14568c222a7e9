"""Group time: one clock for all replicas, made from theirs.

Every command carries the wall clock of the replica that proposed it, and group time is computed
from these readings alone, in the order of the commands; so all replicas compute the same. It never
goes back. The question is whom to believe.

**Pace.** Each replica's clock has an *offset* to group time, fixed when it first speaks: none if
the two are within `leap` (5 s) of each other, the difference otherwise. Clock + offset is its
*opinion* of what group time is. When a replica speaks, group time rises to its opinion, if that is
higher. So clocks that disagree by minutes still make one smooth time; and an opinion that comes
late, because its command was long on its way, is simply lower and does nothing.

**Leaps.** An opinion further than `leap` from group time means that this clock was set, or
that nobody has spoken for a while; one reading cannot tell which. Either way it is not followed:
the replica's offset is fixed anew, as if it spoke for the first time. A clock that jumps, by an
hour or a year, forwards or back, and back again, moves group time by `leap` at most.

**Fast clocks.** A clock that runs too fast leaps a little with every reading. So group time does
not rise above the (lower) median of the opinions of those who spoke within the last two seconds,
plus `leap`: in the long run the median clock sets the pace. With one voice there is no median,
and its pace is the pace.

**Place.** After all were silent, say because the whole group was down overnight, every clock
leaps, and group time would stay behind for ever. So where a clock leads group time by more than
`leap` it is a *witness*; once a majority of the configuration has led by amounts that agree
within `leap`, group time moves forward by the least of these amounts, at once. One faulty clock is
no majority (with three replicas or more). If group time is ahead of the clocks it waits for nobody
and comes back never: it keeps its pace, which is what leases need.

Replicas whose clocks have not been heard cannot be witnesses; `wants_witnesses` tells the host
that its own word would help. A group of one or two has a majority in each or both of its clocks,
and what holds for one faulty clock does not hold for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.clock import Duration, seconds

if TYPE_CHECKING:
    from coterie.kernel.views import ReplicaId

RECENT = seconds(2)
"""Who spoke within this much group time has a voice in the median."""
CLOCKS_MAX = 64
"""Clocks remembered; beyond it the one that has been silent for longest is forgotten."""


class Clock(msgspec.Struct, array_like=True):
    """What is known of one replica's clock."""

    offset: int
    """Group time minus the replica's clock."""
    opinion: int
    """What it last took group time to be."""
    spoke: int
    """What group time was right after the replica gave that opinion."""


class GroupTime:
    """Group time in microseconds since 1970; 0 before anybody spoke."""

    __slots__ = ("_leap", "_majority", "clocks", "value", "wants_witnesses")

    def __init__(self, leap: Duration, majority: int) -> None:
        self._leap = leap
        self._majority = majority
        self.value = 0
        self.clocks: dict[ReplicaId, Clock] = {}
        self.wants_witnesses = False
        """Whether some clock leads and others might agree with it."""

    def count_by(self, majority: int) -> None:
        """Believe so many witnesses from now on."""
        self._majority = majority

    def observe(self, replica: ReplicaId, reading: int) -> bool:
        """Take the clock of who proposed the next command; say whether that changed anything.

        The same reading twice in a row may count for more than once: after a move to another place
        its clock may be far from group time again, and leaps once more.
        """
        clock = self.clocks.get(replica)
        is_new = clock is None
        if clock is None:
            clock = self._meet(replica, reading)
        before = (self.value, clock.offset, clock.opinion, clock.spoke)
        value = self.value
        opinion = reading + clock.offset
        has_leapt = abs(opinion - value) > self._leap
        if has_leapt:
            clock.offset = self._offset(reading)
            opinion = reading + clock.offset
        if opinion > value:
            opinion = min(opinion, self._ceiling(clock, opinion))
            if opinion > value:
                self.value = opinion
        clock.opinion = opinion
        clock.spoke = self.value
        if has_leapt or is_new:
            self._find_place()
        return is_new or (self.value, clock.offset, clock.opinion, clock.spoke) != before

    def _offset(self, reading: int) -> int:
        """Give the offset at which a clock begins, or begins anew."""
        lead = reading - self.value
        return 0 if abs(lead) <= self._leap else -lead

    def _meet(self, replica: ReplicaId, reading: int) -> Clock:
        """Hear a clock for the first time."""
        if not self.clocks:
            self.value = max(self.value, reading)
        if len(self.clocks) >= CLOCKS_MAX:
            silent = min(self.clocks, key=lambda id: (self.clocks[id].spoke, id))
            del self.clocks[silent]
        clock = self.clocks[replica] = Clock(self._offset(reading), self.value, self.value)
        return clock

    def _ceiling(self, speaking: Clock, opinion: int) -> int:
        """How far group time may rise by the word of one."""
        if len(self.clocks) == 1:
            return opinion + self._leap  # one voice is its own median
        since = self.value - RECENT
        opinions = [clock.opinion for clock in self.clocks.values() if clock.spoke >= since]
        if speaking.spoke >= since:
            opinions.remove(speaking.opinion)
        opinions.append(opinion)
        opinions.sort()
        return opinions[(len(opinions) - 1) // 2] + self._leap

    def _find_place(self) -> None:
        """Move forward if a majority of clocks agree that it is later."""
        leap = self._leap
        majority = self._majority
        witnesses = sorted(
            (clock for clock in self.clocks.values() if -clock.offset > leap),
            key=lambda clock: -clock.offset,
        )
        for first in range(len(witnesses) - majority + 1):
            lead = -witnesses[first].offset
            if -witnesses[first + majority - 1].offset - lead <= leap:
                self.value += lead
                for clock in witnesses[first:]:
                    if -clock.offset - lead <= leap:
                        clock.offset += lead
                        clock.opinion += lead
                        clock.spoke += lead
                break
        self.wants_witnesses = any(-clock.offset > leap for clock in witnesses)

    def would_lead(self, replica: ReplicaId, reading: int) -> bool:
        """Say whether a replica whose clock shows *reading* would be a new witness."""
        clock = self.clocks.get(replica)
        if clock is None:
            return reading - self.value > self._leap
        return reading + clock.offset - self.value > self._leap

    # ---- copies and snapshots

    def copy(self) -> GroupTime:
        """Give an equal one that shares nothing."""
        return self.from_clocks(self._leap, self._majority, self.value, self.to_clocks())

    def to_clocks(self) -> list[tuple[ReplicaId, int, int, int]]:
        """Give the clocks for a snapshot, in an order that all replicas share."""
        return [
            (id, clock.offset, clock.opinion, clock.spoke)
            for id, clock in sorted(self.clocks.items())
        ]

    @classmethod
    def from_clocks(
        cls,
        leap: Duration,
        majority: int,
        value: int,
        clocks: list[tuple[ReplicaId, int, int, int]],
    ) -> GroupTime:
        """Make one from a snapshot."""
        made = cls(leap, majority)
        made.value = value
        made.clocks = {id: Clock(offset, opinion, spoke) for id, offset, opinion, spoke in clocks}
        made.wants_witnesses = any(-clock.offset > leap for clock in made.clocks.values())
        return made
