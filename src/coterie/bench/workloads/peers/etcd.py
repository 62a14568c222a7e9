"""etcd: a key that is put again and again, over gRPC.

An answered put is known to a majority and on its disks (Raft; etcd syncs before it answers). It
needs `grpcio`, which comes with the extra `pipeline`. Messages are so small that they are written
by hand: fields of bytes and numbers, as protobuf has them.
"""

from __future__ import annotations

import asyncio
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PUT = "/etcdserverpb.KV/Put"
STATUS = "/etcdserverpb.Maintenance/Status"
HEADER, LEADER, MEMBER_ID = 1, 4, 2
CALL_SECONDS = 20.0
VARINT, BYTES = 0, 2


def _field(number: int, data: bytes) -> bytes:
    size, length = bytearray(), len(data)
    while length > 0x7F:  # noqa: PLR2004 -- seven bits each
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | BYTES, *size, length]) + data


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Read numbers and bytes of a message, each with its field."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 -- the last of it
                return value

    while at < len(data):
        key = varint()
        if key & 7 == VARINT:
            yield key >> 3, varint()
        elif key & 7 == BYTES:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            return


class EtcdLine:
    """One channel."""

    def __init__(self, port: int) -> None:
        import grpc  # noqa: PLC0415 -- it is an extra

        self._channel: Any = grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._put = self._channel.unary_unary(PUT)
        self._status = self._channel.unary_unary(STATUS)

    async def put(self, data: bytes) -> None:
        await self._put(_field(1, b"box") + _field(2, data), timeout=CALL_SECONDS)

    async def put_all(self, data: Sequence[bytes]) -> None:
        await asyncio.gather(*(self.put(each) for each in data))

    async def leads(self) -> bool:
        """Ask whether this server leads."""
        import grpc  # noqa: PLC0415

        try:
            said = dict(_fields(await self._status(b"", timeout=2)))
        except grpc.aio.AioRpcError as error:
            raise ConnectionError(error.details()) from None
        header = said.get(HEADER, b"")
        assert isinstance(header, bytes)
        return bool(said.get(LEADER)) and dict(_fields(header)).get(MEMBER_ID) == said[LEADER]

    async def close(self) -> None:
        await self._channel.close()


class Etcd:
    """Three servers, as they come."""

    name = "etcd"
    program = "etcd"
    package = "etcd-server"
    promise = "known to two servers of three (Raft) and synced to their disks"
    packs = False

    def version(self, words: str) -> str:
        found = re.search(r"etcd Version: ([0-9.]+)", words)
        return found[1] if found else "?"

    def commands(self, program: str, ports: Sequence[int], folder: Path) -> list[list[str]]:
        if find_spec("grpc") is None:
            raise ConnectionError("grpcio is missing: pip install 'coterie[pipeline]'")
        clients, links = ports[:3], ports[3:]
        cluster = ",".join(f"n{i}=http://127.0.0.1:{port}" for i, port in enumerate(links))
        return [
            [
                *(program, "--name", f"n{number}", "--data-dir", str(folder / str(number))),
                *("--listen-client-urls", f"http://127.0.0.1:{port}"),
                *("--advertise-client-urls", f"http://127.0.0.1:{port}"),
                *("--listen-peer-urls", f"http://127.0.0.1:{link}"),
                *("--initial-advertise-peer-urls", f"http://127.0.0.1:{link}"),
                *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
            ]
            for number, (port, link) in enumerate(zip(clients, links, strict=True))
        ]

    async def leader(self, ports: Sequence[int]) -> int:
        for port in ports[:3]:
            line = await self.connect(port)
            try:
                if await line.leads():
                    return port
            finally:
                await line.close()
        raise ConnectionError("etcd has no leader yet")

    async def connect(self, port: int) -> EtcdLine:
        return EtcdLine(port)
