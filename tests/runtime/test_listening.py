"""Who is let in at an address: as many as there is room for, whatever they do then."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections import Counter
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, ClassVar

import pytest
import trustme
from tests.patience import PATIENCE

from coterie.runtime.address import Address
from coterie.runtime.certificates import TlsFiles
from coterie.runtime.descriptors import (
    FOR_CLIENTS,
    FOR_PEERS,
    descriptors_for,
    raise_descriptor_limit,
)
from coterie.runtime.listening import HANDSHAKES_MIN, ListenTerms, TcpListener, TurnedAway
from coterie.runtime.loop import LOOPS, run
from coterie.runtime.network import TCP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

HERE = Address("127.0.0.1", 0)


class Guest(asyncio.Protocol):
    """Stays until the other end leaves."""

    made: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        Guest.made["in"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        Guest.made["out"] += 1


@pytest.fixture(autouse=True)
def _forget_guests() -> None:
    Guest.made.clear()


@pytest.fixture(params=LOOPS, autouse=True)
def _both_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_LOOP", request.param)


@asynccontextmanager
async def listening(admission: ListenTerms) -> AsyncIterator[TcpListener]:
    listener = await TCP.listen(Guest, HERE, admission)
    assert isinstance(listener, TcpListener)
    try:
        yield listener
    finally:
        await listener.close()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not happened():  # noqa: ASYNC110 -- sockets are watched
            await asyncio.sleep(0.005)


def tls_files(folder: Path) -> TlsFiles:
    authority = trustme.CA()
    made = authority.issue_cert("replica.test")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    made.private_key_pem.write_to_path(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    return TlsFiles(folder / "certificate.pem", folder / "key.pem", folder / "authority.pem")


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    """Leave so many descriptors above those in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        used = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_was_accepted_is_handed_over_before_the_end() -> None:
    """An open socket that nobody knows would be an error of this test when it is collected."""

    async def story() -> None:
        with ExitStack() as stack:
            async with listening(ListenTerms()) as listener:
                address = listener.address
                for _ in range(20):
                    stack.enter_context(socket.create_connection(address))
                # One pass of the loop accepts them, and hands over as many as it can.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
        await until(lambda: Guest.made["out"] == 20)

    run(story())


def test_a_handshake_that_does_not_end_is_ended(tmp_path: Path) -> None:
    turned: Counter[TurnedAway] = Counter()
    tls = tls_files(tmp_path)

    async def story() -> None:
        admission = ListenTerms(
            tls=lambda: tls.server,
            handshake_seconds=0.2,
            turned_away=lambda why: turned.update([why]),
        )
        async with listening(admission) as listener:
            with socket.create_connection(listener.address) as silent:
                silent.settimeout(PATIENCE)
                await until(lambda: turned[TurnedAway.HANDSHAKE_LATE] == 1)
                assert await asyncio.to_thread(silent.recv, 1) == b""
            with socket.create_connection(listener.address) as plain:
                plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
                await until(lambda: turned[TurnedAway.HANDSHAKE_FAILED] == 1)
        assert Guest.made == {}

    run(story())


def test_of_too_many_handshakes_the_oldest_makes_room(tmp_path: Path) -> None:
    """So those who never finish keep nobody out, however many they are."""
    turned: Counter[TurnedAway] = Counter()
    tls = tls_files(tmp_path)
    crowd = 3 * HANDSHAKES_MIN

    async def story() -> None:
        admission = ListenTerms(
            tls=lambda: tls.server,
            handshake_seconds=PATIENCE,
            room=lambda: HANDSHAKES_MIN,
            turned_away=lambda why: turned.update([why]),
        )
        with ExitStack() as stack:
            async with listening(admission) as listener:
                for _ in range(crowd):
                    stack.enter_context(socket.create_connection(listener.address))
                await until(lambda: turned[TurnedAway.NO_ROOM] == crowd - HANDSHAKES_MIN)
                assert listener.handshakes == HANDSHAKES_MIN
                friend = await TCP.connect(Guest, listener.address, tls=tls.client)
                await until(lambda: Guest.made["in"] == 2)  # both ends of it
                assert turned[TurnedAway.NO_ROOM] == crowd - HANDSHAKES_MIN + 1
                await until(lambda: listener.handshakes == HANDSHAKES_MIN - 1)
                friend.transport.close()
                await until(lambda: Guest.made["out"] == 2)
        assert turned.keys() == {TurnedAway.NO_ROOM}

    run(story())


def test_connections_leave_descriptors_for_the_journal() -> None:
    turned: Counter[TurnedAway] = Counter()

    async def story() -> None:
        admission = ListenTerms(turned_away=lambda why: turned.update([why]))
        async with listening(admission) as listener:
            with few_descriptors(200), ExitStack() as stack:
                for _ in range(90):  # each takes two: this process has both ends
                    stack.enter_context(socket.create_connection(listener.address))
                    await asyncio.sleep(0)
                await until(lambda: Guest.made["in"] + turned[TurnedAway.NO_DESCRIPTORS] == 90)
                assert turned[TurnedAway.NO_DESCRIPTORS] > 0
                assert Guest.made["in"] > 0
                for _ in range(10):
                    stack.enter_context(socket.socket())
            await until(lambda: Guest.made["out"] == Guest.made["in"])

    run(story())


def test_a_system_without_descriptors_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops' own servers give up here, or tell nobody."""
    turned: Counter[TurnedAway] = Counter()

    async def story() -> None:
        admission = ListenTerms(turned_away=lambda why: turned.update([why]))
        async with listening(admission) as listener:
            with monkeypatch.context() as short:
                short.setattr(socket.socket, "accept", _no_descriptors)
                with socket.create_connection(listener.address):
                    await until(lambda: turned[TurnedAway.NO_DESCRIPTORS] >= 2)
                    short.undo()
                    await until(lambda: Guest.made["in"] == 1)
            await until(lambda: Guest.made["out"] == 1)

    run(story())


def _no_descriptors(_: socket.socket) -> tuple[socket.socket, object]:
    raise OSError(errno.EMFILE, "Too many open files")


def test_an_address_that_is_taken_is_told() -> None:
    async def story() -> None:
        async with listening(ListenTerms()) as listener:
            with pytest.raises(OSError, match="in use"):
                await TCP.listen(Guest, listener.address, ListenTerms())

    run(story())


def test_replicas_have_descriptors_that_clients_have_not() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for limit in (1024, 256):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            assert descriptors_for(FOR_CLIENTS) < descriptors_for(FOR_PEERS) < limit
            assert descriptors_for(FOR_CLIENTS) >= limit - limit // 4
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
