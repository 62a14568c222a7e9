"""Vectors against plain sets, logs and gatherings against what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.engine import Run
from coterie.kernel.views import Member, ViewId
from coterie.replication.gathering import Gathering
from coterie.replication.log import Log
from coterie.replication.messages import FetchMissing, Missing, StateOffer
from coterie.replication.transfer import Donor
from coterie.replication.vectors import Vector, add, beyond, covers, last_number, split

if TYPE_CHECKING:
    from collections.abc import Sequence

VIEW = ViewId(1, "a", 1)
ORIGINS = [Member(id, 1) for id in "abc"]
VECTORS = st.dictionaries(st.sampled_from(ORIGINS), st.integers(0, 12))

Entry = tuple[Member, int]


def in_vector(vector: Vector) -> set[Entry]:
    return {(origin, n) for origin, last in vector.items() for n in range(1, last + 1)}


def in_runs(runs: Sequence[Run]) -> list[Entry]:
    return [(run.origin, run.first + i) for run in runs for i in range(len(run.payloads))]


def in_log(log: Log) -> set[Entry]:
    return in_vector(log.contained)


@st.composite
def sequences(draw: st.DrawFn, vector: Vector | None = None) -> list[Run]:
    """Runs in an order in which a replica may have taken them, up to a vector."""
    wanted = draw(VECTORS) if vector is None else vector
    left = {origin: number for origin, number in wanted.items() if number}
    taken: dict[Member, int] = {}
    runs: list[Run] = []
    position = 1
    while left:
        origin = draw(st.sampled_from(sorted(left)))
        count = draw(st.integers(1, left[origin]))
        first = taken.get(origin, 0) + 1
        runs.append(Run(VIEW, first, position, origin, first, [b"x"] * count))
        taken[origin] = last_number(runs[-1])
        position += count
        left[origin] -= count
        if not left[origin]:
            del left[origin]
    return runs


def log_of(runs: Sequence[Run], *, settled: int = 0, bytes_max: int = 1 << 20) -> Log:
    log = Log(bytes_max=bytes_max)
    for run in runs:
        log.append(run)
    log.settle(min(settled, log.end))
    return log


@given(VECTORS, VECTORS)
def test_vectors_stand_for_sets(one: Vector, two: Vector) -> None:
    assert covers(one, two) == (in_vector(two) <= in_vector(one))
    both = dict(one)
    add(both, two.items())
    assert in_vector(both) == in_vector(one) | in_vector(two)


@given(sequences(), VECTORS)
def test_beyond_and_split_keep_every_entry_in_order(runs: list[Run], vector: Vector) -> None:
    rest = [part for run in runs if (part := beyond(run, vector)) is not None]
    assert in_runs(rest) == [entry for entry in in_runs(runs) if entry not in in_vector(vector)]
    inside = [entry for entry in in_runs(runs) if entry in in_vector(vector)]
    assert in_runs(split(runs, vector)) == inside + in_runs(rest)


@given(sequences(), st.integers(0, 40), st.integers(0, 20), st.integers(0, 40))
def test_a_log_knows_what_it_contains(
    runs: list[Run], settled: int, bytes_max: int, cut: int
) -> None:
    log = log_of(runs, settled=settled, bytes_max=bytes_max)
    entries = in_runs(runs)
    assert in_log(log) == set(entries)
    assert in_vector(log.forgotten) == set(entries[: log.start])
    assert in_vector(log.origins(log.settled)) == set(entries[: log.settled])
    assert in_runs(list(log.above(log.start))) == entries[log.start :]
    if cut >= log.settled:
        log.cut_off(cut)
        assert in_log(log) == set(entries[:cut])
        assert log.end == min(cut, len(entries))


@given(sequences(), VECTORS)
def test_a_log_is_covered_up_to_the_first_entry_that_is_not(
    runs: list[Run], vector: Vector
) -> None:
    log = log_of(runs)
    entries = in_runs(runs)
    position = log.covered_by(vector)
    assert set(entries[:position]) <= in_vector(vector)
    assert position == len(entries) or entries[position] not in in_vector(vector)


def nothing() -> None:
    raise AssertionError("no state is asked for")


@given(st.data())
def test_everything_is_gathered_from_whoever_has_it(data: st.DataObject) -> None:
    """Donors hold different sets; one of them, which holds everything, may have forgotten some."""
    mine = log_of(data.draw(sequences()))
    others = {Member(id, 1): log_of(data.draw(sequences())) for id in "xyz"}
    target: Vector = dict(mine.contained)
    for log in others.values():
        add(target, log.contained.items())
    teacher = Member("w", 1)
    everything = data.draw(sequences(target))
    settled = data.draw(st.integers(0, 36))
    others[teacher] = log_of(everything, settled=settled, bytes_max=data.draw(st.integers(0, 20)))
    donors = {member: Donor(log, nothing, 3) for member, log in others.items()}  # type: ignore[arg-type]
    holds = {member: dict(log.contained) for member, log in others.items()}
    gathering = Gathering(holds, dict(mine.contained), target, data.draw(st.integers(0, 3)))
    for _ in range(200):
        if gathering.is_complete:
            break
        (request,) = gathering.requests()
        assert isinstance(request, FetchMissing)
        log, answer = others[gathering.donor], None
        if covers(dict(request.holds), log.forgotten):
            answer = donors[gathering.donor].answer_missing(request, gives_state=False)
            assert isinstance(answer, Missing)
            if not gathering.take(gathering.donor, answer):
                gathering.change_donor()
        else:
            offer = StateOffer(log.settled, list(log.origins(log.settled).items()))
            assert gathering.take(gathering.donor, offer)
            gathering.state.count = 0  # as if all chunks were here
    assert gathering.is_complete
    state = gathering.state.offer
    have = set() if state is None else in_vector(dict(state.origins))
    result = (in_log(mine) if state is None else have) | set(in_runs(gathering.runs))
    assert result == in_vector(target)
    if state is not None:
        assert gathering.source == teacher
