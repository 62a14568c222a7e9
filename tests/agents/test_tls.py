"""TLS ends at the edge: the program sees plain text, and clients keep their connections as ever."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from tests.agents.running import RunningProgram
from tests.agents.test_kinds import kill_leader
from tests.agents.test_running import KEEPING, TIMED

from coterie.agents.deployment import BadDeployment, EdgeCertificate

if TYPE_CHECKING:
    from pathlib import Path


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("none", encoding="utf-8")
    for name in ("cert", "nowhere"):
        with pytest.raises(BadDeployment, match="are no certificate and its key"):
            EdgeCertificate(str(tmp_path / name), str(tmp_path / name)).context()


@pytest.mark.slow  # starts real processes
def test_a_client_of_tls_keeps_its_connection_through_a_kill(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    options = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def run() -> None:
        async with RunningProgram(tmp_path, TIMED + KEEPING["threaded HTTP"], *options) as program:
            client = http.client.HTTPSConnection(
                "127.0.0.1", await program.port(), context=trusting
            )
            asked = 0

            def ask() -> None:
                nonlocal asked
                for _ in range(20):
                    asked += 1
                    client.request("GET", "/")
                    assert int(client.getresponse().read().split()[0]) == asked

            await asyncio.to_thread(ask)
            kept = client.sock
            await kill_leader(program, "agent")
            await asyncio.to_thread(ask)
            assert client.sock is kept
            client.close()

    asyncio.run(run())
