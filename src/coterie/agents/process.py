"""One process of a replicated program, from its start to its end: an agent, or the gateway.

Started by a supervisor it has a line to it, JSON both ways: what happens here goes out, orders come
in, and the end of the line is its own end. Started alone, on a machine of its own, it says what
happens on standard error and stops on SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from typing import TYPE_CHECKING

import msgspec

from coterie.agents.agent import Agent
from coterie.agents.deployment import EDGE_ID
from coterie.agents.gateway import Gateway
from coterie.kernel.decoding import JsonDecoder
from coterie.runtime.descriptors import raise_descriptor_limit
from coterie.runtime.garbage import calm_collector

if TYPE_CHECKING:
    from coterie.agents.deployment import ProgramDeployment

SEEN_SECONDS = 0.5
_encode = msgspec.json.Encoder().encode


class Signalled(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Send the program a signal."""

    number: int


_decode = JsonDecoder(Signalled).decode
encode_order = _encode


class MemberProcess:
    """What runs under one id."""

    def __init__(
        self,
        deployment: ProgramDeployment,
        id: str,
        control: int | None,
        *,
        is_first: bool = True,
    ) -> None:
        self._deployment, self._id = deployment, id
        self._is_first = is_first
        """Whether no other process of the group is known to run: copies may be gone."""
        self._control = control
        self._writer: asyncio.StreamWriter | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run to the end; give the exit status."""
        raise_descriptor_limit()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        reader = None
        if self._control is not None:
            line = socket.socket(fileno=self._control)
            reader, self._writer = await asyncio.open_connection(sock=line)
        is_edge = self._id == EDGE_ID
        member = (
            Gateway(self._deployment, self._say, is_whole=self._is_first)
            if is_edge
            else Agent(self._deployment, self._id, self._say)
        )
        async with member:
            self._say("started", {"incarnation": member.live.incarnation})
            calm_collector()
            tasks = [asyncio.create_task(self._tell(member))]
            if reader is not None:
                tasks.append(asyncio.create_task(self._obey(reader, member)))
            if isinstance(member, Gateway):
                tasks.append(asyncio.create_task(self._await_exit(member)))
            await self._stopping.wait()
            for task in tasks:
                task.cancel()
        return 0

    async def _await_exit(self, gateway: Gateway) -> None:
        status = await gateway.ended
        self._say("exited", {"status": status})

    async def _tell(self, member: Agent | Gateway) -> None:
        while True:
            if isinstance(member, Agent):
                member.look_after()
            self._say("seen", member.seen())
            await asyncio.sleep(SEEN_SECONDS)

    async def _obey(self, reader: asyncio.StreamReader, member: Agent | Gateway) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                order = _decode(line)
                if isinstance(member, Gateway):
                    member.signal(order.number)
        self._stopping.set()

    def _say(self, name: str, fields: dict[str, object]) -> None:
        line = _encode({"log": name, **fields}) + b"\n"
        if self._writer is not None:
            if not self._writer.is_closing():
                self._writer.write(line)
        elif name != "seen":
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
