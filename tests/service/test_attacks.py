"""Attacks on groups of real processes: by who has no credential, and by who has another's."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec
import pytest
import trustme
from tests.patience import PATIENCE
from tests.service.banks import ServedBanks

import coterie
from coterie.client import open_client
from coterie.kernel.wire import Envelope, Frame
from coterie.protocol.hello import (
    Greeting,
    GreetingReader,
    PeerFarewell,
    PeerHello,
    PeerProof,
    encode_greeting,
)
from coterie.protocol.messages import Carry, encode
from coterie.protocol.proof import meeting_of_peers
from coterie.ready import Counter
from coterie.runtime.address import parse_address
from coterie.runtime.security import read_secret
from coterie.service.operate.founding import free_port
from coterie.service.state_folder import read_config
from coterie.vsr.calls.messages import CallRequest, EndTransaction
from coterie.vsr.commit.psets import Aid, CallsProgress

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.client.group import GroupClient

NONCE = b"n" * 16
LIFE = 10**6
"""Later than any that a replica has had."""


class Impostor:
    """Somebody at the port for replicas who says hello in the name of one."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        connection = socket.create_connection(parse_address(address), timeout=PATIENCE)
        self._socket = connection if tls is None else tls.wrap_socket(connection)
        self._reader = GreetingReader()

    def say(self, id: str, says: PeerHello | PeerProof) -> PeerHello | PeerFarewell:
        """Say something in the name of *id*; give the answer."""
        self._socket.sendall(encode_greeting(Greeting(id, LIFE, says)))
        while True:
            heard = self._reader.feed(self._socket.recv(4096))
            if heard is not None:
                answer = heard[0].says
                assert not isinstance(answer, PeerProof)
                self._other = heard[0]
                return answer

    def prove(self, cluster: str, id: str, to: str, secret: bytes) -> str:
        """Say hello and show a secret; give why one is sent away."""
        answer = self.say(id, PeerHello(cluster, to, nonce=NONCE))
        if isinstance(answer, PeerFarewell):
            return answer.reason
        meeting = meeting_of_peers(
            cluster, (id, LIFE, NONCE), (to, self._other.incarnation, answer.nonce)
        )
        # Its own proof shows that it has another secret than ours: whoever is honest stops here.
        assert not meeting.is_proof(secret, answer.proof, by_dialler=False)
        answer = self.say(id, PeerProof(meeting.proof(secret, by_dialler=True)))
        assert isinstance(answer, PeerFarewell)
        return answer.reason

    def close(self) -> None:
        self._socket.close()


def carry(client: GroupClient, group: str, *said: msgspec.Struct) -> None:
    """Say something to the cohorts of a group, by all connections, as a client of transactions."""
    texts = [msgspec.Raw(encode(each)) for each in said]
    body = msgspec.Raw(encode(Frame("@stranger", 1, None, [Envelope(group, 1, texts)])))
    for channel in client.replicas.ready():
        assert channel.send(Carry(body))


@pytest.mark.slow  # starts real processes
def test_a_local_group_is_its_owners_and_transactions_are_their_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user of the machine could join a group and split it, or end another's transactions."""

    def check_peers(served: ServedBanks) -> None:
        config = read_config(served.place)
        secrets = served.place / "secrets"
        owner, third = (read_secret(secrets / name) for name in ("owner", "b+c"))
        address = config.replicas["b"].listen
        for id, secret, reason in (
            ("a", owner, "process 'a' has another secret"),  # a client's
            ("a", third, "process 'a' has another secret"),  # another replica's
            ("z", owner, "process 'z' is no peer of 'b'"),
        ):
            impostor = Impostor(address)
            assert impostor.prove(config.cluster, id, "b", secret) == reason
            impostor.close()
        impostor = Impostor(address)
        answer = impostor.say("a", PeerHello(config.cluster, "b"))
        assert isinstance(answer, PeerFarewell)
        assert "asks for a secret" in answer.reason
        impostor.close()

    async def check_strangers(served: ServedBanks) -> None:
        with monkeypatch.context() as other:
            # Another user has another home, and could not read what is in this one.
            other.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
            with pytest.raises(coterie.NotWelcome, match="asks for a shared secret"):
                async with open_client(served.addresses, group="eu"):
                    pass

    async def check_transactions(address: str) -> None:
        async with open_client(address, group="eu", spread=False) as client:
            view = (await client.report()).view
            for aid in (Aid("eu", view, 10**9), Aid("nowhere", view, 1), Aid("us", view, 10**9)):
                arguments = msgspec.msgpack.encode(["alice", 5])
                progress = CallsProgress(1, (1,))
                carry(
                    client,
                    "eu",
                    CallRequest("@stranger", view, aid, "1", "deposit", arguments, (), progress),
                )
            for group in ("eu", "us"):
                for number in range(1, 20):
                    aid, groups = Aid("eu", view, number), ("eu", "us")
                    end = EndTransaction(
                        "@stranger", aid, commit=False, pset=(), groups=groups, reason="spite"
                    )
                    carry(client, group, end)
            assert (await client.report()).group == "eu"

    async def story() -> None:
        async with ServedBanks(tmp_path) as served:
            await served.until_all_lead()
            secrets = served.place / "secrets"
            assert secrets.stat().st_mode & 0o777 == 0o700
            assert {each.stat().st_mode & 0o777 for each in secrets.iterdir()} == {0o600}
            assert await served.run("call", "eu", "deposit", "alice", "30") == (0, "30\n", "")
            await asyncio.to_thread(check_peers, served)
            await check_strangers(served)
            for address in served.addresses:
                await check_transactions(address)
            done = await served.run("call", "eu", "send", "alice", "10", "us", "bob")
            assert done == (0, "20\n", "")
            served.signal(signal.SIGKILL)
            assert await served.run("call", "us", "balance", "bob") == (0, "10\n", "")

    asyncio.run(story())


def write_certificates(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name in ("replica-a", "replica-b", "replica-c", "client-owner"):
        made = authority.issue_cert(name)
        made.private_key_pem.write_to_path(folder / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")


def context_of(folder: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "authority.pem")
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.mark.slow  # starts a real process
def test_a_certificate_is_for_one_replica_or_one_client(tmp_path: Path) -> None:
    """Any certificate of the authority was good for every replica and every client."""
    write_certificates(tmp_path)
    with ExitStack() as held:
        ports = [free_port(held) for _ in range(6)]
    text = 'cluster = "safe"\n[groups.sums]\nclass = "coterie.ready:Counter"\n'
    for index, id in enumerate("abc"):
        text += (
            f'[replicas.{id}]\nlisten = "127.0.0.1:{ports[index]}"\n'
            f'clients = "127.0.0.1:{ports[index + 3]}"\ndir = "{id}"\n'
        )
    text += (
        '[security]\ncertificate = "replica-b.pem"\nkey = "replica-b.key"\n'
        'authority = "authority.pem"\n[clients.owner]\n'
    )
    (tmp_path / "group.toml").write_text(text)
    command = ["replica", "--config", str(tmp_path / "group.toml"), "--id", "b", "--found"]
    listen, clients = f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[4]}"

    def check_peers() -> None:
        for shown in ("client-owner", "replica-c"):
            impostor = Impostor(listen, context_of(tmp_path, shown))
            answer = impostor.say("a", PeerHello("safe", "b"))
            assert isinstance(answer, PeerFarewell)
            assert f"a certificate of replica-a, and it is of {shown}" in answer.reason
            impostor.close()
        honest = Impostor(listen, context_of(tmp_path, "replica-a"))
        assert isinstance(honest.say("a", PeerHello("safe", "b")), PeerHello)
        honest.close()

    async def check_clients() -> None:
        with pytest.raises(coterie.NotWelcome, match="of replica-a, and that is no client here"):
            async with coterie.connect(Counter, clients, tls=context_of(tmp_path, "replica-a")):
                pass
        async with open_client(clients, tls=context_of(tmp_path, "client-owner")) as client:
            assert (await client.report()).replica == "b"

    with subprocess.Popen(
        [sys.executable, "-m", "coterie.cli", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if '"started"' in line:
                    break
            check_peers()
            asyncio.run(check_clients())
        finally:
            process.kill()
