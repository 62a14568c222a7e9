"""Orders to a process on the same machine."""

from __future__ import annotations

import asyncio
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from coterie.kernel.errors import CoterieError, Refused
from coterie.service.operate.control import (
    SOCKET,
    ControlAnswer,
    ControlOrder,
    Look,
    NobodyThere,
    Recover,
    Stop,
    give_order,
    listening,
)

if TYPE_CHECKING:
    from pathlib import Path


async def obey(order: ControlOrder) -> ControlAnswer:
    await asyncio.sleep(0)
    if isinstance(order, Recover):
        raise Refused(f"nothing of {order.group} is lost")
    return ControlAnswer(is_done=True, text=type(order).__name__)


def test_orders_are_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with listening(tmp_path, obey):
            assert stat.S_IMODE((tmp_path / SOCKET).stat().st_mode) == 0o600
            looked = await asyncio.to_thread(give_order, tmp_path, Look())
            assert looked == ControlAnswer(is_done=True, text="Look")
            stopped = await asyncio.to_thread(give_order, tmp_path, Stop())
            assert stopped.text == "Stop"
            refused = await asyncio.to_thread(give_order, tmp_path, Recover("seats"))
            assert refused == ControlAnswer(is_done=False, text="nothing of seats is lost")
        assert not (tmp_path / SOCKET).exists()

    asyncio.run(run())


def test_a_folder_may_lie_deep(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["folder"] * 20)
    deep.mkdir(parents=True)

    async def run() -> None:
        async with listening(deep, obey):
            assert (await asyncio.to_thread(give_order, deep, Look())).is_done

    asyncio.run(run())


def test_a_socket_left_by_a_killed_process_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET))
    with pytest.raises(NobodyThere, match="no process listens in"):
        give_order(tmp_path, Look())

    async def run() -> None:
        async with listening(tmp_path, obey):
            assert (await asyncio.to_thread(give_order, tmp_path, Look())).is_done

    asyncio.run(run())


def test_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(NobodyThere, match="no process listens in"):
        give_order(tmp_path, Look())
    with pytest.raises(NobodyThere):
        give_order(tmp_path / "gone", Look())


@pytest.mark.parametrize("line", [b"\n", b"what?\n", b'{"order":"Dance"}\n', b"[" * 70_000 + b"\n"])
def test_what_makes_no_sense_is_said_to(tmp_path: Path, line: bytes) -> None:
    async def run() -> bytes:
        async with listening(tmp_path, obey):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
            writer.write(line)
            answer = await reader.readline()
            writer.close()
            await writer.wait_closed()
            assert (await asyncio.to_thread(give_order, tmp_path, Look())).is_done
            return answer

    answer = asyncio.run(run())
    assert b'"is_done":false' in answer
    assert b"cannot be understood" in answer


def test_a_folder_that_cannot_hold_a_socket(tmp_path: Path) -> None:
    async def run() -> None:
        async with listening(tmp_path / "gone", obey):
            pass

    with pytest.raises(CoterieError, match=r"no control socket in .*gone: No such file"):
        asyncio.run(run())
