"""Every call has an outcome by its deadline, whatever replicas do; and it is the right one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.client.fakes import OPTIMISTIC, QUICK, FakeReplica, done, serving
from tests.patience import PATIENCE
from tests.runtime.proxy import reserve_port
from tests.service.groups import Counter

import coterie
from coterie.client import (
    MethodFailed,
    NotDone,
    NotWelcome,
    OutcomeUnknown,
    connection_of,
    open_client,
)
from coterie.client.updates import UpdateRequest
from coterie.kernel.engine import Standing
from coterie.objects import BadArguments
from coterie.objects.execution.outcomes import AlreadyForgotten, Failed, NotTaken, SessionEvicted
from coterie.protocol.frames import encode_frame
from coterie.protocol.messages import (
    AskAgain,
    Challenge,
    Farewell,
    News,
    Peer,
    Refusal,
    Refusals,
    RolledBackNotice,
    SettledNotice,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from coterie.protocol.messages import Ask, FromReplica


def connect(*replicas: FakeReplica) -> AbstractAsyncContextManager[type[Counter]]:
    addresses = [replica.address for replica in replicas]
    return coterie.connect(Counter, addresses, settings=QUICK)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await story()

    idle_time.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must become true; `run` bounds how long."""
    while not condition():  # noqa: ASYNC110 -- nobody signals what is inside of a client
        await asyncio.sleep(0.005)


# ---- outcomes


def test_an_update_that_nobody_answers_has_an_unknown_outcome() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = FakeReplica.ignore
            with pytest.raises(OutcomeUnknown, match="deadline"):
                await counter.add.options(deadline=0.3)(1)

    run(story)


def test_an_update_that_was_always_refused_is_surely_not_done() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = FakeReplica.refuse_updates
            with pytest.raises(NotDone, match="no majority"):
                await counter.add.options(deadline=0.3)(1)
            assert len(fake.updates) > 1, "a refused request is made again"
            assert len(set(fake.updates)) == 1, "it stays the same request"

    run(story)


def test_one_attempt_without_an_answer_makes_it_unknown() -> None:
    async def story() -> None:
        fake = FakeReplica()

        def first_refuse(replica: FakeReplica, ask: Ask) -> None:
            if len(replica.updates) == 1:
                replica.refuse_updates(ask)

        async with serving(fake), connect(fake) as counter:
            fake.on_ask = first_refuse
            with pytest.raises(OutcomeUnknown, match="no majority"):
                await counter.add.options(deadline=0.3)(1)

    run(story)


def test_a_method_that_raises_is_told_by_its_name() -> None:
    async def story() -> None:
        fake = FakeReplica()

        def fail(replica: FakeReplica, ask: Ask) -> None:
            for update in ask.updates:
                failed = Failed(3, done(0).view, 3, "Full", "no seat")
                replica.answer(update.session, update.number, failed)

        async with serving(fake), connect(fake) as counter:
            fake.on_ask = fail
            with pytest.raises(MethodFailed, match="Full: no seat") as raised:
                await counter.add(1)
            assert (raised.value.error, raised.value.message) == ("Full", "no seat")
            assert raised.value.viewstamp == done(0, 3).viewstamp

    run(story)


def test_what_a_replica_refuses_for_good_is_not_tried_again() -> None:
    async def story() -> None:
        fake = FakeReplica()

        def reject(replica: FakeReplica, ask: Ask) -> None:
            for update in ask.updates:
                refusal = Refusal(update.session, update.number, "arguments", "not a number")
                replica.say(Refusals([refusal]))

        async with serving(fake), connect(fake) as counter:
            fake.on_ask = reject
            with pytest.raises(BadArguments, match="not a number"):
                await counter.add(1)
            assert len(fake.updates) == 1

    run(story)


def test_closing_gives_every_call_an_outcome() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake):
            async with connect(fake) as counter:
                fake.on_ask = FakeReplica.ignore
                call = asyncio.ensure_future(counter.add(1))
                await asyncio.sleep(0)
            with pytest.raises((OutcomeUnknown, NotDone), match="closed"):
                await call

    run(story)


def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), open_client(fake.address, settings=QUICK) as client:
            session = client.session()
            await session.open()
            fake.on_ask = FakeReplica.ignore
            call = session.call("add", b"\x91\x01", bytes, deadline=5)
            await asyncio.sleep(0)
            call.cancel()
            await until(lambda: not client._live)
            fake.on_ask = FakeReplica.answer_updates
            await session.call("add", b"\x91\x01", bytes)
            assert fake.asked[-1].updates[0].lowest == 2, "the number is given up"

    run(story)


# ---- replicas that do not do their part


@pytest.mark.parametrize("kind", ["silent", "frozen", "refusing", "hanging up"])
def test_a_bad_replica_is_left_for_a_good_one_within_the_deadline(kind: str) -> None:
    """Slow, half-open, lying about its role, and dying: the same request goes elsewhere."""

    async def story() -> None:
        bad, good = FakeReplica("bad"), FakeReplica("good")
        async with serving(bad, good):
            bad.peers = good.peers = []  # to begin where we want to begin
            async with connect(bad) as counter:
                match kind:
                    case "silent":  # answers pings, so only the missing answer tells
                        bad.on_ask = FakeReplica.ignore
                    case "frozen":
                        bad.on_ask, bad.pongs = FakeReplica.ignore, False
                    case "refusing":
                        bad.on_ask = FakeReplica.refuse_updates
                    case _:
                        bad.on_ask = lambda replica, _: replica.hang_up()
                bad.say(News("primary", [Peer("good", good.address, is_in_view=True)]))
                assert await counter.add(1) == 1
                assert set(good.updates) == set(bad.updates), "the same request"
                bad.on_ask = FakeReplica.answer_updates
                asked = len(bad.updates)
                assert await counter.add(1) == 2
                assert len(bad.updates) == asked, "the client stays with the good one"

    run(story)


def test_a_request_makes_the_round_of_all_replicas() -> None:
    async def story() -> None:
        fakes = [FakeReplica(name) for name in "abcd"]
        for fake in fakes[:3]:
            fake.on_ask = FakeReplica.refuse_updates
        async with serving(*fakes), connect(fakes[0]) as counter:
            assert await counter.add(1) == 1

    run(story)


def test_a_busy_replica_is_not_asked_everything_twice() -> None:
    """All answers are slower than `hedge_after`, but they keep coming."""

    async def story() -> None:
        busy, other = FakeReplica("busy"), FakeReplica("other")
        waiting: list[tuple[int, int]] = []

        def queue(_: FakeReplica, ask: Ask) -> None:
            waiting.extend((update.session, update.number) for update in ask.updates)

        async def work() -> None:
            while True:
                await asyncio.sleep(0.01)
                for session, number in waiting[:5]:
                    busy.answer(session, number, done(number))
                del waiting[:5]

        async with serving(busy, other):
            busy.peers = []
            async with connect(busy) as counter:
                busy.say(News("primary", [Peer("other", other.address, is_in_view=True)]))
                await counter.add(1)
                busy.on_ask = queue
                worker = asyncio.ensure_future(work())
                await asyncio.gather(*(counter.add(1) for _ in range(60)))
                worker.cancel()
                assert len(busy.updates) == len(set(busy.updates)) == 61
                assert not other.updates

    run(story)


def test_a_replica_that_answers_some_and_never_others_is_passed_by_in_time() -> None:
    async def story() -> None:
        picky, other = FakeReplica("picky"), FakeReplica("other")

        def pick(replica: FakeReplica, ask: Ask) -> None:
            for update in ask.updates:
                if update.number != 2:
                    replica.answer(update.session, update.number, done(update.number))

        async with serving(picky, other):
            picky.peers = []
            async with connect(picky) as counter:
                picky.say(News("primary", [Peer("other", other.address, is_in_view=True)]))
                picky.on_ask = pick
                await counter.add(1)
                ignored = asyncio.ensure_future(counter.add.options(deadline=2)(1))
                await asyncio.sleep(0)
                while not ignored.done():
                    await counter.add(1)
                    await asyncio.sleep(0.005)
                assert await ignored == 2

    run(story)


def test_a_replica_that_lost_its_majority_is_left_at_once() -> None:
    async def story() -> None:
        one, other = FakeReplica("one"), FakeReplica("other")
        async with serving(one, other):
            one.peers = []
            async with connect(one) as counter:
                one.on_ask = FakeReplica.refuse_updates
                one.say(News("minority", [Peer("other", other.address, is_in_view=False)]))
                assert await counter.add(1) == 1
                assert other.updates

    run(story)


@pytest.mark.parametrize("role", ["minority", "learner"])
def test_a_client_does_not_begin_where_no_updates_are_taken(role: str) -> None:
    async def story() -> None:
        idle, good = FakeReplica("idle", role), FakeReplica("good")
        idle.on_ask = FakeReplica.ignore
        async with serving(idle, good), connect(idle) as counter:
            assert await counter.add(1) == 1
            assert not idle.updates

    run(story)


def test_a_dead_seed_does_not_hinder() -> None:
    async def story() -> None:
        good = FakeReplica("good")
        with reserve_port() as nobody:
            dead = f"127.0.0.1:{nobody.getsockname()[1]}"
            async with (
                serving(good),
                coterie.connect(Counter, [dead, good.address], settings=QUICK) as counter,
            ):
                assert await counter.add(1) == 1

    run(story)


def test_a_replica_that_never_says_a_word_does_not_hinder() -> None:
    async def story() -> None:
        mute, good = FakeReplica("mute"), FakeReplica("good")
        mute.is_mute = True
        async with serving(mute, good), connect(mute, good) as counter:
            assert await counter.add(1) == 1

    run(story)


def test_when_nobody_is_there_the_reason_is_told() -> None:
    async def story() -> None:
        with reserve_port() as nobody:
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            hurried = msgspec.structs.replace(QUICK, deadline=0.2)
            with pytest.raises(NotDone, match=r"within 0\.2 s.*refused"):
                async with open_client(address, settings=hurried):
                    pass

    run(story)


def test_a_half_open_connection_is_found_out_without_any_request() -> None:
    async def story() -> None:
        one, other = FakeReplica("one"), FakeReplica("other")
        async with serving(one, other):
            one.peers = []
            async with open_client(one.address, settings=QUICK) as client:
                one.say(News("primary", [Peer("other", other.address, is_in_view=True)]))
                one.pongs = False
                replicas = client.replicas
                await until(lambda: replicas.home is not None and replicas.home.replica == "other")
                assert "silent" in client.replicas.last_reason

    run(story)


def test_a_client_follows_a_replica_that_moved() -> None:
    async def story() -> None:
        old, new = FakeReplica("a"), FakeReplica("a")
        async with serving(old), serving(new):
            old.peers = new.peers = [Peer("a", old.address, is_in_view=True)]
            async with connect(old) as counter:
                assert await counter.add(1) == 1
                old.say(News("primary", [Peer("a", new.address, is_in_view=True)]))
                assert await counter.add(1) == 2
                old.is_mute = True
                old.hang_up()
                assert await counter.add(1) == 3
                assert new.updates

    run(story)


# ---- greetings


def greeted_with(*messages: FromReplica) -> NotWelcome:
    """What connecting to a replica that greets like this ends in."""
    found: list[NotWelcome] = []

    async def story() -> None:
        fake = FakeReplica()
        fake.hello = lambda _: messages[0]  # type: ignore[assignment,method-assign]
        async with serving(fake):
            with pytest.raises(NotWelcome) as raised:
                async with connect(fake):
                    pass
            found.append(raised.value)

    run(story)
    return found[0]


def test_a_wrong_group_is_told_with_the_right_ones() -> None:
    error = greeted_with(Farewell("group", "there is no group 'x'; there is counter"))
    assert error.kind == "group"
    assert "there is counter" in str(error)


def test_a_secret_that_is_asked_for_is_named() -> None:
    error = greeted_with(Challenge(b"0" * 16))
    assert error.kind == "secret"
    assert "give it to connect()" in str(error)


def test_another_class_is_refused() -> None:
    async def story() -> None:
        fake = FakeReplica()
        fake.class_name = "Seats"
        async with serving(fake):
            with pytest.raises(NotWelcome, match="replicates Seats, not Counter"):
                async with connect(fake):
                    pass

    run(story)


def test_a_replica_that_cannot_prove_the_secret_is_not_trusted() -> None:
    async def story() -> None:
        fake = FakeReplica()  # makes everybody welcome, which proves nothing
        async with serving(fake):
            with pytest.raises(NotWelcome, match="does not know the shared secret"):
                async with coterie.connect(Counter, fake.address, secret=b"s" * 16, settings=QUICK):
                    pass

    run(story)


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (b"CC\x07\0" + bytes(8), "speaks version 7"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Coterie"),
    ],
)
def test_whoever_speaks_something_else_is_recognised(says: bytes, told: str) -> None:
    async def story() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(says)
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        async with server:
            number = server.sockets[0].getsockname()[1]
            with pytest.raises(NotWelcome, match=told):
                async with coterie.connect(Counter, f"127.0.0.1:{number}", settings=QUICK):
                    pass

    run(story)


@pytest.mark.parametrize("garbage", [b"\x00" * 40, encode_frame(b"\xc1"), encode_frame(b"\x93")])
def test_garbage_from_a_replica_costs_only_the_connection(garbage: bytes) -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.connections[-1].transport.write(garbage)
            assert await counter.add(1) == 1
            assert len(fake.connections) == 2

    run(story)


# ---- sessions


def test_a_call_of_an_evicted_session_goes_on_in_a_new_one() -> None:
    async def story() -> None:
        fake = FakeReplica()

        def evict(replica: FakeReplica, ask: Ask) -> None:
            for update in ask.updates:
                if update.session == 1:
                    replica.answer(update.session, update.number, SessionEvicted())
                else:
                    replica.answer(update.session, update.number, done("in the second"))

        async with serving(fake), open_client(fake.address, settings=QUICK) as client:
            session = client.session()
            await session.open()
            fake.on_ask = evict
            value = await session.call("add", b"\x91\x01", msgspec.msgpack.decode)
            assert value == "in the second"
            assert fake.updates == [(1, 1), (2, 1)]

    run(story)


def test_a_call_made_twice_in_an_evicted_session_is_unknown() -> None:
    """The first attempt may have been executed before the session was evicted."""

    async def story() -> None:
        fake = FakeReplica()

        def evict(replica: FakeReplica, _: Ask) -> None:
            if len(replica.updates) > 1:
                replica.answer(1, 1, SessionEvicted())

        async with serving(fake), connect(fake) as counter:
            fake.on_ask = evict
            with pytest.raises(OutcomeUnknown, match="evicted"):
                await counter.add(1)
            fake.on_ask = FakeReplica.answer_updates
            assert await counter.add(1) == 1, "the next call has a new session"
            assert fake.updates[-1] == (2, 1)

    run(story)


def test_a_request_nobody_remembers_is_unknown() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = lambda replica, _: replica.answer(1, 1, AlreadyForgotten(5))
            with pytest.raises(OutcomeUnknown, match="does not remember"):
                await counter.add(1)

    run(story)


def test_outstanding_numbers_stay_within_the_window() -> None:
    async def story() -> None:
        fake = FakeReplica()
        fake.window = 40  # the client stays 24 below
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = FakeReplica.ignore
            calls = [asyncio.ensure_future(counter.add(1)) for _ in range(50)]
            await counter.names()
            numbers = sorted({number for _, number in fake.updates})
            assert numbers == list(range(1, 17))
            # The second is answered, but the first is not: the window cannot move.
            fake.answer(1, 2, done(2))
            await counter.names()
            assert max(number for _, number in fake.updates) == 16
            fake.answer(1, 1, done(1))
            await counter.names()
            assert max(number for _, number in fake.updates) == 18
            assert fake.asked[-1].updates[-1].lowest == 3
            fake.on_ask = FakeReplica.answer_updates
            for number in range(3, 19):
                fake.answer(1, number, done(number))
            assert sorted(await asyncio.gather(*calls)) == list(range(1, 51))

    run(story)


def test_a_client_that_is_full_makes_its_callers_wait_and_then_refuses_them() -> None:
    async def story() -> None:
        fake = FakeReplica()
        settings = msgspec.structs.replace(QUICK, in_flight_max=3, queue_max=5)
        async with (
            serving(fake),
            coterie.connect(Counter, fake.address, settings=settings) as counter,
        ):
            fake.on_ask = FakeReplica.ignore
            add = counter.add.options(deadline=0.2)
            calls = [asyncio.ensure_future(add(1)) for _ in range(5)]
            with pytest.raises(NotDone, match="queue_max"):
                await counter.add(1)
            ends = await asyncio.gather(*calls, return_exceptions=True)
            kinds = [type(end) for end in ends]
            assert kinds == [OutcomeUnknown] * 3 + [NotDone] * 2, "what was never sent is not done"

    run(story)


def test_a_call_that_waits_begins_when_the_one_before_it_is_given_up() -> None:
    async def story() -> None:
        fake = FakeReplica()
        settings = msgspec.structs.replace(QUICK, in_flight_max=1)
        async with (
            serving(fake),
            coterie.connect(Counter, fake.address, settings=settings) as counter,
        ):
            fake.on_ask = FakeReplica.ignore
            hurried = counter.add.options(deadline=0.1)
            calls = [asyncio.ensure_future(hurried(1)) for _ in range(3)]
            patient = asyncio.ensure_future(counter.add(1))
            await asyncio.gather(*calls, return_exceptions=True)
            fake.on_ask = FakeReplica.answer_updates
            assert await patient == 2

    run(story)


def test_a_deadline_that_has_passed_is_refused() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            with pytest.raises(NotDone, match="passed already"):
                await counter.add.options(deadline=0)(1)
            assert not fake.updates

    run(story)


def test_calls_of_one_moment_travel_in_one_frame() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.asked.clear()
            await asyncio.gather(*(counter.add(1) for _ in range(100)))
            assert [len(ask.updates) for ask in fake.asked] == [100]
            assert await counter.add.many([(1,)] * 100) == list(range(101, 201))
            assert len(fake.asked[1].batches) == 1
            large = await counter.add.many([(1, "x" * 1000)] * 200)
            assert large == list(range(201, 401))
            assert len(fake.asked[2].batches) == 2, "no batch is too large for a command"

    run(story)


def test_a_batch_that_could_never_be_made_is_an_error_at_once() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), open_client(fake.address, settings=QUICK) as client:
            session = client.session()
            assert session.batch_max == 256
            for count in (0, 257):
                with pytest.raises(ValueError, match="1 to 256"):
                    session.call_many("add", [b"\x90"] * count, bytes)

    run(story)


def test_many_gives_each_call_its_own_end() -> None:
    async def story() -> None:
        fake = FakeReplica()

        def answer_some(replica: FakeReplica, ask: Ask) -> None:
            for batch in ask.batches:
                replica.answer(1, batch.first, done("one"))
                failed = Failed(2, done(0).view, 2, "Full", "")
                replica.answer(1, batch.first + 1, failed)
                replica.answer(1, batch.first + 2, NotTaken("busy"))
            for update in ask.updates:
                assert update.number != 1, "what has its answer is not asked again"
                if update.number == 3:
                    replica.answer(1, 3, NotTaken("busy"))

        async with serving(fake), connect(fake) as counter:
            fake.on_ask = answer_some
            ends = await counter.add.options(deadline=0.4).many([(n,) for n in range(4)])
            assert isinstance(ends[0], MethodFailed), "the answer is no int, as add promises"
            assert isinstance(ends[1], MethodFailed)
            assert ends[1].error == "Full"
            assert isinstance(ends[2], NotDone)
            assert isinstance(ends[3], OutcomeUnknown)

    run(story)


# ---- answers that may be rolled back


def optimistic(replica: FakeReplica, ask: Ask) -> None:
    for update in ask.updates:
        replica.answer(update.session, update.number, done(10, 10), OPTIMISTIC)


def test_an_optimistic_answer_can_be_awaited_until_it_is_settled() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = optimistic
            first = await counter.add.detailed(1)
            assert (first.value, first.standing) == (10, Standing.OPTIMISTIC)
            fake.say(SettledNotice(9))
            waiting = asyncio.ensure_future(first.settled())
            await counter.names()
            assert not waiting.done()
            fake.say(SettledNotice(10))
            assert (await waiting).standing is Standing.AUTHORITATIVE
            assert await first.settled() is await first.settled()

    run(story)


def test_an_answer_that_was_rolled_back_is_asked_for_again() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = optimistic
            first = await counter.add.detailed(1)
            fake.on_ask = lambda replica, _: replica.answer(1, 1, done(77, 12))
            fake.say(RolledBackNotice(9))
            final = await first.settled()
            assert (final.value, final.position, final.standing) == (77, 12, Standing.AUTHORITATIVE)
            assert fake.updates == [(1, 1), (1, 1)]

    run(story)


def test_an_unsettled_number_is_not_given_up() -> None:
    """It may have to be asked for again after later ones."""

    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = optimistic
            await counter.add.detailed(1)
            await counter.add.detailed(1)
            assert fake.asked[-1].updates[0].lowest == 1
            fake.say(SettledNotice(10))
            await counter.names()
            await counter.add.detailed(1)
            assert fake.asked[-1].updates[0].lowest == 3

    run(story)


def test_a_lost_replica_leaves_optimistic_answers_to_be_settled_elsewhere() -> None:
    async def story() -> None:
        one, other = FakeReplica("one"), FakeReplica("other")
        async with serving(one, other):
            one.peers = []
            async with connect(one) as counter:
                one.on_ask = optimistic
                first = await counter.add.detailed(1)
                one.say(News("primary", [Peer("other", other.address, is_in_view=True)]))
                await counter.names()
                one.is_mute = True
                one.hang_up()
                final = await first.settled()
                assert (final.value, final.standing) == (1, Standing.AUTHORITATIVE)
                assert other.updates == [(1, 1)]

    run(story)


def test_when_the_state_was_replaced_everything_is_asked_for_again() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = FakeReplica.ignore
            call = asyncio.ensure_future(counter.add(1))
            await until(lambda: bool(fake.updates))
            fake.on_ask = FakeReplica.answer_updates
            fake.say(AskAgain())
            assert await call == 1

    run(story)


def test_a_majority_with_one_viewstamp_makes_an_answer_authoritative() -> None:
    async def story() -> None:
        fakes = [FakeReplica(name) for name in "abc"]
        for fake in fakes:
            fake.majority = 2

        def watch(replica: FakeReplica, ask: Ask) -> None:
            for update in ask.updates:
                replica.answer(update.session, update.number, done(5, 5), OPTIMISTIC)
            for session, number in ask.watches:
                if replica.id == watching[0]:  # this one has another history
                    replica.answer(session, number, done(5, 6), OPTIMISTIC)

        patient = msgspec.structs.replace(QUICK, hedge_after=20.0)
        async with (
            serving(*fakes),
            coterie.connect(Counter, fakes[0].address, settings=patient) as counter,
        ):
            await counter.add(1)
            home = next(fake for fake in fakes if fake.updates)
            watching = [fake.id for fake in fakes if fake is not home]
            for fake in fakes:
                fake.on_ask = watch
            add = counter.add.options(majority=True, deadline=5)
            call = asyncio.ensure_future(add.detailed(1))
            client = connection_of(counter).client
            [request] = client._live
            assert isinstance(request, UpdateRequest)
            await until(lambda: len(request.votes or ()) == 2)
            assert not call.done(), "two answers with different viewstamps are no majority"
            third = next(fake for fake in fakes if fake.id == watching[1])
            third.answer(1, 2, done(5, 5), OPTIMISTIC)
            result = await call
            assert (result.position, result.standing) == (5, Standing.AUTHORITATIVE)
            await until(lambda: any(ask.unwatches == [(1, 2)] for ask in third.asked))

    run(story)


# ---- queries


def test_a_query_can_demand_a_state_that_is_fresh_enough() -> None:
    async def story() -> None:
        fake = FakeReplica()
        seen: list[str] = []

        def grow(replica: FakeReplica, ask: Ask) -> None:
            for each in ask.queries:
                seen.append(each.level)
                replica.answer(0, each.token, done(len(seen), len(seen)))

        async with serving(fake), connect(fake) as counter:
            fake.on_ask = grow
            read = counter.read.options(level="weak", not_before=done(0, 3).viewstamp)
            result = await read.detailed()
            assert (result.value, result.position) == (3, 3)
            assert seen == ["weak"] * 3

    run(story)


def test_a_query_without_an_answer_is_not_done() -> None:
    async def story() -> None:
        fake = FakeReplica()
        async with serving(fake), connect(fake) as counter:
            fake.on_ask = FakeReplica.ignore
            with pytest.raises(NotDone):
                await counter.read.options(deadline=0.2)()

    run(story)
