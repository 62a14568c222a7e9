"""A state that travels arrives as it was, in chunks of any size, or not at all."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.objects import classes

from coterie.kernel.views import ViewId
from coterie.objects import BadSnapshot, HostSettings, define
from coterie.objects.classes.encodable import canonical
from coterie.objects.execution.machine import StateMachine
from coterie.objects.execution.machine_parts import PIECE_BYTES, machine_from_parts, parts_of
from coterie.objects.execution.outcomes import Done, Failed
from coterie.objects.execution.sessions import Session
from coterie.objects.execution.snapshots import FieldPart, Head, read, write

SETTINGS = HostSettings()
BANK = define(classes.Bank)
INDEX = define(classes.Index)
VIEW = ViewId(3, "a", 1)


def machine(definition: Any = BANK) -> StateMachine:  # noqa: ANN401
    return StateMachine(definition, SETTINGS, seed=b"seed", majority=2)


def carried(donor: StateMachine, chunk_bytes: int = 1000) -> StateMachine:
    """Take a machine over by way of chunks."""
    chunks = list(write(parts_of(donor), chunk_bytes))
    assert all(len(chunk) <= chunk_bytes for chunk in chunks)
    return machine_from_parts(donor.definition, SETTINGS, read(chunks), majority=2)


accounts = st.builds(
    classes.Account,
    st.text(max_size=5),
    st.integers(-(2**63), 2**64 - 1),
    st.lists(st.text(max_size=5), max_size=3),
)
outcomes = st.dictionaries(
    st.integers(1, 1000),
    st.builds(Done, st.integers(0, 9), st.just(VIEW), st.integers(0, 9), st.binary(max_size=100))
    | st.builds(Failed, st.integers(0, 9), st.just(VIEW), st.integers(0, 9), st.text(), st.text()),
    max_size=5,
)


@st.composite
def machines(draw: st.DrawFn) -> StateMachine:
    made = machine()
    bank = made.object
    assert isinstance(bank, classes.Bank)
    bank.accounts = draw(st.dictionaries(st.integers(-9, 99), accounts, max_size=9))
    bank.fee = classes.Money(draw(st.integers(0, 9)))
    bank.recent = deque(draw(st.lists(st.tuples(st.integers(), st.integers()), max_size=4)))
    bank.recent = deque((a % 100, b % 100) for a, b in bank.recent)
    bank.owners = draw(st.sets(st.text(max_size=5), max_size=9))
    bank.moves = draw(st.integers(0, 99))
    for id in draw(st.sets(st.integers(1, 99), max_size=4)):
        session = Session(id, draw(st.integers(0, 99)), draw(st.integers(1, 5)))
        made.sessions.take(session, list(draw(outcomes).items()))
    for replica in draw(st.lists(st.sampled_from("abc"), max_size=4)):
        made.time.observe(replica, draw(st.integers(0, 1 << 53)))
    made.position = draw(st.integers(0, 1 << 60))
    made.next_digest = made.position + draw(st.integers(0, 1000))
    made.results = draw(st.integers(0, (1 << 32) - 1))
    made.view, made.number = VIEW, draw(st.integers(0, 9))
    return made


def contents(of: StateMachine) -> dict[str, object]:
    """Everything a machine knows."""
    return {
        "object": vars(of.object),
        "order": [list(value) for value in vars(of.object).values() if isinstance(value, dict)],
        "sessions": {
            id: (each.used, each.lowest, each.outcomes, each.bytes)
            for id, each in of.sessions.table.items()
        },
        "time": (of.time.value, of.time.to_clocks(), of.time.wants_witnesses),
        "rest": (of.position, of.results, of.next_digest, of.seed, of.view, of.number),
        "bytes": of.sessions.bytes,
    }


@given(machines(), st.integers(1, 300))
def test_a_state_arrives_as_it_was(donor: StateMachine, chunk_bytes: int) -> None:
    taken = carried(donor, chunk_bytes)
    assert contents(taken) == contents(donor)
    assert taken.digest() == donor.digest()
    twin = donor.copy()
    assert contents(twin) == contents(donor)
    # What they hold is their own.
    for other in (taken, twin):
        assert isinstance(other.object, classes.Bank)
        other.object.accounts[1] = classes.Account("new")
        other.object.owners.add("new")
        for session in other.sessions.table.values():
            session.outcomes.clear()
    assert contents(carried(donor)) == contents(donor)


@given(machines(), st.data())
def test_a_damaged_or_broken_off_state_is_never_taken_over(
    donor: StateMachine, data: st.DataObject
) -> None:
    chunks = list(write(parts_of(donor), 40))
    what = data.draw(st.sampled_from(["cut", "flip", "swap", "repeat", "grow"]))
    place = data.draw(st.integers(0, len(chunks) - 1))
    if what == "cut":
        del chunks[place:]
    elif what == "flip":
        at = data.draw(st.integers(0, len(chunks[place]) - 1))
        bit = 1 << data.draw(st.integers(0, 7))
        damaged = bytearray(chunks[place])
        damaged[at] ^= bit
        chunks[place] = bytes(damaged)
    elif what == "swap":
        chunks[place], chunks[0] = chunks[0], chunks[place]
    elif what == "repeat":
        chunks.insert(place, chunks[place])
    else:
        chunks.append(b"more")
        chunks[-2:] = [b"".join(chunks[-2:])]
    if chunks == list(write(parts_of(donor), 40)):
        return
    with pytest.raises(BadSnapshot):
        machine_from_parts(BANK, SETTINGS, read(chunks), majority=2)


def test_a_repeated_last_chunk_is_noticed() -> None:
    chunks = list(write(parts_of(machine()), 40))
    with pytest.raises(BadSnapshot):
        list(read([*chunks, chunks[-1]]))


def test_large_containers_travel_in_pieces() -> None:
    donor = machine()
    bank = donor.object
    assert isinstance(bank, classes.Bank)
    for number in range(20_000, 0, -1):
        bank.accounts[number] = classes.Account(f"owner {number}", number)
        bank.recent.append((number, number))
        bank.owners.add(f"owner {number}")
    parts = [part for part in parts_of(donor) if isinstance(part, FieldPart)]
    assert max(len(part.data) for part in parts) < 2 * PIECE_BYTES
    assert len([part for part in parts if part.name == "accounts"]) > 5
    taken = carried(donor, 256 << 10)
    assert contents(taken) == contents(donor)
    assert isinstance(taken.object, classes.Bank)
    assert list(taken.object.accounts)[:3] == [20_000, 19_999, 19_998]


def test_a_class_may_carry_its_state_itself() -> None:
    donor = machine(INDEX)
    index = donor.object
    assert isinstance(index, classes.Index)
    index.add("word", 3)
    taken = carried(donor).object
    assert isinstance(taken, classes.Index)
    assert taken.words == {"word": frozenset({3})}
    assert donor.digest() == carried(donor).digest()


def test_states_of_others_are_refused() -> None:
    head, *rest = parts_of(machine())
    assert isinstance(head, Head)
    fields = [getattr(head, name) for name in head.__struct_fields__]
    newer = Head(99, *fields[1:])
    cases: list[tuple[list[Any], str]] = [
        ([newer, *rest], "format 99; this release reads 1"),
        (rest, "begins without a head"),
        ([head, FieldPart("unheard", b"\x01")], "has no field 'unheard'"),
        ([head, FieldPart("moves", b"\xa1x")], "cannot be read"),
    ]
    for parts, message in cases:
        with pytest.raises(BadSnapshot, match=message):
            machine_from_parts(BANK, SETTINGS, iter(parts), majority=2)


def test_a_state_whose_next_digest_is_past_is_refused() -> None:
    """The host waited in a loop for a position that could not come any more."""
    donor = machine()
    donor.position = 7
    for due in (1, 6):
        donor.next_digest = due
        with pytest.raises(BadSnapshot, match="next digest"):
            carried(donor)
    for due in (0, 7, 8):
        donor.next_digest = due
        assert carried(donor).next_digest == due


@pytest.mark.parametrize("name", ["position", "number", "next_digest", "weight", "evicted", "time"])
def test_a_state_that_counts_beyond_all_bounds_is_refused(name: str) -> None:
    """The next step would have made a number that no snapshot could ever hold."""
    head, *rest = parts_of(machine())
    for value in (2**64 - 1, -(2**63)):
        wrong = msgspec.structs.replace(head, **{name: value})
        chunks = list(write([wrong, *rest], 1000))
        with pytest.raises(BadSnapshot, match="damaged"):
            machine_from_parts(BANK, SETTINGS, read(chunks), majority=2)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.integers(0, 5) | st.text(max_size=2), inner, max_size=4)
        | st.frozensets(st.integers(0, 9) | st.text(max_size=2), max_size=4)
    ),
    max_leaves=12,
)


def shuffled(value: Any, random: Any) -> Any:  # noqa: ANN401
    """An equal value with another history."""
    if isinstance(value, dict):
        items = list(value.items())
        random.shuffle(items)
        return {key: shuffled(item, random) for key, item in items}
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    if isinstance(value, frozenset):
        items = list(value)
        random.shuffle(items)
        return frozenset(items)
    return value


@given(values, values, st.randoms(use_true_random=False))
def test_equal_values_have_equal_canonical_bytes_and_others_have_not(
    one: object, two: object, random: object
) -> None:
    assert canonical(shuffled(one, random)) == canonical(one)
    if canonical(one) == canonical(two):
        assert one == two or repr(one) != repr(two)


def test_canonical_bytes_of_records() -> None:
    account = classes.Account("a", 1, ["x"])
    assert canonical({1: account}) == canonical({1: dataclasses.replace(account)})
    assert canonical({1: account}) != canonical({1: dataclasses.replace(account, balance=2)})
    assert canonical({(1, 2): classes.Money(1)}) == canonical({(1, 2): classes.Money(1)})
    assert canonical({3: deque([1])}) == canonical({3: deque([1])})
