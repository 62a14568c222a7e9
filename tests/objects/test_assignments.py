"""Which fields an update can assign is known from its code, or nothing is taken for known."""

from __future__ import annotations

import builtins
from functools import cached_property
from typing import Annotated, Any

import msgspec
import pytest
from tests.objects.fake_engine import FakeGroup

from coterie.objects import Definition, Failed, define, update


def elsewhere(replicated: Any) -> None:  # noqa: ANN401 -- any object
    replicated.other = 5


class Shop:
    total: int = 0
    other: int = 0
    note: str = ""
    open: bool = True
    best: int | None = None
    limited: Annotated[int, msgspec.Meta(le=10)] = 0
    log: list[int] = []  # noqa: RUF012 -- copied for each object
    LIMIT = 100

    @update
    def nothing(self, amount: int) -> int:
        self.log.append(amount)
        return len(self.log) + self.LIMIT

    @update
    def one(self, amount: int) -> None:
        self.total += amount

    @update
    def copied(self, note: str) -> None:
        self.note = note
        self.open = False
        self.best = None

    @update
    def computed(self, note: str) -> None:
        note = note + "!"
        self.note = note

    @update
    def either(self, note: str, *, loud: bool) -> None:
        self.note = note.upper() if loud else note

    @update
    def by_helper(self, amount: int) -> None:
        self._add(amount)

    @update
    def replaced(self) -> None:
        self.log = []

    @update
    def limit(self, amount: int) -> None:
        self.limited = amount

    @update
    def given_away(self) -> None:
        elsewhere(self)

    @update
    def set_by_name(self) -> None:
        setattr(self, "other", 1)  # noqa: B010

    @update
    def captured(self) -> None:
        def inner() -> None:
            self.other = 1

        inner()

    @update
    def renamed(self) -> None:
        me = self
        me.other = 1

    @update
    def deleted(self) -> None:
        del self.other

    @update
    def by_scope(self) -> None:
        vars(builtins.locals()["self"])["other"] = 1

    @update
    def cached(self) -> int:
        return self.expensive

    def _add(self, amount: int) -> None:
        self.other = amount
        if amount:
            self._add(0)

    @cached_property
    def expensive(self) -> int:
        return 3


SHOP = define(Shop)

KNOWN: dict[str, tuple[set[str], str | None, set[str]]] = {
    # what it can assign, what is kept for it, what is looked at
    "nothing": (set(), "", set()),
    "one": ({"total"}, "total", {"total"}),
    "copied": ({"note", "open", "best"}, None, set()),
    "computed": ({"note"}, "note", {"note"}),
    "either": ({"note"}, "note", {"note"}),
    "by_helper": ({"other"}, "other", {"other"}),
    "replaced": ({"log"}, "log", set()),
    "limit": ({"limited"}, "limited", {"limited"}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_it_is_known_what_an_update_assigns(name: str) -> None:
    method = SHOP.method(name)
    assigned, touched, checked = KNOWN[name]
    assert method.assigned is not None
    assert set(method.assigned) == assigned
    assert method.touched == touched
    assert {field for field, _ in method.checked or ()} == checked


@pytest.mark.parametrize(
    "name",
    ["given_away", "set_by_name", "captured", "renamed", "deleted", "by_scope", "cached"],
)
def test_where_the_object_goes_elsewhere_nothing_is_known(name: str) -> None:
    method = SHOP.method(name)
    assert method.assigned is None
    assert (method.touched, method.checked) == (None, None)


def test_a_class_with_attributes_of_its_own_kind_is_not_known() -> None:
    class Odd:
        total: int = 0

        def __setattr__(self, name: str, value: object) -> None:
            vars(self)[name + ""] = value

        @update
        def add(self, amount: int) -> None:
            self.total = amount

    assert define(Odd).method("add").assigned is None


class Failing:
    """Updates that assign, and then fail."""

    transactional = True
    total: int = 0
    note: str = "old"
    fresh: list[int] = []  # noqa: RUF012 -- copied for each object
    ratio: float = 0.0

    @update
    def one(self) -> None:
        self.total = 5
        raise ValueError

    @update
    def two(self, note: str) -> None:
        self.note = note
        self.total = 5
        raise ValueError

    @update
    def replaced(self) -> None:
        self.fresh = [1]
        raise ValueError

    @update
    def undeclared(self) -> None:
        setattr(self, "extra", 1)  # noqa: B010

    @update
    def large(self) -> None:
        self.total = 1 << 70

    @update
    def large_beside(self, note: str) -> None:
        self.note = note
        self.total = 1 << 70

    @update
    def wrong(self) -> None:
        self.ratio = "half"  # type: ignore[assignment]


class Flat:
    """The same without anything that changes in place: fields are set back one by one."""

    total: int = 0
    note: str = "old"

    one = Failing.one
    two = Failing.two
    large = Failing.large
    large_beside = Failing.large_beside
    undeclared = Failing.undeclared


@pytest.mark.parametrize("definition", [define(Failing), define(Flat)])
def test_whatever_is_known_a_failure_leaves_no_trace(definition: Definition) -> None:
    group = FakeGroup(definition)
    session = group.open()
    before = dict(vars(group["a"].host.replicated))
    arguments = {"two": ("new",), "large_beside": ("new",)}
    for number, name in enumerate(sorted(definition.updates), start=1):
        outcome = group.call("a", session, number, name, *arguments.get(name, ()))
        assert isinstance(outcome, Failed), name
        assert outcome.error in {"ValueError", "StateNotEncodable"}
        assert vars(group["a"].host.replicated) == before, name
    assert group.digests_agree()


def test_a_value_outside_its_bounds_is_refused() -> None:
    """It was taken, and no other replica could have read the state any more."""
    group = FakeGroup(SHOP)
    session = group.open()
    failed = group.failure("a", session, 1, "limit", 11)
    assert failed.error == "StateNotEncodable"
    assert "Expected `int` <= 10" in failed.message
    group.result("a", session, 2, "limit", 10)
