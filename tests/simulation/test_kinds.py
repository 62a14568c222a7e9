"""What simulated clients must see: each check fires, and what is right passes."""

from __future__ import annotations

from functools import partial

import pytest
from tests.seeded import seeded

from coterie.checking.linearizability import UNSEEN, Operation, check
from coterie.simulation import Simulation
from coterie.simulation.engines.stack import kinds
from coterie.simulation.engines.stack.kinds import (
    KINDS,
    CounterKind,
    DictionaryKind,
    ItemCommand,
    ItemModel,
    TallyKind,
    Use,
    make_kind,
)


def done(command: object, result: object, at: int) -> Operation[object, object]:
    return Operation(process=1, command=command, result=result, called=at, returned=at + 1)


def unknown(command: object, at: int) -> Operation[object, object]:
    return Operation(process=(1, at), command=command, result=UNSEEN, called=at, returned=None)


@pytest.mark.parametrize("name", KINDS)
def test_every_request_drawn_is_one_that_the_class_takes(name: str) -> None:
    kind, random = make_kind(name, is_ordered=True), seeded("kinds", name)
    uses = [kind.draw(random, f"1.{number}") for number in range(200)]
    for use in uses:
        kind.definition.method(use.method).encode(use.arguments, {})
    assert not all(use.is_read for use in uses)


def test_without_order_everything_is_a_tally() -> None:
    kind = make_kind("counter", is_ordered=False)
    assert isinstance(kind, TallyKind)
    assert kind.definition.commuting


def test_a_counter_that_forgets_is_not_linearizable() -> None:
    kind, random = CounterKind(), seeded("kinds")
    use = next(use for _ in iter(int, 1) if not (use := kind.draw(random, "")).is_read)
    (amount,) = use.arguments
    assert isinstance(amount, int)
    assert not kind.violations([done(use.command, amount, 0)], [])
    (violation,) = kind.violations([done(use.command, amount + 1, 0)], [])
    assert violation.check == "linearizability"


def test_an_item_does_what_the_dictionary_does() -> None:
    kind, random, model = DictionaryKind(), seeded("kinds", "item"), ItemModel()
    words = kind.definition.make()
    states: dict[object, str | None] = {}
    for number in range(500):
        use = kind.draw(random, f"1.{number}")
        command = use.command
        assert isinstance(command, ItemCommand)
        answer = kind.result(use, getattr(words, use.method)(*use.arguments))
        state, expected = model.apply(states.get(command.key), command)
        states[command.key] = state
        assert answer == expected, use
        assert model.is_read(command, answer) <= (state == states[command.key])


def test_a_dictionary_notices_a_request_that_was_executed_twice() -> None:
    kind = DictionaryKind()
    use = Use(ItemCommand("append", "x", "1.1;"), "append", ("x", "1.1;"))
    once, twice = [{"x": "1.1;"}], [{"x": "1.1;1.1;"}]
    operations = [unknown(use.command, 0)]
    assert not kind.violations(operations, once)
    assert [each.check for each in kind.violations(operations, twice)] == ["once"]
    seen = [*operations, done(ItemCommand("get", "x"), "1.1;1.1;", 5)]
    checks = {each.check for each in kind.violations(seen, [])}
    assert checks == {"once", "linearizability"}


def test_a_dictionary_notices_a_stale_read() -> None:
    kind = DictionaryKind()
    operations = [
        done(ItemCommand("put", "x", "1.1;"), None, 0),
        done(ItemCommand("get", "x"), None, 5),
    ]
    assert [each.check for each in kind.violations(operations, [])] == ["linearizability"]


def test_a_tally_notices_what_was_lost_and_what_was_doubled() -> None:
    kind = TallyKind()
    operations = [done("1.1", None, 0), unknown("1.2", 5)]
    assert not kind.violations(operations, [{"1.1": 1}, {"1.1": 1, "1.2": 1}])
    lost = kind.violations(operations, [{"1.2": 1}])
    assert [each.check for each in lost] == ["acknowledged means authoritative"]
    doubled = kind.violations(operations, [{"1.1": 1, "1.2": 2}])
    assert [each.check for each in doubled] == ["once"]


def test_a_history_that_nobody_can_judge_breaks_no_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for an order has a limit; to reach it was told as a broken promise."""
    monkeypatch.setattr(kinds, "check", partial(check, steps_max=0))
    group = Simulation(seed=1, stack="SAFE:DYNSEQ:PVSYNC", has_object=True).group("a", "b", "c")
    clients = group.clients
    use = next(use for _ in iter(int, 1) if not (use := clients.kind.draw(seeded(), "")).is_read)
    clients.operations += [done(use.command, 7, 0), done(use.command, 9, 2)]
    assert clients.violations() == []
    assert clients.undecided == ["linearizability undecided: no verdict after 0 steps"]
    monkeypatch.undo()
    [broken] = clients.violations()
    assert broken.check == "linearizability"
    assert clients.undecided == []
