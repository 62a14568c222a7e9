"""The program's process as its agent sees it: what it executed, and what it did outside."""

from __future__ import annotations

import pytest

from coterie.agents.app import DialledName, RemoteProgram, number_of
from coterie.kernel.claims import Order, OrderKind
from coterie.llft.programs import DivergedError
from coterie.program.wire import WireKind

CONN = "17@1 here 5"


def never() -> None:
    """Start nothing."""


@pytest.fixture
def program() -> RemoteProgram:
    """Give one whose app has executed a frame of entries, and written behind it."""
    found = RemoteProgram(never)  # type: ignore[arg-type]
    found.took((WireKind.OUTPUT, 17, 0, b"answer"))
    found.took((WireKind.EXECUTED, 0, 1, b""))
    return found


def test_an_order_is_performed_once_the_app_has_executed_it(program: RemoteProgram) -> None:
    ran = Order(OrderKind.RAN)
    assert program.can_perform(ran)
    assert program.perform(ran, b"") == b""
    assert not program.can_perform(ran)


def test_output_that_no_order_has_said_is_kept_for_who_leads_next(program: RemoteProgram) -> None:
    """Found by thought: its SENT entry was stored, the leader died, and the reply was lost."""
    program.perform(Order(OrderKind.RAN), b"")
    assert [each[3] for each in program.effects] == [b"answer"]
    assert program.perform(Order(OrderKind.SENT, 0, 6, CONN), b"") == b"answer"
    assert not program.effects


def test_who_does_something_else_outside_has_diverged(program: RemoteProgram) -> None:
    program.perform(Order(OrderKind.RAN), b"")
    with pytest.raises(DivergedError, match="OUTPUT 17"):
        program.perform(Order(OrderKind.CLOSED, 0, 0, CONN), b"")
    with pytest.raises(DivergedError, match="did not output here"):
        program.perform(Order(OrderKind.SENT, 0, 6, CONN), b"")


def test_what_the_app_found_different_is_said_where_its_entries_end(program: RemoteProgram) -> None:
    program.took((WireKind.DIVERGED, 0, 0, b"here: another digest"))
    program.perform(Order(OrderKind.RAN), b"")
    with pytest.raises(DivergedError, match="another digest"):
        program.perform(Order(OrderKind.RAN), b"")


def test_names_of_connections_say_what_the_app_calls_them() -> None:
    dialled = DialledName(536870919, "db.example", 5432)
    assert DialledName.parse(str(dialled)) == dialled
    assert DialledName.parse(CONN) is None
    assert [number_of(str(dialled)), number_of(CONN), number_of("1")] == [536870919, 17, 1]
