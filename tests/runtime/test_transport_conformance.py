"""What every transport owes its driver: over a simulated network, real TCP, streams in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE
from tests.runtime.worlds import (
    FRAME_BYTES_MAX,
    QUEUE_BYTES_MAX,
    MemoryWorld,
    SimulatedWorld,
    TcpWorld,
    World,
    encode_text,
)
from uvloop import new_event_loop as new_uvloop

from coterie.kernel.errors import FrameError
from coterie.kernel.wire import Envelope, Frame, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

WORLDS: dict[
    str,
    tuple[type[SimulatedWorld | TcpWorld | MemoryWorld], Callable[[], asyncio.AbstractEventLoop]],
]
WORLDS = {
    "simulated": (SimulatedWorld, asyncio.new_event_loop),
    "tcp": (TcpWorld, new_uvloop),
    "tcp-asyncio": (TcpWorld, asyncio.new_event_loop),
    "memory": (MemoryWorld, asyncio.new_event_loop),
}


def conformance(
    scenario: Callable[[World], Coroutine[object, object, None]],
) -> Callable[[str], None]:
    """Run a scenario in each world, with three processes that are not started yet."""

    @pytest.mark.parametrize("world_name", WORLDS)
    def test(world_name: str) -> None:
        make_world, make_loop = WORLDS[world_name]

        async def run() -> None:
            async with asyncio.timeout(PATIENCE), make_world("a", "b", "c") as world:
                await scenario(world)

        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(run())

    return test


@conformance
async def test_frames_arrive_whole_and_in_order(world: World) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    forth = [f"forth {number}".encode() for number in range(500)]
    back = [f"back {number}".encode() for number in range(500)]
    for number in range(500):
        a.send("b", forth[number])
        b.send("a", back[number])
        if number % 50 == 0:
            await world.until(lambda: True)
    await world.until(lambda: len(b.frames) == len(a.frames) == 500)
    assert (b.heard("a"), a.heard("b")) == (forth, back)


@conformance
async def test_a_frame_goes_to_the_right_peer_only(world: World) -> None:
    a, b, c = [await world.start(id) for id in "abc"]
    for pair in ("ab", "ac", "bc"):
        await world.linked(*pair)
    a.send("b", b"for b")
    c.send("b", b"also for b")
    a.send("c", b"for c")
    await world.until(lambda: len(b.frames) == 2 and len(c.frames) == 1)
    assert (b.heard("a"), b.heard("c"), c.heard("a")) == ([b"for b"], [b"also for b"], [b"for c"])
    assert a.frames == []


@conformance
async def test_a_multicast_reaches_all_its_destinations(world: World) -> None:
    a, b, c = [await world.start(id) for id in "abc"]
    await world.linked("a", "b")
    await world.linked("a", "c")
    a.transport.multicast(["b", "c"], a.frame(b"one"))
    a.transport.multicast(["b", "c"], a.frame(b"two"))
    a.transport.flush()
    await world.until(lambda: len(b.frames) == len(c.frames) == 2)
    assert b.heard("a") == c.heard("a") == [b"one", b"two"]


@conformance
async def test_many_groups_share_the_way(world: World) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    links = b.counter("links_up")  # on a busy machine the first greetings may come too late
    envelopes = [Envelope(f"group {n}", n, [encode_text(b"%d" % n)]) for n in range(100)]
    a.transport.send("b", encode_frame(Frame("a", 1, None, envelopes)))
    for number in range(100):
        a.transport.send("b", a.frame(b"%d" % number, group=f"group {number}"))
    a.transport.flush()
    await world.until(lambda: len(b.frames) == 101)
    assert b.frames[0].envelopes == envelopes
    groups = [frame.envelopes[0].group for frame in b.frames[1:]]
    assert groups == [f"group {n}" for n in range(100)]
    assert b.counter("links_up") == links


@conformance
async def test_the_largest_frame_arrives(world: World) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    filling = bytes(FRAME_BYTES_MAX - 1000)
    a.send("b", filling)
    a.send("b", b"after it")
    await world.until(lambda: len(b.frames) == 2)
    assert b.heard("a") == [filling, b"after it"]


@conformance
async def test_an_oversized_frame_is_refused_to_its_sender(world: World) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    with pytest.raises(FrameError, match="over the limit") as refused:
        a.send("b", bytes(FRAME_BYTES_MAX))
    assert refused.value.kind == "size"
    a.send("b", b"all is well")
    await world.until(lambda: b.heard("a") == [b"all is well"])


@conformance
async def test_a_frame_for_nobody_is_counted(world: World) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    a.transport.multicast(["nobody", "b"], a.frame(b"x"))
    a.transport.flush()
    await world.until(lambda: len(b.frames) == 1)
    assert a.counter("frames_to_unknown_peer") == 1


@conformance
async def test_nothing_is_kept_for_a_peer_that_is_not_there(world: World) -> None:
    a = await world.start("a")
    a.send("b", b"too early")
    await world.pass_time()
    b = await world.start("b")
    await world.linked("a", "b")
    a.send("b", b"in time")
    await world.until(lambda: b"in time" in b.heard("a"))
    assert b.heard("a") == [b"in time"]


@conformance
async def test_a_restarted_peer_is_found_again(world: World) -> None:
    """The dialled process restarts: its knock, or the next attempt, brings the link back."""
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    await world.stop("b")
    b = await world.start("b", incarnation=2)
    await world.linked("a", "b")
    a.send("b", b"welcome back")
    b.send("a", b"thanks")
    await world.until(lambda: b.heard("a") == [b"welcome back"] and a.heard("b") == [b"thanks"])
    assert a.frames[-1].incarnation == 2


@conformance
async def test_a_restarted_process_finds_its_peers_again(world: World) -> None:
    """The dialling process restarts."""
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    await world.stop("a")
    a = await world.start("a", incarnation=2)
    await world.linked("a", "b")
    a.send("b", b"here again")
    await world.until(lambda: b.heard("a") == [b"here again"])


@conformance
async def test_a_cut_link_carries_nothing_until_it_is_mended(world: World) -> None:
    a, b, c = [await world.start(id) for id in "abc"]
    for pair in ("ab", "ac"):
        await world.linked(*pair)
    world.cut("a", "b")
    a.send("c", b"to c")
    await world.until(lambda: c.heard("a") == [b"to c"])
    a.send("b", b"lost")
    a.send("c", b"to c again")
    await world.until(lambda: len(c.frames) == 2)
    world.mend("a", "b")
    await world.linked("a", "b")
    a.send("b", b"found")
    await world.until(lambda: b.heard("a") == [b"found"])


@conformance
async def test_what_waits_for_a_slow_peer_is_bounded(world: World) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    world.hold("a", "b")
    filling = bytes(FRAME_BYTES_MAX // 2)
    sent = 0
    while not a.counter("frames_dropped_queue_full"):
        a.send("b", filling)
        sent += 1
        await asyncio.sleep(0)
        # What the kernel and the proxy hold on loopback comes on top.
        assert sent * len(filling) < 8 * QUEUE_BYTES_MAX, "nothing was ever dropped"
    world.mend("a", "b")
    await world.until(lambda: len(b.frames) == sent - 1)
    a.send("b", b"after the jam")
    await world.until(lambda: b.heard("a")[-1] == b"after the jam")


GARBAGE = {
    "magic": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "version": b"CO\x09\x00" + bytes(8),
    "size": b"CO\x01\x00\xff\xff\xff\xff" + bytes(4),
    "checksum": encode_frame(Frame("b", 1, None, []))[:-1] + b"\x99",
}


@conformance
async def test_garbage_is_dropped_and_counted(world: World) -> None:
    a, b = await world.start("a"), await world.start("b")
    await world.linked("a", "b")
    for kind, data in GARBAGE.items():
        await world.inject("a", data)
        await world.until(lambda kind=kind: a.counter(f"frames_dropped_{kind}") == 1)  # type: ignore[misc]
    assert a.frames == []
    b.send("a", b"unharmed")
    await world.until(lambda: a.heard("b") == [b"unharmed"])
