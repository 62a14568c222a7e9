"""Kinds of record: by whom they are, and how others are added."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coterie.kernel.records import (
    KINDS,
    RANGES,
    Record,
    Stopped,
    decode_record,
    decode_records,
    encode_record,
    forget,
    is_essential,
    register,
    schema,
)
from coterie.kernel.views import Member

HOME = "coterie.kernel.records."


class Sighted(Record, tag=-65, frozen=True, kw_only=True):
    """A kind of a family that lives elsewhere."""

    ship: str


@pytest.fixture
def forgotten() -> Iterator[None]:
    yield
    forget(Sighted)


def test_every_kind_is_in_the_range_of_its_module() -> None:
    for number, kind in KINDS.items():
        if kind.__module__.startswith(HOME):
            assert number in RANGES[kind.__module__.removeprefix(HOME)], kind


def test_no_number_is_given_out_twice() -> None:
    numbers = [number for numbers in RANGES.values() for number in numbers]
    assert len(numbers) == len(set(numbers))
    assert {name for name, numbers in RANGES.items() if not is_essential(numbers[0])} == {"audit"}
    assert all(
        is_essential(number) == is_essential(each[0]) for each in RANGES.values() for number in each
    )


@pytest.mark.usefixtures("forgotten")
def test_a_kind_of_another_family_is_read_once_it_is_registered() -> None:
    kinds, fields = schema()
    register(Sighted)
    assert schema() == (kinds + 1, fields + 4)
    record = Sighted("g", Member("a", 1), 7, ship="Argo")
    stopped = Stopped("g", Member("a", 1), 8)
    assert decode_record(encode_record(record)) == record
    two = b"\x92" + encode_record(record) + encode_record(stopped)
    assert decode_records(two) == [record, stopped]


def test_a_number_belongs_to_one_kind() -> None:
    class Other(Record, tag=2, frozen=True):
        """Has the number of `Stopped`."""

    with pytest.raises(ValueError, match="Other has the number 2, which is Stopped's"):
        register(Other)
    register(Stopped)  # again, which changes nothing
    assert KINDS[2] is Stopped


def test_a_kind_needs_a_number() -> None:
    class Nameless(Record, tag="nameless", frozen=True):
        """Has a name for a number."""

    with pytest.raises(ValueError, match="Nameless has no number"):
        register(Nameless)
