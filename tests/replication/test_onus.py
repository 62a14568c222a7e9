"""Server groups (**rsp**): one synchronises, one answers, and a request is executed once."""

from __future__ import annotations

import msgspec
import pytest

from coterie.kernel.clock import seconds
from coterie.kernel.errors import StackError
from coterie.objects import Done, ObjectHost
from coterie.replication.onus import BUFFER_MAX, Onus, onus
from coterie.simulation.engines.servers.trial import ServerGroup, ServerSimulation
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.stacks import parse_stack

STACK = "ONUS:SAFE:DYNSEQ:PVSYNC"
ONE = msgspec.msgpack.encode((1,))


class Collected(ServerGroup):
    """A group whose answers are kept, and not carried to anybody."""

    def collect(self) -> list[tuple[int, int, object]]:
        """Give the answers from now on, as they come."""
        got: list[tuple[int, int, object]] = []
        self.clients.answered = lambda answer: got.append(  # type: ignore[method-assign]
            (answer.session, answer.request, answer.outcome)
        )
        return got


def make_group(names: str = "abc", seed: int = 1) -> Collected:
    simulation = ServerSimulation(seed=seed, stack=STACK, has_object=True, object_kind="counter")
    group = Collected(simulation, "group", names)
    group.run_until_whole()
    return group


def send(group: Collected, to: str, client: int, number: int, *, relay: bool = False) -> None:
    def take(host: ObjectHost) -> None:
        host.request(client, number, "add", ONE, relay=relay)

    for id in to:
        group[id].ask(take)


def layer(group: Collected, id: str) -> Onus:
    replica = group[id].replica
    assert replica is not None
    found = replica.layers[0]
    assert isinstance(found, Onus)
    return found


def totals(group: Collected) -> set[object]:
    return {host.ledger.settled.value for host in group if isinstance(host.ledger, SimulatedObject)}


def speaker(group: Collected, client: int) -> str:
    place = group["a"].place
    assert place is not None
    return onus(client, place[1]).id


def test_a_request_to_all_is_executed_once_and_answered_once() -> None:
    group = make_group()
    got = group.collect()
    for client in (7, 8, 9):
        send(group, "abc", client, 1)
    group.run(seconds(1))
    assert sorted((client, number) for client, number, _ in got) == [(7, 1), (8, 1), (9, 1)]
    assert totals(group) == {3}
    group.check()


@pytest.mark.parametrize("relay", [False, True])
def test_a_request_that_one_replica_received_is_executed_whoever_it_is(relay: bool) -> None:  # noqa: FBT001
    group = make_group()
    got = group.collect()
    for client, id in ((7, "a"), (8, "a"), (9, "a"), (10, "b"), (11, "b"), (12, "c")):
        send(group, id, client, 1, relay=relay)
    group.run(seconds(1))
    assert len(got) == 6
    assert totals(group) == {6}
    group.check()


def test_a_request_that_comes_again_is_answered_from_the_record_by_one() -> None:
    group = make_group()
    got = group.collect()
    send(group, "abc", 7, 1)
    group.run(seconds(1))
    first = got.copy()
    send(group, "abc", 7, 1)
    group.run(seconds(1))
    assert got == first * 2
    assert totals(group) == {1}
    group.check()


def test_a_late_copy_of_an_earlier_request_is_not_executed_nor_answered() -> None:
    group = make_group()
    got = group.collect()
    send(group, "abc", 7, 2)
    group.run(seconds(1))
    send(group, "abc", 7, 1)
    group.run(seconds(1))
    assert [number for _, number, _ in got] == [2]
    assert totals(group) == {1}


def test_the_onus_is_evaluated_again_when_its_replica_is_gone() -> None:
    group = make_group()
    got = group.collect()
    gone = speaker(group, 7)
    group[gone].crash()
    rest = "abc".replace(gone, "")
    send(group, rest, 7, 1)
    group.run(seconds(3))
    assert [(client, number) for client, number, _ in got] == [(7, 1)]
    group.check()


def test_a_replica_that_comes_back_knows_the_records_of_the_others() -> None:
    group = make_group()
    got = group.collect()
    group["c"].crash()
    group.run(seconds(2))
    send(group, "ab", 7, 1)
    group.run(seconds(1))
    group["c"].start()
    group.run_until_whole()
    for id in "abc":
        ledger = group[id].ledger
        assert isinstance(ledger, SimulatedObject)
        assert ledger.engine_host.has_record(7, 1), id
    group["a"].crash()
    group["b"].crash()
    group.run(seconds(1))
    group["b"].start()
    group.run_until_whole()
    send(group, "bc", 7, 1)
    group.run(seconds(1))
    assert [type(outcome) for _, _, outcome in got] == [Done, Done]
    group.check()


def test_a_minority_keeps_requests_and_answers_nobody() -> None:
    group = make_group()
    got = group.collect()
    group["a"].crash()
    group["b"].crash()
    group.run(seconds(2))
    send(group, "c", 7, 1)
    group.run(seconds(1))
    assert not got
    assert list(layer(group, "c").req_buffer) == [(7, 1)]
    group.run(seconds(12))
    assert not layer(group, "c").req_buffer  # its client has asked again, or has given up


def test_the_buffer_is_bounded() -> None:
    group = make_group()
    group["a"].crash()
    group["b"].crash()
    group.run(seconds(2))
    for client in range(1, BUFFER_MAX + 10):
        send(group, "c", client, 1)
    group.run(seconds(1))
    found = layer(group, "c")
    assert len(found.req_buffer) == BUFFER_MAX
    assert found.context.counters["onus.dropped"] == 9


def test_a_peer_that_sends_no_requests_is_refused() -> None:
    group = make_group()
    bottom = layer(group, "a").below
    place = group["a"].place
    assert place is not None
    others = [member for member in place[1] if member.id != "a"]
    group["a"].call(lambda: bottom.send_direct(others, b"\xc1"))
    send(group, "abc", 7, 1)
    got = group.collect()
    group.run(seconds(1))
    assert len(got) == 1


@pytest.mark.parametrize("stack", ["ONUS:DYNSEQ:PVSYNC", "ONUS:TOKEN:PVSYNC"])
def test_without_safe_it_is_refused_with_a_sentence(stack: str) -> None:
    with pytest.raises(StackError, match=r"ONUS needs .*, which nothing below it gives"):
        parse_stack(stack)
