"""What a system beside us is: how its servers are started, and how its clients call."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from coterie.bench.harness.controller import BenchError, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

START_SECONDS = 60.0
END_SECONDS = 10.0
RETRY_SECONDS = 0.2
SERVERS = 3


class PeerLine(Protocol):
    """One connection of a client."""

    async def put(self, data: bytes) -> None:
        """Write one value, and wait until the system has promised what it promises."""

    async def put_all(self, data: Sequence[bytes]) -> None:
        """Write several at once, and wait for all."""

    async def close(self) -> None:
        """Close the connection."""


class PeerSystem(Protocol):
    """A system that others run."""

    name: str
    program: str
    """The program of a server, looked for on the path."""
    package: str
    """The package of Debian that brings it."""
    promise: str
    """What an answered write has been promised here, in a few words."""
    packs: bool
    """Whether several writes can be made together."""

    def version(self, words: str) -> str:
        """Find the version in what the program says of it."""

    def commands(self, program: str, ports: Sequence[int], folder: Path) -> list[list[str]]:
        """Give the command line of each server, of three; two ports for each."""

    async def leader(self, ports: Sequence[int]) -> int:
        """Give the port at which writes are taken quickest; raise `OSError` while there is none."""

    async def connect(self, port: int) -> PeerLine:
        """Open a connection."""


class FoundSystem(NamedTuple):
    """A system whose program is on this machine."""

    system: PeerSystem
    program: str
    version: str


def find(system: PeerSystem) -> FoundSystem | None:
    """Look whether a system is installed, and which version."""
    program = shutil.which(system.program, path=None) or shutil.which(
        system.program, path="/usr/sbin:/usr/local/sbin"
    )
    if program is None:
        return None
    said = subprocess.run(  # noqa: S603 -- the program that was found
        [program, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    return FoundSystem(system, program, system.version(said.stdout + said.stderr))


@asynccontextmanager
async def running(found: FoundSystem, folder: Path) -> AsyncIterator[int]:
    """Run three servers, and give the port of the one that takes writes."""
    ports = free_ports(2 * SERVERS)
    processes: list[asyncio.subprocess.Process] = []
    try:
        for number, command in enumerate(found.system.commands(found.program, ports, folder)):
            with (folder / f"{number}.log").open("wb") as log:
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
                    )
                )
        yield await _leader(found, ports, processes, folder)
    finally:
        await asyncio.gather(*(_end(process) for process in processes))


async def _leader(
    found: FoundSystem,
    ports: Sequence[int],
    processes: Sequence[asyncio.subprocess.Process],
    folder: Path,
) -> int:
    name = found.system.name
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                for number, process in enumerate(processes):
                    if process.returncode is not None:
                        words = (folder / f"{number}.log").read_text("utf-8", "replace")[-400:]
                        raise BenchError(f"a server of {name} ended at its start: {words.strip()}")
                try:
                    return await found.system.leader(ports)
                except OSError:
                    await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        raise BenchError(
            f"{name} was not ready after {START_SECONDS:.0f} s: run again when this machine is "
            "less busy"
        ) from None


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
