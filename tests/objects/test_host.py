"""The host behind a total order: answers, exactly once, undoing, reading, taking over."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.objects import classes
from tests.objects.fake_engine import FakeGroup

from coterie.kernel.clock import seconds
from coterie.kernel.engine import Role, Run, Standing
from coterie.kernel.views import Member, ViewId
from coterie.objects import (
    AlreadyForgotten,
    BadArguments,
    BadSnapshot,
    Closed,
    CommandTooLarge,
    Done,
    Failed,
    HostSettings,
    Level,
    NotReplicable,
    NotTaken,
    Opened,
    ReplicaBroken,
    SessionEvicted,
    UnknownMethod,
    WindowFull,
    define,
    query,
    update,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.objects import Definition

COUNTER = define(classes.Counter)
SEATS = define(classes.Seats)
CLUMSY = define(classes.Clumsy)
BANK = define(classes.Bank)
LOTTERY = define(classes.Lottery)
BOTH = pytest.mark.parametrize("optimistic", [False, True])


@BOTH
def test_an_update_runs_everywhere_and_is_answered_where_it_was_asked(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(COUNTER, optimistic=optimistic)
    session = group.open("b")

    assert group.result("b", session, 1, "add", 3) == 3
    assert group.result("b", session, 2, "add", 4) == 7

    assert group.look("total") == 7
    assert group["a"].desk.answers == []
    assert [answer.asked_at for answer in group["b"].desk.answers] == [0, 0, 0]
    standing = Standing.OPTIMISTIC if optimistic else Standing.AUTHORITATIVE
    assert {answer.standing for answer in group["b"].desk.answers} == {standing}
    assert group.digests_agree()


@BOTH
def test_a_retry_never_executes_twice_wherever_it_is_asked(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(COUNTER, optimistic=optimistic)
    session = group.open()
    first = group.call("a", session, 1, "add", 5)
    assert isinstance(first, Done)

    # Proposed a second time before the first came back, and a third time elsewhere.
    group.ask("a", session, 2, "add", 1)
    group.ask("a", session, 2, "add", 1)
    group.ask("b", session, 2, "add", 1)
    group.turn(settle=False)
    again = [group["a"].desk.of(session, 2), group["b"].desk.of(session, 2)]
    assert group.look("total") == 6
    assert {outcome for outcomes in again for outcome in outcomes} == {
        Done(3, group.view, 3, b"\x06")
    }

    # Long after: answered from memory, with the place of the first execution, not proposed.
    group.settle(group.position)
    before = group.position
    assert group.call("c", session, 1, "add", 5) == first
    assert group.position == before
    assert group["c"].desk.answers[-1].standing is Standing.AUTHORITATIVE


def test_replies_are_on_record_with_the_clients_own_time() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group["a"].host.call(session, 1, "add", COUNTER.encode_call("add", (1,), {}), 1, 12345)
    group.turn()
    (reply,) = group["a"].replies
    assert (reply.session, reply.request, reply.position, reply.asked_at) == (session, 1, 2, 12345)
    assert group["b"].replies == []


def test_a_request_can_be_watched_at_other_replicas() -> None:
    """Objects 5.2: a client may collect replies from a majority."""
    group = FakeGroup(COUNTER, optimistic=True)
    session = group.open()
    group["b"].host.watch(session, 1)
    group.call("a", session, 1, "add", 2)
    assert group["a"].desk.of(session, 1) == group["b"].desk.of(session, 1)
    assert group["c"].desk.answers == []
    group["b"].host.unwatch(session, 1)


def test_bad_input_is_an_error_to_its_sender_and_never_an_entry() -> None:
    group = FakeGroup(COUNTER, settings=HostSettings(command_bytes_max=200))
    host = group["a"].host
    with pytest.raises(BadArguments, match=r"Counter.add: argument 'amount' must be int"):
        host.call(1, 1, "add", b"\x91\xa1x")
    with pytest.raises(UnknownMethod, match="no method 'substract'; it has add, add_noted, total"):
        host.call(1, 1, "substract")
    with pytest.raises(UnknownMethod, match="is a query, not an update"):
        host.call(1, 1, "total")
    with pytest.raises(CommandTooLarge, match="command_bytes_max"):
        host.call(1, 1, "add_noted", COUNTER.encode_call("add_noted", (1, "x" * 200), {}))
    with pytest.raises(UnknownMethod, match="is an update, not a query"):
        host.read(Level.DIRTY, 1, "add")
    group.turn()
    assert group.history == []


def test_an_unknown_session_is_told_that_it_is_evicted() -> None:
    group = FakeGroup(COUNTER)
    assert group.call("a", 99, 1, "add", 1) == SessionEvicted()
    assert group.look("total") == 0


def test_a_closed_session_is_gone() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group["b"].host.close_session(session)
    group["c"].host.close_session(session)
    group.turn()
    assert group["b"].desk.of(session, 0) == [Closed()]
    assert group["c"].desk.of(session, 0) == [SessionEvicted()]
    assert group.call("a", session, 1, "add", 1) == SessionEvicted()


def test_below_the_lowest_number_everything_is_forgotten() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group.call("a", session, 2, "add", 1)
    group.call("a", session, 5, "add", 1, lowest=4)
    assert group.call("b", session, 3, "add", 1) == AlreadyForgotten(4)
    # A number may come after later ones.
    assert isinstance(group.call("b", session, 4, "add", 1), Done)
    assert group.look("total") == 3


def test_a_full_window_refuses_until_the_client_lets_go() -> None:
    group = FakeGroup(COUNTER, settings=HostSettings(window_requests_max=3))
    session = group.open()
    for request in (1, 2, 3):
        group.call("a", session, request, "add", 1)
    assert group.call("a", session, 4, "add", 1) == WindowFull(1)
    assert group.look("total") == 3
    assert isinstance(group.call("a", session, 4, "add", 1, lowest=2), Done)
    assert group.look("total") == 4


class Echo:
    said: int = 0

    @update
    def say(self, text: str) -> str:
        self.said += 1
        return text


def test_large_results_fill_a_window_by_their_bytes() -> None:
    group = FakeGroup(define(Echo), settings=HostSettings(window_bytes_max=1000))
    session = group.open()
    assert isinstance(group.call("a", session, 1, "say", "x" * 990), Done)
    assert isinstance(group.call("a", session, 2, "say", "x" * 990), Done)
    assert group.call("a", session, 3, "say", "x") == WindowFull(1)
    assert isinstance(group.call("a", session, 3, "say", "x", lowest=3), Done)


def test_a_result_over_the_limit_fails_and_is_undone() -> None:
    group = FakeGroup(define(Echo), settings=HostSettings(result_bytes_max=100))
    session = group.open()
    failed = group.failure("a", session, 1, "say", "x" * 100)
    assert failed.error == "ResultTooLarge"
    assert vars(group["b"].host.replicated) == {"said": 0}


def test_the_least_recently_used_session_is_evicted() -> None:
    group = FakeGroup(COUNTER, settings=HostSettings(sessions_max=2))
    one, two = group.open(), group.open()
    group.call("a", one, 1, "add", 1)
    three = group.open("b")
    assert group.call("a", two, 1, "add", 1) == SessionEvicted()
    assert isinstance(group.call("a", one, 2, "add", 1), Done)
    assert isinstance(group.call("a", three, 1, "add", 1), Done)
    assert group.digests_agree()


# ---- failures


@BOTH
def test_a_failing_update_is_a_result_and_leaves_no_trace(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(SEATS, optimistic=optimistic)
    session = group.open()
    group.call("a", session, 1, "book", "1A", "Ada")
    failed = group.failure("a", session, 2, "book", "1A", "Bob")
    assert (failed.error, failed.message) == ("SeatTaken", "1A is taken by Ada")
    assert group.failure("b", session, 2, "book", "1A", "Bob") == failed
    assert group.look("holder", "1A") == "Ada"
    # It checked first, so nothing had to be rebuilt.
    assert all("host.rebuilt" not in each.context.counters for each in group.replicas.values())
    assert group.digests_agree()


@BOTH
def test_a_failure_half_way_is_undone(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(CLUMSY, optimistic=optimistic)
    session = group.open()
    assert group.result("a", session, 1, "push", "x", 1) == 1
    for request in (2, 3):
        assert group.failure("a", session, request, "push", "x", -1).error == "ValueError"
    assert group.result("b", session, 4, "push", "y", 2) == 2
    assert group.look("names") == ["x", "y"]
    assert vars(group["c"].host.replicated)["by_name"] == {"x": [1], "y": [2]}
    assert group["c"].context.counters["host.rebuilt"] == 2
    assert group.digests_agree()


def test_several_failures_in_one_delivery() -> None:
    group = FakeGroup(CLUMSY)
    session = group.open()
    for request, amount in enumerate([1, -1, 2, -2, 3], start=1):
        group.ask("a", session, request, "push", f"n{request}", amount)
    group.turn()
    assert group.look("names") == ["n1", "n3", "n5"]
    kinds = [type(answer.outcome) for answer in group["a"].desk.answers[1:]]
    assert kinds == [Done, Failed, Done, Failed, Done]


def test_a_result_that_cannot_be_encoded_is_a_failure() -> None:
    group = FakeGroup(CLUMSY)
    session = group.open()
    group.call("a", session, 1, "push", "x", 1)
    assert group.failure("a", session, 2, "answer_something_odd").error == "OverflowError"
    assert group.look("names") == ["x"]


def test_records_inside_containers_are_undone_too() -> None:
    group = FakeGroup(BANK)
    session = group.open()
    for request, number in enumerate((7, 8), start=1):
        group.call("a", session, request, "open", number, f"owner {number}")
    assert group.failure("a", session, 3, "move", 7, 8, classes.Money(5)).message == "not enough"
    assert (group.look("balance", 7), group.look("balance", 8)) == (0, 0)
    assert group.failure("a", session, 4, "open", 7, "again").error == "KeyError"
    assert group.digests_agree()


def test_undoing_starts_from_a_recent_point() -> None:
    """The log behind it is cut once it outgrows its limit, and undoing works on."""
    group = FakeGroup(CLUMSY, settings=HostSettings(undo_log_bytes=500))
    session = group.open()
    for request in range(1, 60):
        group.call("a", session, request, "push", "x" * 30, -1 if request % 7 == 0 else 1)
    names = group.look("names")
    assert isinstance(names, list)
    assert len(names) == 59 - 8
    assert len(group["a"].host.copies._log) < 30
    assert group.digests_agree()


class Careless(classes.Clumsy):
    transactional = False


def test_a_class_may_do_without_undoing() -> None:
    group = FakeGroup(define(Careless))
    session = group.open()
    group.failure("a", session, 1, "push", "x", -1)
    group.failure("b", session, 2, "push", "y", -1)
    # What was changed stays, the same everywhere.
    assert vars(group["a"].host.replicated) == {
        "log": [],
        "count": 2,
        "by_name": {"x": [-1], "y": [-1]},
    }
    assert group.digests_agree()


class Exits:
    value: int = 0

    @update
    def leave(self) -> None:
        self.value += 1
        raise SystemExit(3)

    @update
    def recurse(self) -> None:
        self.value += 1
        self.recurse()

    @update
    def exhaust(self) -> None:
        raise MemoryError

    @query
    def seen(self) -> int:
        return self.value


def test_leaving_and_endless_recursion_are_failures_like_others() -> None:
    group = FakeGroup(define(Exits))
    session = group.open()
    assert group.failure("a", session, 1, "leave").error == "SystemExit"
    assert group.failure("a", session, 2, "recurse").error == "RecursionError"
    assert group.look("seen") == 0


def test_running_out_of_memory_stops_the_replica_for_good() -> None:
    group = FakeGroup(define(Exits))
    session = group.open()
    with pytest.raises(ReplicaBroken, match=r"the update at 2 \(Exits.exhaust\) ended in MemoryE"):
        group.call("a", session, 1, "exhaust")
    host = group["a"].host
    with pytest.raises(ReplicaBroken):
        host.deliver(group.history[-1:], Standing.AUTHORITATIVE)
    with pytest.raises(ReplicaBroken):
        host.query(Level.DIRTY, "seen")
    with pytest.raises(ReplicaBroken):
        host.call(session, 2, "leave")


def test_an_entry_that_is_no_command_is_noted_and_survived() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group["a"].waiting += [b"rubbish", b"\x93\x63\x01\x02", b""]
    group.turn()
    assert group.result("a", session, 1, "add", 1) == 1
    for replica in group.replicas.values():
        assert replica.context.counters["host.faults"] == 3
        assert "the entry at 2 is no command" in replica.host.faults[0]
    assert group.digests_agree()


class Hoarder:
    totals: list[int] = [0]  # noqa: RUF012 -- copied for each object

    @update
    def double(self) -> None:
        self.totals[0] = self.totals[0] * 2 or 1


def test_a_state_that_cannot_be_encoded_is_noted_the_same_everywhere() -> None:
    """Inside a container: what a single value becomes is refused at once."""
    group = FakeGroup(define(Hoarder), settings=HostSettings(digest_interval=10))
    session = group.open()
    for request in range(1, 80):
        group.call("a", session, request, "double")
    assert "the field 'totals' of Hoarder (list[int]) holds" in group["b"].host.faults[0]
    assert group["a"].digests == group["c"].digests


# ---- optimistic delivery


def test_weak_reads_see_only_what_is_settled() -> None:
    group = FakeGroup(COUNTER, optimistic=True)
    session = group.open()
    group.call("a", session, 1, "add", 1)
    group.ask("a", session, 2, "add", 10)
    group.turn(settle=False)
    assert group.look("total", level=Level.DIRTY) == 11
    assert group.look("total", level=Level.WEAK) == 1
    group.settle(group.position)
    assert group.look("total", level=Level.WEAK) == 11


def test_a_roll_back_forgets_and_what_comes_again_executes_again() -> None:
    group = FakeGroup(COUNTER, optimistic=True)
    session = group.open()
    group.call("a", session, 1, "add", 1)
    base = group.position
    for request in (2, 3, 4):
        group.ask("a", session, request, "add", 10**request)
    group.turn(settle=False)
    assert group.look("total") == 11_101

    group.roll_back(base + 1)
    assert group.look("total") == 101
    assert group["a"].desk.rolled_back_to == [base + 1]
    # Number 4 comes first this time, then 3; 2 was kept and is not executed again.
    for request in (4, 3, 2):
        group.ask("b", session, request, "add", 10**request)
    group.turn()
    assert group.look("total") == 11_101
    outcomes = [group["b"].desk.of(session, request)[0] for request in (2, 3, 4)]
    assert [outcome.position - base for outcome in outcomes if isinstance(outcome, Done)] == [
        1,
        3,
        2,
    ]
    assert group.look("total", level=Level.WEAK) == 11_101
    assert group.digests_agree()


def test_a_roll_back_over_failures_and_half_done_updates() -> None:
    group = FakeGroup(CLUMSY, optimistic=True)
    session = group.open()
    group.call("a", session, 1, "push", "x", 1)
    for request, amount in enumerate([-1, 2, -2, 3], start=2):
        group.ask("a", session, request, "push", f"n{request}", amount)
    group.turn(settle=False)
    base = group.position
    group.settle(base - 3)
    group.roll_back(base - 2)
    assert group.look("names") == ["x", "n3"]
    for request, amount in enumerate([-2, 3], start=4):
        group.ask("b", session, request, "push", f"n{request}", amount)
    group.turn()
    assert group.look("names") == ["x", "n3", "n5"]
    assert group.look("names", level=Level.WEAK) == ["x", "n3", "n5"]
    assert group.digests_agree()


def test_what_failed_and_was_rolled_back_may_make_room_for_what_does_not_fail() -> None:
    group = FakeGroup(CLUMSY, optimistic=True)
    session = group.open()
    group.ask("a", session, 1, "push", "x", -1)
    group.turn(settle=False)
    group.roll_back(1)
    assert group.result("a", session, 2, "push", "y", 1) == 1
    assert group.look("names", level=Level.WEAK) == ["y"]
    assert group.digests_agree()


def test_a_retry_of_what_is_not_settled_is_not_called_authoritative() -> None:
    group = FakeGroup(COUNTER, optimistic=True)
    session = group.open()
    group.ask("a", session, 1, "add", 1)
    group.turn(settle=False)
    group.ask("b", session, 1, "add", 1)
    assert group["b"].desk.answers == []
    group.turn(settle=False)
    (answer,) = group["b"].desk.answers
    assert answer.standing is Standing.OPTIMISTIC
    assert group.look("total") == 1


def test_the_authoritative_copy_follows_in_batches() -> None:
    group = FakeGroup(COUNTER, optimistic=True, settings=HostSettings(follow_entries=5))
    session = group.open()
    host = group["a"].host
    copies = []
    for request in range(1, 13):
        group.call("a", session, request, "add", 1)
        assert host.copies.authoritative is not None
        copies.append(host.copies.authoritative.position)
    assert copies == [0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10, 10]


def test_what_is_not_primary_is_not_executed() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group.ask("a", session, 1, "add", 1)
    run = group["a"].take_run(group.view, 0, 0)
    assert run is not None
    group["a"].host.deliver([run], Standing.NON_PRIMARY)
    assert group["a"].desk.of(session, 1) == []
    assert group.look("total") == 0


# ---- reading


def test_a_consistent_read_takes_a_place_and_runs_at_its_origin_only() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group.ask("a", session, 1, "add", 5)
    group["b"].host.read(Level.CONSISTENT, 77, "total", asked_at=9)
    assert group["b"].desk.answers == []
    group.turn()
    (answer,) = group["b"].desk.answers
    assert answer.asked_at == 9
    assert answer.outcome == Done(3, group.view, 3, b"\x05")
    assert group["a"].desk.of(0, 77) == []
    assert group.digests_agree()


def test_where_reads_are_confirmed_a_consistent_one_takes_no_place() -> None:
    group = FakeGroup(COUNTER, confirms_reads=True)
    session = group.open()
    b = group["b"]
    b.host.read(Level.CONSISTENT, 7, "total", asked_at=9)
    b.host.read(Level.CONSISTENT, 8, "total")
    b.host.finish_turn()
    b.host.read(Level.CONSISTENT, 9, "total")
    b.host.finish_turn()
    group.ask("a", session, 1, "add", 5)
    group.turn()
    assert b.desk.answers == []
    (first, confirmed), (second, _) = b.to_confirm
    confirmed(first)
    told = [(answer.request, answer.standing, answer.asked_at) for answer in b.desk.answers]
    assert told == [(7, Standing.AUTHORITATIVE, 9), (8, Standing.AUTHORITATIVE, 0)]
    assert {answer.outcome for answer in b.desk.answers} == {Done(2, group.view, 2, b"\x05")}
    confirmed(second)
    confirmed(second)
    assert [answer.request for answer in b.desk.answers] == [7, 8, 9]
    assert group.position == 2
    assert not b.replies


def test_a_query_that_asks_for_the_time_takes_a_place() -> None:
    """Time passes with entries: without one a lease that has ended would be held."""
    group = FakeGroup(define(classes.Lottery), confirms_reads=True)
    group.open()
    b = group["b"]
    for token in (7, 8):
        group.advance_clocks(3_000_000)
        b.host.read(Level.CONSISTENT, token, "when")
        b.host.finish_turn()
        for serial, confirmed in b.to_confirm:
            confirmed(serial)
        assert b.desk.of(0, token) == []
        group.turn()
    assert len(b.to_confirm) == 1, "the second one is known to ask for the time"
    decode = group.definition.method("when").decode_result
    times = [decode(outcome.result) for outcome in (b.desk.of(0, 7) + b.desk.of(0, 8))]  # type: ignore[union-attr]
    assert times[1] - times[0] == 3_000_000  # type: ignore[operator]


def test_reads_that_wait_are_bounded_and_given_up_without_a_majority() -> None:
    group = FakeGroup(COUNTER, confirms_reads=True, settings=HostSettings(waiting_commands_max=2))
    b = group["b"]
    for token in (1, 2, 3):
        b.host.read(Level.CONSISTENT, token, "total")
    (refused,) = b.desk.answers
    assert refused.request == 3
    assert isinstance(refused.outcome, NotTaken)
    assert "waiting_commands_max" in refused.outcome.reason
    b.host.finish_turn()
    group.tell_role("b", Role.MINORITY)
    b.host.read(Level.CONSISTENT, 4, "total")
    assert [answer.request for answer in b.desk.answers] == [3, 1, 2, 4]
    assert all(isinstance(answer.outcome, NotTaken) for answer in b.desk.answers)


def test_dirty_and_weak_reads_are_answered_at_once_and_say_how_fresh() -> None:
    group = FakeGroup(COUNTER, optimistic=True)
    session = group.open()
    group.ask("a", session, 1, "add", 5)
    group.turn(settle=False)
    group["c"].host.read(Level.DIRTY, 1, "total")
    group["c"].host.read(Level.WEAK, 2, "total")
    dirty, weak = group["c"].desk.answers
    assert (dirty.outcome, dirty.standing) == (
        Done(2, group.view, 2, b"\x05"),
        Standing.OPTIMISTIC,
    )
    assert (weak.outcome, weak.standing) == (
        Done(1, group.view, 1, b"\x00"),
        Standing.AUTHORITATIVE,
    )


def test_a_query_that_raises_is_an_answer() -> None:
    group = FakeGroup(BANK)
    group["a"].host.read(Level.DIRTY, 1, "balance", BANK.encode_call("balance", (5,), {}))
    (answer,) = group["a"].desk.answers
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.error == "KeyError"


# ---- flow control and standing


def test_a_minority_takes_no_updates_and_says_so() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group.tell_role("a", Role.MINORITY)
    group.ask("a", session, 1, "add", 1)
    (outcome,) = group["a"].desk.of(session, 1)
    assert isinstance(outcome, NotTaken)
    assert "no majority" in outcome.reason
    group["a"].host.tick()
    assert group["a"].host.query(Level.WEAK, "total") == 0
    group.tell_role("a", Role.PRIMARY)
    assert group.result("a", session, 1, "add", 1) == 1


def test_a_full_backlog_reaches_the_caller() -> None:
    group = FakeGroup(COUNTER, settings=HostSettings(waiting_commands_max=2))
    session = group.open()
    group["a"].is_full = True
    for request in (1, 2, 3):
        group.ask("a", session, request, "add", 1)
    reasons = [group["a"].desk.of(session, request) for request in (1, 2, 3)]
    assert reasons[:2] == [[], []]
    assert isinstance(reasons[2][0], NotTaken)
    assert "waiting_commands_max" in reasons[2][0].reason
    group.turn()
    (outcome,) = group["a"].desk.of(session, 1)
    assert outcome == NotTaken("the backlog of the test is full")
    group["a"].is_full = False
    assert group.result("a", session, 1, "add", 1) == 1


# ---- taking over


@BOTH
@pytest.mark.parametrize("definition", [COUNTER, SEATS, LOTTERY], ids=lambda each: each.name)
def test_a_newcomer_takes_over_state_sessions_time_and_chance(
    optimistic: bool,  # noqa: FBT001
    definition: Definition,
) -> None:
    group = FakeGroup(definition, optimistic=optimistic, settings=HostSettings(digest_interval=4))
    calls: dict[str, tuple[str, list[object]]] = {
        "Counter": ("add", [2]),
        "Seats": ("book", ["1A", "Ada"]),
        "Lottery": ("draw", [1000]),
    }
    method, arguments = calls[definition.name]
    session = group.open()
    for request in range(1, 7):
        group.call("a", session, request, method, *arguments)
        group.advance_clocks(1000)
    known = group["b"].desk.answers or group["a"].desk.of(session, 1)
    newcomer = group.replace("c", donor="b")
    assert newcomer.desk.restored_at == [group.position]
    assert newcomer.host.outcome_of(session, 1) == group["a"].desk.of(session, 1)[0]
    assert group.digests_agree()
    # A retry of what was executed before it came is recognised, and new calls agree.
    assert group.call("c", session, 1, method, *arguments) in known
    for request in range(7, 12):
        group.call("c", session, request, method, *arguments)
    assert group.digests_agree()
    later = {at: each for at, each in group["a"].digests.items() if at in newcomer.digests}
    assert later == newcomer.digests
    assert later


def test_a_snapshot_is_of_the_moment_of_the_call() -> None:
    group = FakeGroup(SEATS, settings=HostSettings(chunk_bytes=16))
    session = group.open()
    group.call("a", session, 1, "book", "1A", "Ada")
    chunks = group["a"].host.snapshot()
    first = next(chunks)
    group.call("a", session, 2, "book", "1B", "Bob")
    other = FakeGroup(SEATS)["b"].host
    other.restore(itertools.chain([first], chunks), 2)
    assert other.query(Level.WEAK, "holder", "1A") == "Ada"
    assert other.query(Level.WEAK, "holder", "1B") is None


def test_a_snapshot_in_optimistic_mode_is_of_what_is_settled() -> None:
    group = FakeGroup(SEATS, optimistic=True)
    session = group.open()
    group.call("a", session, 1, "book", "1A", "Ada")
    group.ask("a", session, 2, "book", "1B", "Bob")
    group.turn(settle=False)
    newcomer = group.replace("b", donor="a")
    assert newcomer.host.query(Level.WEAK, "holder", "1B") is None
    assert newcomer.host.query(Level.DIRTY, "holder", "1B") == "Bob"


def test_the_old_state_stays_until_the_last_chunk() -> None:
    group = FakeGroup(SEATS, settings=HostSettings(chunk_bytes=32))
    session = group.open()
    group.call("a", session, 1, "book", "1A", "Ada")
    chunks = list(group["a"].host.snapshot())
    assert len(chunks) > 2
    host = FakeGroup(SEATS)["c"].host
    before = host.replicated

    def breaking_off() -> Iterator[bytes]:
        yield from chunks[:-1]
        raise ConnectionError("the donor died")

    with pytest.raises(ConnectionError):
        host.restore(breaking_off(), 2)
    with pytest.raises(BadSnapshot, match="before it is whole"):
        host.restore(chunks[:-1], 2)
    with pytest.raises(BadSnapshot, match="a state of position 2 came for 3"):
        host.restore(chunks, 3)
    with pytest.raises(BadSnapshot, match="of Seats, not of Counter"):
        FakeGroup(COUNTER)["a"].host.restore(chunks, 2)
    assert host.replicated is before
    host.restore(chunks, 2)
    assert host.query(Level.WEAK, "holder", "1A") == "Ada"


def test_a_driver_may_encode_snapshots_its_own_way() -> None:
    group = FakeGroup(COUNTER)
    taken: list[list[bytes]] = []

    def take(encode: object) -> Iterator[bytes]:
        assert callable(encode)
        taken.append(list(encode()))
        return iter(taken[-1])

    group["a"].host.copies._take_snapshot = take
    assert [list(group["a"].host.snapshot())] == taken


# ---- digests


def test_digests_come_at_the_same_positions_everywhere() -> None:
    group = FakeGroup(COUNTER, settings=HostSettings(digest_interval=5))
    session = group.open()
    for request in range(1, 30):
        group.ask("abc"[request % 3], session, request, "add", 1)
        if request % 4 == 0:
            group.turn()
    group.turn()
    assert list(group["a"].digests) == [5, 10, 15, 20, 25, 30]
    assert group["a"].digests == group["b"].digests == group["c"].digests


def test_digests_of_a_large_state_are_rarer() -> None:
    settings = HostSettings(digest_interval=2, digest_bytes=100)
    group = FakeGroup(SEATS, settings=settings)
    session = group.open()
    for request in range(1, 40):
        group.call("a", session, request, "book", f"seat {request:05}", "x" * 20)
    places = list(group["a"].digests)
    gaps = [b - a for a, b in itertools.pairwise(places)]
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[-1]
    assert group["b"].digests == group["a"].digests


def test_a_state_that_is_too_large_is_digested_on_demand_only() -> None:
    settings = HostSettings(digest_interval=2, digest_bytes=1 << 20, digest_bytes_max=1000)
    group = FakeGroup(SEATS, settings=settings)
    session = group.open()
    for request in range(1, 60):
        group.call("a", session, request, "book", f"seat {request:05}", "x" * 20)
    skipped = group["a"].context.counters["host.digests_skipped"]
    places = list(group["a"].digests)
    assert places[:4] == [2, 4, 6, 8]
    assert len(places) + skipped == 30
    assert skipped > 10
    newcomer = group.replace("b", donor="a")
    for request in range(60, 70):
        group.call("a", session, request, "book", f"seat {request:05}", "x" * 20)
    assert newcomer.context.counters["host.digests_skipped"] == 5
    assert group.digests_agree()


@BOTH
def test_dumps_are_of_the_authoritative_state_at_the_same_positions(optimistic: bool) -> None:  # noqa: FBT001
    settings = HostSettings(digest_interval=5, dump_interval=7)
    group = FakeGroup(COUNTER, optimistic=optimistic, settings=settings)
    dumps: dict[str, dict[int, bytes]] = {"a": {}, "c": {}}
    for id, kept in dumps.items():
        group[id].host.copies.dump = lambda at, chunks, kept=kept: kept.update(
            {at: b"".join(chunks)}
        )
    session = group.open()
    for request in range(1, 30):
        group.ask("abc"[request % 3], session, request, "add", 1)
        if request % 4 == 0:
            group.turn()
    group.turn()
    group["a"].host.snapshot()
    group["c"].host.snapshot()
    assert list(dumps["a"]) == [7, 14, 21, 28]
    assert dumps["a"] == dumps["c"]
    assert list(group["a"].digests) == [5, 10, 15, 20, 25, 30]
    newcomer = FakeGroup(COUNTER, settings=settings)["b"]
    newcomer.host.restore([dumps["a"][21]], 21)
    assert newcomer.host.query(Level.WEAK, "total") == 20


def test_a_keeper_of_dumps_that_wants_none_does_not_disturb_digests() -> None:
    group = FakeGroup(COUNTER, settings=HostSettings(digest_interval=5))
    group["a"].host.copies.dump = lambda at, _: pytest.fail(f"a dump at {at}")
    session = group.open()
    for request in range(1, 10):
        group.call("a", session, request, "add", 1)
    assert list(group["a"].digests) == [5, 10]


class Nested:
    """Its weight is not seen from outside."""

    lists: dict[str, list[int]] = {}  # noqa: RUF012

    @update
    def fill(self, count: int) -> None:
        self.lists["x"] = list(range(count))


def test_a_state_that_has_shrunk_is_digested_again() -> None:
    settings = HostSettings(digest_interval=2, digest_bytes=1 << 20, digest_bytes_max=1000)
    group = FakeGroup(define(Nested), settings=settings)
    session = group.open()
    for request in range(1, 40):
        group.call("a", session, request, "fill", 3000 if request < 9 else 3)
    places = list(group["a"].digests)
    assert places[0] == 2
    assert 4 not in places
    assert places[-5:] == [32, 34, 36, 38, 40]


def test_a_state_taken_over_is_kept_to_undo_from() -> None:
    group = FakeGroup(CLUMSY)
    session = group.open()
    group.call("a", session, 1, "push", "x", 1)
    newcomer = group.replace("b", donor="a")
    start = newcomer.host.copies.start
    assert start is not None
    group.failure("a", session, 2, "push", "y", -1)
    assert newcomer.host.copies.start is start
    assert group.look("names") == ["x"]
    assert group.digests_agree()


def test_a_replica_that_strayed_is_seen_in_its_digest() -> None:
    group = FakeGroup(SEATS, settings=HostSettings(digest_interval=3))
    session = group.open()
    group.call("a", session, 1, "book", "1A", "Ada")
    vars(group["b"].host.replicated)["taken"]["1A"] = "Eve"
    group.call("a", session, 2, "book", "1B", "Bob")
    assert group["a"].digests == group["c"].digests != group["b"].digests
    assert not group.digests_agree()


SURPRISES = iter(range(1000))


class Surprising:
    """Answers something else every time, in a way that no reading of its code finds."""

    asked: int = 0

    @update
    def ask(self) -> int:
        self.asked += 1
        return next(SURPRISES)


def test_answers_that_differ_are_seen_in_the_digest_though_states_agree() -> None:
    group = FakeGroup(define(Surprising))
    session = group.open()
    assert group.digests_agree()
    group.call("a", session, 1, "ask")
    states = [vars(replica.host.replicated) for replica in group.replicas.values()]
    assert states == [{"asked": 1}] * 3
    assert not group.digests_agree()


# ---- time, chance, ids


def test_time_chance_and_ids_are_the_same_everywhere() -> None:
    group = FakeGroup(LOTTERY)
    session = group.open()
    results: list[object] = []
    for request in range(1, 6):
        group.advance_clocks(250_000)
        results.append(group.result("abc"[request % 3], session, request, "draw", 10**6))
    assert group.look("when") == group["a"].surroundings.now
    assert vars(group["c"].host.replicated)["drawn"] == results
    drawn = vars(group["a"].host.replicated)["drawn"]
    assert len({number for _, number, _ in drawn}) == 5
    ids = group.result("a", session, 6, "two_ids")
    assert isinstance(ids, tuple)
    assert ids[0] != ids[1]


def test_an_update_executed_again_draws_the_same() -> None:
    group = FakeGroup(LOTTERY, optimistic=True)
    session = group.open()
    group.ask("a", session, 1, "draw", 10**6)
    group.turn(settle=False)
    (first,) = vars(group["a"].host.replicated)["drawn"]
    run = group.history[-1]
    group.roll_back(1)
    assert vars(group["a"].host.replicated)["drawn"] == []
    # Another entry takes its place; the same one comes later, in another view.
    view = ViewId(7, "b", 1)
    other = Run(view, 1, 2, Member("b", 1), 1, [b"junk"])
    again = Run(view, 2, 3, run.origin, run.first, run.payloads)
    for replica in group.replicas.values():
        replica.host.deliver([other, again], Standing.OPTIMISTIC)
    (second,) = vars(group["a"].host.replicated)["drawn"]
    assert second == first


def test_time_passes_without_traffic_for_a_class_that_wants_it() -> None:
    group = FakeGroup(define(classes.Leases))
    session = group.open()
    group.call("a", session, 1, "take", "x")
    for _ in range(5):
        assert group.look("held") in (["x"], [])
        group.advance_clocks(seconds(1))
        for replica in group.replicas.values():
            replica.host.tick()
        group.turn()
    assert group.look("held") == []
    assert group.digests_agree()


def test_a_class_that_does_not_care_makes_no_ticks() -> None:
    group = FakeGroup(COUNTER)
    group.advance_clocks(seconds(100))
    group["a"].host.tick()
    group.turn()
    assert group.history == []


def test_after_a_long_silence_witnesses_speak_up_by_themselves() -> None:
    group = FakeGroup(LOTTERY)
    session = group.open()
    group.call("b", session, 1, "draw", 10)
    group.call("c", session, 2, "draw", 10)
    group.advance_clocks(seconds(8 * 3600))
    group.call("a", session, 3, "draw", 10)
    group.turn()  # the word of the others
    assert group.look("when") == group["a"].surroundings.now
    before = group.position
    group.turn()
    assert group.position == before


class Nervous(classes.Clumsy):
    """Fails on every second tick, half-way."""

    def on_tick(self) -> None:
        self.log.append("tick")
        if len(self.log) % 2 == 0:
            raise ValueError("even")


@BOTH
def test_a_tick_that_fails_is_undone_and_noted(optimistic: bool) -> None:  # noqa: FBT001
    group = FakeGroup(define(Nervous), optimistic=optimistic)
    group.open()
    for _ in range(3):
        group.advance_clocks(seconds(1))
        group["a"].host.tick()
        group.turn()
    assert group.look("names") == ["tick"]
    assert "Nervous.on_tick failed at 3: ValueError: even" in group["b"].host.faults
    assert group.digests_agree()


# ---- without total order


def test_a_class_whose_updates_do_not_commute_needs_an_order() -> None:
    with pytest.raises(NotReplicable, match="needs a stack with total order"):
        FakeGroup(COUNTER, is_ordered=False)


def test_commuting_updates_may_arrive_in_any_order() -> None:
    definition = define(classes.Tally)
    group = FakeGroup(definition, is_ordered=False)
    session = group.open()
    for request in range(1, 6):
        lowest = max(1, request - 1)
        group.ask("a", session, request, "add", "x", 10**request, lowest=lowest)
        group.ask("b", session, request, "add", "x", 10**request, lowest=lowest)
    runs = [group[id].take_run(group.view, 0, 2) for id in "ab"]
    one, two = (run for run in runs if run is not None)
    for id, order in (("a", (one, two)), ("b", (two, one)), ("c", (two, one))):
        position = 1
        for run in order:
            there = Run(run.view, 0, position + 1, run.origin, run.first, run.payloads)
            group[id].host.deliver([there], Standing.AUTHORITATIVE)
            position = there.last_position
    assert group.look("count", "x") == 111_110
    with pytest.raises(UnknownMethod, match="need a stack with total order"):
        group["a"].host.read(Level.CONSISTENT, 1, "count", definition.encode_call("count", "x", {}))


def deliver_one_by_one(group: FakeGroup, order: dict[str, list[Run]]) -> None:
    """Give each replica the same runs, in an order of its own."""
    for id, runs in order.items():
        for run in runs:
            position = group[id].host.position + 1
            there = Run(run.view, 0, position, run.origin, run.first, run.payloads)
            group[id].host.deliver([there], Standing.AUTHORITATIVE)


def test_without_order_a_call_may_come_before_its_session_and_after_its_end() -> None:
    group = FakeGroup(define(classes.Tally), is_ordered=False)
    group["a"].host.open_session(1)
    opening = group["a"].take_run(group.view, 0, 1)
    assert opening is not None
    deliver_one_by_one(group, {"a": [opening]})
    (opened,) = group["a"].desk.of(0, 1)
    assert isinstance(opened, Opened)
    session = opened.session
    group.ask("a", session, 1, "add", "x", 5)
    call = group["a"].take_run(group.view, 0, 2)
    group["a"].host.close_session(session)
    closing = group["a"].take_run(group.view, 0, 3)
    assert call is not None
    assert closing is not None
    again = Run(call.view, 0, 0, Member("z", 1), 1, call.payloads)
    deliver_one_by_one(
        group,
        {
            "a": [call, closing, again],
            "b": [again, opening, closing, call],
            "c": [closing, call, again, opening],
        },
    )
    assert group.look("count", "x") == 5


def test_without_order_a_replica_that_does_not_know_a_session_proposes_nothing_of_it() -> None:
    group = FakeGroup(define(classes.Tally), is_ordered=False)
    group.ask("b", 77, 1, "add", "x", 5)
    (outcome,) = group["b"].desk.of(77, 1)
    assert isinstance(outcome, NotTaken)
    assert "has not heard of the session yet" in outcome.reason
    assert group["b"].take_run(group.view, 0, 1) is None
