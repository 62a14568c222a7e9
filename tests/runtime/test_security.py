"""Secrets and certificates between replicas: who has them is a peer, who has not is sent away."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trustme

from coterie.kernel.clock import milliseconds
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.runtime.address import Address
from coterie.runtime.hello import Greeting, GreetingReader, Hello, Proof, encode_greeting
from coterie.runtime.loop import run
from coterie.runtime.security import (
    Meeting,
    Security,
    SecurityError,
    TlsFiles,
    is_readable_by_others,
    read_secret,
)
from coterie.runtime.settings import TransportSettings
from coterie.runtime.transport import TcpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from coterie.kernel.wire import Frame

SECRET = b"a secret of some length"
QUICK = TransportSettings(retry_first=milliseconds(5), retry_max=milliseconds(20))


class Silent:
    def frame_arrived(self, frame: Frame) -> None:
        pass

    def peer_refused(self, peer: str) -> None:
        pass


@asynccontextmanager
async def pair(one: Security, other: Security) -> AsyncIterator[tuple[TcpTransport, TcpTransport]]:
    """Two processes, a that dials and b that listens."""
    import socket  # noqa: PLC0415 -- only here

    listeners = {id: socket.create_server(("127.0.0.1", 0)) for id in "ab"}
    addresses = {id: Address(*each.getsockname()) for id, each in listeners.items()}
    made = [
        TcpTransport(
            id=id,
            incarnation=1,
            cluster="test",
            listen=listeners[id],
            peers=addresses,
            receiver=Silent(),
            frame_bytes_max=DEFAULT_SETTINGS.frame_bytes_max,
            settings=QUICK,
            security=security,
        )
        for id, security in (("a", one), ("b", other))
    ]
    async with asyncio.TaskGroup() as tasks:
        for transport in made:
            await transport.open(tasks)
        try:
            yield made[0], made[1]
        finally:
            for transport in made:
                await transport.close()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 -- sockets are watched
            await asyncio.sleep(0.005)


def is_up(a: TcpTransport, b: TcpTransport) -> Callable[[], bool]:
    return lambda: a.is_up("b") and b.is_up("a")


class Authority:
    """Makes certificates, as files."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(self._folder / "authority.pem")
        self.issue()

    def issue(self) -> None:
        made = self._authority.issue_cert("replica.test")
        made.private_key_pem.write_to_path(self._folder / "key.pem")
        made.cert_chain_pems[0].write_to_path(self._folder / "certificate.pem")

    def files(self) -> TlsFiles:
        folder = self._folder
        return TlsFiles(folder / "certificate.pem", folder / "key.pem", folder / "authority.pem")


def test_who_shares_the_secret_is_a_peer() -> None:
    async def story() -> None:
        async with pair(Security(secret=SECRET), Security(secret=SECRET)) as (a, b):
            await until(is_up(a, b))

    run(story())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Security(secret=SECRET), Security(secret=SECRET + b"!")),
        (Security(secret=SECRET), Security()),
        (Security(), Security(secret=SECRET)),
    ],
)
def test_who_does_not_is_sent_away_and_both_sides_say_so(one: Security, other: Security) -> None:
    async def story() -> None:
        async with pair(one, other) as (a, b):
            rejected = "transport.hellos_rejected"
            await until(lambda: bool(a.counters.get(rejected) or b.counters.get(rejected)))
            await asyncio.sleep(0.05)
            assert not a.is_up("b")
            assert not b.is_up("a")

    run(story())


async def converse(port: int, *says: Hello | Proof | bytes) -> list[Greeting]:
    """Speak to a process byte by byte; give what it answered until it hung up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard: list[Greeting] = []
    greetings = GreetingReader()
    rest = b""
    try:
        async with asyncio.timeout(3):
            for words in says:
                if isinstance(words, bytes):
                    writer.write(words)
                else:
                    writer.write(encode_greeting(Greeting("a", 1, words)))
                await writer.drain()
                while True:
                    complete = greetings.feed(rest or await reader.read(4096))
                    rest = b""
                    if complete is not None:
                        heard.append(complete[0])
                        rest = complete[1]
                        break
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return heard


def test_a_proof_is_good_for_one_meeting_and_one_direction() -> None:
    meeting = Meeting("c", ("a", 1, b"n" * 16), ("b", 2, b"m" * 16))
    theirs = meeting.proof(SECRET, by_dialler=False)
    assert meeting.is_proof(SECRET, theirs, by_dialler=False)
    assert not meeting.is_proof(SECRET, theirs, by_dialler=True)
    assert not meeting.is_proof(SECRET + b"!", theirs, by_dialler=False)
    others = [
        Meeting("d", ("a", 1, b"n" * 16), ("b", 2, b"m" * 16)),
        Meeting("c", ("a", 2, b"n" * 16), ("b", 2, b"m" * 16)),
        Meeting("c", ("a", 1, b"m" * 16), ("b", 2, b"n" * 16)),
        Meeting("c", ("b", 2, b"m" * 16), ("a", 1, b"n" * 16)),
    ]
    for other in others:
        assert not other.is_proof(SECRET, theirs, by_dialler=False)


def test_a_listeners_proof_thrown_back_is_no_proof() -> None:
    async def story() -> None:
        async with pair(Security(), Security(secret=SECRET)) as (_, b):
            hello = Hello("test", "b", nonce=b"n" * 16)
            (answer,) = await converse(b.address.port, hello)
            assert isinstance(answer.says, Hello)
            heard = await converse(b.address.port, hello, Proof(answer.says.proof))
            assert "another secret" in str(heard[-1].says)
            assert not b.is_up("a")

    run(story())


@pytest.mark.parametrize(
    "says",
    [
        (Proof(b"x" * 32),),
        (Hello("test", "b", nonce=b"short"),),
        (Hello("test", "b", nonce=b"n" * 16), Hello("test", "b", nonce=b"n" * 16)),
    ],
)
def test_greetings_out_of_turn_are_rejected(says: tuple[Hello | Proof, ...]) -> None:
    async def story() -> None:
        async with pair(Security(), Security(secret=SECRET)) as (_, b):
            await converse(b.address.port, *says)
            assert not b.is_up("a")
            assert b.counters["transport.hellos_rejected"] >= 1

    run(story())


def test_certificates_of_one_authority_make_peers(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")

    async def story() -> None:
        one, other = Security(tls=authority.files()), Security(tls=authority.files(), secret=None)
        async with pair(one, other) as (a, b):
            await until(is_up(a, b))

    run(story())


def test_with_both_the_secret_is_asked_for_inside_the_encryption(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")

    async def story() -> None:
        one = Security(tls=authority.files(), secret=SECRET)
        other = Security(tls=authority.files(), secret=SECRET)
        async with pair(one, other) as (a, b):
            await until(is_up(a, b))

    run(story())


def test_strangers_to_the_authority_and_plain_peers_stay_outside(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")

    async def story(other: Security) -> None:
        async with pair(Security(tls=ours.files()), other) as (a, b):
            await until(lambda: a.counters.get("transport.dials", 0) >= 2)
            assert not a.is_up("b")
            assert not b.is_up("a")

    run(story(Security(tls=theirs.files())))
    run(story(Security()))


def test_changed_files_are_taken_up(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    files = authority.files()
    assert not files.reload()
    authority.issue()
    assert files.reload()
    assert not files.reload()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    files = authority.files()
    (tmp_path / "ours" / "key.pem").write_text("no key")
    with pytest.raises(SecurityError, match=r"certificate\.pem with the key"):
        files.reload()
    (tmp_path / "ours" / "key.pem").unlink()
    with pytest.raises(SecurityError, match=r"key\.pem cannot be read"):
        files.reload()


def test_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    file.chmod(0o600)
    assert read_secret(file) == SECRET
    assert not is_readable_by_others(file)
    file.chmod(0o644)
    assert is_readable_by_others(file)
    file.write_bytes(b"short")
    with pytest.raises(SecurityError, match="openssl rand"):
        read_secret(file)
    with pytest.raises(SecurityError, match="cannot be read"):
        read_secret(tmp_path / "nowhere")
