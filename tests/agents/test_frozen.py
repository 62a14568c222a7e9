"""Copies of a program as its state: how they are made, what they hold, and what goes then."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.agents.running import CheckedClients, RunningProgram
from tests.agents.test_running import KEEPING, TIMED

from coterie.agents.app import RemoteProgram
from coterie.agents.edge_memory import GatewayMemory, WholeMemory
from coterie.agents.frozen import (
    FrozenState,
    HeldInput,
    Leash,
    NoCopy,
    encode_frozen,
    end_copy,
    is_there,
    thaw,
)
from coterie.agents.keeping import AppInputs
from coterie.journal.disk import FileDisk
from coterie.journal.engines.llft import LLFT
from coterie.journal.format import Sync
from coterie.journal.keeper import KeeperSettings
from coterie.journal.writer import JournalSettings
from coterie.kernel.claims import (
    NO_CLAIM,
    Input,
    Order,
    OrderKind,
    OrderRun,
    PrimaryClaim,
    Roster,
)
from coterie.kernel.records import InputsHeld, OrdersFreed, OrdersKnown
from coterie.kernel.views import Member
from coterie.llft.execution import Execution
from coterie.program.wire import WireKind

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.journal.engines.llft import LlftFound
    from coterie.kernel.records import Record
    from coterie.service.operate.control import ProcessSeen

COPIED = """
import os, sys
from coterie.program import freezing

wire, folder = int(sys.argv[1]), int(sys.argv[2])
told = ["before"]
with open(sys.argv[3]) as file:
    file.buffer.raw.read(4)
    pid, name = freezing.freeze(folder, wire)
    if pid:
        os.write(wire, name.encode())
        told.append("gone on")
    else:
        told.append("thawed")
    rest = file.buffer.raw.read(100)
    os.read(wire, 1)
    os.write(wire, repr((told, rest)).encode())
"""


def frozen(folder: Path, name: str, **more: object) -> FrozenState:
    parts: dict[str, object] = {"number": 1, "inputs": 0, "names": {}, "there": {}, "held": {}}
    return FrozenState(str(folder), name, **{**parts, **more})  # type: ignore[arg-type]


@pytest.mark.slow  # starts an interpreter
def test_a_copy_becomes_the_program_again_as_often_as_it_is_asked(tmp_path: Path) -> None:
    """Also its open files: the place in them is shared with whoever went on, and was not there."""
    folder = tmp_path / ("a folder whose name is longer than a socket's may be" * 3)
    folder.mkdir()
    text = tmp_path / "text"
    text.write_text("0123456789", encoding="utf-8")
    ours, theirs = socket.socketpair()
    at = os.open(folder, os.O_RDONLY)
    program = subprocess.Popen(
        [sys.executable, "-c", COPIED, str(theirs.fileno()), str(at), str(text)],
        pass_fds=(theirs.fileno(), at),
    )
    theirs.close()
    name = ours.recv(100).decode()
    ours.send(b"!")
    assert ours.recv(100) == repr((["before", "gone on"], b"456789")).encode()
    assert program.wait() == 0
    copy = frozen(folder, name)
    leash = Leash(str(folder), name)
    for _ in range(2):
        mine, its = socket.socketpair()
        thawed = thaw(copy, its, at)
        its.close()
        mine.send(b"!")
        assert mine.recv(100) == repr((["before", "thawed"], b"456789")).encode()
        assert not mine.recv(1)
        assert thawed.pid != program.pid
        mine.close()
    assert is_there(copy)
    assert not leash.is_cut
    leash.let_go()
    assert not is_there(copy)
    with pytest.raises(NoCopy, match="is gone"):
        thaw(copy, ours, at)
    ours.close()
    os.close(at)


def of(number: int, conn: str, offset: int, data: bytes, *, is_end: bool = False) -> Input:
    return Input(number, conn, offset, data, is_end=is_end)


def test_input_that_nobody_has_read_is_part_of_the_state_and_holds_nothing_up(
    tmp_path: Path,
) -> None:
    """Who sends one byte and is idle for a day would else have all input behind it kept."""
    inputs = AppInputs()
    execution = Execution(lambda: RemoteProgram(None), inputs, Roster((), 1))  # type: ignore[arg-type]
    inputs.take([of(1, "idle", 0, b"x"), of(2, "busy", 0, b"abcdef"), of(3, "busy", 6, b"gh")])
    inputs.take([of(4, "late", 0, b"later"), of(5, "busy", 8, b"", is_end=True)])
    execution.consumed["busy"] = 4
    held = inputs.held_at(3, execution)
    assert held == {
        "idle": HeldInput(0, b"x", is_ended=False, is_reset=False),
        "busy": HeldInput(4, b"efgh", is_ended=False, is_reset=False),
        "late": HeldInput(0, b"", is_ended=False, is_reset=False),
    }
    state = execution.state()
    token = encode_frozen(frozen(tmp_path, "1-1", inputs=3, held=held))
    kept = msgspec.structs.replace(state, program=token, back=3)
    for mine, is_own in ((inputs, True), (AppInputs(), False)):
        mine.free(kept)
        assert [each.number for each in mine.behind(0)] == ([4, 5] if is_own else [])
        mine.take([of(4, "late", 0, b"later"), of(5, "busy", 8, b"", is_end=True)])
        assert mine.read("busy", 4, 4) == b"efgh"
        assert mine.read("idle", 0, 1) == b"x"
        assert mine.read("late", 0, 5) == b"later"
        assert mine.is_ended("busy", 8)


def test_what_an_app_did_behind_its_copy_is_no_part_of_it() -> None:
    """Found by killing: replies of a follower that was ahead came once more out of its copy."""
    program = RemoteProgram(None, "there")  # type: ignore[arg-type]
    program.took((WireKind.CONSUMED, 17, 5, b""))
    program.took((WireKind.FROZEN, 99, 3, b"99-1"))
    program.took((WireKind.EXECUTED, 0, 1, b""))
    program.took((WireKind.OUTPUT, 17, 0, b"answer"))
    program.took((WireKind.EXECUTED, 0, 2, b""))
    program.perform(Order(OrderKind.RAN), b"")
    assert program.take_frozen() is None
    program.perform(Order(OrderKind.TOOK, 0, 5, "17@1 here 5"), b"12345")
    said = program.take_frozen()
    assert said is not None
    assert said[2:] == (3, b"99-1")
    assert program.describe(3) == ({}, {})


LIFE = PrimaryClaim(1, 1, Member("r1", 1))


def told(number: int, kind: WireKind, conn: str, after: PrimaryClaim = LIFE) -> OrdersKnown:
    order = Order(OrderKind.TOLD, 0, kind, conn, b"0 ", 1)
    run = OrderRun(LIFE, number, [order], after)
    return OrdersKnown(group="app@edge", member=Member("edge", 1), at=0, runs=[run])


def freed(orders: int) -> OrdersFreed:
    who = Member("edge", 1)
    return OrdersFreed(
        group="app@edge", member=who, at=0, orders=orders, inputs=orders, delivered={}
    )


ANSWERED = InputsHeld(
    group="app@edge",
    member=Member("edge", 1),
    at=0,
    inputs=[of(1, "listening 77", 0, (8000).to_bytes(4))],
)


def test_ports_outlive_the_orders_that_opened_them() -> None:
    memory = GatewayMemory()
    memory.log.base_claim = LIFE
    memory.log._spans = [(0, LIFE)]
    memory.add(told(1, WireKind.LISTEN, "77"))
    memory.add(ANSWERED)
    memory.add(freed(1))
    assert memory.log.base == 1
    assert list(memory.told) == ["77"]
    assert memory.answers == {"listening 77": (8000).to_bytes(4)}
    memory.add(told(2, WireKind.CLOSED, "77"))
    assert not memory.told


def test_a_whole_life_has_everything_and_so_has_the_one_behind_it() -> None:
    records = [freed(0), freed(7), freed(0), freed(3)]
    assert WholeMemory.recall([], records[:2]).log.base == 0
    seen: list[int] = []

    class Counting(GatewayMemory):
        def add(self, record: object) -> None:
            seen.append(getattr(record, "orders", -1))

    Counting.recall([], records)
    assert seen == [0, 3]


def test_a_life_begins_with_a_snapshot_and_a_whole_one_with_the_founding(tmp_path: Path) -> None:
    """A snapshot knows nothing of what was freed before it; a whole life must know all of it."""
    disk, who = FileDisk(tmp_path), ("app@edge", "edge")
    LLFT.found(disk, *who)
    keeping = KeeperSettings(journal=JournalSettings(sync=Sync.NONE), snapshot_bytes=1)

    def live(found: LlftFound, kind: type[GatewayMemory], *turns: Record) -> GatewayMemory:
        memory = kind.recall(found.chunks(), found.records)
        keeper = LLFT.open(disk, found, keeping)
        keeper.checkpoint = memory.checkpoint
        for turn in turns:
            keeper.write([turn])
            memory.add(turn)
            if work := keeper.housekeeping():
                work()
        keeper.close()
        return memory

    listened = told(1, WireKind.LISTEN, "77", after=NO_CLAIM)
    live(LLFT.recover_whole(disk, *who), WholeMemory, freed(0), listened, ANSWERED, freed(1))
    found = LLFT.recover(disk, *who)
    assert found.snapshot is not None
    memory = live(found, GatewayMemory)
    assert (memory.log.base, memory.log.end) == (1, 1)
    assert list(memory.told) == ["77"]
    assert memory.answers == {"listening 77": (8000).to_bytes(4)}
    found = LLFT.recover_whole(disk, *who)
    assert found.snapshot is None
    assert live(found, WholeMemory).log.base == 0
    # It has died before it wrote anything: whoever comes next has no snapshot from before it.
    assert LLFT.recover(disk, *who).snapshot is None
    assert live(LLFT.recover_whole(disk, *who), WholeMemory, freed(0)).log.base == 0
    found = LLFT.recover(disk, *who)
    assert found.snapshot is not None
    assert live(found, GatewayMemory).log.base == 0


@pytest.mark.slow  # starts real processes, four times
def test_the_log_is_no_longer_than_since_the_last_copy(tmp_path: Path) -> None:
    """Agents, the edge and everything are killed or stopped, and go on from where they were.

    What lies before snapshots goes from the replicas' disks, too, and the edge keeps it.
    """
    code = TIMED + KEEPING["threaded HTTP"]
    options = ("--copy-every", "1", "--journal-max", "1")
    runs = tmp_path / "state" / "coterie" / "app" / "runs"

    def have_trimmed() -> bool:
        trimmed = {file.parent.name for file in runs.rglob("removed")}
        return trimmed == {"r1", "r2", "r3"} and any(runs.rglob("edge/snapshots/*"))

    def kept_by(seen: list[ProcessSeen]) -> set[int]:
        return {int(each.more.get("kept", 0)) for each in seen if each.id != "edge"}

    def have_kept(seen: list[ProcessSeen]) -> bool:
        return 0 not in kept_by(seen)

    async def first() -> int:
        async with RunningProgram(tmp_path, code, *options) as program:
            port = await program.port()
            async with CheckedClients(port, 8) as clients:
                await clients.more(1500)
                await program.until(lambda seen: have_kept(seen) and have_trimmed())
                clients.may_ask.clear()  # or copies would come faster than somebody follows
                seen = await program.until(lambda seen: len(kept_by(seen)) == 1)
                clients.may_ask.set()
                [leader] = [each for each in seen.values() if each.role == "primary"]
                program.kill(leader.pid)
                seen = await program.when_whole(clients)
                assert have_kept(list(seen.values()))
                assert all(each.more["held"] < each.more["orders"] for each in seen.values())
            clients.check()
            program.kill(seen["edge"].pid)
            await program.until(lambda seen: bool(seen[0].restarts and seen[0].more.get("ports")))
            async with CheckedClients(port, 2) as others:
                await others.more(20)
            assert min(others.numbers) > max(clients.numbers)
            return max(others.numbers)

    async def again(last: int) -> None:
        async with RunningProgram(tmp_path, code, *options) as program:
            async with CheckedClients(await program.port(), 2) as clients:
                await clients.more(20)
            assert min(clients.numbers) > last

    async def story() -> None:
        await again(await first())

    asyncio.run(story())


# ---- what others say of copies


@pytest.mark.parametrize(
    "name", ["../kept", "{folder}/kept", "kept", "1-2/../../kept", "1-2\n", ""]
)
def test_a_copy_whose_name_is_a_path_is_none(tmp_path: Path, name: str) -> None:
    """Another replica says where its copy is; what it says is ended one day, and its file goes."""
    folder, kept = tmp_path / "frozen", tmp_path / "kept"
    folder.mkdir()
    kept.write_bytes(b"x")
    name = name.format(folder=tmp_path)
    end_copy(str(folder), name)
    assert kept.exists()
    assert not is_there(frozen(folder, name))
    with pytest.raises(NoCopy, match="no copy has such a name"):
        Leash(str(folder), name)


def test_what_listens_for_another_user_is_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be given the program's input, and could answer in the program's name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "1-1"))
        listener.listen()
        assert is_there(frozen(tmp_path, "1-1"))
        ours, theirs = socket.socketpair()
        with ours, theirs, monkeypatch.context() as patched:
            patched.setattr(os, "geteuid", lambda: 12345)
            assert not is_there(frozen(tmp_path, "1-1"))
            with pytest.raises(NoCopy, match="of another user"):
                thaw(frozen(tmp_path, "1-1"), theirs, folder=0)
