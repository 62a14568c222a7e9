"""Secrets and certificates between replicas: who has them is a peer, who has not is sent away."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trustme
from tests.patience import PATIENCE

from coterie.kernel.clock import milliseconds
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.protocol.hello import Greeting, GreetingReader, PeerHello, PeerProof, encode_greeting
from coterie.protocol.proof import meeting_of_peers
from coterie.runtime.address import Address
from coterie.runtime.certificates import TlsFiles
from coterie.runtime.loop import run
from coterie.runtime.security import Security, SecurityError, read_secret, write_secret
from coterie.runtime.settings import TransportSettings
from coterie.runtime.transport import TcpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from coterie.kernel.wire import Frame

SECRET = b"a secret of some length"
SHARED = {"a": SECRET, "b": SECRET}
"""What each of the two shares with the other."""
OTHER = {"a": SECRET + b"!", "b": SECRET + b"!"}
QUICK = TransportSettings(retry_first=milliseconds(5), retry_max=milliseconds(20))


class Silent:
    def frame_arrived(self, frame: Frame, *, alone: bool = False) -> None:
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
    async with asyncio.timeout(PATIENCE):
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
        for name in ("replica-a", "replica-b", "client-a"):
            self._issue(name)

    def _issue(self, name: str) -> None:
        made = self._authority.issue_cert(name)
        made.private_key_pem.write_to_path(self._folder / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(self._folder / f"{name}.pem")

    def files(self, name: str = "replica-a") -> TlsFiles:
        folder = self._folder
        return TlsFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "authority.pem")


def test_who_shares_the_secret_is_a_peer() -> None:
    async def story() -> None:
        async with pair(Security(secrets=SHARED), Security(secrets=SHARED)) as (a, b):
            await until(is_up(a, b))

    run(story())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Security(secrets=SHARED), Security(secrets=OTHER)),
        (Security(secrets=SHARED), Security()),
        (Security(), Security(secrets=SHARED)),
    ],
)
def test_who_does_not_is_sent_away_each_time(one: Security, other: Security) -> None:
    """The link is up at no end, not even until the other has hung up."""

    async def story() -> None:
        async with pair(one, other) as (a, b):
            rejected = "transport.hellos_rejected"
            await until(lambda: max(a.counters.get(rejected, 0), b.counters.get(rejected, 0)) >= 3)
            for process in (a, b):
                assert "transport.links_up" not in process.counters

    run(story())


async def converse(port: int, *says: PeerHello | PeerProof | bytes) -> list[Greeting]:
    """Speak to a process byte by byte; give what it answered until it hung up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard: list[Greeting] = []
    greetings = GreetingReader()
    rest = b""
    try:
        async with asyncio.timeout(PATIENCE):
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
    meeting = meeting_of_peers("c", ("a", 1, b"n" * 16), ("b", 2, b"m" * 16))
    theirs = meeting.proof(SECRET, by_dialler=False)
    assert meeting.is_proof(SECRET, theirs, by_dialler=False)
    assert not meeting.is_proof(SECRET, theirs, by_dialler=True)
    assert not meeting.is_proof(SECRET + b"!", theirs, by_dialler=False)
    others = [
        meeting_of_peers("d", ("a", 1, b"n" * 16), ("b", 2, b"m" * 16)),
        meeting_of_peers("c", ("a", 2, b"n" * 16), ("b", 2, b"m" * 16)),
        meeting_of_peers("c", ("a", 1, b"m" * 16), ("b", 2, b"n" * 16)),
        meeting_of_peers("c", ("b", 2, b"m" * 16), ("a", 1, b"n" * 16)),
    ]
    for other in others:
        assert not other.is_proof(SECRET, theirs, by_dialler=False)


def test_a_listeners_proof_thrown_back_is_no_proof() -> None:
    async def story() -> None:
        async with pair(Security(), Security(secrets=SHARED)) as (_, b):
            hello = PeerHello("test", "b", nonce=b"n" * 16)
            (answer,) = await converse(b.address.port, hello)
            assert isinstance(answer.says, PeerHello)
            heard = await converse(b.address.port, hello, PeerProof(answer.says.proof))
            assert "another secret" in str(heard[-1].says)
            assert not b.is_up("a")

    run(story())


@pytest.mark.parametrize(
    "says",
    [
        (PeerProof(b"x" * 32),),
        (PeerHello("test", "b", nonce=b"short"),),
        (PeerHello("test", "b", nonce=b"n" * 16), PeerHello("test", "b", nonce=b"n" * 16)),
    ],
)
def test_greetings_out_of_turn_are_rejected(says: tuple[PeerHello | PeerProof, ...]) -> None:
    async def story() -> None:
        async with pair(Security(), Security(secrets=SHARED)) as (_, b):
            await converse(b.address.port, *says)
            assert not b.is_up("a")
            assert b.counters["transport.hellos_rejected"] >= 1

    run(story())


def test_certificates_of_one_authority_make_peers(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")

    async def story() -> None:
        one, other = (Security(tls=authority.files(f"replica-{id}")) for id in "ab")
        async with pair(one, other) as (a, b):
            await until(is_up(a, b))

    run(story())


def test_with_both_the_secret_is_asked_for_inside_the_encryption(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")

    async def story() -> None:
        one, other = (Security(tls=authority.files(f"replica-{id}"), secrets=SHARED) for id in "ab")
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

    run(story(Security(tls=theirs.files("replica-b"))))
    run(story(Security()))


@pytest.mark.parametrize("shown", ["client-a", "replica-b"])
def test_a_certificate_is_good_for_one_replica(tmp_path: Path, shown: str) -> None:
    """Any certificate of the authority made its owner whichever replica it liked to be."""
    authority = Authority(tmp_path, "ours")

    async def story() -> None:
        one, other = (Security(tls=authority.files(name)) for name in (shown, "replica-b"))
        async with pair(one, other) as (a, b):
            await until(lambda: b.counters.get("transport.hellos_rejected", 0) >= 2)
            assert "transport.links_up" not in b.counters
            assert not a.is_up("b")

    run(story())


def test_a_certificate_may_have_another_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")

    async def story() -> None:
        one = Security(tls=authority.files("client-a"))
        other = Security(tls=authority.files("replica-b"), names={"a": "client-a"})
        async with pair(one, other) as (a, b):
            await until(is_up(a, b))

    run(story())


def test_the_secret_of_another_pair_is_none() -> None:
    """What c shares with b makes c no a."""

    async def story() -> None:
        one, other = Security(secrets=OTHER), Security(secrets={**SHARED, "c": SECRET + b"!"})
        async with pair(one, other) as (a, b):
            rejected = "transport.hellos_rejected"
            await until(lambda: max(a.counters.get(rejected, 0), b.counters.get(rejected, 0)) >= 3)
            for process in (a, b):
                assert "transport.links_up" not in process.counters

    run(story())


def test_there_is_a_secret_for_every_peer() -> None:
    async def story() -> None:
        with pytest.raises(ValueError, match="a secret for each peer"):
            TcpTransport(
                id="a",
                incarnation=1,
                cluster="test",
                listen=Address("127.0.0.1", 0),
                peers={"b": Address("127.0.0.1", 1)},
                receiver=Silent(),
                frame_bytes_max=DEFAULT_SETTINGS.frame_bytes_max,
                security=Security(secrets={}),
            )

    run(story())


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
    (tmp_path / "ours" / "replica-a.key").write_text("no key")
    with pytest.raises(SecurityError, match=r"replica-a\.pem with the key"):
        files.reload()
    (tmp_path / "ours" / "replica-a.key").unlink()
    with pytest.raises(SecurityError, match=r"replica-a\.key cannot be read"):
        files.reload()


def test_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    file.chmod(0o600)
    assert read_secret(file) == SECRET
    file.chmod(0o640)
    assert read_secret(file) == SECRET
    file.write_bytes(b"short")
    with pytest.raises(SecurityError, match="openssl rand"):
        read_secret(file)
    with pytest.raises(SecurityError, match="cannot be read"):
        read_secret(tmp_path / "nowhere")


@pytest.mark.parametrize("mode", [0o644, 0o602])
def test_a_secret_that_everybody_can_read_or_write_is_none(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    file.chmod(mode)
    with pytest.raises(SecurityError, match=f"its mode {mode:04o} lets every user .* chmod 600"):
        read_secret(file)


def test_a_secret_that_is_written_is_for_its_owner_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    write_secret(file)
    assert file.stat().st_mode & 0o777 == 0o600
    first = read_secret(file)
    write_secret(file)
    assert read_secret(file) == first
    with pytest.raises(SecurityError, match="no secret can be written"):
        write_secret(tmp_path / "nowhere" / "secret")
