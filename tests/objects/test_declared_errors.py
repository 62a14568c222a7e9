"""Errors that a class declares reach its callers as themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from tests.objects.fake_engine import FakeGroup

from coterie.objects import Failed, Level, MethodFailed, NotReplicable, define, query, update
from coterie.objects.classes.declared import FIELDS_BYTES_MAX


class SeatTaken(Exception):
    def __init__(self, seat: str, holders: set[str]) -> None:
        super().__init__(f"{seat} is taken by {len(holders)}")
        self.seat = seat
        self.holders = holders


class SoldOut(Exception):
    """Without fields of its own."""


class ReallySoldOut(SoldOut):
    """Not declared, but a kind of what is."""


@dataclass
class Late(Exception):
    minutes: int
    gate: str = "A"


class TooEarly(SeatTaken):
    def __init__(self, seat: str, holders: set[str], hours: float) -> None:
        super().__init__(seat, holders)
        self.hours = hours


class Undeclared(Exception):
    pass


class Flight:
    errors = (SeatTaken, SoldOut, Late, TooEarly, KeyError)
    taken: dict[str, str] = {}  # noqa: RUF012 -- copied for each object

    @update
    def book(self, seat: str) -> None:
        raise SeatTaken(seat, {"Ada", "Bob"})

    @update
    def fail(self, kind: int) -> None:
        match kind:
            case 0:
                raise SoldOut("all", 3)
            case 1:
                raise ReallySoldOut("all of it")
            case 2:
                raise Late(20, "B")
            case 3:
                raise TooEarly("1A", set(), 1.5)
            case 4:
                raise KeyError("seat")
            case 5:
                raise Undeclared("no")
            case 6:
                raise SoldOut(object())
            case 7:
                raise SeatTaken("1" * FIELDS_BYTES_MAX, set())
            case _:
                error = SeatTaken("1A", set())
                error.seat = 7  # type: ignore[assignment]
                raise error

    @query
    def holder(self, seat: str) -> str:
        return self.taken[seat]


FLIGHT = define(Flight)


def raised(failed: Failed) -> Exception:
    told = MethodFailed(failed.error, failed.message, failed.viewstamp, None, failed.fields)
    return FLIGHT.errors.as_raised(told)


@pytest.mark.parametrize("optimistic", [False, True])
def test_a_declared_error_is_made_again_from_its_fields(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(FLIGHT, optimistic=optimistic)
    session = group.open()
    failed = group.failure("a", session, 1, "book", "12A")
    assert (failed.error, failed.message) == ("SeatTaken", "12A is taken by 2")
    error = raised(failed)
    assert type(error) is SeatTaken
    assert (error.seat, error.holders, str(error)) == ("12A", {"Ada", "Bob"}, failed.message)
    # Where and how it stands is told by the cause.
    assert isinstance(error.__cause__, MethodFailed)
    assert error.__cause__.viewstamp == failed.viewstamp
    # A retry, at a replica that took the state over, gets the same.
    group.settle(group.position)
    group.replace("b", "a")
    group.ask("b", session, 1, "book", "12A")
    group.turn()
    assert group["b"].desk.of(session, 1)[-1] == failed
    assert group.digests_agree()


FAILURES: list[tuple[int, Any]] = [
    (0, SoldOut("all", 3)),
    (1, SoldOut("all of it")),
    (2, Late(20, "B")),
    (3, TooEarly("1A", set(), 1.5)),
    (4, KeyError("seat")),
]


@pytest.mark.parametrize(("kind", "expected"), FAILURES, ids=repr)
def test_fields_are_arguments_of_init_or_what_it_was_made_with(
    kind: int, expected: Exception
) -> None:
    group = FakeGroup(FLIGHT)
    error = raised(group.failure("a", group.open(), 1, "fail", kind))
    assert type(error) is type(expected)
    assert vars(error) == vars(expected)
    assert error.args == expected.args


@pytest.mark.parametrize("kind", [5, 6, 7, 8])
def test_what_is_not_declared_or_cannot_be_sent_is_told_as_text(kind: int) -> None:
    group = FakeGroup(FLIGHT)
    failed = group.failure("a", group.open(), 1, "fail", kind)
    assert failed.fields == b""
    error = raised(failed)
    assert isinstance(error, MethodFailed)
    assert error.error in {"Undeclared", "SoldOut", "SeatTaken"}


def test_a_query_raises_them_as_well() -> None:
    group = FakeGroup(FLIGHT)
    group.open()
    with pytest.raises(KeyError, match="12A"):
        group["a"].host.query(Level.DIRTY, "holder", "12A")


@pytest.mark.parametrize(
    "fields", [b"", b"\xc1", b"\x92\xa4What\x90", b"\x92\xa7SeatTaken\x91\x01"]
)
def test_fields_of_another_version_or_of_nobody_are_told_as_text(fields: bytes) -> None:
    failed = MethodFailed("SeatTaken", "12A", fields=fields)
    assert FLIGHT.errors.as_raised(failed) is failed


def test_declarations_are_inherited_and_names_that_mean_something_else_stay() -> None:
    class Base:
        errors: ClassVar[tuple[type[Exception], ...]] = (SoldOut,)

        @update
        def go(self) -> None: ...

    class More(Base):
        errors = (KeyError,)

    assert set(define(More).errors) == {SoldOut, KeyError}

    class Log:
        errors: list[str] = []  # noqa: RUF012 -- a field

        @update
        def go(self) -> None:
            self.errors.append("x")

    assert not list(define(Log).errors)

    class Constant:
        errors = ("a", "b")

        @update
        def go(self) -> None: ...

    assert not list(define(Constant).errors)


class NoTypes(Exception):
    def __init__(self, seat) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        self.seat = seat


class NotKept(Exception):
    def __init__(self, seat: str) -> None:
        super().__init__(seat)


class File(Exception):
    def __init__(self, file: object) -> None:
        self.file = file


class Many(Exception):
    def __init__(self, *seats: str) -> None:
        self.seats = seats


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ((SoldOut, KeyboardInterrupt), "declare classes derived from Exception"),
        ((SoldOut, "x"), "holds 'x': declare classes derived from Exception"),
        ((StopIteration,), "StopIteration ends loops in Python"),
        ((NoTypes,), r"'seat' of NoTypes.__init__ has no annotation: say what it is"),
        ((NotKept,), r"is not kept: write self\.seat = seat"),
        ((File,), r"'file' of File.__init__ is object: object cannot be encoded"),
        ((Many,), "'seats' of Many.__init__ is not an argument with a place"),
        ((SoldOut, type("SoldOut", (Exception,), {})), "two classes called SoldOut"),
    ],
)
def test_what_cannot_be_declared_is_refused(errors: tuple[Any, ...], message: str) -> None:
    body = {"errors": errors, "book": vars(Flight)["book"]}
    with pytest.raises(NotReplicable, match=message):
        define(type("Declares", (), body))
