"""Small histories of each model, told by hand, with the explanations as a reader sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from coterie.checking import linearizability
from coterie.checking.linearizability import (
    UNSEEN,
    Acquire,
    Add,
    Append,
    At,
    CompareAndSet,
    CounterModel,
    Dequeue,
    Enqueue,
    Get,
    Holder,
    KeyValue,
    Linearizable,
    Lock,
    Model,
    NotLinearizable,
    Operation,
    PerKey,
    Put,
    QueueModel,
    ReadRegister,
    Register,
    Release,
    Total,
    WriteRegister,
    check,
    rendering,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

AnyModel: TypeAlias = Model[Any, Any, Any]
AnyOperation: TypeAlias = Operation[Any, Any]


def told(story: str, *commands: tuple[Any, Any]) -> list[AnyOperation]:
    """Draw intervals under each other, one line for each command and its result.

    `|--|` is an operation that returned, `|--?` one that was lost. The process is the word before.
    """
    history = []
    for line, (command, result) in zip(_lines(story), commands, strict=True):
        start, end = line.index("|"), len(line) - 1
        lost = line.endswith("?")
        history.append(
            Operation(
                process=line.split()[0],
                command=command,
                result=UNSEEN if lost else result,
                called=start,
                returned=None if lost else end,
            )
        )
    return history


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def explanation(history: Iterable[AnyOperation], model: AnyModel) -> str:
    verdict = check(history, model)
    assert isinstance(verdict, NotLinearizable)
    return str(verdict)


def accepts(history: Iterable[AnyOperation], model: AnyModel) -> bool:
    return isinstance(check(history, model), Linearizable)


# Register -------------------------------------------------------------------------------------


def test_a_read_during_a_write_may_see_either_value() -> None:
    story = """
        a |---------|
        b   |--|
    """
    for seen in (None, 1):
        assert accepts(told(story, (WriteRegister(1), None), (ReadRegister(), seen)), Register())


def test_two_reads_during_a_write_do_not_go_back() -> None:
    story = """
        a |-----------|
        b   |--|
        c        |--|
    """
    commands = ((WriteRegister(1), None), (ReadRegister(), 1), (ReadRegister(), None))
    assert explanation(told(story, *commands), Register()) == (
        "Not linearizable: the history (operations: 3).\n"
        "All that returned earlier (1) fit; read → None by c does not fit as well.\n"
        "These 2 contradict each other, whichever of the others (1) happened:\n"
        "\n"
        "  b  read → 1     ├─┤\n"
        "  c  read → None      ├─┤\n"
        "\n"
        "The order that gets furthest, from None:\n"
        "\n"
        "  a  write 1 → ?  leaves 1\n"
        "  b  read → 1     leaves 1\n"
        "  c  read → None  does not fit"
    )


def test_of_two_concurrent_compare_and_sets_one_wins() -> None:
    story = """
        a |------|
        b   |------|
    """
    both = [(CompareAndSet(0, 1), True), (CompareAndSet(0, 2), True)]
    one = [(CompareAndSet(0, 1), False), (CompareAndSet(0, 2), True)]
    assert accepts(told(story, *one), Register(start=0))
    assert explanation(told(story, *both), Register(start=0)) == (
        "Not linearizable: the history (operations: 2).\n"
        "All that returned earlier (1) fit; cas 0 2 → True by b does not fit as well.\n"
        "These 2 contradict each other:\n"
        "\n"
        "  a  cas 0 1 → True  ├───┤\n"
        "  b  cas 0 2 → True    ├───┤\n"
        "\n"
        "The order that gets furthest, from 0:\n"
        "\n"
        "  a  cas 0 1 → True  leaves 1\n"
        "  b  cas 0 2 → True  does not fit"
    )


def test_a_read_of_what_nobody_wrote_stands_alone() -> None:
    story = """
        a |--|
        b      |--|
    """
    assert explanation(told(story, (ReadRegister(), 7), (WriteRegister(1), None)), Register()) == (
        "Not linearizable: the history (operations: 2).\n"
        "The first to return, read → 7 by a, cannot be placed.\n"
        "It is impossible, whichever of the others (1) happened:\n"
        "\n"
        "  a  read → 7  ├─┤\n"
        "\n"
        "The order that gets furthest, from None:\n"
        "\n"
        "  a  read → 7  does not fit"
    )


def test_what_does_not_fit_is_one_of_those_that_contradict() -> None:
    """Also when a doubted operation returns at the same time."""
    story = """
        a |----|
        b   |--|
    """
    text = explanation(told(story, (WriteRegister(9), None), (ReadRegister(), 7)), Register())
    assert text.endswith("\n\n  b  read → 7  does not fit")


# Lost operations ------------------------------------------------------------------------------


def test_a_lost_write_may_take_effect_at_any_time_or_never() -> None:
    story = """
        a |--?
        b       |--|
        c             |--|
        d                   |--|
    """
    for seen in ((None, None, None), (None, None, 1), (None, 1, 1), (1, 1, 1)):
        commands = [(WriteRegister(1), None), *((ReadRegister(), value) for value in seen)]
        assert accepts(told(story, *commands), Register())


def test_a_lost_write_takes_effect_once() -> None:
    story = """
        a |--?
        b       |--|
        c             |--|
        d                   |--|
    """
    commands = (
        (WriteRegister(1), None),
        (ReadRegister(), 1),
        (WriteRegister(2), None),
        (ReadRegister(), 1),
    )
    assert explanation(told(story, *commands), Register()) == (
        "Not linearizable: the history (operations: 4).\n"
        "All that returned earlier (2) fit; read → 1 by d does not fit as well.\n"
        "These 3 contradict each other, whichever of the others (1) happened:\n"
        "\n"
        "  b  read → 1  ├─┤\n"
        "  c  write 2       ├─┤\n"
        "  d  read → 1          ├─┤\n"
        "\n"
        "The order that gets furthest, from None:\n"
        "\n"
        "  a  write 1 → ?  leaves 1\n"
        "  b  read → 1     leaves 1\n"
        "  c  write 2      leaves 2\n"
        "  d  read → 1     does not fit"
    )


def test_a_lost_write_does_not_take_effect_before_its_call() -> None:
    story = """
        a |--|
        b      |--?
    """
    text = explanation(told(story, (ReadRegister(), 1), (WriteRegister(1), None)), Register())
    assert "The first to return, read → 1 by a, cannot be placed." in text


def test_a_lost_operation_is_not_spent_where_it_can_wait() -> None:
    """Of two ways to one state, the one with fewer lost operations must not be kept out."""
    story = """
        a |--?
        b |--?
        c     |--|
        d          |--|
        e               |--|
    """
    commands = (
        (WriteRegister(1), None),
        (WriteRegister(2), None),
        (CompareAndSet(0, 7), False),
        (ReadRegister(), 2),
        (ReadRegister(), 1),
    )
    assert accepts(told(story, *commands), Register(start=0))


def test_a_result_that_nobody_saw_fits_but_the_effect_is_there() -> None:
    story = """
        a |--|
        b      |--|
    """
    assert accepts(told(story, (Add(2), UNSEEN), (Total(), 2)), CounterModel())
    assert not accepts(told(story, (Add(2), UNSEEN), (Total(), 0)), CounterModel())


# Key-value store ------------------------------------------------------------------------------


def test_appends_are_seen_in_one_order() -> None:
    story = """
        a |--------|
        b |--------|
        c            |--|
        d                 |--|
    """
    two = (Append("x", "1"), None), (Append("x", "2"), None)
    assert accepts(told(story, *two, (Get("x"), "21"), (Get("x"), "21")), KeyValue())
    text = explanation(told(story, *two, (Get("x"), "21"), (Get("x"), "12")), KeyValue())
    assert text == (
        "Not linearizable: key 'x' (operations: 4).\n"
        "All that returned earlier (3) fit; get 'x' → '12' by d does not fit as well.\n"
        "These 2 contradict each other, whichever of the others (2) happened:\n"
        "\n"
        "  c  get 'x' → '21'  ├─┤\n"
        "  d  get 'x' → '12'      ├─┤\n"
        "\n"
        "The order that gets furthest, from '':\n"
        "\n"
        "  b  append 'x' '2' → ?  leaves '2'\n"
        "  a  append 'x' '1' → ?  leaves '21'\n"
        "  c  get 'x' → '21'      leaves '21'\n"
        "  d  get 'x' → '12'      does not fit"
    )


def test_keys_are_judged_one_by_one_and_all_bad_ones_are_named() -> None:
    story = """
        a |--|
        b      |--|
        a           |--|
        b                |--|
        c                     |--|
    """
    history = told(
        story,
        (Put("x", "1"), None),
        (Put("y", "1"), None),
        (Put("z", "1"), None),
        (Get("x"), ""),
        (Get("z"), ""),
    )
    verdict = check(history, KeyValue())
    assert isinstance(verdict, NotLinearizable)
    assert verdict.keys == ("x", "z")
    assert verdict.evidence.key == "x"


def test_the_story_in_the_documentation_of_the_rendering() -> None:
    story = """
        a |--|
        d |--|
        b      |--|
        e      |--|
        c           |--|
        d           |---|
        e               |--|
        a                    |--|
        b                         |--|
    """
    history = told(
        story,
        (Put("x", "1"), None),
        (Get("x"), ""),
        (Put("x", "2"), None),
        (Get("x"), "1"),
        (Get("x"), "1"),
        (Get("x"), "2"),
        (Get("x"), "2"),
        (Put("x", "3"), None),
        (Get("x"), "3"),
    )
    assert quoted(explanation(history, KeyValue())) in documentation(rendering)


# Counter --------------------------------------------------------------------------------------


def test_a_lost_update_of_a_counter() -> None:
    story = """
        a |------|
        b   |------|
    """
    assert accepts(told(story, (Add(1), 1), (Add(1), 2)), CounterModel())
    assert "add 1 → 1 by b does not fit as well" in explanation(
        told(story, (Add(1), 1), (Add(1), 1)), CounterModel()
    )


def test_a_long_story_begins_where_it_goes_wrong() -> None:
    """No addition can be doubted, so the evidence tells what they amount to."""
    history = [
        Operation(process=n % 3, command=Add(1), result=n + 1, called=3 * n, returned=3 * n + 4)
        for n in range(400)
    ]
    stale = Operation(process=9, command=Total(), result=7, called=1_000, returned=1_001)
    assert explanation([*history, stale], CounterModel()) == (
        "Not linearizable: the history (operations: 401).\n"
        "All that returned earlier (333) fit; total → 7 by 9 does not fit as well.\n"
        "At time 999 the state can only be 332 or 333 or 334.\n"
        "From there on, it is impossible, whichever of the others happened meanwhile:\n"
        "\n"
        "  9  total → 7  ├─┤\n"
        "\n"
        "The order that gets furthest, from 334:\n"
        "\n"
        "  9  total → 7  does not fit"
    )


# Queue ----------------------------------------------------------------------------------------


def test_a_queue_gives_each_item_once() -> None:
    story = """
        a |--|
        b      |--|
        c        |----|
    """
    commands = (Enqueue("i"), None), (Dequeue(), "i")
    assert accepts(told(story, *commands, (Dequeue(), None)), QueueModel())
    assert explanation(told(story, *commands, (Dequeue(), "i")), QueueModel()) == (
        "Not linearizable: the history (operations: 3).\n"
        "All that returned earlier (2) fit; dequeue → 'i' by c does not fit as well.\n"
        "These 2 contradict each other, whichever of the others (1) happened:\n"
        "\n"
        "  b  dequeue → 'i'  ├───┤\n"
        "  c  dequeue → 'i'    ├───┤\n"
        "\n"
        "The order that gets furthest, from ():\n"
        "\n"
        "  a  enqueue 'i' → ?  leaves ('i',)\n"
        "  b  dequeue → 'i'    leaves ()\n"
        "  c  dequeue → 'i'    does not fit"
    )


def test_a_queue_keeps_the_order_of_its_items() -> None:
    story = """
        a |--|
        a      |--|
        b           |--|
    """
    commands = (Enqueue(1), None), (Enqueue(2), None)
    assert accepts(told(story, *commands, (Dequeue(), 1)), QueueModel())
    text = explanation(told(story, *commands, (Dequeue(), 2)), QueueModel())
    assert "dequeue → 2 by b does not fit as well" in text


# Lock -----------------------------------------------------------------------------------------


def test_a_lock_has_one_owner() -> None:
    story = """
        a |--|
        b      |--|
        c           |--|
    """
    good = (Acquire("a"), True), (Acquire("b"), False), (Holder(), "a")
    assert accepts(told(story, *good), Lock())
    bad = (Acquire("a"), True), (Acquire("b"), True), (Holder(), "b")
    assert explanation(told(story, *bad), Lock()) == (
        "Not linearizable: the history (operations: 3).\n"
        "All that returned earlier (1) fit; acquire 'b' → True by b does not fit as well.\n"
        "These 2 contradict each other, whichever of the others (1) happened:\n"
        "\n"
        "  a  acquire 'a' → True  ├─┤\n"
        "  b  acquire 'b' → True      ├─┤\n"
        "\n"
        "The order that gets furthest, from None:\n"
        "\n"
        "  a  acquire 'a' → True  leaves 'a'\n"
        "  b  acquire 'b' → True  does not fit"
    )


def test_a_lost_release_may_have_freed_the_lock() -> None:
    story = """
        a |--|
        a      |--?
        b              |--|
    """
    commands = (Acquire("a"), True), (Release("a"), True), (Acquire("b"), True)
    assert accepts(told(story, *commands), Lock())
    stranger = (Acquire("a"), True), (Release("c"), True), (Acquire("b"), True)
    assert not accepts(told(story, *stranger), Lock())


# Copies, and the documentation ----------------------------------------------------------------


def test_any_model_can_be_had_by_key() -> None:
    story = """
        a |--|
        b      |--|
        c           |--|
    """
    write, other, read = At("x", WriteRegister(1)), At("y", ReadRegister()), At("x", ReadRegister())
    history = told(story, (write, None), (other, None), (read, None))
    assert explanation(history, PerKey(Register())).startswith(
        "Not linearizable: key 'x' (operations: 2).\n"
    )


def test_the_example_in_the_documentation() -> None:
    history: list[AnyOperation] = [
        Operation(process="a", command=WriteRegister(1), result=None, called=0, returned=10),
        Operation(process="b", command=ReadRegister(), result=None, called=20, returned=30),
    ]
    assert quoted(explanation(history, Register())) in documentation(linearizability)


def quoted(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def documentation(module: object) -> str:
    assert module.__doc__
    return module.__doc__


@pytest.mark.parametrize(("length", "shown"), [(48, "x" * 46), (60, "x" * 22 + "…" + "x" * 23)])
def test_long_values_are_cut_in_the_middle(length: int, shown: str) -> None:
    assert rendering._short(repr("x" * (length - 2))) == f"'{shown}'"
