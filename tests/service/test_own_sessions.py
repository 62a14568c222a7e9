"""A session, and a transaction, belongs to the credential that began it, at every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import msgspec
import pytest
from tests.service.test_port import Talker, talking
from tests.service.test_roles import Secured
from tests.service.vsr_deployment import SETTINGS, Deployment, play
from tests.transactional.banks import ClassBank

import coterie
from coterie.client.sessions.vsr import transaction_process
from coterie.objects.execution.outcomes import Closed, Done, SessionEvicted
from coterie.objects.execution.sessions import owner_number, owner_of
from coterie.protocol.handshake import ClientHandshake
from coterie.protocol.messages import (
    Answers,
    Ask,
    Challenge,
    FromReplica,
    Ping,
    Pong,
    Update,
    UpdateBatch,
    Welcome,
    guest_prefix,
)
from coterie.ready import Counter
from coterie.runtime.security import read_secret
from coterie.service.known_clients import KnownClient

if TYPE_CHECKING:
    from pathlib import Path

ONE = msgspec.Raw(msgspec.msgpack.encode([1]))
THREE = msgspec.Raw(msgspec.msgpack.encode([[1], [1], [1]]))


async def greet(talker: Talker, secret: bytes) -> Welcome:
    """Say hello to the group `hits` as a client that has a secret."""
    handshake = ClientHandshake("hits", secret)
    talker.say(handshake.hello)
    challenge = await talker.hear()
    assert isinstance(challenge, Challenge)
    talker.say(handshake.answer(challenge))
    welcome = await talker.hear()
    assert isinstance(welcome, Welcome)
    return welcome


async def told_until_a_pong(talker: Talker) -> list[FromReplica]:
    talker.say(Ping())
    heard: list[FromReplica] = []
    while not isinstance(message := await talker.hear(), Pong):
        heard.append(message)
    return heard


def test_a_session_is_of_no_use_to_another_credential(tmp_path: Path) -> None:
    """Who knew its number could make calls in it, be told its results, and end it."""

    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        secrets = {name: read_secret(tmp_path / "secrets" / name) for name in ("owner", "clerk")}
        for address in deployment.seeds[:2]:  # at the replica it was opened at, and elsewhere
            async with talking(deployment.seeds[0]) as mine, talking(address) as theirs:
                assert (await greet(mine, secrets["owner"])).owner == owner_number("owner")
                await greet(theirs, secrets["clerk"])
                session = await mine.open()
                assert owner_of(session) == owner_number("owner")
                mine.say(Ask(0, [Update(session, 1, 1, "add", ONE)]))
                [answer] = await mine.answers()
                assert isinstance(answer.outcome, Done)
                before = deployment.counted("port.sessions_foreign")

                # Used: a call of its own, a packed one, and the first one again for its result.
                theirs.say(
                    Ask(
                        0,
                        [Update(session, n, 1, "add", ONE) for n in (1, 2)],
                        [UpdateBatch(session, 5, 1, "add", THREE)],
                    )
                )
                for refused in await theirs.answers(3):
                    assert isinstance(refused.outcome, SessionEvicted)
                # Read: its results are nobody else's to watch.
                theirs.say(Ask(0, watches=[(session, 1), (session, 3)]))
                for refused in await theirs.answers(2):
                    assert isinstance(refused.outcome, SessionEvicted)
                assert deployment.counted("port.sessions_foreign") == before + 5
                # Ended: who is no operator closes its own only.
                theirs.say(Ask(0, closes=[session], unwatches=[(session, 3)]))
                assert not [
                    each for each in await told_until_a_pong(theirs) if isinstance(each, Answers)
                ]

                mine.say(Ask(0, [Update(session, 2, 1, "add", ONE)]))
                [answer] = await mine.answers()
                assert isinstance(answer.outcome, Done)
                assert msgspec.msgpack.decode(answer.outcome.result) % 2 == 0  # two calls a round

    play(tmp_path, story, make=Secured)


def test_one_credential_uses_its_session_by_any_connection(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        secret = read_secret(tmp_path / "secrets" / "clerk")
        async with talking(deployment.seeds[0]) as first:
            await greet(first, secret)
            session = await first.open()
            first.say(Ask(0, [Update(session, 1, 1, "add", ONE)]))
            [answer] = await first.answers()
        async with talking(deployment.seeds[1]) as second:
            await greet(second, secret)
            second.say(Ask(0, [Update(session, 1, 1, "add", ONE)]))
            [again] = await second.answers()
            assert isinstance(answer.outcome, Done)
            assert isinstance(again.outcome, Done)
            assert again.outcome.result == answer.outcome.result  # once
            second.say(Ask(0, closes=[session]))
            second.say(Ask(0, [Update(session, 2, 1, "add", ONE)]))
            assert isinstance((await second.answers())[-1].outcome, SessionEvicted | Closed)
        async with deployment.connect(Counter, "hits", "owner") as hits:
            assert await hits.total() == 1

    play(tmp_path, story, make=Secured)


def test_a_client_of_transactions_passes_for_no_other(tmp_path: Path) -> None:
    """Its name is its own choice: whoever knew it could speak, and be answered, in its place."""

    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        async with deployment.connect(ClassBank, "eu", "clerk") as eu:
            assert await eu.deposit("alice", 5) == 105
        names = [guest_prefix(owner_number("owner")), "@"]
        for prefix in names:
            false = mock.patch.object(transaction_process, "guest_prefix", lambda _, p=prefix: p)
            with false, pytest.raises(coterie.NotDone):
                async with deployment.connect(ClassBank, "eu", "clerk", SETTINGS) as eu:
                    await eu.deposit.options(deadline=1)("alice", 5)
        async with deployment.connect(ClassBank, "eu", "owner") as eu:
            assert await eu.balance("alice") == 105

    play(tmp_path, story, make=Secured)


def test_clients_have_different_numbers_and_strangers_none() -> None:
    names = [f"client{number}" for number in range(256)]
    assert len({owner_number(name) for name in names}) == len(names)
    assert KnownClient().owner == 0
    assert guest_prefix(0) == "@"
