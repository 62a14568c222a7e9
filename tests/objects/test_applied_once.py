"""A class whose updates commute, over a partitioned network: applied once at red, never undone."""

from __future__ import annotations

from typing import ClassVar, cast

import msgspec
from tests.objects.fake_engine import Desk, context_for

from coterie.kernel.components import GREEN, RED
from coterie.kernel.engine import Run
from coterie.kernel.views import Member, ViewId
from coterie.objects import Done, Failed, HostSettings, Level, ObjectHost, define, query, update
from coterie.objects.applied_once import AppliedOnce
from coterie.objects.execution.commands import Call, CloseSession, OpenSession, encode_command

A, B = Member("a", 1), Member("b", 1)
VIEW = ViewId(1, "a", 1)
CLOCK = 1_700_000_000_000_000


class Sums:
    commuting: ClassVar[bool] = True
    sums: dict[str, int] = {}  # noqa: RUF012

    @update
    def add(self, name: str, amount: int) -> int:
        self.sums[name] = self.sums.get(name, 0) + amount
        if amount < 0:
            raise ValueError("only more")
        return self.sums[name]

    @query
    def sum(self, name: str) -> int:
        return self.sums.get(name, 0)


class Replica:
    """One host, and what an engine of colours would deliver to it."""

    def __init__(self, me: str = "a", undo_log_bytes: int = 1 << 20) -> None:
        self.definition = define(Sums)
        self.executed: list[int] = []
        """What `add` was executed with, on either copy."""
        add = self.definition.updates["add"]
        function = vars(Sums)["add"]

        def noted(sums: Sums, name: str, amount: int) -> int:
            self.executed.append(amount)
            return cast("int", function(sums, name, amount))

        add.function = noted
        self.desk = Desk()
        context, _ = context_for(me, "ab")
        self.host = ObjectHost(
            self.definition,
            context,
            front=self.desk,
            settings=HostSettings(undo_log_bytes=undo_log_bytes),
            has_colours=True,
        )
        self.end = 0
        self.reds: list[Run] = []
        self.firsts = {A: 0, B: 0}
        self.sessions: dict[Member, int] = {}

    @property
    def copies(self) -> AppliedOnce:
        assert isinstance(self.host.copies, AppliedOnce)
        return self.host.copies

    def run(self, origin: Member, *payloads: bytes) -> Run:
        first = self.firsts[origin] + 1
        self.firsts[origin] += len(payloads)
        return Run(VIEW, 1, 1, origin, first, list(payloads))

    def add(self, origin: Member, request: int, amount: int, lowest: int = 1) -> bytes:
        arguments = msgspec.Raw(self.definition.encode_call("add", ("x", amount), {}))
        session = self.sessions[origin]
        return encode_command(Call(session, request, "add", arguments, 0, lowest, CLOCK))

    def open(self, origin: Member) -> Run:
        from coterie.objects.execution.sessions import session_id  # noqa: PLC0415 -- told here only

        run = self.run(origin, encode_command(OpenSession(1, 0, CLOCK)))
        self.sessions[origin] = session_id(origin, run.first)
        return run

    def green(self, *runs: Run) -> None:
        """Have these be the next in the order, as the engine does: back first, then reds anew."""
        self.host.roll_back(self.end)
        for run in runs:
            there = Run(VIEW, 1, self.end + 1, run.origin, run.first, run.payloads)
            self.end = there.last_position
            self.host.deliver([there], GREEN)
        self.host.settle(self.end)
        gone = {(run.origin, run.first) for run in runs}
        reds, self.reds = self.reds, []
        self.red(*(run for run in reds if (run.origin, run.first) not in gone))

    def red(self, *runs: Run) -> None:
        for run in runs:
            at = self.end + 1 + sum(len(each.payloads) for each in self.reds)
            self.host.deliver([Run(VIEW, 1, at, run.origin, run.first, run.payloads)], RED)
            self.reds.append(run)

    def sums(self) -> tuple[object, object]:
        """What is green, and what is there with all that is red."""
        ask = self.host.query
        return ask(Level.WEAK, "sum", "x"), ask(Level.DIRTY, "sum", "x")


def test_what_is_red_is_executed_once_and_stays_where_others_come_before_it() -> None:
    replica = Replica()
    replica.green(replica.open(A), replica.open(B))
    mine = [replica.run(A, replica.add(A, number, 10**number)) for number in (1, 2)]
    replica.red(*mine)
    assert replica.sums() == (0, 110)
    theirs = replica.run(B, replica.add(B, 1, 5))
    replica.green(theirs)
    assert replica.sums() == (5, 115)
    assert replica.executed == [10, 100, 5, 5]  # what is green is on both copies
    replica.green(*mine)
    assert replica.sums() == (115, 115)
    assert replica.executed == [10, 100, 5, 5, 10, 100]  # in its place, for good
    assert replica.copies.authoritative is None  # nothing is red: one copy again
    told = [(each.standing, each.outcome) for each in replica.desk.answers if each.session]
    results = [
        (standing, outcome.position, outcome.result)
        for standing, outcome in told
        if isinstance(outcome, Done)
    ]
    assert results == [
        *((RED, 3, b"\x0a"), (RED, 4, b"\x6e")),
        *((GREEN, 4, b"\x0f"), (GREEN, 5, b"\x73")),
    ]


def test_in_a_primary_component_there_is_one_copy_and_everything_is_executed_once() -> None:
    replica = Replica()
    replica.green(replica.open(A))
    replica.green(replica.run(A, *(replica.add(A, number, 1) for number in range(1, 10))))
    assert replica.executed == [1] * 9
    assert replica.copies.authoritative is None


def test_a_request_that_became_two_actions_is_executed_once_wherever_it_is_red() -> None:
    replica = Replica()
    replica.green(replica.open(A))
    call = replica.add(A, 1, 7)
    here, there = replica.run(A, call), replica.run(B, call)
    replica.red(here)
    replica.red(there)
    assert replica.sums() == (0, 7)
    replica.green(there)
    assert replica.sums() == (7, 7)
    replica.green(here)
    assert replica.sums() == (7, 7)
    assert replica.executed == [7, 7]  # once on each copy


def test_whether_a_request_is_green_is_not_told_from_where_it_is_on_the_dirty_copy() -> None:
    replica = Replica()
    replica.green(replica.open(A), replica.open(B))
    replica.red(replica.run(A, replica.add(A, 1, 7)))
    session = replica.sessions[A]
    for number in range(1, 6):
        replica.green(replica.run(B, replica.add(B, number, 1)))
    red = replica.host.outcome_of(session, 1)
    assert red is not None
    assert red.position > replica.host.settled_position
    green = replica.host.outcome_of(replica.sessions[B], 1)
    assert green is not None
    assert green.position == 3


def test_a_call_may_come_red_before_the_opening_of_its_session() -> None:
    """Actions of others are learned by their creators, and not in Lamport's order."""
    replica = Replica()
    opening = replica.open(B)
    session = replica.sessions[B]
    replica.sessions[A] = session
    call = replica.run(A, replica.add(A, 1, 3))
    replica.red(call, opening)
    assert replica.sums() == (0, 3)
    replica.green(opening, call)
    assert replica.sums() == (3, 3)


def test_a_session_that_is_closed_in_the_order_is_closed_on_the_copy_that_counts() -> None:
    replica = Replica()
    replica.green(replica.open(A))
    session = replica.sessions[A]
    replica.red(replica.run(A, replica.add(A, 1, 3)))
    replica.green(replica.run(B, encode_command(CloseSession(session, CLOCK))))
    replica.green(*replica.reds)
    assert replica.sums() == (0, 0)  # too late in the order: its caller is told so
    assert replica.copies.authoritative is None


def test_what_fails_half_way_is_undone_on_either_copy() -> None:
    replica = Replica(undo_log_bytes=200)
    replica.green(replica.open(A), replica.open(B))
    replica.green(*(replica.run(B, replica.add(B, number, 1)) for number in range(1, 8)))
    mine = [replica.run(A, replica.add(A, number, 10)) for number in (1, 2)]
    failing = replica.run(A, replica.add(A, 3, -1))
    replica.red(*mine, failing, replica.run(A, replica.add(A, 4, 10)))
    assert replica.sums() == (7, 37)
    replica.green(replica.run(B, replica.add(B, 8, -5)), replica.run(B, replica.add(B, 9, 1)))
    assert replica.sums() == (8, 38)
    replica.green(*replica.reds)
    assert replica.sums() == (38, 38)
    outcomes = replica.desk.of(replica.sessions[A], 3)
    assert [type(each) for each in outcomes] == [Failed, Failed]


def test_a_state_that_is_taken_over_has_what_is_red_applied_to_it_anew() -> None:
    donor = Replica("b")
    donor.green(donor.open(A), donor.open(B))
    donor.green(donor.run(B, donor.add(B, 1, 5)))
    chunks = list(donor.host.snapshot())
    replica = Replica()
    replica.green(replica.open(A), replica.open(B))
    mine = replica.run(A, replica.add(A, 1, 10))
    replica.red(mine)
    replica.host.restore(iter(chunks), 3)
    replica.end, replica.reds = 3, []
    assert replica.sums() == (5, 5)
    replica.red(mine)
    assert replica.sums() == (5, 15)
    replica.green(mine)
    assert replica.sums() == (15, 15)
