"""What each replica's journal says of itself as a whole, in a form that every task can have.

Whether an entry that a replica accepted stayed in its history, and whether the replica called it
authoritative, is said by few records that may stand far from it: later adoptions and settlements.
A *witness* is these few, in order, for one replica over all its lives; a *group's testimony* is
all witnesses, and which replicas there should be. Both are small whatever the history is, so they
travel to all tasks, and no join is needed.

An event can *void* what a replica held above a position:

- adopting a history keeps the entries up to `kept`;
- taking over a whole state keeps what was settled; above that the replica's own entries may or may
  not be those that the state contains. The state's entries are accepted implicitly;
- beginning a life with less than was known: a loss of memory;
- an operator's `Recovered`.

A journal may also lack something: a turn that cannot be read, a segment that is gone, an end that a
machine lost or that is still being written. What may have stood there excuses whoever it could
excuse, and no more than that: a *silence* is the positions that such a gap can have spoken of.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coterie.kernel.configuration import left

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from coterie.kernel.views import Configuration

_LIFE_SHIFT = 40
SEQUENCE_MAX = 1 << _LIFE_SHIFT
REPLICAS_MAX = 63
"""Replicas of one group; sets of them are bits of one number."""
NEVER = (1 << 62) - 1
Place = tuple[str, int, int]
"""Where a record stands: replica, incarnation, sequence."""
View = tuple[int, str, int]
"""A view id as plain values; they are in the order of view ids."""
NO_VIEW_KNOWN: View = (0, "", 0)


class Void(enum.IntEnum):
    """Why a replica no longer holds what it held."""

    ADOPTED = 0
    RESTORED = 1
    LOST = 2
    RECOVERED = 3


@dataclass(slots=True)
class Voiding:
    """One event that voided what a replica held above a position."""

    key: int
    above: int
    kind: Void
    given_up_above: int
    """Above this, entries were surely given up for a history without them."""
    settled: int
    """Up to where the replica called everything authoritative just before."""

    @property
    def is_adoption(self) -> bool:
        """Whether a history was fetched from another replica."""
        return self.kind in {Void.ADOPTED, Void.RESTORED}


@dataclass(slots=True)
class Breach:
    """A replica went back on its own word: it settled a position and gave up lower ones."""

    key: int
    position: int
    settled: int
    how: str


@dataclass(slots=True)
class Witness:
    """What one replica's journal says as a whole."""

    replica: str
    lives: list[int] = field(default_factory=list)
    """The incarnations of which anything is known, in order."""
    voidings: list[Voiding] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)
    lapses: list[Breach] = field(default_factory=list)
    """Lives that began with less than the ones before had settled, and did not say so."""
    settled: int = 0
    """Up to where it calls everything authoritative at its end."""
    settled_max: int = 0
    """Up to where it has called everything authoritative at any time."""
    settled_where: Place | None = None
    """The record that says so."""
    covered: int = 0
    """Entries up to here it accepted as part of a state, or its records of them are removed."""
    unseen: int = 0
    """Entries up to here it may have accepted in records that are removed."""
    views: list[tuple[int, int]] = field(default_factory=list)
    """When it installed views, and their ranks among all views of the group."""
    settlements: list[tuple[int, int]] = field(default_factory=list)
    """In which views, by rank, it settled positions, and up to where; both rise."""
    restorations: list[tuple[int, int]] = field(default_factory=list)
    """In which views, by rank, it took over states, and of which positions."""
    acceptances: list[tuple[int, int]] = field(default_factory=list)
    """When it accepted primary views, and how long their initial histories were."""
    is_complete: bool = True
    """Whether all of its journal could be read, and no machine lost any of it on the way."""
    is_shortened: bool = False
    """Whether some of it was removed before it could be read."""
    is_open: bool = False
    """Whether it is still being written."""
    is_cut_off: bool = False
    """Whether it just ends, so that more may have been there."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """What is not there, from one key up to another: records follow at the second."""
    silences: list[tuple[int, int]] = field(default_factory=list)
    """Positions, above the first and up to the second, which it may have accepted in records that
    are not there, or not yet."""
    doubts: list[Breach] = field(default_factory=list)
    """What would be a breach, had nothing been lost right before it."""
    last_view: View = NO_VIEW_KNOWN
    """The highest view that it speaks of."""
    length: int = 0
    """The longest history that it speaks of."""

    def key(self, incarnation: int, sequence: int) -> int:
        """Give one number by which the records of the replica are in order over all its lives.

        It counts lives and does not contain the incarnation, which may be as large as the time of
        day: that of a replica which replaced another one is.
        """
        life = bisect_left(self.lives, incarnation)
        assert self.lives[life] == incarnation, f"{self.replica} had no life {incarnation}"
        return life << _LIFE_SHIFT | sequence

    def place(self, key: int) -> Place:
        """Say which record a key stands for."""
        return self.replica, self.lives[key >> _LIFE_SHIFT], key & (SEQUENCE_MAX - 1)

    def is_contiguous(self, incarnation: int, sequence: int) -> bool:
        """Say whether nothing is missing behind a record in the life it belongs to."""
        key = self.key(incarnation, sequence)
        end = self.key(incarnation, 0) + SEQUENCE_MAX
        return not any(key < gap <= end for _, gap in self.gaps)

    def may_lack(self, after: int, before: int) -> bool:
        """Say whether something may have stood between two of its records that is not there."""
        return any(start <= before and end > after for start, end in self.gaps)

    def is_silent_about(self, view: View) -> bool:
        """Say whether it may have spoken of a view in records that are not there."""
        if not self.is_complete or self.is_shortened:
            return True
        return (self.is_open or self.is_cut_off) and view > self.last_view

    def is_silent_at(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say at which positions it may have accepted an entry that is not at hand."""
        silent = positions <= self.unseen
        for above, last in self.silences:
            silent |= (positions > above) & (positions <= last)
        return silent

    def ranks(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the ranks of the views in which it wrote some of its records; 0 is before all."""
        begun = np.array([0, *(key for key, _ in self.views)], np.int64)
        ranked = np.array([0, *(rank for _, rank in self.views)], np.int64)
        found: NDArray[np.int64] = ranked[np.searchsorted(begun, keys, side="right") - 1]
        return found

    def settled_in(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the ranks of the views in which it settled positions; -1 where it did not."""
        reached = np.array([position for _, position in self.settlements], np.int64)
        ranked = np.array([*(rank for rank, _ in self.settlements), -1], np.int64)
        found: NDArray[np.int64] = ranked[np.searchsorted(reached, positions)]
        return found

    def fates(
        self, positions: NDArray[np.int64], keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Say what became of entries that were accepted at *positions* in the records *keys*.

        Gives the key of the event that voided each (or a number above all keys), whether it was
        given up for a history without it, and whether the replica called it authoritative.
        """
        until = np.full(len(positions), NEVER, np.int64)
        given_up = np.zeros(len(positions), np.bool_)
        settled = np.full(len(positions), self.settled, np.int64)
        highest = int(positions.max(initial=0))
        first = int(keys.min(initial=NEVER))
        for event in self.voidings:
            if event.above >= highest or event.key <= first:
                continue
            hit = (keys < event.key) & (positions > event.above) & (until == NEVER)
            until[hit] = event.key
            settled[hit] = event.settled
            given_up[hit] = positions[hit] > event.given_up_above
        return until, given_up, positions <= settled


@dataclass(slots=True)
class Testimony:
    """What all journals of one group say as a whole."""

    group: str
    stack: str
    configuration: Configuration
    """The one that the group began with."""
    witnesses: list[Witness]
    """In the order of their bits; the replicas that ever counted come first."""
    views: list[View] = field(default_factory=list)
    """All views that anybody installed, in order: the first has rank 1."""
    changes: list[tuple[int, Configuration]] = field(default_factory=list)
    """The later configurations, in order, each with the first position that it is in force at."""
    has_accepted_loss: bool = False
    """Whether an operator ended a loss of memory by hand: what was before may be gone."""

    @property
    def names(self) -> list[str]:
        """The replicas in the order of their bits."""
        return [witness.replica for witness in self.witnesses]

    @property
    def counted(self) -> int:
        """The bits of the replicas that ever counted for a majority."""
        everyone = {*self.configuration.members}
        for _, each in self.changes:
            everyone.update(each.members, each.before)
        return sum(1 << bit for bit, name in enumerate(self.names) if name in everyone)

    def counted_at(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Give, as bits, the replicas whose word on positions counts: there, or later."""
        stages = self._stages
        counted = np.zeros(len(positions), np.uint64)
        for index, (_, each) in enumerate(stages):
            bits = np.uint64(self._bits_of({*each.members, *each.before}))
            is_before = np.ones(len(positions), np.bool_)
            if index + 1 < len(stages):
                is_before = positions < stages[index + 1][0]
            counted[is_before] |= bits
        return counted

    def configuration_at(self, position: int) -> Configuration:
        """Give the configuration in force at a position."""
        return next(
            (each for start, each in reversed(self.changes) if start <= position),
            self.configuration,
        )

    @property
    def latest(self) -> Configuration:
        """The last configuration that anybody tells of."""
        return self.changes[-1][1] if self.changes else self.configuration

    @property
    def _stages(self) -> list[tuple[int, Configuration]]:
        """All configurations by which something may have been decided, with their beginnings."""
        stages = [(0, self.configuration), *self.changes]
        if stages[-1][1].before:
            # It may have been left by an entry that was accepted, and nobody said any more.
            stages.append((stages[-1][0], left(stages[-1][1])))
        return stages

    def has_quorum(
        self, replicas: NDArray[np.uint64], positions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Say whether sets of replicas, as bits, can have decided about the entries at positions.

        That is a quorum of the configuration in force there, or of a later one: who accepts an
        entry has all before it.
        """
        stages = self._stages
        found = np.zeros(len(positions), np.bool_)
        for index, (_, configuration) in enumerate(stages):
            decides = np.ones(len(positions), np.bool_)
            if index + 1 < len(stages):
                decides = positions < stages[index + 1][0]
            for members in (configuration.members, configuration.before):
                if members:
                    count = np.bitwise_count(replicas & np.uint64(self._bits_of(members)))
                    decides &= count > len(members) // 2
            found |= decides
        return found

    def is_quorum(self, ids: Collection[str], position: int) -> bool:
        """Say whether replicas can have decided about what is behind a position."""
        stages = self._stages
        return any(
            configuration.is_quorum(ids)
            for index, (_, configuration) in enumerate(stages)
            if index + 1 == len(stages) or position < stages[index + 1][0]
        )

    def _bits_of(self, names: Collection[str]) -> int:
        return sum(1 << bit for bit, name in enumerate(self.names) if name in names)

    def missing_at(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Give, as bits, the counted replicas whose word on positions is not at hand."""
        missing = np.zeros(len(positions), np.uint64)
        for bit, witness in enumerate(self.witnesses):
            missing |= witness.is_silent_at(positions).astype(np.uint64) << np.uint64(bit)
        return missing & self.counted_at(positions)

    def unheard_at(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Give, as bits, those and the replicas whose journals may have been cut off before.

        These prove nothing by what they do not say: who claims that they said it is not refuted.
        """
        unheard = self.missing_at(positions)
        for bit, witness in enumerate(self.witnesses):
            if witness.is_cut_off:
                is_behind = positions > witness.settled
                unheard |= is_behind.astype(np.uint64) << np.uint64(bit)
        return unheard & self.counted_at(positions)

    @property
    def missing(self) -> int:
        """The bits of the counted replicas whose word on anything is not at hand."""
        return sum(
            1 << bit
            for bit, witness in enumerate(self.witnesses)
            if (witness.silences or witness.unseen) and self.counted >> bit & 1
        )

    @property
    def is_waiting(self) -> bool:
        """Whether all that is not at hand is still to be written."""
        return any(witness.is_open for witness in self.witnesses) and all(
            witness.is_complete and (witness.is_open or not witness.silences)
            for witness in self.witnesses
        )

    @property
    def length(self) -> int:
        """The longest history that anybody speaks of."""
        return max((witness.length for witness in self.witnesses), default=0)

    def heard(self) -> int:
        """Count the positions of which all replicas that count have had their say.

        Who is silent changes at few positions, however many there are: between two of them all
        positions are alike, and the last one stands for them.
        """
        length = self.length
        ends = {length}
        for witness in self.witnesses:
            bounds = (witness.unseen, *(each for pair in witness.silences for each in pair))
            ends.update(bound for bound in bounds if 0 < bound < length)
        positions = np.array(sorted(ends), np.int64)
        counts = np.diff(positions, prepend=0)
        return int(counts[self.missing_at(positions) == 0].sum())

    @property
    def silent(self) -> set[str]:
        """The replicas that may have said more than is at hand."""
        return {
            witness.replica
            for witness in self.witnesses
            if not witness.is_complete or witness.is_shortened or witness.silences
        }

    def is_contiguous(self, replica: str, incarnation: int, sequence: int) -> bool:
        """Say whether nothing is missing behind a record in the life it belongs to."""
        return self.witness(replica).is_contiguous(incarnation, sequence)

    def witness(self, replica: str) -> Witness:
        """Give the witness of one replica."""
        return next(each for each in self.witnesses if each.replica == replica)

    def is_silent_about(self, replica: str, view: View) -> bool:
        """Say whether a replica may have spoken of a view in records that are not there."""
        return any(each.is_silent_about(view) for each in self.witnesses if each.replica == replica)

    def view_at(self, place: Place) -> View:
        """Give the view in which a replica wrote a record."""
        witness = self.witness(place[0])
        rank = int(witness.ranks(np.array([witness.key(*place[1:])], np.int64))[0])
        return self.views[rank - 1] if rank else NO_VIEW_KNOWN

    def names_of(self, bits: int) -> list[str]:
        """Give the replicas that a set of bits stands for."""
        return [name for bit, name in enumerate(self.names) if bits >> bit & 1]
