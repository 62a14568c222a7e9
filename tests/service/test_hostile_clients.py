"""What a client sends is a counted refusal or a sentence, whatever it is, and work is bounded."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.fuzz.mutations import mutate, put_together, take_apart
from tests.seeded import seeded
from tests.service.groups import Counter, PortGroup
from tests.service.test_port import ADD, FIFTY, NONE, run, talking

import coterie
from coterie.client import open_client
from coterie.objects import CommandTooLarge
from coterie.protocol.frames import encode_frame
from coterie.protocol.messages import (
    MESSAGES_MAX,
    REPORTS_MAX,
    REQUESTS_MAX,
    Ask,
    FromClient,
    Hello,
    Ping,
    Pong,
    Query,
    Refusals,
    Update,
    UpdateBatch,
    encode,
)
from coterie.service.settings import PortSettings

BROKEN_TEXT = msgspec.Raw(b"\x92\x01\xa3a\xffb")


def test_text_that_is_none_is_refused_and_the_replica_lives() -> None:
    """One frame with it killed a replica: in an update, in a batch, in a query."""

    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            session = await talker.open()
            many = msgspec.Raw(b"\x91" + bytes(BROKEN_TEXT))
            talker.say(
                Ask(
                    0,
                    [Update(session, 1, 1, "add", BROKEN_TEXT)],
                    [UpdateBatch(session, 5, 1, "add", many)],
                    [Query(3, "dirty", "read", BROKEN_TEXT)],
                )
            )
            refused = await talker.hear_a(Refusals)
            assert isinstance(refused, Refusals)
            assert {each.kind for each in refused.refusals} == {"arguments"}
            assert sorted(each.request for each in refused.refusals) == [1, 3, 5]
            talker.say(Ask(0, [Update(session, 2, 1, "add", ADD)]))
            await talker.answers()

    run(story)


@pytest.mark.parametrize(
    "ask",
    [
        Ask(0, opens=[1] * (REQUESTS_MAX + 1)),
        Ask(0, closes=[1] * (REQUESTS_MAX + 1)),
        Ask(0, watches=[(1, 1)] * (REQUESTS_MAX + 1)),
        Ask(0, reports=[1] * (REPORTS_MAX + 1)),
        Ask(0, updates=[Update(1, 1, 1, "add", ADD)] * (REQUESTS_MAX + 1)),
    ],
    ids=["opens", "closes", "watches", "reports", "updates"],
)
def test_how_much_is_asked_for_at_once_is_bounded_before_any_of_it_is_done(ask: Ask) -> None:
    """Half a megabyte of reports took 926 MB; one frame of opens silenced a group for seconds."""

    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            talker.say(ask)
            farewell = await talker.farewell()
            assert farewell.kind == "malformed"
            assert "length <=" in farewell.reason

    run(story)


def test_how_many_messages_a_frame_has_is_bounded() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            talker.say(*[Ping()] * (MESSAGES_MAX + 1))
            assert (await talker.farewell()).kind == "malformed"

    run(story)


def test_short_requests_count_as_work() -> None:
    """A thousand opens are three kilobytes, and far more work than three kilobytes of arguments."""

    async def story(group: PortGroup) -> None:
        port = group.replicas["r1"].port
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            talker.say(Ask(0, opens=list(range(1, 1001))))
            assert len(await talker.answers(1000)) == 1000
            assert port.counters["port.callers_held_back"] == 1

    run(story, port_settings=PortSettings(untaken_bytes_max=100_000))


def test_refusals_and_reports_that_fit_into_no_frame_are_cut() -> None:
    """It was an assertion, which ended the process."""

    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            await talker.greet()
            session = await talker.open()
            name = "x" * 250
            updates = [Update(session, number, 1, name, NONE) for number in range(1, 101)]
            talker.say(Ask(0, updates, reports=[9]))
            refused: list[int] = []
            while len(refused) < 101:
                message = await talker.hear_a(Refusals)
                assert isinstance(message, Refusals)
                refused += [each.request for each in message.refusals]
            assert sorted(refused) == sorted([*range(1, 101), 9])

    run(story, port_settings=PortSettings(answer_frame_bytes_max=700))


def test_what_fits_into_no_frame_and_cannot_be_cut_ends_the_connection_at_both_ends() -> None:
    """The client was told farewell, and the port kept the connection open on its own side."""

    async def story(group: PortGroup) -> None:
        port = group.replicas["r1"].port
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("counter", b"n" * 16))
            farewell = await talker.farewell()
            assert farewell.kind == "size"
            assert "answer_frame_bytes_max" in farewell.reason
            assert port.counters["port.farewells_size"] == 1
            assert port.counters["port.callers"] == 0  # though the client's side is still open

    run(story, port_settings=PortSettings(answer_frame_bytes_max=80))


def test_a_farewell_that_is_longer_than_a_frame_is_cut() -> None:
    async def story(group: PortGroup) -> None:
        async with talking(group.addresses["r1"]) as talker:
            talker.say(Hello("x" * 250, b"n" * 16))
            farewell = await talker.farewell()
            assert farewell.kind == "group"
            assert farewell.reason.startswith("there is no group 'xxx")

    run(story, port_settings=PortSettings(answer_frame_bytes_max=250))


def test_arguments_that_no_frame_carries_are_refused_at_once() -> None:
    """They ended in an unknown outcome after the whole deadline, and stalled all other calls."""

    async def story(group: PortGroup) -> None:
        async with coterie.connect(Counter, group.addresses["r1"]) as counter:
            with pytest.raises(CommandTooLarge, match="frame_bytes_max"):
                await counter.add(1, "x" * 200_000)
            assert await counter.add(1, "x") == 1

    run(story, port_settings=PortSettings(frame_bytes_max=100_000))


def test_a_client_with_many_reports_keeps_to_the_limit() -> None:
    async def story(group: PortGroup) -> None:
        async with open_client(group.addresses["r1"]) as client:
            reports = await asyncio.gather(*(client.report() for _ in range(3 * REPORTS_MAX)))
            assert len(reports) == 3 * REPORTS_MAX

    run(story)


SAMPLES: list[FromClient] = [
    Hello("counter", b"n" * 16),
    Ping(),
    Ask(0, [Update(1, 1, 1, "add", ADD)], [UpdateBatch(1, 2, 1, "add", FIFTY)]),
    Ask(5, [], [], [Query(4, "consistent", "read", NONE), Query(5, "weak", "names", NONE)], [8]),
    Ask(0, closes=[3], watches=[(1, 1)], unwatches=[(1, 1)], reports=[6]),
]


async def tries(group: PortGroup, seed: int, inputs: int) -> None:
    """Say things with something wrong inside; anything but an end of the replica is an answer."""
    random = seeded(seed)
    done = 0
    while done < inputs:
        async with talking(group.addresses[random.choice(["r1", "r2"])]) as talker:
            await talker.greet()
            try:
                while done < inputs:
                    body = take_apart(encode([random.choice(SAMPLES[1:])]))
                    wrong = mutate(body, random, changes=random.choice((1, 1, 2, 3)))
                    talker.writer.write(encode_frame(put_together(wrong)))
                    done += 1
                    talker.say(Ping())
                    await talker.hear_a(Pong)
            except (EOFError, ConnectionError):
                pass  # it was sent away
    async with coterie.connect(Counter, list(group.addresses.values())) as counter:
        await counter.add(1)


def test_wrong_frames_of_clients() -> None:
    async def story(group: PortGroup) -> None:
        await tries(group, 1, 400)

    run(story)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_many_wrong_frames_of_clients(seed: int) -> None:
    async def story(group: PortGroup) -> None:
        await tries(group, seed, 4000)

    run(story)
