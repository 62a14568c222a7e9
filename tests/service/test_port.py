"""The port for clients, spoken to byte by byte."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.service.groups import Counter, PortGroup

import coterie
from coterie.client import NotWelcome
from coterie.kernel.clock import milliseconds
from coterie.kernel.engine import Standing
from coterie.objects import CommandTooLarge
from coterie.objects.execution.outcomes import (
    AllDone,
    Closed,
    Done,
    NotTaken,
    Opened,
    SessionEvicted,
)
from coterie.protocol.frames import encode_frame, frame_reader
from coterie.protocol.messages import (
    Answers,
    Ask,
    Challenge,
    Farewell,
    FromClient,
    FromReplica,
    Hello,
    News,
    Ping,
    Pong,
    Proof,
    Query,
    Refusals,
    Reported,
    SettledNotice,
    Update,
    UpdateBatch,
    Welcome,
    decode_from_replica,
    encode,
)
from coterie.protocol.proof import meeting_of_client
from coterie.runtime.address import Address
from coterie.runtime.transport import ListenError
from coterie.service.engines.stack_front import ObjectFront
from coterie.service.known_clients import KnownClient, KnownClients
from coterie.service.port import ClientPort
from coterie.service.settings import PortSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from coterie.objects.execution.outcomes import Answer

ADD = msgspec.Raw(msgspec.msgpack.encode([1, ""]))
FIFTY = msgspec.Raw(msgspec.msgpack.encode([ADD] * 50))
NONE = msgspec.Raw(msgspec.msgpack.encode([]))


class Talker:
    """A client that says what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames: list[list[FromReplica]] = []
        self._frames = frame_reader(frame_bytes_max=1 << 26)
        self._heard: list[FromReplica] = []

    def say(self, *messages: FromClient) -> None:
        self.writer.write(encode_frame(encode(list(messages))))

    async def hear(self) -> FromReplica:
        while not self._heard:
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            for body in self._frames.feed(data):
                messages = decode_from_replica(body)
                self.frames.append(messages)
                self._heard += messages
        return self._heard.pop(0)

    async def hear_a(self, kind: type) -> FromReplica:
        """Pass over what is not of a kind."""
        while not isinstance(message := await self.hear(), kind):
            pass
        return message

    async def answers(self, count: int = 1) -> list[Answer]:
        answers: list[Answer] = []
        while len(answers) < count:
            message = await self.hear_a(Answers)
            assert isinstance(message, Answers)
            answers += message.answers
        return answers

    async def greet(self, group: str = "counter") -> Welcome:
        self.say(Hello(group, b"n" * 16))
        welcome = await self.hear()
        assert isinstance(welcome, Welcome), welcome
        return welcome

    async def open(self) -> int:
        self.say(Ask(0, opens=[7]))
        [answer] = await self.answers()
        assert isinstance(answer.outcome, Opened)
        assert (answer.session, answer.request) == (0, 7)
        return answer.outcome.session

    async def farewell(self) -> Farewell:
        message = await self.hear()
        assert isinstance(message, Farewell), message
        with pytest.raises((EOFError, ConnectionError)):
            await self.hear()
        return message


@asynccontextmanager
async def talking(address: str) -> AsyncIterator[Talker]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Talker(reader, writer)
    finally:
        writer.transport.abort()


def run(story: Callable[[PortGroup], Awaitable[None]], **settings: object) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE), PortGroup(**settings) as group:  # type: ignore[arg-type]
            await story(group)

    idle_time.run(bounded())


# ---- greetings


def test_the_welcome_tells_what_a_client_needs() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r2"]) as talker:
            welcome = await talker.greet("")
            assert (welcome.group, welcome.class_name) == ("counter", "Counter")
            assert (welcome.replica, welcome.role, welcome.majority) == ("r2", "primary", 2)
            assert {peer.id: peer.address for peer in welcome.peers} == group.addresses
            assert all(peer.is_in_view for peer in welcome.peers)

    run(story)


def test_a_wrong_group_is_sent_away_with_the_right_name() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("seats", b""))
            farewell = await talker.farewell()
            assert farewell.kind == "group"
            assert "there is counter" in farewell.reason
        ObjectFront(group.replicas["r1"].port, "second").attach(group.replicas["r1"].hosted)
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("", b""))
            assert "counter, second" in (await talker.farewell()).reason

    run(story)


@pytest.mark.parametrize(
    ("said", "kind", "reason"),
    [
        (encode_frame(encode([Ask(0)])), "malformed", "says hello first"),
        (encode_frame(encode([Proof(b"")])), "malformed", "says hello first"),
        (encode_frame(b"\xc1"), "malformed", "cannot be read"),
        (encode_frame(encode([["nonsense"]])), "malformed", "cannot be read"),
        (encode_frame(bytes(5000)), "malformed", "over the limit"),
        (b"GET / HTTP/1.1\r\n\r\n", "malformed", "does not speak"),
        (b"CC\x02\0" + bytes(8), "version", "speaks version 2"),
    ],
)
def test_what_makes_no_sense_is_answered_and_counted(said: bytes, kind: str, reason: str) -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            talker.writer.write(said)
            farewell = await talker.farewell()
            assert farewell.kind == kind
            assert reason in farewell.reason
        assert group.replicas["r1"].port.counters[f"port.farewells_{kind}"] == 1

    run(story)


def test_numbers_that_cannot_be_are_refused() -> None:
    """Session 0 would let one client speak to another; so no such request is read at all."""

    async def story(group: PortGroup) -> None:
        for ask in (
            Ask(0, updates=[Update(0, 1 << 40, 1, "add", ADD)]),
            Ask(0, opens=[1 << 40]),
            Ask(0, watches=[(-1, 1)]),
        ):
            async with talking(group.addresses["r1"]) as talker:
                await talker.greet()
                talker.say(ask)
                assert (await talker.farewell()).kind == "malformed"

    run(story)


def test_the_secret_is_asked_for_and_shown() -> None:
    secret = b"0123456789abcdef"

    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("counter", b"mine"))
            challenge = await talker.hear()
            assert isinstance(challenge, Challenge)
            assert len(challenge.nonce) == 16
            meeting = meeting_of_client("counter", b"mine", challenge.nonce)
            talker.say(Proof(meeting.proof(secret, by_dialler=True)))
            welcome = await talker.hear()
            assert isinstance(welcome, Welcome)
            assert welcome.proof == meeting.proof(secret, by_dialler=False)
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("counter", b"mine"))
            await talker.hear()
            talker.say(Proof(meeting.proof(b"another secret!!", by_dialler=True)))
            assert (await talker.farewell()).kind == "secret"
        address = group.addresses["r1"]
        async with coterie.connect(Counter, address, secret=secret) as counter:
            assert await counter.add(1) == 1
        with pytest.raises(NotWelcome, match="does not know a secret"):
            async with coterie.connect(Counter, address, secret=b"another secret!!"):
                pass
        with pytest.raises(NotWelcome, match=r"give it to connect\(\)"):
            async with coterie.connect(Counter, address):
                pass

    run(story, clients=KnownClients([KnownClient("tester", secret=secret)]))


def test_a_proof_serves_one_connection_only() -> None:
    secret = b"0123456789abcdef"

    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("counter", b"mine"))
            challenge = await talker.hear()
            assert isinstance(challenge, Challenge)
            meeting = meeting_of_client("counter", b"mine", challenge.nonce)
            overheard = meeting.proof(secret, by_dialler=True)
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("counter", b"mine"))
            await talker.hear()
            talker.say(Proof(overheard))
            assert (await talker.farewell()).kind == "secret"

    run(story, clients=KnownClients([KnownClient("tester", secret=secret)]))


def test_a_short_secret_is_no_secret() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        KnownClient("tester", secret=b"short")


def test_one_client_too_many_is_told_so() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as first:
            await first.greet()
            async with talking(group.addresses["r1"]) as second:
                assert (await second.farewell()).kind == "busy"
            first.say(Ping())
            assert isinstance(await first.hear_a(Pong), Pong)

    run(story, port_settings=PortSettings(connections_max=1))


def test_who_says_nothing_is_hung_up_on() -> None:
    settings = PortSettings(hello_timeout=milliseconds(30), idle_max=milliseconds(60))

    async def story(group: PortGroup) -> None:
        port = group.replicas["r1"].port
        async with talking(group.addresses["r1"]) as talker:
            with pytest.raises((EOFError, ConnectionError)):
                await talker.hear()
            assert port.counters["port.hellos_timed_out"] == 1
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            with pytest.raises((EOFError, ConnectionError)):
                await talker.hear_a(Pong)
            assert port.counters["port.callers_idle"] == 1

    run(story, port_settings=settings)


def test_a_port_that_is_taken_is_an_error_with_the_address() -> None:
    async def story(group: PortGroup) -> None:
        number = group.ports["r1"]
        port = ClientPort(
            replica="b", incarnation=1, listen=Address("127.0.0.1", number), addresses={}
        )
        with pytest.raises(ListenError, match=f"127.0.0.1:{number}"):
            await port.__aenter__()

    run(story)


# ---- asking


def test_all_requests_of_a_frame_are_answered_in_one_frame() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            session = await talker.open()
            talker.frames.clear()
            updates = [Update(session, number, 1, "add", ADD) for number in range(1, 51)]
            talker.say(Ask(0, updates=updates, batches=[UpdateBatch(session, 51, 1, "add", FIFTY)]))
            answers = await talker.answers(51)
            assert [answer.request for answer in answers] == list(range(1, 52))
            packed = answers[-1].outcome
            assert isinstance(packed, AllDone)
            assert list(map(msgspec.msgpack.decode, packed.results)) == list(range(51, 101))
            assert sum(isinstance(each, Answers) for one in talker.frames for each in one) == 1

    run(story)


def test_the_same_request_on_another_replica_gets_the_same_answer() -> None:
    async def story(group: PortGroup) -> None:
        async with (
            talking(group.addresses["r1"]) as one,
            talking(group.addresses["r2"]) as other,
        ):
            await one.greet()
            await other.greet()
            session = await one.open()
            ask = Ask(0, updates=[Update(session, 1, 1, "add", ADD)])
            one.say(ask)
            [first] = await one.answers()
            other.say(ask)
            [second] = await other.answers()
            assert first.outcome == second.outcome

    run(story)


def test_wrong_requests_are_refused_one_by_one() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            session = await talker.open()
            bad = msgspec.Raw(msgspec.msgpack.encode(["one"]))
            huge = msgspec.Raw(msgspec.msgpack.encode([1, "x" * (600 << 10)]))
            talker.say(
                Ask(
                    0,
                    updates=[
                        Update(session, 1, 1, "add", bad),
                        Update(session, 2, 1, "nothing", ADD),
                        Update(session, 3, 1, "add", huge),
                        Update(session, 4, 1, "read", NONE),
                        Update(session, 5, 1, "add", ADD),
                    ],
                    queries=[Query(9, "fresh", "read", NONE), Query(10, "weak", "add", ADD)],
                )
            )
            refusals = await talker.hear_a(Refusals)
            assert isinstance(refusals, Refusals)
            kinds = {(each.session, each.request): each.kind for each in refusals.refusals}
            assert kinds == {
                (session, 1): "arguments",
                (session, 2): "method",
                (session, 3): "size",
                (session, 4): "method",
                (0, 9): "method",
                (0, 10): "method",
            }
            [answer] = await talker.answers()
            assert answer.request == 5

    run(story)


def test_reports_pings_and_goodbyes() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            session = await talker.open()
            talker.say(Ping(), Ask(0, reports=[3]))
            assert isinstance(await talker.hear(), Pong)
            reported = await talker.hear_a(Reported)
            assert isinstance(reported, Reported)
            assert (reported.token, reported.report.replica) == (3, "r1")
            talker.say(Ask(0, updates=[Update(session, 1, 1, "add", ADD)]))
            await talker.answers()
            talker.say(Ask(0, closes=[session]))
            [closed] = await talker.answers()
            assert closed.outcome == Closed()
            talker.say(Ask(0, updates=[Update(session, 2, 1, "add", ADD)]))
            [evicted] = await talker.answers()
            assert evicted.outcome == SessionEvicted()

    run(story)


def test_a_watched_request_is_answered_whether_it_comes_before_or_after() -> None:
    async def story(group: PortGroup) -> None:
        async with (
            talking(group.addresses["r1"]) as one,
            talking(group.addresses["r2"]) as other,
        ):
            await one.greet()
            await other.greet()
            session = await one.open()
            other.say(Ask(0, watches=[(session, 1)]))
            other.say(Ping())
            await other.hear_a(Pong)
            await group.until(lambda: (session, 1) in group.replicas["r2"].host._watched)
            one.say(Ask(0, updates=[Update(session, 1, 1, "add", ADD)]))
            [proposed] = await one.answers()
            [watched] = await other.answers()
            assert proposed.outcome == watched.outcome
            other.say(Ask(0, watches=[(session, 1)], unwatches=[(session, 1)]))
            [again] = await other.answers()
            assert again.outcome == proposed.outcome
            other.say(Ask(0, watches=[(session, 9)]))
            await group.until(lambda: (session, 9) in group.replicas["r2"].host._watched)
        await group.until(lambda: not group.replicas["r2"].host._watched)

    run(story)


def test_an_opened_session_and_answers_are_followed_by_what_becomes_of_them() -> None:
    """On an optimistic stack a session is told when it is settled, an answer before."""

    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r2"]) as talker:
            await talker.greet()
            session = await talker.open()
            assert group.replicas["r2"].host.settled_position >= 1
            talker.say(Ask(0, updates=[Update(session, 1, 1, "add", ADD)]))
            [answer] = await talker.answers()
            assert answer.standing is Standing.OPTIMISTIC
            assert isinstance(answer.outcome, Done)
            settled = await talker.hear_a(SettledNotice)
            assert isinstance(settled, SettledNotice)
            assert settled.position >= answer.outcome.position

    run(story, stack="DYNSEQ:PVSYNC")


@pytest.mark.slow  # suspicion takes wall time
def test_clients_hear_of_members_that_come_and_go_and_move() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            await group.kill("r3")
            while True:
                news = await talker.hear_a(News)
                assert isinstance(news, News)
                if news.role == "primary" and not news.peers[2].is_in_view:
                    break
            group.replicas["r1"].port.move({"r1": "10.0.0.1:7101"})
            moved = await talker.hear_a(News)
            assert isinstance(moved, News)
            assert [peer.address for peer in moved.peers] == ["10.0.0.1:7101", "", ""]

    run(story)


# ---- limits


def test_an_answer_too_large_for_a_frame_is_refused() -> None:
    async def story(group: PortGroup) -> None:
        async with coterie.connect(Counter, group.addresses["r1"]) as counter:
            assert len(await counter.blob(10_000)) == 10_000
            with pytest.raises(CommandTooLarge, match="ask for less"):
                await counter.blob(300_000)
            assert await counter.read() == 0

    run(story, port_settings=PortSettings(answer_frame_bytes_max=200_000))


def test_large_answers_of_one_turn_are_split_over_frames() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            talker.frames.clear()
            size = msgspec.Raw(msgspec.msgpack.encode([60_000]))
            talker.say(Ask(0, queries=[Query(n, "dirty", "blob", size) for n in range(1, 8)]))
            answers = await talker.answers(7)
            assert [answer.request for answer in answers] == list(range(1, 8))
            assert len(talker.frames) > 2

    run(story, port_settings=PortSettings(answer_frame_bytes_max=200_000))


def test_a_client_that_does_not_read_is_not_read_until_it_does() -> None:
    settings = PortSettings(queue_bytes_high=1 << 16)

    async def story(group: PortGroup) -> None:
        port = group.replicas["r1"].port
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            size = msgspec.Raw(msgspec.msgpack.encode([400_000]))
            for token in range(1, 61):
                talker.say(Ask(0, queries=[Query(token, "dirty", "blob", size)]))
            await group.until(lambda: port.counters.get("port.callers_held_back", 0) > 0)
            [caller] = port._callers
            assert caller.transport.get_write_buffer_size() < 60 * 400_000
            assert len(await talker.answers(60)) == 60

    run(story, port_settings=settings)


def test_a_client_for_which_too_much_waits_is_cut_off() -> None:
    settings = PortSettings(queue_bytes_max=1 << 20)

    async def story(group: PortGroup) -> None:
        port = group.replicas["r1"].port
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            size = msgspec.Raw(msgspec.msgpack.encode([400_000]))
            queries = [Query(token, "dirty", "blob", size) for token in range(1, 61)]
            talker.say(Ask(0, queries=queries))
            await group.until(lambda: port.counters.get("port.callers_cut_off", 0) > 0)
            with pytest.raises((EOFError, ConnectionError)):
                await talker.answers(60)

    run(story, port_settings=settings)


def test_what_waits_for_a_turn_is_bounded() -> None:
    settings = PortSettings(untaken_bytes_max=10_000)

    async def story(group: PortGroup) -> None:
        port = group.replicas["r1"].port
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            session = await talker.open()
            updates = [Update(session, number, 1, "add", ADD) for number in range(1, 101)]
            talker.say(Ask(0, updates=updates))
            assert len(await talker.answers(100)) == 100
            assert port.counters["port.callers_held_back"] == 1

    run(story, port_settings=settings)


def test_too_many_sessions_on_one_connection_are_not_taken() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            talker.say(Ask(0, updates=[Update(n, 1, 1, "add", ADD) for n in (11, 12, 13)]))
            answers = {answer.session: answer.outcome for answer in await talker.answers(3)}
            assert answers[11] == answers[12] == SessionEvicted()
            assert isinstance(answers[13], NotTaken)
            assert "sessions_max" in answers[13].reason

    run(story, port_settings=PortSettings(sessions_max=2))
