"""Real groups behind real sockets: nothing acknowledged is lost, nothing is executed twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.seeded import seeded
from tests.service.groups import Counter, PortGroup

import coterie
from coterie.client import (
    ClientSettings,
    NotDone,
    OutcomeUnknown,
    Result,
    connect_untyped,
    connection_of,
    open_client,
    report_of,
)
from coterie.client.group import GroupClient
from coterie.client.updates import UpdateRequest
from coterie.kernel.engine import Role, Standing
from coterie.objects import BadArguments, HostSettings, UnknownMethod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from coterie.client.channel import Channel
    from coterie.client.requests import Request

SETTINGS = ClientSettings(deadline=15.0, hedge_after=0.1, connect_timeout=0.5)
OPTIMISTIC_STACK = "DYNSEQ:PVSYNC"


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await story()

    idle_time.run(bounded())


def home_of(counter: object) -> str:
    home = connection_of(counter).client.replicas.home
    assert home is not None
    return home.replica


def test_calls_survive_the_death_of_the_replica_they_were_made_at() -> None:
    async def story() -> None:
        async with (
            PortGroup() as group,
            coterie.connect(Counter, group.addresses["r1"], settings=SETTINGS) as counter,
        ):
            await counter.add(1, "first")
            victim = home_of(counter)
            calls = [asyncio.ensure_future(counter.add(1, f"{n}")) for n in range(50)]
            await asyncio.sleep(0)
            await group.kill(victim)
            await asyncio.gather(*calls)
            assert home_of(counter) != victim
            names = await counter.names()
            assert sorted(names) == sorted(["first", *(f"{n}" for n in range(50))])

    run(story)


def test_an_answer_that_was_lost_is_given_again() -> None:
    """The update was executed, its answer was not delivered: the retry gets the first outcome."""

    async def story() -> None:
        async with (
            PortGroup(relayed=True) as group,
            coterie.connect(Counter, list(group.addresses.values()), settings=SETTINGS) as counter,
        ):
            home = home_of(counter)
            replica = group.replicas[home]
            before = replica.host.position
            call = asyncio.ensure_future(counter.add.detailed(1, "once"))
            # What the replica says from now on does not arrive.
            replica.driver.turn_ended.remove(replica.port.turn_ended)
            replica.port.turn_ended = lambda: None  # type: ignore[method-assign]
            await group.until(lambda: replica.host.position > before)
            done = await call
            assert home_of(counter) != home
            assert await counter.names() == ["once"], "executed once"
            assert done.value == 1

    run(story)


def test_a_client_that_retries_under_another_number_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check above sees what it is there for: without request ids an update is doubled."""
    send = GroupClient.send

    def send_renumbered(
        client: GroupClient, request: Request, channel: Channel | None = None
    ) -> None:
        if isinstance(request, UpdateRequest) and request.attempts and request.window is not None:
            window = request.window
            del window.pending[request.number]
            window.numbers += 1
            request.number = window.numbers
            window.pending[request.number] = request
        send(client, request, channel)

    monkeypatch.setattr(GroupClient, "send", send_renumbered)
    with pytest.raises(AssertionError, match="once"):
        test_an_answer_that_was_lost_is_given_again()


def test_a_frozen_link_is_survived() -> None:
    async def story() -> None:
        async with (
            PortGroup(relayed=True) as group,
            coterie.connect(Counter, list(group.addresses.values()), settings=SETTINGS) as counter,
        ):
            await counter.add(1, "before")
            group.relays[home_of(counter)].hold()
            await counter.add(1, "during")
            for relay in group.relays.values():
                relay.mend()
            await counter.add(1, "after")
            assert await counter.names() == ["before", "during", "after"]

    run(story)


@pytest.mark.slow  # suspicion takes wall time
def test_a_client_in_a_minority_finds_the_majority() -> None:
    async def story() -> None:
        async with (
            PortGroup() as group,
            coterie.connect(Counter, list(group.addresses.values()), settings=SETTINGS) as counter,
        ):
            await counter.add(1)
            alone = home_of(counter)
            others = [id for id in group.replicas if id != alone]
            group.part(alone, " ".join(others))
            await group.until(lambda: group.replicas[alone].role is Role.MINORITY)
            assert await counter.add(1) == 2
            assert home_of(counter) in others

    run(story)


@pytest.mark.slow  # a deadline passes
def test_without_a_majority_a_call_is_not_done_or_unknown_by_its_deadline() -> None:
    async def story() -> None:
        async with (
            PortGroup() as group,
            coterie.connect(Counter, list(group.addresses.values()), settings=SETTINGS) as counter,
        ):
            kept = await counter.add.detailed(1, "kept")
            group.part("r1", "r2", "r3")
            await group.until(
                lambda: all(each.role is Role.MINORITY for each in group.replicas.values())
            )
            with pytest.raises(NotDone, match="no majority"):
                await counter.add.options(deadline=0.5)(1, "refused")
            with pytest.raises(NotDone):
                await counter.read.options(deadline=0.3)()
            # Whoever answered knows that it is authoritative; others may not have heard of it.
            fresh = counter.read.options(level="weak", not_before=kept.viewstamp)
            assert await fresh() == 1
            group.heal()
            assert await counter.add(1, "healed") == 2
            assert await counter.names() == ["kept", "healed"]

    run(story)


def test_an_evicted_session_is_replaced() -> None:
    async def story() -> None:
        settings = HostSettings(sessions_max=2)
        async with (
            PortGroup(settings=settings) as group,
            open_client(group.addresses["r1"], settings=SETTINGS) as client,
        ):
            sessions = [client.session() for _ in range(5)]
            add = msgspec.msgpack.encode([1, ""])
            for session in [*sessions, *sessions]:
                await session.call("add", add, msgspec.msgpack.decode)
            read = client.query("read", msgspec.msgpack.encode([]), msgspec.msgpack.decode)
            assert await read == 10

    run(story)


def test_many_sessions_share_one_connection() -> None:
    async def story() -> None:
        async with (
            PortGroup() as group,
            open_client(group.addresses["r1"], settings=SETTINGS) as client,
        ):
            sessions = [client.session() for _ in range(200)]
            add = msgspec.msgpack.encode([1, ""])
            calls = [session.call("add", add, msgspec.msgpack.decode) for session in sessions]
            assert set(await asyncio.gather(*calls)) == set(range(1, 201))
            assert sum(len(each.port._callers) for each in group.replicas.values()) <= 2

    run(story)


def test_a_closed_session_is_forgotten_by_the_group() -> None:
    async def story() -> None:
        async with PortGroup() as group:
            async with coterie.connect(Counter, group.addresses["r1"]) as counter:
                await counter.add(1)
            host = group.replicas["r1"].host
            await group.until(lambda: not host.copies.machine.sessions.table)

    run(story)


def test_the_untyped_face_is_described_by_the_replica() -> None:
    async def story() -> None:
        async with PortGroup() as group, connect_untyped(group.addresses["r1"]) as counter:
            assert counter.report.class_name == "Counter"
            add = counter.describe("add")
            assert (add.kind, add.result, add.documentation) == (
                "update",
                "int",
                "Add, and give the new value.",
            )
            assert [(each.name, each.type, each.default) for each in add.parameters] == [
                ("amount", "int", ""),
                ("by", "str", "''"),
            ]
            assert add.parameters[0].schema == '{"type":"integer"}'
            assert await counter.method("add")(3) == 3
            assert await counter.method("read")() == 3
            with pytest.raises(BadArguments, match="'amount' must be int"):
                await counter.method("add")("x")
            with pytest.raises(UnknownMethod, match="it has add"):
                counter.method("subtract")

    run(story)


def test_each_replica_reports_on_itself() -> None:
    async def story() -> None:
        async with PortGroup() as group:
            for id, address in group.addresses.items():
                report = await report_of(address)
                assert (report.replica, report.role, report.incarnation) == (id, "primary", 1)
                assert {peer.id: peer.address for peer in report.peers} == group.addresses
                assert report.members == ["r1", "r2", "r3"]

    run(story)


def test_optimistic_answers_settle_and_a_majority_makes_them_authoritative() -> None:
    async def story() -> None:
        async with (
            PortGroup(stack=OPTIMISTIC_STACK) as group,
            coterie.connect(Counter, group.addresses["r1"], settings=SETTINGS) as counter,
        ):
            first = await counter.add.detailed(1)
            assert first.standing is Standing.OPTIMISTIC
            final = await first.settled()
            assert (final.value, final.standing) == (1, Standing.AUTHORITATIVE)
            voted = await counter.add.options(majority=True).detailed(1)
            assert (voted.value, voted.standing) == (2, Standing.AUTHORITATIVE)
            fresh = counter.read.options(level="weak", not_before=voted.viewstamp)
            assert await fresh() == 2

    run(story)


@pytest.mark.slow  # suspicion and merging take wall time
def test_an_optimistic_answer_that_is_rolled_back_is_executed_again() -> None:
    async def story() -> None:
        async with (
            PortGroup(stack=OPTIMISTIC_STACK) as group,
            open_client(group.addresses["r1"], settings=SETTINGS, spread=False) as client,
        ):

            def add(by: str) -> asyncio.Future[object]:
                arguments = msgspec.msgpack.encode([1, by])
                return session.call("add", arguments, msgspec.msgpack.decode, is_detailed=True)

            session = client.session()
            await add("before")
            group.part("r1", "r2 r3")
            # The orderer does not know yet that it is alone, so it answers.
            lone = await add("alone")
            assert isinstance(lone, Result)
            assert (lone.value, lone.standing) == (2, Standing.OPTIMISTIC)
            await group.until(lambda: group.replicas["r2"].role is Role.PRIMARY)
            await group.until(lambda: group.replicas["r1"].role is Role.MINORITY)
            async with coterie.connect(Counter, group.addresses["r2"]) as elsewhere:
                await elsewhere.add(1, "meanwhile")
                group.heal()
                final = await lone.settled()
                assert (final.value, final.standing) == (3, Standing.AUTHORITATIVE)
                assert await elsewhere.names() == ["before", "meanwhile", "alone"]

    run(story)


# ---- random faults


class _Ledger:
    """What the callers were told."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.not_done: list[str] = []
        self.unknown: list[str] = []
        self.is_closed = False

    def note(self, by: str, end: object) -> None:
        if isinstance(end, NotDone):
            self.not_done.append(by)
        elif isinstance(end, OutcomeUnknown):
            self.unknown.append(by)
        else:
            assert not isinstance(end, Exception)
            self.done.append(by)


async def _be_busy(counter: type[Counter], name: str, ledger: _Ledger, *, settles: bool) -> None:
    add = counter.add.options(deadline=3.0)
    number = 0
    while not ledger.is_closed:
        number += 1
        by = f"{name}/{number}"
        if number % 4 == 0 and not settles:
            batch = [f"{by}.{part}" for part in range(10)]
            ends = await add.many([(1, part) for part in batch])
            for part, end in zip(batch, ends, strict=True):
                ledger.note(part, end)
        else:
            try:
                result = await add.detailed(1, by)
                ledger.note(by, await result.settled() if settles else result)
            except (NotDone, OutcomeUnknown) as error:
                ledger.note(by, error)
        await asyncio.sleep(0.005)  # leave the machine to the others for a while


async def be_nasty(group: PortGroup, random: Random) -> None:
    """One fault after another; never more than one replica without its memory."""
    for _ in range(3):
        await asyncio.sleep(random.uniform(0.0, 0.1))
        id = random.choice(group.configuration.members)
        others = " ".join(other for other in group.configuration.members if other != id)
        match random.randrange(5):
            case 0:
                await group.kill(id)
                await group.until(lambda: group.primaries >= 2)
                await group.start(id)
            case 1:
                group.part(id, others)
                await asyncio.sleep(random.uniform(0.0, 0.6))
                group.heal()
            case 2:
                group.relays[id].cut()
                await asyncio.sleep(random.uniform(0.0, 0.3))
                group.relays[id].mend()
            case 3:  # as if the machine stood still
                group.part(id, others)
                group.relays[id].hold()
                await asyncio.sleep(random.uniform(0.0, 0.6))
                group.heal()
                group.relays[id].mend()
            case _:
                group.relays[id].hold()
                await asyncio.sleep(random.uniform(0.0, 0.6))
                group.relays[id].mend()
        await group.until(lambda: group.primaries == 3)


@pytest.mark.slow  # real time-outs
@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", OPTIMISTIC_STACK])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_each_update_is_executed_as_its_caller_was_told(
    seed: int, stack: str
) -> None:
    async def story() -> None:
        random = seeded("clients", stack, seed)
        ledger = _Ledger()
        settles = stack == OPTIMISTIC_STACK
        async with PortGroup(stack=stack, relayed=True) as group:
            addresses = list(group.addresses.values())
            async with (
                coterie.connect(Counter, addresses, settings=SETTINGS) as one,
                coterie.connect(Counter, addresses, settings=SETTINGS) as other,
            ):
                callers = [
                    asyncio.ensure_future(_be_busy(counter, f"{n}", ledger, settles=settles))
                    for n, counter in enumerate([one, other] * 4)
                ]
                await be_nasty(group, random)
                ledger.is_closed = True
                await asyncio.gather(*callers)
                names = await one.names()
        assert len(set(names)) == len(names), "executed twice"
        assert set(ledger.done) <= set(names), "acknowledged and lost"
        assert not set(ledger.not_done) & set(names), "done although surely not"
        assert set(names) <= set(ledger.done) | set(ledger.unknown)
        assert len(ledger.done) > len(callers)

    run(story)
