"""What arrives, and what a method leaves behind, every replica can have; else it is refused."""

from __future__ import annotations

import msgspec
import pytest
from tests.objects.fake_engine import FakeGroup
from tests.objects.test_packed import ask_many, outcomes

from coterie.objects import BadArguments, Done, Failed, Level, define, query, update


class Careless:
    """Its updates leave what cannot be encoded, or is not what was declared."""

    total: int = 0
    name: str = ""
    log: list[int] = []  # noqa: RUF012 -- copied for each object
    last: float | None = None

    @update
    def double(self, times: int) -> int:
        self.log.append(times)
        self.total = max(self.total, 1) << times
        return times

    @update
    def rename(self, name: str, *, broken: bool = False) -> str:
        self.name = name + ("\ud800" if broken else "")
        return name

    @update
    def forget(self) -> None:
        self.total = None  # type: ignore[assignment]

    @update
    def lose(self) -> None:
        del self.total

    @update
    def complain(self) -> None:
        raise ValueError("half of a pair: \udcff")

    @query
    def state(self) -> tuple[int, str, int]:
        return self.total, self.name, len(self.log)

    @query
    def lament(self) -> int:
        raise ValueError("\udcff")


CARELESS = define(Careless)
BROKEN_TEXT = b"\x91\xa3a\xffb"


def fails(outcome: object, error: str, message: str) -> None:
    assert isinstance(outcome, Failed), outcome
    assert outcome.error == error
    assert message in outcome.message
    msgspec.msgpack.encode(outcome)  # it can be told


@pytest.mark.parametrize("optimistic", [False, True])
def test_what_an_update_leaves_must_be_encodable(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(CARELESS, optimistic=optimistic)
    session = group.open()
    assert group.result("a", session, 1, "double", 62) == 62
    fails(group.call("a", session, 2, "double", 70), "StateNotEncodable", "the field 'total'")
    assert group.result("a", session, 3, "rename", "é") == "é"
    fails(
        group.call("a", session, 4, "forget"),
        "StateNotEncodable",
        "is declared int, but holds None",
    )
    fails(group.call("a", session, 5, "lose"), "StateNotEncodable", "has deleted its field 'total'")
    # It is as it was after the last update that succeeded, in place as well.
    assert group.look("state") == (1 << 62, "é", 1)
    assert group.digests_agree()


def test_the_same_for_calls_that_are_packed() -> None:
    group = FakeGroup(CARELESS)
    session = group.open()
    ask_many(group, "a", session, 1, "double", [(3,), (80,), (1,)])
    group.turn()
    first, second, third = outcomes(group, "a", session, 1, 3)
    assert isinstance(first, Done)
    fails(second, "StateNotEncodable", "the field 'total'")
    assert isinstance(third, Done)
    assert group.look("state") == (16, "", 2)
    assert group.digests_agree()


def test_text_that_is_none_can_be_told_of() -> None:
    group = FakeGroup(CARELESS)
    session = group.open()
    fails(group.call("a", session, 1, "complain"), "ValueError", r"half of a pair: \udcff")
    host = group["a"].host
    host.read(Level.DIRTY, 5, "lament", b"\x90")
    [answer] = [each for each in group["a"].desk.answers if each.request == 5]
    fails(answer.outcome, "ValueError", r"\udcff")


def test_arguments_that_are_no_text_are_refused_before_they_are_ordered() -> None:
    """One such frame killed a replica."""
    group = FakeGroup(CARELESS)
    session = group.open()
    host = group["a"].host
    with pytest.raises(BadArguments):
        host.call(session, 1, "rename", msgspec.Raw(BROKEN_TEXT), 1, 0)
    with pytest.raises(BadArguments):
        host.call_many(session, 1, "rename", b"\x91" + BROKEN_TEXT, 1, 0)
    with pytest.raises(BadArguments):
        host.read(Level.DIRTY, 5, "state", msgspec.Raw(BROKEN_TEXT), 0)
    group.turn()
    assert group.look("state") == (0, "", 0)


@pytest.mark.parametrize("payload", [BROKEN_TEXT, b"", b"\xc1", b"\x91" * 100_000 + b"\x01"])
def test_an_entry_that_is_no_command_is_passed_over(payload: bytes) -> None:
    group = FakeGroup(CARELESS)
    session = group.open()
    engine = group["a"].host.engine
    assert engine is not None
    engine.propose([payload])
    group.turn()
    assert group.result("a", session, 1, "double", 2) == 2
    assert group.digests_agree()
