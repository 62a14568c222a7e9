"""What only the TCP transport does: greetings, seeking, half-open links, strangers."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE
from tests.runtime.worlds import FRAME_BYTES_MAX, SETTINGS, End, TcpWorld

from coterie.kernel.clock import milliseconds
from coterie.kernel.wire import Envelope, Frame, encode_frame
from coterie.protocol.hello import (
    Greeting,
    GreetingReader,
    PeerFarewell,
    PeerHello,
    encode_greeting,
)
from coterie.runtime.address import Address
from coterie.runtime.events import EventLogger
from coterie.runtime.loop import run
from coterie.runtime.settings import TransportSettings
from coterie.runtime.transport import ListenError, TcpTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sized


def in_world(
    *names: str, settings: TransportSettings = SETTINGS
) -> Callable[[Callable[[TcpWorld], Coroutine[object, object, None]]], Callable[[], None]]:
    """Run a scenario on the product's own loop."""

    def decorate(scenario: Callable[[TcpWorld], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            async def story() -> None:
                async with asyncio.timeout(PATIENCE), TcpWorld(*names, settings=settings) as world:
                    await scenario(world)

            run(story())

        return test

    return decorate


class RawPeer:
    """A peer made of a bare socket, to say what no process of ours would."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def dial(world: TcpWorld, id: str) -> RawPeer:
        transport = world.ends[id].transport
        assert isinstance(transport, TcpTransport)
        return RawPeer(*await world.connect(transport.address))

    def greet(self, process: str, incarnation: int, says: PeerHello | PeerFarewell) -> None:
        self.writer.write(encode_greeting(Greeting(process, incarnation, says)))

    async def greeting(self) -> Greeting:
        reader = GreetingReader()
        while (complete := reader.feed(await self.reader.read(1))) is None:
            pass
        return complete[0]

    async def is_sent_away(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


# ---- greetings


@pytest.mark.parametrize(
    ("process", "incarnation", "hello", "reason"),
    [
        ("a", 1, PeerHello("other", "b"), "this is cluster 'test', not 'other'"),
        ("a", 1, PeerHello("test", "c"), "this is process 'b', not 'c': check the addresses"),
        ("x", 1, PeerHello("test", "b"), "process 'x' is no peer of 'b'"),
        ("c", 1, PeerHello("test", "b"), "process 'c' must wait to be dialled by 'b'"),
        ("a", 4, PeerHello("test", "b"), "a later life of 'a' (5 after 4) is known"),
    ],
)
def test_a_wrong_hello_is_sent_away_with_the_reason(
    process: str, incarnation: int, hello: PeerHello, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    @in_world("a", "b", "c")
    async def test(world: TcpWorld) -> None:
        b = await world.start("b")
        known = await RawPeer.dial(world, "b")
        known.greet("a", 5, PeerHello("test", "b"))
        assert (await known.greeting()).says == PeerHello("test", "a")
        peer = await RawPeer.dial(world, "b")
        peer.greet(process, incarnation, hello)
        says = (await peer.greeting()).says
        assert isinstance(says, PeerFarewell)
        assert reason in says.reason
        assert await peer.is_sent_away()
        assert b.counter("hellos_rejected") == 1

    test()
    assert "hello rejected process='b'" in caplog.text
    assert reason in caplog.text


@in_world("a", "b")
async def test_who_is_sent_away_counts_it_and_tries_again(world: TcpWorld) -> None:
    a = await world.start("a", incarnation=1)
    later = await world.start("b")
    await world.linked("a", "b")
    raw = await RawPeer.dial(world, "b")
    raw.greet("a", 2, PeerHello("test", "b"))  # somebody else claims to be a later a
    await world.until(lambda: a.counter("hellos_rejected_by_peer") >= 2)
    assert later.counter("links_replaced") == 1


@in_world("a", "b")
async def test_a_connection_must_begin_with_a_hello(world: TcpWorld) -> None:
    b = await world.start("b")
    await world.inject("b", encode_frame(Frame("a", 1, None, [])))
    assert b.counter("frames_dropped_hello") == 1
    assert b.frames == []


@in_world("a", "b", settings=TransportSettings(hello_timeout=milliseconds(20)))
async def test_who_says_nothing_is_sent_away(world: TcpWorld) -> None:
    b = await world.start("b")
    await world.inject("b", b"CO")
    assert b.counter("hellos_timed_out") == 1


@in_world("a", "b", settings=TransportSettings(strangers_max=3))
async def test_a_crowd_of_strangers_is_bounded(world: TcpWorld) -> None:
    b = await world.start("b")
    for _ in range(3):
        await RawPeer.dial(world, "b")
    one_more = await RawPeer.dial(world, "b")
    assert await one_more.is_sent_away()
    assert b.counter("strangers_turned_away") == 1


@in_world("a", "b", "c")
async def test_nobody_speaks_in_the_name_of_another(world: TcpWorld) -> None:
    b = await world.start("b")
    peer = await RawPeer.dial(world, "b")
    peer.greet("a", 1, PeerHello("test", "b"))
    peer.writer.write(encode_frame(Frame("c", 1, None, [])))
    peer.writer.write(encode_frame(Frame("a", 1, None, [])))
    await world.until(lambda: len(b.frames) == 1)
    assert b.frames[0].process == "a"
    assert b.counter("frames_dropped_sender") == 1


@in_world("a", "b")
async def test_a_stream_out_of_step_is_closed(world: TcpWorld) -> None:
    b = await world.start("b")
    peer = await RawPeer.dial(world, "b")
    peer.greet("a", 1, PeerHello("test", "b"))
    await peer.greeting()
    peer.writer.write(encode_frame(Frame("a", 1, None, [])) + b"garbage in between")
    assert await peer.is_sent_away()
    assert len(b.frames) == 1
    assert (b.counter("frames_dropped_magic"), b.counter("links_lost")) == (1, 1)


@in_world("a", "b")
async def test_a_frame_that_cannot_be_read_does_not_cost_the_connection(world: TcpWorld) -> None:
    b = await world.start("b")
    peer = await RawPeer.dial(world, "b")
    peer.greet("a", 1, PeerHello("test", "b"))
    unreadable = encode_frame(Envelope("no", 1, []))  # type: ignore[arg-type]
    peer.writer.write(unreadable + encode_frame(Frame("a", 1, None, [])))
    await world.until(lambda: len(b.frames) == 1)
    assert (b.counter("frames_dropped_body"), b.counter("links_lost")) == (1, 0)


@in_world("a", "b")
async def test_a_damaged_frame_costs_the_connection(world: TcpWorld) -> None:
    """The damage may be in the length, which then leads nowhere."""
    b = await world.start("b")
    peer = await RawPeer.dial(world, "b")
    peer.greet("a", 1, PeerHello("test", "b"))
    await peer.greeting()
    peer.writer.write(encode_frame(Frame("a", 1, None, []))[:-1] + b"\x99")
    assert await peer.is_sent_away()
    assert (b.counter("frames_dropped_checksum"), b.counter("links_lost")) == (1, 1)


# ---- seeking


@in_world("a", "b")
async def test_the_smaller_id_dials_and_there_is_one_connection(world: TcpWorld) -> None:
    b = await world.start("b")
    await world.until(lambda: b.counter("dials_refused") >= 2)
    a = await world.start("a")
    await world.linked("a", "b")
    await world.until(lambda: len(connections(a)) == len(connections(b)) == 1)
    assert a.counter("links_up") == b.counter("links_up") == 1
    assert b.counter("dials") == 0
    assert b.counter("knocks") >= 2
    # It was never up before, so a refusal is no news.
    assert b.refused == []


@in_world("a", "b")
async def test_a_killed_listener_is_reported_once(world: TcpWorld) -> None:
    a = await world.start("a")
    await world.start("b")
    await world.linked("a", "b")
    await world.stop("b")
    await world.until(lambda: a.counter("dials_refused") >= 3)
    assert a.refused == ["b"]


@in_world("a", "b")
async def test_a_killed_dialler_is_reported_once(world: TcpWorld) -> None:
    await world.start("a")
    b = await world.start("b")
    await world.linked("a", "b")
    await world.stop("a")
    await world.until(lambda: b.counter("dials_refused") >= 3)
    assert b.refused == ["a"]


@in_world(
    "a",
    "b",
    settings=TransportSettings(retry_first=milliseconds(10_000), retry_max=milliseconds(60_000)),
)
async def test_a_knock_ends_the_pause_of_the_dialler(world: TcpWorld) -> None:
    a = await world.start("a")
    await world.until(lambda: a.counter("dials_refused") == 1)
    await world.start("b")  # a would not try again for some seconds
    await world.linked("a", "b")


@in_world("a", "b")
async def test_a_knock_of_a_new_life_proves_the_link_dead(world: TcpWorld) -> None:
    """A machine that came back after a power cut: its peer has not seen the connection end."""
    a = await world.start("a")
    await world.start("b", incarnation=1)
    await world.linked("a", "b")
    raw = await RawPeer.dial(world, "a")
    raw.greet("b", 1, PeerHello("test", "a", knocks=True))
    assert (await raw.greeting()).says == PeerHello("test", "b")
    assert await raw.is_sent_away()
    assert a.counter("links_lost") == 0
    newer = await RawPeer.dial(world, "a")
    newer.greet("b", 2, PeerHello("test", "a", knocks=True))
    await world.until(lambda: a.counter("links_lost") == 1)


def test_pauses_double_up_to_the_limit_and_vary() -> None:
    async def story() -> None:
        transport = a_transport(Address("127.0.0.1", 0))
        for failures, expected in ((1, 0.02), (2, 0.04), (5, 0.32), (6, 0.5), (500, 0.5)):
            pauses = [transport._pause(failures) for _ in range(50)]
            assert all(expected * 0.5 <= pause <= expected * 1.5 for pause in pauses)
            assert max(pauses) > min(pauses)

    run(story())


# ---- half-open links


QUICK = TransportSettings(
    silence_max=milliseconds(80), hello_timeout=milliseconds(80), retry_max=milliseconds(20)
)


@in_world("a", "b", settings=QUICK)
async def test_a_silent_link_is_closed_and_dialled_again(world: TcpWorld) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    beating = asyncio.create_task(beat(a, b))
    world.hold("a", "b")
    await world.until(lambda: bool(a.counter("links_silent") and b.counter("links_silent")))
    world.mend("a", "b")
    await world.linked("a", "b")
    b.send("a", b"again")
    await world.until(lambda: b"again" in a.heard("b"))
    beating.cancel()


@in_world("a", "b", settings=QUICK)
async def test_a_link_with_heartbeats_stays(world: TcpWorld) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    beating = asyncio.create_task(beat(a, b))
    await world.until(lambda: len(a.frames) > 25)  # more than twice as long as silence may last
    assert a.counter("links_lost") == b.counter("links_lost") == 0
    beating.cancel()


async def beat(*ends: End) -> None:
    while True:
        for end, other in (ends, reversed(ends)):
            end.send(other.id, b"beat")
        await asyncio.sleep(0.01)


# ---- errors of the system


def a_transport(listen: Address) -> TcpTransport:
    return TcpTransport(
        id="a",
        incarnation=1,
        cluster="test",
        listen=listen,
        peers={},
        receiver=End("a", 1),
        frame_bytes_max=FRAME_BYTES_MAX,
    )


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ("127.0.0.1", "the port is taken by another program"),
        ("203.0.113.1", "the host is not this machine"),
        ("no-such-host.invalid", "the host has no address"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(host: str, sentence: str) -> None:
    async def story(port: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            with pytest.raises(ListenError, match=f"cannot listen at {host}:{port}: {sentence}"):
                await a_transport(Address(host, port)).open(tasks)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        run(story(taken.getsockname()[1]))


def test_events_are_logged_once_a_second_and_counted_always(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_world("a", "b")
    async def test(world: TcpWorld) -> None:
        b = await world.start("b")
        for _ in range(5):
            await world.inject("b", b"certainly not a frame of ours")
        assert b.counter("frames_dropped_magic") == 5

    with caplog.at_level(logging.WARNING):
        test()
    lines = [record for record in caplog.records if "bad frame" in record.getMessage()]
    assert 1 <= len(lines) <= 2
    assert "the bytes are not a Coterie frame" in caplog.text


def test_whoever_has_a_new_name_each_time_is_not_remembered() -> None:
    events = EventLogger()
    for number in range(5000):
        events.warn("not let in", counter="strangers", peer=f"127.0.0.1:{number}")
    assert events.counters["strangers"] == 5000
    assert len(events._logged_at) <= 1024


def connections(end: End) -> Sized:
    assert isinstance(end.transport, TcpTransport)
    return end.transport.connections
