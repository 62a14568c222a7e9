"""Objects whose parts expire, beside models so plain that they can only be right.

The models look at everything at every step; the objects keep agendas, heaps and weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from tests.ready.clocks import START, after, make

from coterie.ready import Claimed, Dictionary, Locks, Queue
from coterie.ready.limits import weigh

TIMES = st.sampled_from([0, 0, 0, 1, 2, 5])
LEASES = st.sampled_from([1.0, 2.0, 5.0])
KEYS = st.sampled_from("abc")


class Numbers(Dictionary[int]): ...


class Words(Queue[str]): ...


# ---- dictionary

EXPIRY = st.one_of(st.none(), LEASES)
DICTIONARY_STEPS = st.lists(
    st.tuples(
        TIMES,
        st.one_of(
            st.tuples(st.just("put"), KEYS, st.integers(0, 3), EXPIRY),
            st.tuples(st.just("put_if"), KEYS, st.integers(0, 12), EXPIRY),
            st.tuples(st.just("touch"), KEYS, st.just(0), EXPIRY),
            st.tuples(st.just("delete"), KEYS, st.just(0), st.none()),
            st.tuples(st.just("tick"), KEYS, st.just(0), st.none()),
        ),
    ),
    max_size=40,
)


@given(DICTIONARY_STEPS)
def test_dictionary(steps: list[tuple[int, tuple[str, str, int, float | None]]]) -> None:
    dictionary = make(Numbers)
    model: dict[str, tuple[int, int, float | None]] = {}
    time, version = 0, 0
    for wait, (verb, key, number, expires_in) in steps:
        time += wait
        model = {each: item for each, item in model.items() if item[2] is None or item[2] > time}
        expires = None if expires_in is None else time + expires_in
        with after(time):
            match verb:
                case "put":
                    version += 1
                    model[key] = number, version, expires
                    given = dictionary.put(key, number, expires_in=expires_in)
                    assert given == version
                case "put_if":
                    is_right = number == (model[key][1] if key in model else 0)
                    if is_right:
                        version += 1
                        model[key] = number, version, expires
                    answer = dictionary.put_if(key, number, number, expires_in=expires_in)
                    assert answer == (version if is_right else None)
                case "touch":
                    if key in model:
                        version += 1
                        model[key] = model[key][0], version, expires
                    touched = dictionary.touch(key, expires_in=expires_in)
                    assert touched == (key in model)
                case "delete":
                    was_there = model.pop(key, None) is not None
                    assert dictionary.delete(key) == was_there
                case _:
                    dictionary.on_tick()
                    assert dictionary.count() == len(model)
            assert dictionary.keys() == sorted(model)
            for each in "abc":
                value = dictionary.get(each)
                assert value == (model[each][0] if each in model else None)
    with after(time + 100):
        dictionary.on_tick()
    assert dictionary.count() == sum(item[2] is None for item in model.values())
    assert dictionary.weight == sum(weigh(k) + weigh(model[k][0]) for k in dictionary.items)


# ---- queue


@dataclass
class Waiting:
    number: int
    attempts: int = 0
    until: float | None = None
    """Claimed so long."""


QUEUE_STEPS = st.lists(
    st.tuples(
        TIMES,
        st.sampled_from(["put", "take", "claim", "confirm", "extend", "give_back", "tick"]),
        st.integers(1, 4),
        st.integers(1, 3),
        LEASES,
    ),
    max_size=40,
)


@given(QUEUE_STEPS)
def test_queue(steps: list[tuple[int, str, int, int, float]]) -> None:  # noqa: C901, PLR0912
    queue = make(Words)
    model: list[Waiting] = []
    time, last = 0, 0
    for wait, verb, number, attempt, lease in steps:
        time += wait
        if verb in {"take", "claim", "tick"}:
            for item in model:
                if item.until is not None and item.until <= time:
                    item.until = None
        free = next((item for item in model if item.until is None), None)
        mine = next(
            (
                item
                for item in model
                if (item.number, item.attempts) == (number, attempt) and item.until is not None
            ),
            None,
        )
        with after(time):
            match verb:
                case "put":
                    last += 1
                    model.append(Waiting(last))
                    assert queue.put(f"item {last}") == last
                case "take":
                    taken = queue.take()
                    assert taken == (f"item {free.number}" if free is not None else None)
                    if free is not None:
                        model.remove(free)
                case "claim":
                    claimed = queue.claim("ada", lease)
                    if free is None:
                        assert claimed is None
                    else:
                        free.attempts += 1
                        free.until = time + lease
                        assert claimed == Claimed(free.number, free.attempts, f"item {free.number}")
                case "confirm":
                    assert queue.confirm(number, attempt) == (mine is not None)
                    if mine is not None:
                        model.remove(mine)
                case "extend":
                    is_mine = queue.extend(number, attempt, lease)
                    assert is_mine == (mine is not None)
                    if mine is not None:
                        mine.until = time + lease
                case "give_back":
                    assert queue.give_back(number, attempt) == (mine is not None)
                    if mine is not None:
                        mine.until = None
                case _:
                    queue.on_tick()
            counts = queue.counts()
            assert counts.waiting == sum(item.until is None for item in model)
            assert counts.claimed == sum(item.until is not None for item in model)
            assert queue.weight == sum(weigh(f"item {item.number}") for item in model)


# ---- locks

LOCK_STEPS = st.lists(
    st.tuples(
        TIMES,
        st.sampled_from(["acquire", "renew", "release", "tick"]),
        KEYS,
        st.integers(1, 6),
        LEASES,
    ),
    max_size=40,
)


@given(LOCK_STEPS)
def test_locks(steps: list[tuple[int, str, str, int, float]]) -> None:
    locks = make(Locks)
    model: dict[str, tuple[int, float]] = {}
    time, last = 0, 0
    for wait, verb, name, fence, lease in steps:
        time += wait
        model = {each: held for each, held in model.items() if held[1] > time}
        is_held = name in model and model[name][0] == fence
        with after(time):
            match verb:
                case "acquire":
                    is_free = name not in model
                    if is_free:
                        last += 1
                        model[name] = last, time + lease
                    given = locks.acquire(name, "ada", lease)
                    assert given == (last if is_free else None)
                case "renew":
                    if is_held:
                        model[name] = fence, time + lease
                    assert locks.renew(name, fence, lease) == is_held
                case "release":
                    if is_held:
                        del model[name]
                    assert locks.release(name, fence) == is_held
                case _:
                    locks.on_tick()
                    assert locks.count() == len(model)
            for each in "abc":
                holder = locks.holder(each)
                assert (holder is not None) == (each in model)
                if holder is not None:
                    assert (holder.fence, holder.expires) == (
                        model[each][0],
                        START + round(model[each][1] * 1_000_000),
                    )
