"""Attacks on the TLS of real processes: crowds that never finish, and authorities withdrawn."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import urllib.request
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import msgspec
import pytest
import trustme
from tests.patience import PATIENCE

import coterie
from coterie.client.errors import NotDone, NotWelcome
from coterie.client.settings import ClientSettings
from coterie.ready import Counter
from coterie.runtime.certificates import TlsFiles
from coterie.runtime.listening import TurnedAway
from coterie.runtime.loop import run
from coterie.service.config import ClientConfig, GroupConfig, SecurityConfig
from coterie.service.operate.founding import free_port, make_config
from coterie.service.state_folder import CONFIG, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from coterie.runtime.address import Address
    from coterie.service.config import ClusterConfig

pytestmark = pytest.mark.slow  # starts real processes

START = "from coterie.cli.main import main; sys.exit(main())"
FEW_DESCRIPTORS = 256
CROWD = 400
"""More than the process has descriptors."""


def issue(folder: Path, authority: trustme.CA, *names: str) -> None:
    """Write a certificate and its key."""
    folder.mkdir(exist_ok=True)
    made = authority.issue_cert(*names)
    made.private_key_pem.write_to_path(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(folder / "certificate.pem")


def trust(folder: Path, *authorities: trustme.CA) -> None:
    """Write whom to trust, in one step."""
    draft = folder / "authority.draft"
    draft.write_bytes(b"".join(each.cert_pem.bytes() for each in authorities))
    draft.rename(folder / "authority.pem")


def client_tls(folder: Path, certificate: str) -> TlsFiles:
    place = folder / certificate
    return TlsFiles(place / "certificate.pem", place / "key.pem", folder / "authority.pem")


def configure(folder: Path, *, replicas: int, metrics: bool = False) -> ClusterConfig:
    group = GroupConfig(class_="coterie.ready:Counter", stack="SAFE:DYNSEQ:PVSYNC")
    made = make_config(folder, "g", groups={"g": group}, replicas=replicas)
    if metrics:
        with ExitStack() as held:
            address = f"127.0.0.1:{free_port(held)}"
        mine = msgspec.structs.replace(made.replicas["a"], metrics=address)
        made = msgspec.structs.replace(made, replicas={"a": mine})
    config = msgspec.structs.replace(
        made,
        security=SecurityConfig(
            certificate=str(folder / "replicas" / "certificate.pem"),
            key=str(folder / "replicas" / "key.pem"),
            authority=str(folder / "authority.pem"),
        ),
        clients={"one": ClientConfig(), "other": ClientConfig()},
    )
    write_config(folder, config)
    return config


async def start(
    folder: Path, id: str, stack: AsyncExitStack, *, descriptors: int = 0
) -> asyncio.subprocess.Process:
    """Start a replica, and wait until it takes clients; it is killed at the end."""
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}));"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c"),
        f"import resource, sys; {limit if descriptors else ''} {START}",
        *("replica", "--config", str(folder / CONFIG), "--id", id, "--found"),
        stderr=asyncio.subprocess.PIPE,
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        reading.cancel()
        await process.wait()

    assert process.stderr is not None
    reading = asyncio.create_task(_until_started(process.stderr))
    stack.push_async_callback(end)
    async with asyncio.timeout(PATIENCE):
        await reading
    reading = asyncio.create_task(_drain(process.stderr))
    return process


async def _until_started(stream: asyncio.StreamReader) -> None:
    lines = b""
    while b'"started"' not in lines:
        line = await stream.readline()
        assert line, lines.decode()
        lines += line


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(1 << 16):
        pass


async def half_open(address: Address, stack: ExitStack) -> None:
    """Open a connection, and never say anything."""
    silent = stack.enter_context(socket.socket())
    silent.setblocking(False)  # noqa: FBT003
    await asyncio.get_running_loop().sock_connect(silent, address)


def figure(text: str, name: str) -> int:
    found = re.search(rf"^coterie_{name}{{[^}}]*}} (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def test_half_open_handshakes_neither_kill_a_replica_nor_keep_clients_out(tmp_path: Path) -> None:
    """They used up all descriptors: the port was closed for good, and the replica stopped."""
    authority = trustme.CA()
    issue(tmp_path / "replicas", authority, "replica-a")
    issue(tmp_path / "one", authority, "client-one")
    trust(tmp_path, authority)
    config = configure(tmp_path, replicas=1, metrics=True)
    mine = config.replicas["a"]

    async def story() -> None:
        async with AsyncExitStack() as stack:
            process = await start(tmp_path, "a", stack, descriptors=FEW_DESCRIPTORS)
            crowd = stack.enter_context(ExitStack())
            opening = coterie.connect(
                Counter, str(mine.client_address), tls=client_tls(tmp_path, "one").client
            )
            counter = await stack.enter_async_context(opening)
            await counter.add(1)
            for address in (mine.client_address, mine.peer_address):
                for _ in range(CROWD):
                    await half_open(address, crowd)
                await counter.add(1)
            # Somebody new gets in, too, while all of them are still trying.
            late = coterie.connect(
                Counter, str(mine.client_address), tls=client_tls(tmp_path, "one").client
            )
            newcomer = await stack.enter_async_context(late)
            assert await newcomer.add(1) == 4
            url = f"http://{mine.metrics}/metrics"
            text = (await asyncio.to_thread(_fetch, url)).decode()
            for part in ("port", "transport"):
                assert sum(figure(text, f"{part}_{why}_total") for why in TurnedAway) > 0
            assert process.returncode is None

    run(story())


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 -- our own
        body: bytes = answer.read()
        return body


async def keep_adding(counter: type[Counter], news: asyncio.Queue[str]) -> None:
    """Add one again and again, and say how each ended."""
    while True:
        try:
            await counter.add(1)
        except (NotDone, NotWelcome, coterie.OutcomeUnknown) as error:
            news.put_nowait(type(error).__name__)
        else:
            news.put_nowait("done")
        await asyncio.sleep(0.05)


async def _heard(news: asyncio.Queue[str]) -> AsyncIterator[str]:
    while True:
        yield await news.get()


def test_an_authority_that_is_withdrawn_is_out_at_once(tmp_path: Path) -> None:
    """It was trusted until a restart, and who was connected stayed."""
    old, new = trustme.CA(), trustme.CA()
    issue(tmp_path / "replicas", new, "replica-a", "replica-b", "replica-c")
    issue(tmp_path / "one", old, "client-one")
    issue(tmp_path / "other", new, "client-other")
    trust(tmp_path, old, new)
    config = configure(tmp_path, replicas=3)
    addresses = [str(each.client_address) for each in config.replicas.values()]
    settings = ClientSettings(deadline=2.0)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            processes = [await start(tmp_path, id, stack) for id in config.ids]
            theirs = client_tls(tmp_path, "one").client
            opening = coterie.connect(Counter, addresses, tls=theirs, settings=settings)
            counter = await stack.enter_async_context(opening)
            news: asyncio.Queue[str] = asyncio.Queue()
            adding = asyncio.create_task(keep_adding(counter, news))
            stack.callback(adding.cancel)
            async with asyncio.timeout(PATIENCE):
                async for word in _heard(news):
                    if word == "done":
                        break
                trust(tmp_path, new)
                failed = 0
                async for word in _heard(news):
                    failed = 0 if word == "done" else failed + 1
                    if failed == 3:
                        break
            adding.cancel()
            async with AsyncExitStack() as again:
                with pytest.raises((NotDone, NotWelcome)):
                    await again.enter_async_context(
                        coterie.connect(Counter, addresses, tls=theirs, settings=settings)
                    )
            ours = client_tls(tmp_path, "other").client
            async with coterie.connect(Counter, addresses, tls=ours) as trusted:
                async with asyncio.timeout(PATIENCE):
                    while not await _adds(trusted):
                        pass
            assert [process.returncode for process in processes] == [None] * 3

    run(story())


async def _adds(counter: type[Counter]) -> bool:
    try:
        await counter.add(1)
    except (NotDone, coterie.OutcomeUnknown):
        return False
    return True
