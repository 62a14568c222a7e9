"""Judging a range of positions: which entries are authoritative, and on whose evidence.

**objects** 4.1: an entry is authoritative once a majority of the configuration has accepted it,
explicitly (it is in their journals) or implicitly (it is part of a state they took over). What is
authoritative is in the history of every later primary view; so an entry that a replica gave up
for a history without it was never authoritative, and neither is one whose place another one has.

All replicas are compared column by column. Where they agree, which is nearly everywhere, nothing
is sorted and nothing is done row by row; only positions with something odd about them (different
entries, entries accepted twice, entries given up) take the longer way.

Sets of replicas are bits of a number, see `Testimony`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coterie.pipeline.history.witnesses import Testimony

    Numbers = NDArray[np.int64]
    Bits = NDArray[np.uint64]
    Flags = NDArray[np.bool_]

_NEVER = (1 << 62) - 1


class EntryStanding(enum.IntEnum):
    """What the journals at hand say of an entry."""

    AUTHORITATIVE = 0
    ROLLED_BACK = 1
    """The entry was delivered optimistically, and is void."""
    OPTIMISTIC = 2
    """Too few have accepted it so far; it may still become authoritative, or be rolled back."""
    UNDECIDABLE = 3
    """Whether it is authoritative depends on a journal that is missing."""

    @property
    def word(self) -> str:
        """The standing as tables have it."""
        return self.name.lower().replace("_", " ")


@dataclass(slots=True)
class Acceptances:
    """Rows of `entries` in one range, of all replicas, each as parallel columns."""

    positions: Numbers
    fingerprints: Numbers
    bits: Numbers
    """Which replica, by its place in the testimony."""
    keys: Numbers
    """Which record of it, see `Witness.key`."""


@dataclass(slots=True)
class Judgement:
    """The entries of a range, each once, by position."""

    positions: Numbers
    fingerprints: Numbers
    holders: Bits
    """Who accepted the entry explicitly."""
    implicit: Bits
    """Who accepted the entry as part of a state."""
    claims: Bits
    """Who called it authoritative while holding it."""
    given_up: Bits
    """Who gave it up, and did not take it again."""
    standings: NDArray[np.int8]
    is_by_word: Flags
    """Authoritative by the word of those who claim it, since journals are missing."""
    is_disputed: Flags
    """There is more than one entry at this position that could be called authoritative."""
    lacks_majority: Flags
    """Somebody calls it authoritative, and no majority can have accepted it."""
    is_unproven: Flags
    """Somebody calls it authoritative, and only what journals may lack at their ends bears it."""
    rows: Numbers
    """A row of `Acceptances` for each."""


def judge(rows: Acceptances, testimony: Testimony, start: int, width: int) -> Judgement:
    """Judge the positions from *start* on."""
    until, given_up, claimed = fates(rows, testimony)
    alive = until == _NEVER
    plain, odd = _part(rows, alive, claimed, start, width, len(testimony.witnesses))
    entries = _merge(plain, _sort_out(rows, odd, alive, given_up, claimed))
    return _decide(entries, testimony)


def fates(rows: Acceptances, testimony: Testimony) -> tuple[Numbers, Flags, Flags]:
    """Say what became of each row; see `Witness.fates`."""
    size = len(rows.positions)
    until = np.full(size, _NEVER, np.int64)
    given_up = np.zeros(size, np.bool_)
    claimed = np.zeros(size, np.bool_)
    for bit, witness in enumerate(testimony.witnesses):
        mine = np.flatnonzero(rows.bits == bit)
        if len(mine):
            found = witness.fates(rows.positions[mine], rows.keys[mine])
            until[mine], given_up[mine], claimed[mine] = found
    return until, given_up, claimed


@dataclass(slots=True)
class _Entries:
    positions: Numbers
    fingerprints: Numbers
    holders: Bits
    alive: Bits
    """Who holds it at the end."""
    claims: Bits
    given_up: Bits
    rows: Numbers


def _part(  # noqa: PLR0913, PLR0917 -- one step of `judge`
    rows: Acceptances, alive: Flags, claimed: Flags, start: int, width: int, replicas: int
) -> tuple[_Entries, Numbers]:
    """Compare all replicas at once; give the entries they agree on, and the rows left over."""
    offsets = rows.positions - start
    width = min(width, int(offsets.max(initial=-1)) + 1)  # a small group does not fill a range
    prints = np.zeros((replicas, width), np.int64)
    has = np.zeros((replicas, width), np.bool_)
    claims = np.zeros((replicas, width), np.bool_)
    index = np.zeros((replicas, width), np.int64)
    is_odd = np.zeros(width, np.bool_)
    is_odd[offsets[~alive]] = True
    for bit in range(replicas):
        mine = np.flatnonzero(rows.bits == bit)
        places = offsets[mine]
        if len(places) > 1 and not (np.diff(places) > 0).all():
            is_odd |= np.bincount(places, minlength=width) > 1
        prints[bit, places] = rows.fingerprints[mine]
        has[bit, places] = True
        claims[bit, places] = claimed[mine]
        index[bit, places] = mine
    first = has.argmax(axis=0)
    everywhere = np.arange(width)
    reference = prints[first, everywhere]
    is_odd |= ((prints != reference) & has).any(axis=0)
    plain = np.flatnonzero(has.any(axis=0) & ~is_odd)
    holders = bits_of(has[:, plain])
    entries = _Entries(
        positions=plain + start,
        fingerprints=reference[plain],
        holders=holders,
        alive=holders,
        claims=bits_of(claims[:, plain]),
        given_up=np.zeros(len(plain), np.uint64),
        rows=index[first[plain], plain],
    )
    return entries, np.flatnonzero(is_odd[offsets])


def bits_of(flags: Flags) -> Bits:
    """Make sets of replicas of one row of flags for each replica."""
    result = np.zeros(flags.shape[1], np.uint64)
    for bit, row in enumerate(flags):
        result |= row.astype(np.uint64) << np.uint64(bit)
    return result


def _sort_out(
    rows: Acceptances, odd: Numbers, alive: Flags, given_up: Flags, claimed: Flags
) -> _Entries:
    """Gather rows that are not the same everywhere into entries, the long way."""
    order = odd[np.lexsort((rows.fingerprints[odd], rows.positions[odd]))]
    positions, prints = rows.positions[order], rows.fingerprints[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(positions) != 0) | (np.diff(prints) != 0)
    starts = np.flatnonzero(is_new)
    own = np.uint64(1) << rows.bits[order].astype(np.uint64)

    def union(flags: Flags) -> Bits:
        if not len(starts):
            return np.zeros(0, np.uint64)
        found: Bits = np.bitwise_or.reduceat(np.where(flags, own, np.uint64(0)), starts)
        return found

    holds = union(alive[order])
    return _Entries(
        positions=positions[starts],
        fingerprints=prints[starts],
        holders=union(np.ones(len(order), np.bool_)),
        alive=holds,
        claims=union(claimed[order]),
        given_up=union(given_up[order]) & ~holds,
        rows=order[starts],
    )


def _merge(one: _Entries, other: _Entries) -> _Entries:
    positions = np.concatenate([one.positions, other.positions])
    order = np.argsort(positions, kind="stable")

    def both(first: NDArray[np.generic], second: NDArray[np.generic]) -> NDArray[np.generic]:
        joined: NDArray[np.generic] = np.concatenate([first, second])[order]
        return joined

    return _Entries(
        positions[order],
        *(  # type: ignore[arg-type]
            both(getattr(one, name), getattr(other, name))
            for name in ("fingerprints", "holders", "alive", "claims", "given_up", "rows")
        ),
    )


def _decide(entries: _Entries, testimony: Testimony) -> Judgement:
    positions = entries.positions
    counted = np.uint64(testimony.counted)
    missing = testimony.missing_at(positions)
    starts = np.flatnonzero(np.diff(positions, prepend=-1))
    group = np.cumsum(np.diff(positions, prepend=-1) != 0) - 1
    candidates = np.bincount(group, minlength=len(starts))[group] if len(positions) else group

    # A replica that took over a state accepted what the state contains, which are settled
    # entries: of several at one position, the one that somebody calls authoritative.
    covered = np.zeros(len(positions), np.uint64)
    for bit, witness in enumerate(testimony.witnesses):
        covered |= (positions <= witness.covered).astype(np.uint64) << np.uint64(bit)
    implicit = covered & ~_any(entries.alive, starts, group)
    is_credited = (candidates == 1) | (entries.claims != 0)
    implicit = np.where(is_credited, implicit & ~entries.holders, np.uint64(0))

    accepted = (entries.holders | implicit) & counted
    count = np.bitwise_count(accepted)
    possible = testimony.has_quorum(accepted | missing, positions)
    thinkable = testimony.has_quorum(accepted | testimony.unheard_at(positions), positions)
    is_majority = testimony.has_quorum(accepted, positions)
    is_by_word = ~is_majority & (entries.claims != 0) & possible
    may_be = is_majority | is_by_word
    # Where a promise is broken there may be two of them; one order needs one of them.
    weight = np.bitwise_count(entries.claims).astype(np.int64) * 64 + count
    is_authoritative = may_be & (_best(np.where(may_be, weight, -1), group) == weight)
    is_authoritative &= _first(is_authoritative, group)
    other = _any(is_authoritative.astype(np.uint64), starts, group) != 0
    rivals = np.bincount(group, weights=may_be | (entries.claims != 0), minlength=len(starts))
    is_disputed = (rivals[group] > 1) & (may_be | (entries.claims != 0)) if len(group) else may_be

    standings = np.full(len(positions), EntryStanding.OPTIMISTIC, np.int8)
    standings[(missing != 0) & possible] = EntryStanding.UNDECIDABLE
    standings[other | (entries.given_up != 0)] = EntryStanding.ROLLED_BACK
    standings[is_authoritative] = EntryStanding.AUTHORITATIVE
    return Judgement(
        positions=positions,
        fingerprints=entries.fingerprints,
        holders=entries.holders,
        implicit=implicit,
        claims=entries.claims,
        given_up=entries.given_up,
        standings=standings,
        is_by_word=is_by_word & is_authoritative,
        is_disputed=is_disputed,
        lacks_majority=(entries.claims != 0) & ~thinkable,
        is_unproven=(entries.claims != 0) & ~possible & thinkable,
        rows=entries.rows,
    )


def _any(bits: Bits, starts: Numbers, group: Numbers) -> Bits:
    """Give, for each entry, the union over all entries at its position."""
    if not len(starts):
        return bits
    found: Bits = np.bitwise_or.reduceat(bits, starts)[group]
    return found


def _best(weights: Numbers, group: Numbers) -> Numbers:
    """Give, for each entry, the highest weight at its position."""
    best = np.full(int(group[-1]) + 1 if len(group) else 0, -1, np.int64)
    np.maximum.at(best, group, weights)
    return best[group]


def _first(flags: Flags, group: Numbers) -> Flags:
    """Keep one flag at each position."""
    chosen = np.flatnonzero(flags)
    result = np.zeros(len(flags), np.bool_)
    result[chosen[np.diff(group[chosen], prepend=-1) != 0]] = True
    return result
