"""What a client of transactions may say to cohorts, and what it is sent away for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.patience import PATIENCE
from tests.seeded import seeded
from tests.service.test_secured import make_clients, make_security, tls_files, write_files
from tests.service.vsr_deployment import GROUPS, SETTINGS, Deployment, play
from tests.transactional.banks import ClassBank

import coterie
from coterie.client.errors import NotWelcome
from coterie.kernel.views import NO_VIEW, Viewstamp
from coterie.kernel.wire import Envelope, Frame, Heartbeat
from coterie.protocol.frames import encode_frame, frame_reader
from coterie.protocol.messages import (
    Carry,
    Farewell,
    FromReplica,
    Hello,
    Welcome,
    decode_from_replica,
    encode,
)
from coterie.runtime.security import read_secret
from coterie.transactional import TransactionAborted
from coterie.vsr.calls import messages as call_messages
from coterie.vsr.commit.psets import Aid
from coterie.vsr.views import messages

if TYPE_CHECKING:
    from pathlib import Path

GUEST = "@0123456789abcdef"
AID = Aid("eu", NO_VIEW, 1)
SMALL = {name: GROUPS[name] for name in ("eu", "hits")}


class Stranger:
    """A connection to a port, on which anything can be said."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._frames = frame_reader(frame_bytes_max=1 << 20)
        self.heard: list[FromReplica] = []

    async def say(self, frame: bytes) -> None:
        """Say hello and one thing more, and hear what there is to hear until it ends."""
        host, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(encode_frame(encode([Hello("eu", b"\0" * 16)])))
        writer.write(encode_frame(encode([Carry(msgspec.Raw(frame))])))
        try:
            async with asyncio.timeout(PATIENCE):
                while not any(isinstance(each, Farewell | Carry) for each in self.heard):
                    for body in self._frames.feed(await reader.read(1 << 16)):
                        self.heard += decode_from_replica(body)
        finally:
            writer.close()

    @property
    def farewell(self) -> str:
        [said] = [each.reason for each in self.heard if isinstance(each, Farewell)]
        return said


def frame(*said: object, group: str = "eu", name: str = GUEST, **more: Any) -> bytes:  # noqa: ANN401
    texts = [msgspec.Raw(each if isinstance(each, bytes) else encode(each)) for each in said]
    return encode(Frame(name, 1, more.get("heartbeat"), [Envelope(group, 1, texts)]))


WHERE = call_messages.WhereIs(GUEST)
NOT_OF_CLIENTS = "a message that is none of a client's"
BAD = [
    (frame(call_messages.Commit("eu", AID, ())), NOT_OF_CLIENTS),
    (frame(call_messages.Abort("eu", AID, "")), NOT_OF_CLIENTS),
    (frame(call_messages.Prepared("eu", AID, is_read_only=True)), NOT_OF_CLIENTS),
    (
        frame(call_messages.OutcomeAnswer("eu", AID, committed=True, calls=(), reason="")),
        NOT_OF_CLIENTS,
    ),
    (frame(call_messages.Prepare("eu", AID, ())), NOT_OF_CLIENTS),
    (frame(WHERE, messages.Invite(NO_VIEW)), NOT_OF_CLIENTS),
    (frame(messages.AckEvents(NO_VIEW, 1)), NOT_OF_CLIENTS),
    (frame(b"\xdc\x00\x02\x20\xa1x"), NOT_OF_CLIENTS),  # the same array, written longer
    (frame(b"\xc0"), NOT_OF_CLIENTS),
    (frame(WHERE, group="hits"), "the group 'hits' takes no transactions"),
    (frame(WHERE, group="nobody"), "the group 'nobody' takes no transactions"),
    (frame(WHERE, name="a"), "is no replica"),
    (frame(WHERE, name="@" * 99), "is no replica"),
    (frame(WHERE, heartbeat=Heartbeat(())), "is no replica"),
    (b"\x07", "a frame cannot be read"),
    (frame(WHERE)[:-1], "a message cannot be read"),
]


def test_who_says_what_clients_do_not_say_is_sent_away(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        address = deployment.seeds[0]
        for said, reason in BAD:
            stranger = Stranger(address)
            await stranger.say(said)
            assert reason in stranger.farewell, said
        process = deployment.running["a"]
        assert process.port.counters["port.farewells_malformed"] == len(BAD)
        assert not process.live.driver.guests
        # What clients do say is answered.
        stranger = Stranger(address)
        await stranger.say(frame(WHERE))
        assert isinstance(stranger.heard[0], Welcome)
        assert isinstance(stranger.heard[-1], Carry)
        async with deployment.bank("eu") as eu:
            assert await eu.deposit("alice", 1) == 101

    play(tmp_path, story, SMALL)


def test_absurd_requests_of_clients_do_no_harm(tmp_path: Path) -> None:
    random = seeded(5)
    tags = [32, 34, 37, 39, 42]
    aids = [AID, Aid("us", NO_VIEW, 2), Aid("", NO_VIEW, -1), 7, None, "x"]
    places = [Viewstamp(NO_VIEW, 0), NO_VIEW, [], "eu", ("eu",), True, 1 << 60, b"\xff", None]

    def absurd() -> bytes:
        fields: list[Any] = [random.choice(tags), random.choice([GUEST, "eu", "", 3])]
        fields += [random.choice([*aids, *places]) for _ in range(random.randrange(7))]
        return msgspec.msgpack.encode(fields)

    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        host, _, port = deployment.seeds[0].rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(encode_frame(encode([Hello("eu", b"\0" * 16)])))
        for _ in range(200):
            said = frame(*(absurd() for _ in range(3)))
            writer.write(encode_frame(encode([Carry(msgspec.Raw(said))])))
        await writer.drain()
        async with deployment.bank("eu") as eu:
            assert await eu.deposit("alice", 1) == 101
        writer.close()
        process = deployment.running["a"]
        await deployment.until(lambda: GUEST not in process.live.driver.guests)
        assert process.live.process.counters["process.messages_malformed"] > 100

    play(tmp_path, story, SMALL)


@pytest.mark.slow  # a coordinator is patient with its clients
def test_the_locks_of_a_client_that_is_gone_are_freed(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu:
            gone = deployment.bank("eu")
            held = await gone.__aenter__()
            transaction = coterie.transaction(held)
            t = await transaction.__aenter__()
            await t.eu.deposit("alice", 1)
            await gone.__aexit__(None, None, None)  # the program ends, and says nothing
            assert await eu.deposit("alice", 5) == 105
            assert await eu.balance("alice") == 105

    play(tmp_path, story, {"eu": GROUPS["eu"]})


@pytest.mark.slow  # a coordinator is patient with its clients
def test_a_client_that_only_takes_its_time_is_not_aborted(tmp_path: Path) -> None:
    """The coordinator asks after two seconds, and a program that lives answers (3.5)."""

    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu:
            async with coterie.transaction(eu) as t:
                await t.eu.deposit("alice", 1)
                await asyncio.sleep(5)  # longer than it waits before and after it has asked
                await t.eu.deposit("alice", 1)
            assert await eu.balance("alice") == 102

    play(tmp_path, story, {"eu": GROUPS["eu"]})


@pytest.mark.parametrize("tls", [False, True])
def test_transactions_behind_a_secret_and_certificates(tmp_path: Path, *, tls: bool) -> None:
    write_files(tmp_path)

    async def story(deployment: Deployment) -> None:
        deployment.config = msgspec.structs.replace(
            deployment.config,
            security=make_security(tmp_path, tls=tls),
            clients=make_clients(tmp_path, tls=tls),
        )
        await deployment.start_all()
        secret = read_secret(tmp_path / "secrets" / "tester")
        context = tls_files(tmp_path).client if tls else None
        async with coterie.connect(
            ClassBank,
            deployment.seeds,
            group="eu",
            secret=secret,
            tls=context,
            settings=SETTINGS,
        ) as eu:
            async with coterie.transaction(eu) as t:
                await t.eu.deposit("alice", 1)
            assert await eu.balance("alice") == 101
        with pytest.raises(NotWelcome):
            async with coterie.connect(
                ClassBank, deployment.seeds, group="eu", secret=b"x" * 16, tls=context
            ):
                pass

    play(tmp_path, story, {"eu": GROUPS["eu"]})


def test_a_group_that_nobody_knows_is_no_part_of_a_transaction(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu:
            send: Any = eu.send
            with pytest.raises((TransactionAborted, coterie.client.NotDone), match="nowhere"):
                await send.options(deadline=1.0)("alice", 1, "nowhere", "bob")
            assert await eu.balance("alice") == 100

    play(tmp_path, story, {"eu": GROUPS["eu"]})
