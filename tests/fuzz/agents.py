"""Hostile orders, inputs and frames at the agents and the gateway of a program.

A damaged peer puts orders on record that no program made; a program's process may write anything
into its stream. Neither may raise in a turn, or at every start that reads the orders again.
"""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.fuzz.mutations import NUMBERS
from tests.fuzz.tally import Tally

from coterie.agents.app import LISTENING, SIGNALS, DialledName, RemoteProgram
from coterie.agents.gateway import Gateway
from coterie.kernel.claims import Input, Order, OrderKind
from coterie.kernel.decoding import COUNT_MAX
from coterie.llft.programs import DivergedError
from coterie.program.entries import BadEntries, unpack
from coterie.program.rehearsal import Rehearsal
from coterie.program.wire import HEAD, BadWire, WireKind, WireReader, frame

if TYPE_CHECKING:
    from coterie.agents.app import AppProcess
    from coterie.program.rehearsal import _Process

WORDS = (
    *("17>localhost 80", "17>", "x>a b", "17>\x00 99999", "17>a -1"),
    *("", "1", "2", "17@3 127.0.0.1 9", "17@", "@", "x@y", "-1@2 a", "18@99999999999 a", "٣@1 a"),
    *(SIGNALS, LISTENING, f"{LISTENING}4", f"{LISTENING}x", f"{LISTENING}-7", "9" * 30, "\x00"),
)
DATA = (
    *(b"", b"0 5 127.0.0.1", b"0 x", b"x 5 a", b"0 5 \x00", b"99999999 1 127.0.0.1", b"0 5 \xff"),
    *(b"-1 99999999999999999999 a", b"0", b" ", b"7 text", b"\xff" * 9, b"\x00\x00\x1b\x59"),
)


class _App:
    """Stands for a process of the program: what is sent to it has to fit into frames."""

    waits = is_gone = False

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        frame(kind, number, value, payload)

    def end(self) -> None:
        pass


class _Gateway(Gateway):
    """A gateway without an engine, whose ports are not opened."""

    def __init__(self) -> None:
        self._clients, self._servers, self._effects = {}, {}, []
        self._tasks, self.blocked, self._wanted = set(), set(), set()
        self.turned_away, self._ports, self._tls = 0, {}, None
        self.ended = asyncio.get_running_loop().create_future()
        self._say = lambda *_: None

        self.engine = cast("Any", SimpleNamespace(lines={}, inputs={}, open=lambda conn: conn))

    async def _open(self, listener: int, port: int, words: str) -> None:
        frame(WireKind.LISTENING, listener, 0, words.encode())
        assert isinstance(port, int)

    async def _dial(self, conn: str) -> None:
        assert DialledName.parse(conn) is not None


def _number(random: Random) -> int:
    return max(-(1 << 63), min(random.choice((*NUMBERS, 16, 17)), (1 << 63) - 1))


def wrong_order(random: Random) -> Order:
    """Give an order that may be none."""
    value = random.choice((*map(int, WireKind), _number(random)))
    kind = random.choice(list(OrderKind))
    clock = max(-COUNT_MAX, min(_number(random), COUNT_MAX))
    return Order(kind, 0, value, random.choice(WORDS), random.choice(DATA), clock)


def wrong_frame(random: Random) -> tuple[int, int, int, bytes]:
    """Give a frame as a program's process may send it, once its head could be read."""
    kind = int(random.choice(list(WireKind)))
    number = random.choice((0, 1, 2, 16, 17, (1 << 32) - 1))
    return kind, number, _number(random), random.choice(DATA)


def fuzz(seed: int, inputs: int) -> Tally:
    """Have agents, the gateway and a rehearsal take wrong things."""
    return asyncio.run(_fuzz(Random(f"{seed}/agents"), inputs))  # noqa: S311


async def _fuzz(random: Random, inputs: int) -> Tally:
    tally = Tally()
    gateway = _Gateway()
    rehearsal = Rehearsal(cast("Any", None), say=lambda _: None)
    rehearsal._follower = rehearsal._leader = cast("_Process", _App())
    rehearsal._listen = _no_port  # type: ignore[method-assign]
    rehearsal._streams = {}
    program = RemoteProgram(lambda _: cast("AppProcess", _App()))
    for number in range(1, inputs + 1):
        kind = number % 4
        outcome = "taken"
        if kind == 0:
            gateway.told(wrong_order(random))
            gateway.turn_ended()
        elif kind == 1:
            outcome = _follow(program, number, random)
        elif kind == 2:
            try:
                random.choice((rehearsal._take, rehearsal._take_from_follower))(wrong_frame(random))
            except BadWire:
                outcome = "refused"
        else:
            outcome = _read(random)
        if number % 500 == 0:
            await asyncio.sleep(0)
            program = RemoteProgram(lambda _: cast("AppProcess", _App()))
        tally.inputs += 1
        tally.outcomes[outcome] += 1
    await asyncio.sleep(0)
    return tally


async def _no_port(listener: int, port: int, words: str) -> None:
    del listener, port, words


def _follow(program: RemoteProgram, number: int, random: Random) -> str:
    program.is_leading = random.random() < 0.3
    end, reset = random.random() < 0.2, random.random() < 0.2
    offset = random.choice((0, 0, _number(random)))
    each = Input(number, random.choice(WORDS), offset, random.choice(DATA), end, reset)
    program.feed_input(each)
    order = wrong_order(random)
    program.feed(number, order)
    program.took(wrong_frame(random))
    try:
        if program.can_perform(order):
            program.perform(order, b"")
    except DivergedError:
        return "diverged"
    return "taken"


def _read(random: Random) -> str:
    data = bytearray()
    for _ in range(random.randrange(1, 4)):
        data += frame(WireKind(wrong_frame(random)[0]), 1, 2, random.choice(DATA))
    at = random.randrange(len(data))
    data[at] ^= 1 << random.randrange(8)
    try:
        for kind, _, _, payload in WireReader().feed(bytes(data)):
            assert HEAD.size, kind
            for _ in unpack(payload):
                pass
    except (BadWire, BadEntries):
        return "refused"
    return "taken"
