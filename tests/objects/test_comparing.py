"""A replica that has strayed from the others finds out, says so and stops; no other does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.objects.fake_engine import FakeGroup

from coterie.kernel.clock import seconds
from coterie.kernel.comparing import POSITIONS_MAX, Comparison
from coterie.kernel.engine import Role
from coterie.objects import HostSettings, Level, ReplicaBroken, define, query, update
from coterie.simulation import RunOptions, Simulation
from coterie.simulation.engines.stack import clients
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.simulation.parallel import run_many

SETTINGS = HostSettings(digest_interval=5, compare_digests=True)


@dataclass
class Point:
    x: float = 0.0


class Counter:
    value: int = 0
    ratio: float = 0.0
    points: list[Point] = []  # noqa: RUF012 -- copied for each object

    @update
    def add(self, amount: int) -> int:
        self.value += amount
        self.ratio = amount
        self.points.append(Point(amount))
        return self.value

    @query
    def total(self) -> int:
        return self.value


def counters(*, optimistic: bool = False) -> tuple[FakeGroup, int]:
    group = FakeGroup(define(Counter), settings=SETTINGS, optimistic=optimistic)
    for id in group.ids:
        group.tell_role(id, Role.PRIMARY)
    return group, group.open()


def call(group: FakeGroup, session: int, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert group.result("a", session, number, "add", 1)


@pytest.mark.parametrize("optimistic", [False, True])
def test_replicas_that_are_alike_go_on(optimistic: bool) -> None:  # noqa: FBT001
    group, session = counters(optimistic=optimistic)
    call(group, session, 1, 40)
    # One that takes the state over has fractions where the others have whole numbers.
    group.replace("b", "a")
    group.tell_role("b", Role.PRIMARY)
    call(group, session, 41, 40)
    for replica in group.replicas.values():
        assert not replica.host.faults
    # What replicas say of digests is no reason for further digests to be said.
    position = group.position
    for _ in range(10):
        group.turn()
    assert group.position - position <= 3


@pytest.mark.parametrize("optimistic", [False, True])
def test_the_one_that_has_strayed_stops(optimistic: bool) -> None:  # noqa: FBT001
    group, session = counters(optimistic=optimistic)
    call(group, session, 1, 3)
    strayed = group["c"].host
    for machine in {strayed.copies.machine, strayed.copies.follow()}:
        vars(machine.object)["value"] = 99
    with pytest.raises(ReplicaBroken, match=r"the state of c at position \d+ is not that of the"):
        call(group, session, 4, 40)
    # It answers nothing any more.
    with pytest.raises(ReplicaBroken, match="not that of the other"):
        strayed.query(Level.DIRTY, "total")
    for id in "ab":
        group[id].host.copies.check_broken()


def test_where_all_differ_nobody_can_say_who_is_right() -> None:
    group, session = counters()
    call(group, session, 1, 3)
    for number, id in enumerate(group.ids):
        vars(group[id].host.copies.machine.object)["value"] = number
    for number in range(4, 24):
        group.call("a", session, number, "add", 1)
    for id in group.ids:
        assert any("no state has a majority" in fault for fault in group[id].host.faults)


def test_only_members_count_and_little_is_remembered() -> None:
    comparison = Comparison("a", ("a", "b", "c"), 2)
    assert not comparison.digested(5, b"x")
    assert not comparison.said("stranger", 5, b"y")
    assert not comparison.said("b", 5, b"y")
    assert comparison.said("c", 5, b"y").startswith("the state of a at position 5")
    for position in range(10, 10 + 2 * POSITIONS_MAX):
        assert not comparison.said("b", position, b"y")
        assert not comparison.said("c", position, b"y")
        assert not comparison.digested(position, b"y")
    assert not comparison.digested(5, b"x")


STACKS = pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "TOKEN:PVSYNC"])


@STACKS
def test_it_is_found_in_the_simulator(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SETTINGS", SETTINGS)
    simulation = Simulation(seed=7, stack=stack, has_object=True, object_kind="counter")
    group = simulation.group("a", "b", "c")
    group.clients.start(4)
    simulation.run(seconds(1))
    ledger = group["b"].ledger
    assert isinstance(ledger, SimulatedObject)
    copies = ledger.engine_host.copies
    for machine in {copies.machine, copies.follow()}:
        state = vars(machine.object)
        state[next(iter(state))] = 1 << 40
    with pytest.raises(ReplicaBroken, match="the state of b at position"):
        simulation.run(seconds(20))


@pytest.mark.long
@STACKS
@pytest.mark.parametrize("kind", ["counter", "queue"])
def test_no_fault_makes_replicas_that_are_alike_stop(
    stack: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SETTINGS", SETTINGS)
    options = RunOptions(stack=stack, duration=seconds(6), object=kind)
    runs = run_many(range(900, 906), options, jobs=1)
    assert [run.violations for run in runs] == [[]] * 6
