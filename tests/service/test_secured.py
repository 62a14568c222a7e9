"""A whole group behind a secret and certificates, and those who have the wrong ones."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import msgspec
import pytest
import trustme

from coterie.cli import exits
from coterie.cli import main as cli
from coterie.client.connecting import connect
from coterie.client.errors import NotDone, NotWelcome
from coterie.client.settings import ClientSettings
from coterie.objects import define, update
from coterie.runtime.certificates import TlsFiles
from coterie.runtime.loop import run
from coterie.runtime.security import SecurityError, read_secret, write_secret
from coterie.service.config import ClientConfig, ConfigError, SecurityConfig, parse_config
from coterie.service.operate.founding import free_port
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from coterie.service.config import ClusterConfig


class Counter:
    value: int = 0

    @update
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value


def write_files(folder: Path) -> None:
    """Write certificates for all replicas and for one client, and the secrets of all."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for file, names in (
        ("replica", ["replica-a", "replica-b", "replica-c"]),
        ("client", ["client-tester"]),
    ):
        made = authority.issue_cert(*names)
        made.private_key_pem.write_to_path(folder / f"{file}.key")
        made.cert_chain_pems[0].write_to_path(folder / f"{file}.pem")
    (folder / "secrets").mkdir(mode=0o700)
    for file in ("a+b", "a+c", "b+c", "tester"):
        write_secret(folder / "secrets" / file)


def make_security(folder: Path, *, tls: bool) -> SecurityConfig:
    if not tls:
        return SecurityConfig(replica_secrets=str(folder / "secrets"))
    return SecurityConfig(
        replica_secrets=str(folder / "secrets"),
        certificate=str(folder / "replica.pem"),
        key=str(folder / "replica.key"),
        authority=str(folder / "authority.pem"),
    )


def make_clients(folder: Path, *, tls: bool) -> dict[str, ClientConfig]:
    tester = ClientConfig(secret_file=str(folder / "secrets" / "tester"))
    if tls:
        certificate, key = str(folder / "client.pem"), str(folder / "client.key")
        tester = msgspec.structs.replace(tester, certificate=certificate, key=key)
    return {"tester": tester}


def make_config(folder: Path, *, tls: bool) -> ClusterConfig:
    with ExitStack() as held:
        ports = [free_port(held) for _ in range(6)]
    text = 'cluster = "safe"\n[groups.sums]\nclass = "x:Counter"\n'
    for index, id in enumerate("abc"):
        text += (
            f'[replicas.{id}]\nlisten = "127.0.0.1:{ports[index]}"\n'
            f'clients = "127.0.0.1:{ports[index + 3]}"\ndir = "{id}"\n'
        )
    config = parse_config(text, source="test.toml", base=folder)
    return msgspec.structs.replace(
        config, security=make_security(folder, tls=tls), clients=make_clients(folder, tls=tls)
    )


def tls_files(folder: Path) -> TlsFiles:
    """Give what the client shows."""
    return TlsFiles(folder / "client.pem", folder / "client.key", folder / "authority.pem")


async def check_refused(address: str, secret: bytes, tls: ssl.SSLContext | None) -> None:
    async with AsyncExitStack() as stack:
        connecting = connect(
            Counter, address, secret=secret, tls=tls, settings=ClientSettings(deadline=2.0)
        )
        with pytest.raises((NotWelcome, NotDone)):
            await stack.enter_async_context(connecting)


@pytest.mark.parametrize("tls", [False, True])
def test_a_group_and_its_clients_share_what_they_must(tmp_path: Path, *, tls: bool) -> None:
    write_files(tmp_path)
    (tmp_path / "other").mkdir()
    write_files(tmp_path / "other")
    config = make_config(tmp_path, tls=tls)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            for id in "abc":
                process = ReplicaProcess(config, id, objects={"sums": define(Counter)}, found=True)
                await stack.enter_async_context(process)
            address = str(config.replicas["a"].client_address)
            secret = read_secret(tmp_path / "secrets" / "tester")
            context = tls_files(tmp_path).client if tls else None
            async with connect(Counter, address, secret=secret, tls=context) as counter:
                assert await counter.add(3) == 3
            await check_refused(address, secret[:-1] + b"?", context)
            if tls:
                await check_refused(address, secret, None)
                await check_refused(address, secret, tls_files(tmp_path / "other").client)
            async with connect(Counter, address, secret=secret, tls=context) as counter:
                assert await counter.add(4) == 7

    run(story())


@pytest.mark.slow
def test_the_command_line_shows_certificates_at_an_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    config = make_config(tmp_path, tls=True)
    address = str(config.replicas["a"].client_address)
    tls = [str(tmp_path / name) for name in ("client.pem", "client.key", "authority.pem")]
    secret = ["--secret-file", str(tmp_path / "secrets" / "tester")]

    async def story() -> None:
        async with ReplicaProcess(config, "a", objects={"sums": define(Counter)}, found=True):
            status = ["status", "sums", "--address", address, *secret]
            shown = await asyncio.to_thread(cli.main, [*status, "--tls", *tls])
            assert shown == exits.NOT_DONE  # one of three is no majority, and it says so
            assert "1 of 3 replicas are up" in capsys.readouterr().out
            assert await asyncio.to_thread(cli.main, status) == exits.NOT_DONE
            assert "0 of 1 replicas are up" in capsys.readouterr().out

    run(story())
    assert cli.main(["call", "sums", "--tls", *tls]) == exits.MISUSE
    assert "go with --address" in capsys.readouterr().err


def test_what_the_configuration_names_must_be_there(tmp_path: Path) -> None:
    config = make_config(tmp_path, tls=False)

    async def story() -> None:
        with pytest.raises(SecurityError, match=r"secret in .*a\+b cannot be read"):
            async with ReplicaProcess(config, "a", objects={"sums": define(Counter)}, found=True):
                pass

    run(story())


def test_an_open_cluster_stays_on_loopback() -> None:
    text = (
        'cluster = "open"\n[groups.sums]\nclass = "x:Counter"\n'
        '[replicas.a]\nlisten = "0.0.0.0:7001"\nadvertise = "10.0.0.1:7001"\n'
        'clients = "127.0.0.1:7101"\ndir = "a"\n'
    )
    with pytest.raises(ConfigError, match=r"listen = '0\.0\.0\.0:7001' can be reached"):
        parse_config(text, source="open.toml")
    parse_config(text + "[security]\nallow_open = true\n", source="open.toml")
