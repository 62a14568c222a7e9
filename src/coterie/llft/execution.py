"""Executing orders: a program, the inputs it has consumed, the output it has produced.

`InputBuffer` is what has arrived for the program, `Execution` how far the program is. Both are the
same at the primary and at backups: the primary performs an order right after it has made it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from coterie.kernel.claims import NO_CLAIM, OrderKind, Output, PrimaryClaim, ProgramState, Roster
from coterie.llft.orders import decode_roster
from coterie.llft.programs import DivergedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coterie.kernel.claims import Input, Order
    from coterie.llft.programs import OrderedProgram

EARLY_MAX = 1024
"""How many inputs are kept that came before others that are missing."""

encode = msgspec.msgpack.Encoder().encode


class Stream:
    """The input of one connection, from an offset on."""

    __slots__ = ("base", "data", "is_ended", "is_reset")

    def __init__(self, base: int) -> None:
        self.base = base
        self.data = bytearray()
        self.is_ended = False
        self.is_reset = False
        """Whether it has ended wherever its reader is."""

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return self.base + len(self.data)


class InputBuffer:
    """What has arrived, without gaps; what arrives early waits."""

    def __init__(self) -> None:
        self.received = 0
        """All inputs up to this number are here, or were."""
        self.last = 0
        """The highest number there is, as far as is known."""
        self.streams: dict[str, Stream] = {}
        self._early: dict[int, Input] = {}
        self._held: list[Input] = []
        """Those here, for finding out what is consumed."""
        self.finished: set[str] = set()
        """Connections whose end is behind a kept state: no input of theirs ever comes again."""

    def take(self, inputs: Iterable[Input]) -> list[Input]:
        """Take inputs; give those that are new and follow without a gap."""
        taken: list[Input] = []
        for each in inputs:
            if each.number == self.received + 1:
                self._next(each, taken)
            elif each.number > self.received and len(self._early) < EARLY_MAX:
                self._early[each.number] = each
            else:
                continue
            self.last = max(self.last, each.number)
        while self.received + 1 in self._early:
            self._next(self._early.pop(self.received + 1), taken)
        return taken

    def _next(self, each: Input, taken: list[Input]) -> None:
        self.received = each.number
        self._early.pop(each.number, None)
        self._add(each)
        taken.append(each)

    def _add(self, each: Input) -> None:
        stream = self.streams.setdefault(each.conn, Stream(each.offset))
        if each.offset > stream.end:
            stream.base, stream.data = each.offset, bytearray()
        if each.end > stream.end:
            stream.data += each.data[max(0, stream.end - each.offset) :]
        stream.is_ended |= each.is_end
        stream.is_reset |= each.is_reset
        self._held.append(each)

    def read(self, conn: str, offset: int, size: int) -> bytes | None:
        """Give bytes of a connection; nothing if not all are here."""
        stream = self.streams.get(conn)
        if stream is None or offset + size > stream.end or offset < stream.base:
            return None
        return bytes(stream.data[offset - stream.base : offset - stream.base + size])

    def is_ended(self, conn: str, offset: int) -> bool:
        """Say whether a connection ends at an offset."""
        stream = self.streams.get(conn)
        if stream is None:
            return False
        # Without a guard the middle of a connection may be gone: then it ends before it.
        return stream.is_reset or stream.base > offset or (stream.is_ended and stream.end == offset)

    def behind(self, number: int) -> list[Input]:
        """Give the inputs behind a number that are here and not freed, in order."""
        return self._held[bisect_right(self._held, number, key=lambda each: each.number) :]

    def back(self, consumed: dict[str, int], ended: set[str]) -> int:
        """Give the last number up to which everything is consumed."""
        for each in self._held:
            if each.conn in ended:
                continue
            if each.is_end or each.end > consumed.get(each.conn, 0):
                return each.number - 1
        return self.received

    def finished_at(self, back: int, ended: set[str]) -> set[str]:
        """Give the connections whose end is not after an input: it is the last of each."""
        ends = {each.conn for each in self._held if each.is_end and each.number <= back}
        return ends | (self.finished & ended)

    def skip(self, number: int) -> None:
        """Give inputs up to a number up: nobody has them any more."""
        self.received = max(self.received, number)
        self._early = {n: each for n, each in self._early.items() if n > number}
        self.take(())

    def free(self, state: ProgramState) -> None:
        """Forget what a state that is kept has consumed; begin behind it, if that is new here."""
        for conn, offset in state.consumed.items():
            stream = self.streams.setdefault(conn, Stream(offset))
            if stream.end < offset:
                stream.base, stream.data = offset, bytearray()
            elif stream.base < offset:
                del stream.data[: offset - stream.base]
                stream.base = offset
        for conn in state.ended:
            self.streams.pop(conn, None)
        self.finished = set(state.finished)
        self._held = [each for each in self._held if each.number > state.back]
        # All before is consumed: what the state does not name was closed, and is forgotten.
        live = {each.conn for each in self._held} | state.consumed.keys()
        for conn in [conn for conn in self.streams if conn not in live]:
            del self.streams[conn]
        if self.received < state.back:
            self.skip(state.back)


class Execution:
    """How far the program is."""

    def __init__(
        self, make_program: Callable[[], OrderedProgram], inputs: InputBuffer, roster: Roster
    ) -> None:
        self._make_program = make_program
        self._founding = roster
        self.inputs = inputs
        self.is_logging = False
        """Whether orders are only counted: a logged backup executes them when it is to lead."""
        self.restore(None)

    def restore(self, state: ProgramState | None) -> None:
        """Begin behind an order: with the state there, or from the very beginning."""
        self.program = self._make_program()
        if state is None:
            state = ProgramState(*(0, NO_CLAIM, b"", {}, (), {}, 0, self._founding, NO_CLAIM, 0, 0))
        else:
            self.program.restore(state.program)
        self.number, self.claim, self.view = state.number, state.claim, state.view
        self.consumed, self.produced = dict(state.consumed), dict(state.produced)
        self.ended, self.closed = set(state.ended), set(state.closed)
        self.clock, self.roster, self.digest = state.clock, state.roster, state.digest

    def state(self) -> ProgramState:
        """Give the state after the last order."""
        back = self.inputs.back(self.consumed, self.ended)
        return ProgramState(
            number=self.number,
            claim=self.claim,
            program=self.program.snapshot(),
            consumed=dict(self.consumed),
            ended=tuple(sorted(self.ended)),
            produced=dict(self.produced),
            clock=self.clock,
            roster=self.roster,
            view=self.view,
            back=back,
            digest=self.digest,
            closed=tuple(sorted(self.closed)),
            finished=tuple(sorted(self.inputs.finished_at(back, self.ended))),
        )

    def forget(self) -> None:
        """Forget connections that the program has closed, and whose end is behind a kept state."""
        for conn in self.closed & self.inputs.finished:
            self.closed.discard(conn)
            self.ended.discard(conn)
            self.consumed.pop(conn, None)
            self.produced.pop(conn, None)

    def available(self, conn: str, size: int) -> int:
        """Say how many bytes a thread could read now."""
        stream = self.inputs.streams.get(conn)
        at = self.consumed.get(conn, 0)
        if stream is None or at < stream.base:
            return 0
        return max(0, min(size, stream.end - at))

    def is_at_end(self, conn: str) -> bool:
        """Say whether a connection has ended, and nobody has met its end."""
        at = self.consumed.get(conn, 0)
        return conn not in self.ended and self.inputs.is_ended(conn, at)

    def can_perform(self, order: Order) -> bool:
        """Say whether the input that an order consumes is here, and the program can do it now."""
        if self.lacks_input(order):
            return False
        is_free = self.is_logging or order.kind <= OrderKind.ROSTER
        return is_free or self.program.can_perform(order)

    def lacks_input(self, order: Order) -> bool:
        """Say whether input that an order consumes, or that came before it, is not here."""
        match order.kind:
            case OrderKind.TOOK:
                return self.available(order.conn, order.value) != order.value
            case OrderKind.RAN:
                return self.inputs.received < order.value
            case _:
                return False

    def perform(self, claim: PrimaryClaim, order: Order) -> list[Output]:
        """Perform the next order; give what it wrote. Raises `DivergedError`."""
        number = self.number + 1
        taken = b""
        outputs: list[Output] = []
        self.clock = max(self.clock, order.clock)
        match order.kind:
            case OrderKind.VIEW:
                self.view = claim
            case OrderKind.ROSTER:
                self.roster = decode_roster(order.data)
            case _:
                if order.kind is OrderKind.TOOK:
                    at = self.consumed.get(order.conn, 0)
                    found = self.inputs.read(order.conn, at, order.value)
                    assert found is not None, "whoever performs has looked"
                    taken = found
                    self.consumed[order.conn] = at + order.value
                elif order.kind is OrderKind.SENT and self.is_logging:
                    self.produced[order.conn] = self.produced.get(order.conn, 0) + order.value
                elif order.kind in {OrderKind.ENDED, OrderKind.CLOSED}:
                    self.ended.add(order.conn)
                    if order.kind is OrderKind.CLOSED:
                        self.closed.add(order.conn)
                if not self.is_logging:
                    outputs = self._run(order, taken, number)
        self.number, self.claim = number, claim
        if not self.is_logging:
            body = encode([claim, order, taken, self.program.mark])
            self.digest = crc32(body, self.digest)
        return outputs

    def _run(self, order: Order, taken: bytes, number: int) -> list[Output]:
        """Have the program do what an order says."""
        written = self.program.perform(order, taken)
        if order.kind is not OrderKind.SENT:
            return []
        if len(written) != order.value or crc32(written).to_bytes(4) != order.data:
            raise DivergedError(f"{number} wrote something else to {order.conn}")
        offset = self.produced.get(order.conn, 0)
        self.produced[order.conn] = offset + len(written)
        return [Output(order.conn, offset, written, number)]
