"""Versions of a class: what is refused, and groups whose replicas change over one by one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import pytest
from tests.objects.fake_engine import FakeGroup

from coterie.kernel.clock import seconds
from coterie.kernel.engine import Standing
from coterie.objects import (
    BadArguments,
    BadSnapshot,
    Definition,
    HostSettings,
    NotReplicable,
    ReplicaBroken,
    UnknownMethod,
    define,
    query,
    update,
)


class SeatsOfVersion1:
    taken: dict[str, str] = {}  # noqa: RUF012
    calls: int = 0

    @update
    def book(self, seat: str, name: str) -> int:
        if seat in self.taken:
            raise KeyError(seat)
        self.taken[seat] = name
        self.calls += 1
        return len(self.taken)

    @query
    def holder(self, seat: str) -> str | None:
        return self.taken.get(seat)


@dataclass
class Booking:
    name: str
    note: str = ""


class Seats:
    """Version 2: notes with bookings, and a new method."""

    version: ClassVar[int] = 2
    previous: ClassVar[type] = SeatsOfVersion1
    calls: int = 0
    bookings: dict[str, Booking] = {}  # noqa: RUF012

    def upgrade(self, old: SeatsOfVersion1) -> None:
        self.bookings = {seat: Booking(name) for seat, name in old.taken.items()}

    @update
    def book(self, seat: str, name: str, *, note: str = "") -> int:
        self.calls += 10
        self.bookings[seat] = Booking(name, note)
        if note == "half-way":
            raise ValueError(note)
        return len(self.bookings)

    @update
    def cancel(self, seat: str) -> bool:
        return self.bookings.pop(seat, None) is not None

    @query
    def holder(self, seat: str) -> str | None:
        booking = self.bookings.get(seat)
        return booking.name if booking is not None else None

    @query
    def noted(self, seat: str) -> str:
        return self.bookings[seat].note


class SeatsOfVersion3(Seats):
    """Nothing but another behaviour: fields are carried over by themselves."""

    version = 3
    previous = Seats

    @update
    def cancel(self, seat: str) -> bool:
        self.calls = -1
        return super().cancel(seat)


class Seats1(SeatsOfVersion1):
    """The first release, in which the class had no version, and its later name."""


Seats1.__qualname__ = "Seats"
SeatsOfVersion3.__qualname__ = "Seats"
FIRST = define(Seats1)
SECOND = define(Seats)
THIRD = define(SeatsOfVersion3)


# ---- definitions


def test_a_definition_knows_the_versions_before_it() -> None:
    assert [each.version for each in THIRD.versions()] == [3, 2, 1]
    assert {each.name for each in THIRD.versions()} == {"Seats"}
    assert THIRD.oldest.cls is SeatsOfVersion1
    assert THIRD.of_version(2) is not None
    assert THIRD.of_version(4) is None


def test_equal_classes_have_equal_fingerprints_and_others_have_not() -> None:
    assert FIRST.fingerprint == SECOND.oldest.fingerprint
    assert SECOND.fingerprint == THIRD.fingerprint != FIRST.fingerprint
    assert define(Seats).fingerprint == SECOND.fingerprint


class Gone:
    version = 2
    previous = SeatsOfVersion1
    taken: dict[str, str] = {}  # noqa: RUF012
    calls: int = 0

    @update
    def book(self, seat: str, name: str) -> int:
        return len(seat + name)


class Complete(SeatsOfVersion1):
    version = 2
    previous = SeatsOfVersion1


class OtherArgument(Complete):
    version = 2
    previous = SeatsOfVersion1

    @update
    def book(self, seat: int, name: str) -> int:  # type: ignore[override]
        return seat + len(name)


class RenamedArgument(Complete):
    version = 2
    previous = SeatsOfVersion1

    @update
    def book(self, place: str, name: str) -> int:
        return len(place + name)


class FewerArguments(Complete):
    version = 2
    previous = SeatsOfVersion1

    @update
    def book(self, seat: str) -> int:  # type: ignore[override]
        return len(seat)


class NewRequiredArgument(Complete):
    version = 2
    previous = SeatsOfVersion1

    @update
    def book(self, seat: str, name: str, note: str) -> int:  # type: ignore[override]
        return len(seat + name + note)


class OtherResult(Complete):
    version = 2
    previous = SeatsOfVersion1

    @update
    def book(self, seat: str, name: str) -> str:  # type: ignore[override]
        return seat + name


class OtherKind(Complete):
    version = 2
    previous = SeatsOfVersion1

    @update
    def holder(self, seat: str) -> str | None:
        return seat


class OtherField(Complete):
    version = 2
    previous = SeatsOfVersion1
    taken: dict[str, int] = {}  # type: ignore[assignment]  # noqa: RUF012


class WrongNumber(Complete):
    version = 4
    previous = SeatsOfVersion1


class NoNumber(Complete):
    previous = SeatsOfVersion1


class Zero(SeatsOfVersion1):
    version = 0


class FieldOfThatName(Complete):
    version: int = 2
    previous = SeatsOfVersion1


class FailingUpgrade(Complete):
    version = 2
    previous = SeatsOfVersion1

    def upgrade(self, old: SeatsOfVersion1) -> None:
        raise LookupError(old.taken)


class BadUpgrade(Complete):
    version = 2
    previous = SeatsOfVersion1

    def upgrade(self, old: SeatsOfVersion1) -> None:
        self.calls = str(old.calls)  # type: ignore[assignment]


class ClockInUpgrade(Complete):
    version = 2
    previous = SeatsOfVersion1

    def upgrade(self, old: SeatsOfVersion1) -> None:
        self.calls = old.calls + round(time.time())


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Gone, "Gone of version 2 has no query 'holder': callers may still use it, so keep it"),
        (OtherArgument, "'book' took seat: str and takes seat: int; give the new one another name"),
        (RenamedArgument, "'book' took seat: str and takes place: str"),
        (FewerArguments, "'book' took 2 arguments and takes 1"),
        (NewRequiredArgument, "'book' takes note, which has no default"),
        (OtherResult, "'book' answered int and answers str"),
        (OtherKind, "'holder' was query and is update"),
        (OtherField, r"the field 'taken' \(dict\[str, str\]\) is gone or another: write upgrade"),
        (WrongNumber, "follows version 1: give it version = 2"),
        (NoNumber, "follows version 1: give it version = 2"),
        (Zero, "versions begin with 1"),
        (FieldOfThatName, r"version is a field: write version: ClassVar\[int\]"),
        (FailingUpgrade, r"upgrade\(\) of the initial state failed: LookupError"),
        (BadUpgrade, r"after upgrade\(\) of the initial state the field 'calls'.*holds '0'"),
        (ClockInUpgrade, r"upgrade would differ from replica to replica. time\.time"),
    ],
)
def test_what_cannot_follow_is_refused(cls: type, message: str) -> None:
    with pytest.raises(NotReplicable, match=message):
        define(cls)


class Versioned:
    """A field or a method may be called so; it is no version then."""

    version: int = 7
    kept: ClassVar[int] = 3

    @update
    def go(self) -> int:
        self.version += 1
        return self.version

    @query
    def previous(self) -> int:
        return self.version - 1


def test_a_field_called_version_is_a_field() -> None:
    definition = define(Versioned)
    assert definition.version == 1
    assert [field.name for field in definition.fields] == ["version"]


# ---- groups


def start(definition: Definition = FIRST, *, optimistic: bool = False) -> tuple[FakeGroup, int]:
    group = FakeGroup(definition, optimistic=optimistic, settings=HostSettings(digest_interval=1))
    session = group.open()
    group.result("a", session, 1, "book", "1A", "Ada")
    return group, session


def release(group: FakeGroup, id: str, definition: Definition, incarnation: int = 2) -> None:
    """Start a replica anew with another release."""
    group.settle(group.position)
    group.definitions[id] = definition
    donor = next(each for each in group.ids if each != id)
    group.replace(id, donor, incarnation=incarnation)


def tick(group: FakeGroup) -> None:
    group.advance_clocks(seconds(1))
    for replica in group.replicas.values():
        replica.host.tick()
    group.turn()


def versions(group: FakeGroup) -> list[int]:
    return [replica.host.definition.version for replica in group.replicas.values()]


@pytest.mark.parametrize("optimistic", [False, True])
def test_replicas_change_over_together_when_the_last_one_is_upgraded(
    optimistic: bool,  # noqa: FBT001
) -> None:
    group, session = start(optimistic=optimistic)
    for request, id in enumerate("abc", start=2):
        assert versions(group) == [1, 1, 1]
        group.result("b", session, request, "book", f"{request}B", "Bob")
        assert group.look("holder", "1A") == "Ada"
        release(group, id, SECOND)
        tick(group)
    assert versions(group) == [2, 2, 2]
    group.definition = SECOND
    # What was booked is there, what was answered is remembered, what is new can be called.
    assert group.look("holder", "3B") == "Bob"
    before = group.position
    assert group.result("c", session, 1, "book", "1A", "Ada") == 1
    assert group.position == before
    assert group.result("a", session, 5, "book", "9Z", "Eve") == 5
    assert group.result("a", session, 6, "cancel", "9Z") is True
    assert group.look("noted", "1A") == ""
    assert group.digests_agree()
    counts = [vars(replica.host.replicated)["calls"] for replica in group.replicas.values()]
    assert counts == [14, 14, 14]
    # Nothing more is announced.
    settled = group.position
    tick(group)
    assert group.position == settled


def test_a_new_method_waits_for_the_new_version() -> None:
    group, session = start()
    release(group, "a", SECOND)
    host = group["a"].host
    arguments = SECOND.encode_call("cancel", ("1A",), {})
    message = r"Seats\.cancel comes with a later version of the class, which begins when all"
    with pytest.raises(UnknownMethod, match=message):
        host.call(session, 2, "cancel", arguments)
    with pytest.raises(BadArguments, match="takes 2 arguments, not 3"):
        host.call(session, 2, "book", SECOND.encode_call("book", ("2A", "Ada"), {}))
    with pytest.raises(UnknownMethod, match="no method 'nonsense'"):
        host.call(session, 2, "nonsense", arguments)


def test_callers_of_the_old_version_go_on() -> None:
    group, session = start()
    for id in "abc":
        release(group, id, SECOND)
    tick(group)
    assert versions(group) == [2, 2, 2]
    # As the first release encodes it, without the new argument.
    assert group.result("a", session, 2, "book", "2A", "Bob") == 2
    group.definition = SECOND
    assert group.look("noted", "2A") == ""


def test_two_versions_at_once() -> None:
    group, session = start()
    for id in "abc":
        release(group, id, THIRD)
    tick(group)
    assert versions(group) == [3, 3, 3]
    group.definition = THIRD
    assert group.result("a", session, 2, "cancel", "1A") is True
    assert vars(group["b"].host.replicated)["calls"] == -1
    assert group.digests_agree()


def test_one_who_goes_back_to_the_old_release_holds_the_others_up() -> None:
    group, _ = start()
    release(group, "a", THIRD)
    release(group, "b", SECOND)
    tick(group)
    release(group, "a", SECOND, incarnation=3)
    tick(group)
    release(group, "c", THIRD)
    tick(group)
    assert versions(group) == [2, 2, 2]


def test_a_change_over_that_is_rolled_back_comes_again() -> None:
    group, session = start(optimistic=True)
    for id in "abc":
        release(group, id, SECOND)
    group.result("b", session, 2, "book", "2B", "Bob")
    before = group.position
    group.settle(before)
    group.advance_clocks(seconds(1))
    for replica in group.replicas.values():
        replica.host.tick()
    group.turn(settle=False)
    assert versions(group) == [2, 2, 2]
    group.roll_back(before)
    assert versions(group) == [1, 1, 1]
    assert group.look("holder", "2B") == "Bob"
    tick(group)
    assert versions(group) == [2, 2, 2]
    assert group.digests_agree()


class Before:
    count: int = 0

    @update
    def add(self, amount: int) -> int:
        self.count += amount
        return self.count


def test_an_update_that_fails_half_way_after_the_change_over_is_undone() -> None:
    """Also where the version before never needed undoing, and in the same delivery."""

    class After:
        version = 2
        previous = Before
        count: int = 0
        log: list[int] = []  # noqa: RUF012

        @update
        def add(self, amount: int) -> int:
            self.log.append(amount)
            self.count += amount
            if amount < 0:
                raise ValueError(amount)
            return self.count

    After.__qualname__ = Before.__qualname__
    group = FakeGroup(define(Before))
    session = group.open()
    group.call("c", session, 1, "add", 5)
    for id in "abc":
        release(group, id, define(After))
    for replica in group.replicas.values():
        replica.host.tick()
    group.ask("c", session, 2, "add", -1)
    group.turn()
    group.settle(group.position)
    assert versions(group) == [2, 2, 2]
    assert group.failure("a", session, 2, "add", -1).error == "ValueError"
    for replica in group.replicas.values():
        assert vars(replica.host.replicated) == {"count": 5, "log": []}
    assert group["a"].context.counters["host.rebuilt"] == 1


def test_an_older_replica_is_told_that_the_state_is_of_a_later_version() -> None:
    group, _ = start(SECOND)
    assert versions(group) == [2, 2, 2]
    message = "version 2 of Seats, and here is only 1: start this replica with a release"
    with pytest.raises(BadSnapshot, match=message):
        release(group, "c", FIRST)


def test_a_later_replica_without_the_version_before_is_told_to_keep_it() -> None:
    class Alone(SeatsOfVersion1):
        version = 2

    Alone.__qualname__ = "Seats"
    group, _ = start()
    with pytest.raises(BadSnapshot, match="is only 2: keep the class of version 1 as previous"):
        release(group, "c", define(Alone))


def test_an_older_replica_that_meets_the_change_over_stops() -> None:
    group, _ = start()
    release(group, "a", SECOND)
    release(group, "b", SECOND)
    release(group, "c", SECOND)
    for replica in group.replicas.values():
        replica.host.tick()
    # The last goes back after it has announced, and before that was ordered.
    run = group["c"].take_run(group.view, 100, group.position + 1)
    assert run is not None
    group.settle(group.position)
    chunks = list(group["a"].host.snapshot())
    group.definitions["c"] = FIRST
    group.replace("c", "a", incarnation=3)
    del chunks
    group["c"].host.deliver([run], Standing.AUTHORITATIVE)
    later = group["a"].take_run(group.view, 101, group.position + 2)
    last = group["b"].take_run(group.view, 102, group.position + 3)
    assert later is not None
    assert last is not None
    message = "the group runs version 2 of Seats from 5 on, which is not known here: start this"
    with pytest.raises(ReplicaBroken, match=message):
        group["c"].host.deliver([later, last], Standing.AUTHORITATIVE)


def test_a_changed_class_of_the_same_version_is_refused() -> None:
    class Changed(SeatsOfVersion1):
        @update
        def cancel(self, seat: str) -> None:
            del self.taken[seat]

    Changed.__qualname__ = "Seats"
    group, _ = start()
    message = "whose methods or fields differ: give the changed class version = 2 and keep the old"
    with pytest.raises(BadSnapshot, match=message):
        release(group, "c", define(Changed))


def test_different_classes_as_the_same_next_version_do_not_begin() -> None:
    class Other(Seats):
        version = 2
        previous = SeatsOfVersion1

        def upgrade(self, old: SeatsOfVersion1) -> None:
            super().upgrade(old)

        @update
        def move(self, seat: str) -> None:
            self.calls += len(seat)

    Other.__qualname__ = "Seats"
    group, _ = start()
    release(group, "a", SECOND)
    release(group, "b", SECOND)
    release(group, "c", define(Other))
    tick(group)
    assert versions(group) == [1, 1, 1]
    fault = "replicas have different classes as version 2 of Seats"
    assert [fault in replica.host.faults for replica in group.replicas.values()] == [True] * 3


def test_an_upgrade_that_fails_leaves_the_group_as_it_was() -> None:
    class Doubtful(Seats):
        version = 2
        previous = SeatsOfVersion1

        def upgrade(self, old: SeatsOfVersion1) -> None:
            if old.taken:
                raise LookupError("not with bookings")

    Doubtful.__qualname__ = "Seats"
    group, session = start()
    for id in "abc":
        release(group, id, define(Doubtful))
    tick(group)
    assert versions(group) == [1, 1, 1]
    assert "failed, and the group goes on with version 1" in group["a"].host.faults[0]
    assert group.result("a", session, 2, "book", "2A", "Bob") == 2
    assert group.digests_agree()


def test_an_upgrade_that_others_may_not_have_met_stops_the_replica() -> None:
    class Greedy(Seats):
        version = 2
        previous = SeatsOfVersion1

        def upgrade(self, old: SeatsOfVersion1) -> None:
            if old.taken:
                raise MemoryError

    Greedy.__qualname__ = "Seats"
    group, _ = start()
    for id in "abc":
        release(group, id, define(Greedy))
    with pytest.raises(ReplicaBroken, match="upgrade to version 2 ended in MemoryError, which"):
        tick(group)
    with pytest.raises(ReplicaBroken):
        group["a"].host.open_session(9)


def test_a_new_group_begins_with_the_version_of_whoever_speaks_first() -> None:
    group, session = start(SECOND)
    assert versions(group) == [2, 2, 2]
    assert group.result("b", session, 2, "cancel", "1A") is True
    tick(group)
    tick(group)
    assert group.digests_agree()


def begin_with(first: Definition, others: Definition) -> FakeGroup:
    """A new group with two releases; whoever has the first one speaks first."""
    group = FakeGroup(others)
    group.definitions["a"] = first
    group.replicas["a"] = type(group["a"])(group, "a")
    group["a"].host.open_session(1)
    return group


def test_a_group_that_begins_with_the_version_before_is_upgraded_later() -> None:
    group = begin_with(FIRST, SECOND)
    group.turn()
    assert versions(group) == [1, 1, 1]
    release(group, "a", SECOND)
    tick(group)
    assert versions(group) == [2, 2, 2]


def test_who_does_not_know_the_version_the_group_begins_with_stops() -> None:
    class Alone(SeatsOfVersion1):
        version = 2

    Alone.__qualname__ = "Seats"
    with pytest.raises(ReplicaBroken, match="the group began with version 1 of Seats, which is"):
        begin_with(FIRST, define(Alone)).turn()
    with pytest.raises(ReplicaBroken, match="the group began with version 2 of Seats, which is"):
        begin_with(define(Alone), FIRST).turn()


def test_a_history_from_before_is_replayed_in_its_own_version() -> None:
    group, session = start()
    for id in "abc":
        release(group, id, SECOND)
    tick(group)
    group.definition = SECOND
    group.result("b", session, 2, "cancel", "1A")
    fresh = type(group["c"])(group, "c", 9)
    fresh.host.deliver(group.history, Standing.AUTHORITATIVE)
    assert fresh.host.definition.version == 2
    assert fresh.host.digest() == group["a"].host.digest()


def test_another_class_under_the_same_number_is_found_out() -> None:
    class Differing(SeatsOfVersion1):
        @query
        def also(self) -> int:
            return 1

    class Later(Differing):
        version = 2
        previous = Differing

    Later.__qualname__ = "Seats"
    group, _ = start()
    group.definitions["c"] = define(Later)
    group.replicas["c"] = fresh = type(group["c"])(group, "c", 2)
    fresh.surroundings.now = group["a"].surroundings.now
    fresh.host.deliver(group.history, Standing.AUTHORITATIVE)
    tick(group)
    assert "c has another class of that version" in group["a"].host.faults[0]


def test_a_class_with_a_version_before_needs_total_order() -> None:
    class Before:
        commuting = True
        count: int = 0

        @update
        def add(self, amount: int) -> None:
            self.count += amount

    class After(Before):
        version = 2
        previous = Before

    with pytest.raises(NotReplicable, match="of version 2 needs a stack with total order"):
        FakeGroup(define(After), is_ordered=False)


def test_a_behaviour_that_changed_without_a_number_shows_in_the_next_digest() -> None:
    class Twice(SeatsOfVersion1):
        @update
        def book(self, seat: str, name: str) -> int:
            self.calls += 2
            self.taken[seat] = name
            return len(self.taken)

    Twice.__qualname__ = "Seats"
    group, session = start()
    release(group, "c", define(Twice))
    assert group.digests_agree()
    group.result("a", session, 2, "book", "2A", "Bob")
    assert not group.digests_agree()
