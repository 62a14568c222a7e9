"""A wire in user space between network namespaces: what is far apart, and what is cut off.

Where the kernel has no `tc netem`, distance has to be made by a program. Every host is a network
namespace whose only way out is a TUN device; one process holds the other ends, and carries each
packet to its destination after a delay, or nowhere. All hosts are in one of its *sides*, and
nothing passes from one side to another, so a cut is silent, as that of a network is.

The process (`python -m coterie.bench.harness.wire HOST ...`) takes a line of JSON for each change,
and answers with a line once it holds. Making namespaces takes root; `why_not` says what is missing.
"""

from __future__ import annotations

import asyncio
import heapq
import ipaddress
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from coterie.bench.harness.controller import BenchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PREFIX = "coterie-"
NETWORK = ipaddress.IPv4Network("10.99.0.0/24")
PACKET_BYTES_MAX = 65_535
MTU = 9000
PACKETS_AT_ONCE = 64
_SET_TUN = 0x400454CA
_TUN_WITHOUT_HEAD = 0x1001
_DESTINATION = slice(16, 20)
"""Where a packet of IPv4 says where it goes."""
_OPENER = f"""
import fcntl, os, socket, struct, sys
tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tun, {_SET_TUN}, struct.pack("16sH", b"tun0", {_TUN_WITHOUT_HEAD}))
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"tun"], [tun])
"""
"""What runs inside a namespace for a moment: a device belongs where it is opened."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How packets travel from now on."""

    sides: list[list[str]] = []
    """Who is in touch; who is in none is alone. No sides: everybody is in touch."""
    delay_ms: dict[str, dict[str, float]] = {}
    """From whom, to whom: how long a packet takes. What is not named takes no time."""


def why_not() -> str:
    """Say why there can be no wire here; nothing if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "there is no `ip` (iproute2) to make network namespaces with"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    return ""


class Wire:
    """Hosts in namespaces of their own, and the process between them; to be entered."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        self._process: asyncio.subprocess.Process
        self._made = ExitStack()

    def _name(self, host: str) -> str:
        return f"{_PREFIX}{os.getpid()}-{host}"

    def address(self, host: str) -> str:
        """Give the address of a host."""
        return _address(self._hosts.index(host))

    def inside(self, host: str, *command: str) -> list[str]:
        """Give the command that runs another one at a host."""
        return ["ip", "netns", "exec", self._name(host), *command]

    async def __aenter__(self) -> Self:
        reason = why_not()
        if reason:
            raise BenchError(f"no wire can be laid here: {reason}")
        _sweep()
        try:
            for host in self._hosts:
                _ip("netns", "add", self._name(host))
                self._made.callback(_ip, "netns", "del", self._name(host))
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __spec__.name, *map(self._name, self._hosts)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            await self._ready()
        except BaseException:
            self._made.close()
            raise
        return self

    async def _ready(self) -> None:
        assert self._process.stdout is not None
        if not await self._process.stdout.readline():
            raise BenchError("the wire could not be laid; its last words are above")

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        self._made.close()

    async def rule(
        self,
        *,
        sides: Sequence[Sequence[str]] = (),
        delay_ms: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        """Have packets travel like this from now on, those under way left out."""
        assert self._process.stdin is not None
        names = {
            self._name(one): {self._name(other): ms for other, ms in ways.items()}
            for one, ways in (delay_ms or {}).items()
        }
        rules = Rules(sides=[[self._name(host) for host in side] for side in sides], delay_ms=names)
        self._process.stdin.write(msgspec.json.encode(rules) + b"\n")
        await self._ready()


def apart(sites: Sequence[Sequence[str]], delay_ms: float) -> dict[str, dict[str, float]]:
    """Give the delays where every two sites are so far apart, and hosts of one are not."""
    return {
        host: {far: delay_ms for other in sites if other is not site for far in other}
        for site in sites
        for host in site
    }


def _sweep() -> None:
    """Remove what runs have left that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)  # noqa: S607 -- wherever it is
    for name in re.findall(rf"(?m)^{_PREFIX}\d+-\w+", listed.stdout):
        if not Path("/proc", name.split("-")[1]).exists():
            _ip("netns", "del", name)


def _address(number: int) -> str:
    return str(NETWORK[number + 1])


def _ip(*words: str) -> None:
    command = ["ip", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- names of our own


# ---- the process between the hosts


class Carrier:
    """Holds the devices of all hosts, and carries packets between them."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        self._devices = {_open_device(host, number): host for number, host in enumerate(hosts)}
        self._by_address = {
            socket.inet_aton(_address(number)): (host, device)
            for number, (device, host) in enumerate(self._devices.items())
        }
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._delays: dict[tuple[str, str], float] = {}
        """In seconds, for every two hosts that are in touch."""
        self.rule(Rules())

    def rule(self, rules: Rules) -> None:
        """Carry packets like this from now on."""
        sides = rules.sides or [self._hosts]
        self._delays = {
            (one, other): rules.delay_ms.get(one, {}).get(other, 0.0) / 1000
            for side in sides
            for one in side
            for other in side
        }

    def run(self) -> None:
        """Carry packets until the input ends."""
        waiting = select.epoll()
        for device in self._devices:
            waiting.register(device, select.EPOLLIN)
        told = sys.stdin.fileno()
        waiting.register(told, select.EPOLLIN)
        self._say_ready()
        while True:
            for ready, _ in waiting.poll(self._patience()):
                if ready != told:
                    self._take(ready)
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                self.rule(msgspec.json.decode(line, type=Rules))
                self._say_ready()
            self._deliver()

    @staticmethod
    def _say_ready() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    def _patience(self) -> float:
        if not self._under_way:
            return -1
        return max(0.0, self._under_way[0][0] - time.monotonic())

    def _take(self, device: int) -> None:
        host = self._devices[device]
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(device, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            there = self._by_address.get(packet[_DESTINATION])
            if there is None:
                continue
            delay = self._delays.get((host, there[0]))
            if delay is None:
                continue
            if delay:
                self._count += 1
                due = time.monotonic() + delay
                heapq.heappush(self._under_way, (due, self._count, there[1], packet))
            else:
                _write(there[1], packet)

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, device, packet = heapq.heappop(self._under_way)
            _write(device, packet)


def _write(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        return  # its queue is full: the packet is lost, as on any network


def _open_device(host: str, number: int) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003 -- the function has no other form
        opener = [sys.executable, "-c", _OPENER, str(theirs.fileno())]
        command = ["ip", "netns", "exec", host, *opener]
        subprocess.run(command, check=True, pass_fds=[theirs.fileno()])  # noqa: S603 -- our own
        _, [device], _, _ = socket.recv_fds(ours, 16, 1)
    os.set_blocking(device, False)
    _ip("-n", host, "addr", "add", f"{_address(number)}/{NETWORK.prefixlen}", "dev", "tun0")
    _ip("-n", host, "link", "set", "tun0", "mtu", str(MTU), "txqueuelen", "5000", "up")
    _ip("-n", host, "link", "set", "lo", "up")
    return device


if __name__ == "__main__":
    Carrier(sys.argv[1:]).run()
