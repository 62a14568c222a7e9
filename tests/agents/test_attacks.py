"""Who is no process of a replicated program passes for none, though he reaches its addresses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.agents.running import RunningProgram
from tests.service.test_attacks import Impostor

from coterie.agents.deployment import (
    EDGE_ID,
    FILE,
    BadDeployment,
    MemberPlace,
    ProgramDeployment,
    read_deployment,
    write_deployment,
)
from coterie.protocol.hello import PeerFarewell, PeerHello

ECHO = """
import socket

server = socket.create_server(("127.0.0.1", 0))
while True:
    client, _ = server.accept()
    with client:
        while data := client.recv(4096):
            client.sendall(data)
"""


@pytest.mark.slow  # starts real processes
def test_another_user_of_the_machine_passes_for_no_process_of_a_program(tmp_path: Path) -> None:
    """Its agents and its gateway believed whoever reached them on loopback."""

    def check(file: Path) -> None:
        assert file.stat().st_mode & 0o777 == 0o600
        deployment = read_deployment(file)
        first, second = list(deployment.replicas)[:2]
        for claimed, to in ((EDGE_ID, first), (EDGE_ID, second), (first, second)):
            impostor = Impostor(deployment.place(to).listen)
            answer = impostor.say(claimed, PeerHello(deployment.name, to))
            assert isinstance(answer, PeerFarewell)
            assert "asks for a secret" in answer.reason
            impostor.close()
        impostor = Impostor(deployment.place(second).listen)
        other = deployment.security(first).secret_with(EDGE_ID)
        assert other is not None
        reason = impostor.prove(deployment.name, EDGE_ID, second, other)
        assert reason == f"process {EDGE_ID!r} has another secret"
        impostor.close()

    async def story() -> None:
        async with RunningProgram(tmp_path, ECHO) as running:
            await running.port()
            await asyncio.to_thread(check, running.state / FILE)

    asyncio.run(story())


def test_a_group_that_others_can_reach_has_a_secret(tmp_path: Path) -> None:
    deployment = ProgramDeployment(
        name="app",
        interpreter="python",
        options=[],
        words=["app.py"],
        folder="/",
        environment={},
        founded=1,
        edge=MemberPlace("10.0.0.1:7000", "edge"),
        replicas={"r1": MemberPlace("10.0.0.2:7000", "r1")},
    )
    path = tmp_path / FILE
    write_deployment(path, deployment)
    with pytest.raises(BadDeployment, match="has no secret"):
        read_deployment(path)
    with_secret = msgspec.structs.replace(deployment, secret="0123456789abcdef")  # noqa: S106
    write_deployment(path, with_secret)
    assert read_deployment(path) == with_secret
    path.chmod(0o644)
    with pytest.raises(BadDeployment, match="lets every user of this machine at it"):
        read_deployment(path)
    path.chmod(0o600)


PLACE = MemberPlace("127.0.0.1:7000", "x")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"secret": "x"}, "shorter than 16 bytes"),
        ({"replicas": {}}, "one replica or more"),
        ({"replicas": {"edge": PLACE}}, "none is called 'edge'"),
        ({"replicas": {"../r1": PLACE}}, "'../r1' is no name"),
        ({"name": "a\nb"}, "is no name"),
        ({"founded": -1}, "below zero"),
        ({"founded": 2**63}, "beyond what can be counted"),
        ({"copy_bytes": -1}, "below zero"),
    ],
)
def test_a_file_of_what_cannot_be_is_a_sentence(
    tmp_path: Path, changed: dict[str, object], sentence: str
) -> None:
    deployment = ProgramDeployment(
        name="app",
        interpreter="python",
        options=[],
        words=["app.py"],
        folder="/",
        environment={},
        founded=1,
        edge=PLACE,
        replicas={"r1": PLACE},
    )
    path = tmp_path / FILE
    write_deployment(path, deployment)
    assert read_deployment(path) == deployment
    write_deployment(path, msgspec.structs.replace(deployment, **changed))
    with pytest.raises(BadDeployment, match=sentence):
        read_deployment(path)
