"""Clients that send to a multicast address, over veth and a bridge between network namespaces."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from tests.patience import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
COTERIE = [sys.executable, "-m", "coterie.cli"]
SERVICE = "239.255.77.1:7700"
HOSTS = ("a", "b", "c", "client")

CALLER = """
import sys, json
sys.path.insert(0, sys.argv[1])
from service_client import Service

service = Service(sys.argv[2], deadline=float(sys.argv[4]), interface=sys.argv[3])
service.bind("add", "total")
print(json.dumps(sorted(service.members())), flush=True)
for _ in range(100):
    print(service.call("add", 1), flush=True)
"""


class Network:
    """Namespaces on one bridge that passes all multicast on."""

    def __init__(self, hosts: tuple[str, ...] = HOSTS) -> None:
        self.hosts = hosts
        self._tag = f"{os.getpid() % 100_000}"

    def name(self, host: str) -> str:
        return f"csv{self._tag}{host}"

    def address(self, host: str) -> str:
        return f"10.77.7.{self.hosts.index(host) + 1}"

    def inside(self, host: str, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.name(host), *command]

    def __enter__(self) -> Self:
        self._ended = ExitStack()
        self._bridge = f"cb{self._tag}"
        try:
            self._up()
        except subprocess.CalledProcessError as error:
            self._ended.close()
            pytest.skip(f"no network namespaces here: {error.stderr!r}")
        return self

    def _up(self) -> None:
        # The bridge has a namespace of its own, so that nothing of this machine is touched.
        home = self.name("net")
        _ip("netns", "add", home)
        self._ended.callback(_ip, "netns", "del", home)
        _ip("-n", home, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", home, "link", "set", "br0", "up")
        for host in self.hosts:
            there = self.name(host)
            _ip("netns", "add", there)
            self._ended.callback(_ip, "netns", "del", there)
            port = f"p{host}"[:8]
            _ip(*f"-n {home} link add {port} type veth peer name eth0 netns {there}".split())
            _ip("-n", home, "link", "set", port, "master", "br0", "up")
            _ip("-n", there, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", there, "link", "set", "eth0", "up")
            _ip("-n", there, "link", "set", "lo", "up")
            _ip("-n", there, "route", "add", "224.0.0.0/4", "dev", "eth0")

    def __exit__(self, *error: object) -> None:
        self._ended.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: S607 -- wherever it is


def config(network: Network, folder: Path) -> Path:
    lines = [
        'cluster = "service"',
        "[groups.counter]",
        'class = "coterie.ready:Counter"',
        'stack = "ONUS:SAFE:DYNSEQ:PVSYNC"',
        f'multicast = "{SERVICE}"',
        "[security]",
        "allow_open = true",
    ]
    for id in "abc":
        own = network.address(id)
        lines += [
            f"[replicas.{id}]",
            f'listen = "{own}:7000"',
            f'clients = "{own}:7001"',
            f'datagrams = "{own}:7701"',
            f'dir = "{folder / id}"',
        ]
    path = folder / "group.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.slow  # real processes in namespaces of their own
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
def test_clients_send_to_one_address_and_servers_are_killed(tmp_path: Path) -> None:
    with Network() as network:
        asyncio.run(_use(network, tmp_path))


async def _use(network: Network, tmp_path: Path) -> None:
    path = config(network, tmp_path)
    (tmp_path / "caller.py").write_text(CALLER, encoding="utf-8")
    servers = {id: await _start(network, path, id, "--found") for id in "abc"}
    caller = await asyncio.create_subprocess_exec(
        *network.inside("client", sys.executable, str(tmp_path / "caller.py"), str(EXAMPLES)),
        *(SERVICE, network.address("client"), str(PATIENCE)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert caller.stdout is not None
        async with asyncio.timeout(PATIENCE):
            members = json.loads(await caller.stdout.readline())
            assert set(members) <= set("abc")
            answers = [int(await caller.stdout.readline()) for _ in range(30)]
            servers["b"].kill()
            await servers["b"].wait()
            answers += [int(await caller.stdout.readline()) for _ in range(30)]
            servers["b"] = await _start(network, path, "b")
            answers += [int(line) async for line in caller.stdout]
            assert await caller.wait() == 0
        assert answers == list(range(1, 101))
    finally:
        for server in (*servers.values(), caller):
            if server.returncode is None:
                server.kill()
                await server.wait()


async def _start(
    network: Network, path: Path, id: str, *options: str
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *network.inside(id, *COTERIE, "replica", "--config", str(path), "--id", id, *options),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
