"""The columnar judgement against the rule written out row by row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.kernel.views import Configuration
from coterie.pipeline.history import witnesses as told_by
from coterie.pipeline.history.gathering import _Telling
from coterie.pipeline.history.judging import Acceptances, EntryStanding, judge
from coterie.pipeline.history.witnesses import SEQUENCE_MAX, Void, Voiding, Witness

WIDTH = 6
NAMES = ("a", "b", "c", "d")
NEVER = 1 << 62

Rows = list[tuple[int, int, int, int]]
"""Replica, key, position, entry."""

voidings = st.builds(
    lambda key, above, given, settled: Voiding(
        key, above, Void.ADOPTED, max(above, given), min(above, settled)
    ),
    st.integers(1, 20),
    st.integers(0, WIDTH),
    st.integers(0, WIDTH),
    st.integers(0, WIDTH),
)
witnesses = st.builds(
    lambda events, settled, covered, whole: Witness(
        "",
        voidings=sorted(events, key=lambda event: event.key),
        settled=settled,
        covered=covered,
        silences=[] if whole is None else [whole],
    ),
    st.lists(voidings, max_size=2),
    st.integers(0, WIDTH),
    st.sampled_from([0, 0, 0, 2, WIDTH]),
    st.sampled_from([None, None, (0, NEVER), (2, NEVER), (1, 4)]),
)
rows_of_replicas = st.lists(
    st.tuples(
        st.integers(0, len(NAMES) - 1),
        st.integers(0, 20),
        st.integers(1, WIDTH),
        st.sampled_from([7, 7, 7, 8]),
    ),
    max_size=25,
    unique_by=lambda row: row[:2],
)


def fate(witness: Witness, key: int, position: int) -> tuple[bool, bool, bool]:
    """Alive, given up, claimed."""
    for event in witness.voidings:
        if key < event.key and position > event.above:
            return False, position > event.given_up_above, position <= event.settled
    return True, False, position <= witness.settled


def judge_slowly(  # noqa: C901, PLR0912 -- the rule in one place
    rows: Rows, testimony: told_by.Testimony
) -> dict[tuple[int, int], EntryStanding]:
    majority = testimony.configuration.majority
    holders: dict[tuple[int, int], set[str]] = {}
    alive: dict[tuple[int, int], set[str]] = {}
    given: dict[tuple[int, int], set[str]] = {}
    claims: dict[tuple[int, int], set[str]] = {}
    for replica, key, position, entry in rows:
        name = NAMES[replica]
        lives, gave, claimed = fate(testimony.witnesses[replica], key, position)
        for sets, flag in ((holders, True), (alive, lives), (given, gave), (claims, claimed)):
            sets.setdefault((position, entry), set())
            if flag:
                sets[position, entry].add(name)
    covered = {witness.replica: witness.covered for witness in testimony.witnesses}
    candidates: dict[int, list[tuple[int, int]]] = {}
    for each in sorted(holders):
        candidates.setdefault(each[0], []).append(each)
    result: dict[tuple[int, int], EntryStanding] = {}
    for position, rivals in candidates.items():
        held = set().union(*(alive[each] for each in rivals))
        missing = {
            witness.replica
            for witness in testimony.witnesses
            if any(above < position <= last for above, last in witness.silences)
        }
        strong: list[tuple[int, tuple[int, int]]] = []
        sizes: dict[tuple[int, int], int] = {}
        for each in rivals:
            accepted = set(holders[each])
            if len(rivals) == 1 or claims[each]:
                accepted |= {
                    name for name in NAMES if covered[name] >= position and name not in held
                }
            sizes[each] = len(accepted | missing)
            if len(accepted) >= majority or (claims[each] and sizes[each] >= majority):
                strong.append((len(claims[each]) * 64 + len(accepted), each))
        best = max(strong, key=lambda pair: (pair[0], -pair[1][1]))[1] if strong else None
        for each in rivals:
            if each == best:
                result[each] = EntryStanding.AUTHORITATIVE
            elif best is not None or given[each] - alive[each]:
                result[each] = EntryStanding.ROLLED_BACK
            elif missing and sizes[each] >= majority:
                result[each] = EntryStanding.UNDECIDABLE
            else:
                result[each] = EntryStanding.OPTIMISTIC
    return result


@settings(max_examples=150, deadline=None)
@given(rows_of_replicas, st.lists(witnesses, min_size=4, max_size=4))
def test_columns_and_rows_come_to_the_same(rows: Rows, told: list[Witness]) -> None:
    for name, witness in zip(NAMES, told, strict=True):
        witness.replica = name
    testimony = told_by.Testimony("g", "", Configuration(1, NAMES), told)
    rows = sorted(rows)
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    judgement = judge(
        Acceptances(columns[2], columns[3], columns[0], columns[1]), testimony, 0, WIDTH + 1
    )
    found = {
        (position, entry): EntryStanding(standing)
        for position, entry, standing in zip(
            judgement.positions.tolist(),
            judgement.fingerprints.tolist(),
            judgement.standings.tolist(),
            strict=True,
        )
    }
    assert found == judge_slowly(rows, testimony)


def test_who_has_lost_its_memory_says_nothing_of_what_it_had() -> None:
    """Life 5 began with an empty disk; a segment of life 6 began before a state was fetched.

    That segment remembered a history of no length, which was taken for all that there had ever
    been: whom it had acknowledged entries to in its lost lives were said to have settled too early.
    """
    witness = Witness("a", lives=[5, 6])
    telling = _Telling(witness)
    forgotten = {"version_position": 0, "settled": 0, "is_zombie": True, "is_after_gap": False}
    for place, lost in (((5, 1), True), ((6, 1), False), ((6, 15), False)):
        row = {"event": "segment", "first": place[1], "is_after_loss": lost, **forgotten}
        telling.tell(witness.key(*place), row)
    adopted = {"position": 0, "restored": 36, "version_position": 36}
    telling.tell(witness.key(6, 15), {"event": "adopted", **adopted})
    telling.finish(is_whole=True)
    assert witness.is_silent_at(np.arange(1, 37)).all()
    assert not witness.is_silent_at(np.array([37])).any()


def test_a_life_may_be_numbered_by_the_time_of_day() -> None:
    """Of a replica that replaced another one; the number overflowed, and the run failed."""
    lives = [1, 1_763_535_600, 2**62]
    witness = Witness("a", lives=lives)
    keys = [witness.key(life, sequence) for life in lives for sequence in (0, 1, SEQUENCE_MAX - 1)]
    assert keys == sorted(keys)
    assert keys[-1] < 2**63
    assert [witness.place(key) for key in keys[-3:]] == [
        ("a", 2**62, sequence) for sequence in (0, 1, SEQUENCE_MAX - 1)
    ]
