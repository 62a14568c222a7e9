"""Plain classes as parts of transactions: what they read, write and lock."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from tests.transactional.banks import ClassBank, Notes, Plain
from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.objects import NotReplicable, define, update
from coterie.transactional import ObjectExecutor, Table
from coterie.vsr.calls.executor import Completion, Nested


class Objects:
    """Objects by name, without anybody else, and what was touched."""

    identity = "the call"

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.read_names: list[str] = []
        self.written: list[str] = []

    def read(self, name: str) -> bytes | None:
        self.read_names.append(name)
        return self.values.get(name)

    def write(self, name: str, value: bytes | None) -> None:
        self.written.append(name)
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value


def call(executor: ObjectExecutor, objects: Objects, method: str, *arguments: object) -> object:
    """Run a method that calls nobody; give its result, or its error as text in a list."""
    objects.read_names.clear()
    objects.written.clear()
    running = executor.run(method, msgspec.msgpack.encode(list(arguments)), objects)
    with pytest.raises(StopIteration) as stop:
        next(running)
    completion = stop.value.value
    assert isinstance(completion, Completion)
    result = msgspec.msgpack.decode(completion.result)
    return [result] if completion.is_failure else result


def test_a_method_touches_only_the_keys_it_names() -> None:
    executor, objects = ObjectExecutor(ClassBank), Objects()
    assert call(executor, objects, "deposit", "alice", 5) == 105
    assert call(executor, objects, "deposit", "alice", 5) == 110
    assert set(objects.read_names) == {"accounts/alice"}
    assert set(objects.written) == {"accounts/alice"}  # the key was there already
    assert call(executor, objects, "balance", "bob") == 100
    assert objects.read_names == ["accounts/bob"]
    assert objects.written == []


def test_going_through_a_table_reads_which_keys_there_are() -> None:
    executor, objects = ObjectExecutor(ClassBank), Objects()
    for name in ("alice", "bob", "carol"):
        call(executor, objects, "deposit", name, 1)
    assert call(executor, objects, "names") == ["alice", "bob", "carol"]
    assert {f"accounts#{bucket}" for bucket in range(16)} == set(objects.read_names)
    assert call(executor, objects, "total") == 303
    assert call(executor, objects, "close", "bob") == 101
    assert call(executor, objects, "names") == ["alice", "carol"]
    assert call(executor, objects, "close", "bob") == ["KeyError: 'bob'"]


def test_a_method_that_raises_is_an_answer() -> None:
    executor, objects = ObjectExecutor(ClassBank), Objects()
    assert call(executor, objects, "withdraw", "alice", 500) == ["Overdrawn: alice"]


def test_bad_calls_are_answers_too() -> None:
    executor, objects = ObjectExecutor(ClassBank), Objects()
    unknown = str(call(executor, objects, "rob"))
    assert "UnknownMethod: ClassBank has no method 'rob'" in unknown
    bad = str(call(executor, objects, "deposit", "alice", "much"))
    assert "BadArguments: ClassBank.deposit: argument 'amount' must be int" in bad


def test_values_changed_in_place_are_written() -> None:
    executor, objects = ObjectExecutor(Notes), Objects()
    assert call(executor, objects, "note", 7, "one") == 1
    assert call(executor, objects, "note", 7, "two") == 2
    assert call(executor, objects, "read", 7) == ["one", "two"]
    assert objects.written == []


def test_plain_fields_together_are_one_object() -> None:
    executor, objects = ObjectExecutor(Plain), Objects()
    assert call(executor, objects, "add", 5) == 5
    assert objects.written == [""]
    assert call(executor, objects, "total") == 5
    assert objects.read_names == [""]
    assert call(executor, objects, "add", 0) == 5


def test_chance_belongs_to_the_call() -> None:
    executor, objects = ObjectExecutor(Notes), Objects()
    first = call(executor, objects, "label")
    assert call(executor, objects, "label") == first
    objects.identity = "another call"
    assert call(executor, objects, "label") != first


def test_a_call_to_another_group_is_asked_for_and_goes_on_with_the_answer() -> None:
    executor, objects = ObjectExecutor(ClassBank), Objects()
    running = executor.run("send", msgspec.msgpack.encode(["alice", 30, "us", "bob"]), objects)
    request = next(running)
    assert request == Nested("us", "deposit", msgspec.msgpack.encode(["bob", 30]))
    with pytest.raises(StopIteration) as stop:
        running.send(Completion(msgspec.msgpack.encode(130)))
    assert msgspec.msgpack.decode(stop.value.value.result) == 70


def test_the_error_of_another_group_is_raised_in_the_method() -> None:
    executor, objects = ObjectExecutor(ClassBank), Objects()
    running = executor.run("send", msgspec.msgpack.encode(["alice", 30, "us", "bob"]), objects)
    next(running)
    with pytest.raises(StopIteration) as stop:
        running.send(Completion(msgspec.msgpack.encode("Closed: bob"), is_failure=True))
    assert stop.value.value.is_failure
    assert msgspec.msgpack.decode(stop.value.value.result) == "MethodFailed: Closed: bob"


def test_a_table_begins_empty_and_nothing_ticks() -> None:
    class Filled:
        seats: Table[str, str] = {"1A": "alice"}  # noqa: RUF012

        @update
        def take(self, seat: str) -> None:
            self.seats[seat] = "taken"

    class Ticking:
        value: int = 0

        @update
        def add(self) -> None:
            self.value += 1

        def on_tick(self) -> None:
            self.value += 1

    with pytest.raises(NotReplicable, match="seats is a table, and begins empty"):
        ObjectExecutor(Filled)
    with pytest.raises(NotReplicable, match="nothing ticks"):
        ObjectExecutor(Ticking)


def test_elsewhere_a_table_is_a_dictionary() -> None:
    bank = ClassBank()
    bank.accounts = {}
    assert bank.deposit("alice", 5) == 105
    assert define(Notes).fields[1].container is dict


def test_only_here_a_method_may_wait() -> None:
    with pytest.raises(NotReplicable, match=r"ClassBank\.send is async"):
        define(ClassBank)


# ---- in a world


class ClassBankExecutor(ObjectExecutor):
    def __init__(self) -> None:
        super().__init__(ClassBank)


def test_classes_commit_over_two_groups() -> None:
    world = BankWorld(executor=ClassBankExecutor)
    story = world.story()
    assert story.call(EU, "send", "alice", 30, US, "bob") == 70
    assert story.call(US, "withdraw", "carol", 500) == "Overdrawn: carol"
    assert is_committed(story.commit())
    world.settle()
    assert world.balance(EU, "accounts/alice") == 70
    assert world.balance(US, "accounts/bob") == 130
    assert world.value(US, "accounts/carol") is None


def test_two_keys_of_a_table_do_not_wait_for_each_other() -> None:
    world = BankWorld(executor=ClassBankExecutor)
    first = world.story()
    first.call(EU, "deposit", "alice", 1)
    first.call(EU, "deposit", "bob", 1)
    assert is_committed(first.commit())
    one, two = world.story(), world.story(client="y")
    assert one.call(EU, "deposit", "alice", 1) == 102
    assert two.call(EU, "deposit", "bob", 1) == 102
    assert is_committed(one.commit())
    assert is_committed(two.commit())
    world.settle()


def test_who_went_through_a_table_misses_no_new_key() -> None:
    world = BankWorld(executor=ClassBankExecutor)
    reader, writer = world.story(), world.story(client="y")
    assert reader.call(EU, "names") == []
    writer.ask(EU, "deposit", "alice", 1)
    assert reader.call(EU, "names") == []  # it waits
    assert is_committed(reader.commit())
    world.wait(lambda: bool(writer.answers))
    assert is_committed(writer.commit())
    world.settle()


class Careless:
    """Its updates leave what cannot be encoded, or is not what was declared."""

    total: int = 0
    notes: Table[str, int] = {}  # noqa: RUF012 -- copied for each object

    @update
    def double(self, times: int) -> int:
        self.total = max(self.total, 1) << times
        return times

    @update
    def forget(self) -> None:
        self.total = "nothing"  # type: ignore[assignment]

    @update
    def put(self, key: str, times: int) -> None:
        self.notes[key] = 1 << times

    @update
    def put_text(self, key: str) -> None:
        self.notes[key] = "text"  # type: ignore[assignment]

    @update
    def complain(self) -> None:
        raise ValueError("half of a pair: \udcff" + "x" * 10_000)


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("double", [80], "OverflowError"),
        ("forget", [], "ValidationError"),
        ("put", ["k", 80], "OverflowError"),
        ("put_text", ["k"], "ValidationError"),
        ("complain", [], r"ValueError: half of a pair: \udcff"),
    ],
)
def test_what_nobody_could_read_again_is_the_failure_of_its_method(
    method: str, arguments: list[object], error: str
) -> None:
    """It was raised outside the method, and killed the cohort; or every later call failed."""
    executor, objects = ObjectExecutor(Careless), Objects()
    assert call(executor, objects, "double", 3) == 3
    before = dict(objects.values)
    answer = call(executor, objects, method, *arguments)
    assert isinstance(answer, list)
    told = str(answer[0])
    assert told.startswith(error)
    assert len(told) < 2100
    objects.values = before  # as a primary does: what a call that failed wrote is void
    assert call(executor, objects, "double", 1) == 1


def test_arguments_that_are_no_text_are_refused() -> None:
    executor, objects = ObjectExecutor(Careless), Objects()
    running = executor.run("put", b"\x92\xa1\xff\x01", objects)
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert stop.value.value.is_failure
    assert msgspec.msgpack.decode(stop.value.value.result).startswith("BadArguments: ")


class Loose:
    """Says too little of what it holds and answers."""

    held: Any = None
    price: Decimal = Decimal(0)

    @update
    def hold(self, kind: str) -> None:
        self.held = (1, 2) if kind == "tuple" else [1, 2]

    @update
    def charge(self, price: float) -> None:
        self.price = price  # type: ignore[assignment]

    @update
    def answer(self) -> Any:  # noqa: ANN401 -- that is the point
        self.price = Decimal(5)
        return (1, 2)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("hold", ("tuple",), r"Loose.held: \(1, 2\) is a tuple and would arrive as a list"),
        ("charge", (0.1,), "Loose.price: 0.1 is a float, which is not exact"),
        ("answer", (), r"its answer \(1, 2\) is a tuple and would arrive as a list"),
    ],
)
def test_what_the_next_call_would_find_to_be_something_else_is_a_failure(
    method: str, arguments: tuple[object, ...], message: str
) -> None:
    """A field was one thing to the call that assigned it, and another to all others."""
    executor, objects = ObjectExecutor(Loose), Objects()
    failed = call(executor, objects, method, *arguments)
    assert re.search(message, str(failed))
    assert not objects.values
    call(executor, objects, "hold", "list")
    assert objects.values
