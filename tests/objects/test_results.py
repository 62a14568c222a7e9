"""A method that does not answer what its annotation says fails, alike everywhere."""

from __future__ import annotations

import msgspec
import pytest
from tests.objects.fake_engine import FakeGroup

from coterie.objects import Done, Failed, Level, MethodFailed, define, query, update


class Liar:
    log: list[str] = []  # noqa: RUF012

    @update
    def number(self, answer: str) -> int:
        self.log.append(answer)
        return int(answer) if answer.isdigit() else answer  # type: ignore[return-value]

    @update
    def nothing(self, answer: int) -> None:
        self.log.append("nothing")
        return answer or None  # type: ignore[return-value]

    @update
    def numbers(self, answer: list[int | str]) -> list[int]:
        self.log.append("numbers")
        return answer  # type: ignore[return-value]

    @update
    def fraction(self, answer: int) -> float:
        self.log.append("fraction")
        return answer

    @query
    def first(self) -> int:
        return self.log[0]  # type: ignore[return-value]

    @query
    def count(self) -> int:
        return len(self.log)


LIAR = define(Liar)


@pytest.mark.parametrize("optimistic", [False, True])
def test_an_update_that_breaks_its_word_is_undone(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(LIAR, optimistic=optimistic)
    session = group.open()
    assert group.result("a", session, 1, "number", "7") == 7
    failed = group.failure("b", session, 2, "number", "seven")
    assert failed.error == "BadResult"
    assert failed.message == (
        "Liar.number must answer int, and does not: Expected `int`, got `str`"
    )
    assert group.failure("a", session, 3, "nothing", 3).error == "BadResult"
    assert group.result("a", session, 4, "nothing", 0) is None
    assert group.failure("a", session, 5, "numbers", [1, "two"]).error == "BadResult"
    assert group.result("a", session, 6, "numbers", [1, 2]) == [1, 2]
    # An integer is as good as a fraction.
    assert group.result("a", session, 7, "fraction", 3) == 3.0
    assert group.look("count") == 4
    assert group.digests_agree()


def test_so_is_one_of_many_in_one_entry() -> None:
    group = FakeGroup(LIAR)
    session = group.open()
    calls = msgspec.msgpack.encode([("1",), ("two",), ("3",)])
    group["a"].host.call_many(session, 1, "number", calls)
    group.turn()
    outcomes = [group["a"].host.outcome_of(session, number) for number in (1, 2, 3)]
    assert [type(outcome) for outcome in outcomes] == [Done, Failed, Done]
    assert group.look("count") == 2
    assert group.digests_agree()


def test_a_query_that_breaks_its_word_fails() -> None:
    group = FakeGroup(LIAR)
    session = group.open()
    group.result("a", session, 1, "number", "7")
    with pytest.raises(MethodFailed, match=r"BadResult: Liar\.first must answer int"):
        group["a"].host.query(Level.DIRTY, "first")
