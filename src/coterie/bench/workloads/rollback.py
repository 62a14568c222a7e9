"""What a roll-back costs: the host alone, with an object of some size.

A host that executes optimistically keeps an authoritative copy. To roll back is to copy that and
to execute again what stays, so the cost has two parts: one grows with the state, one with the
entries above the last settled one that are kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from coterie.assembly import make_context, make_process
from coterie.bench.workloads.objects import Store
from coterie.kernel.engine import Run, Standing
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration, Member, ViewId
from coterie.objects import ObjectHost, define
from coterie.objects.execution.commands import Call, OpenSession, encode_command
from coterie.objects.execution.outcomes import Opened
from coterie.objects.fronts import NoFront

if TYPE_CHECKING:
    from coterie.objects import Answer

ME = Member("a", 1)
VIEW = ViewId(1, ME.id, ME.incarnation)


class _Front(NoFront):
    """Learns which session was opened."""

    session = 0

    def answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            if isinstance(answer.outcome, Opened):
                self.session = answer.outcome.session


class RollBack:
    """A host with a state of some size, to roll back again and again."""

    def __init__(self, values: int, value_bytes: int) -> None:
        process = make_process("a", 1, ("a", "b", "c"), DEFAULT_SETTINGS)
        context = make_context(process, "bench", Configuration(1, ("a", "b", "c")))
        self._front = _Front()
        self._host = ObjectHost(define(Store), context, front=self._front)
        self._position = 0
        self._request = 0
        self._deliver([OpenSession(1, 0, 0)], Standing.AUTHORITATIVE)
        if values:
            self._deliver([self._call("fill", 0, values, value_bytes)], Standing.AUTHORITATIVE)

    def measure(self, entries: int, kept: int, message_bytes: int) -> float:
        """Execute some entries optimistically and roll all but *kept* of them back; time that."""
        settled = self._position
        calls = [self._call("put", bytes(message_bytes)) for _ in range(entries)]
        self._deliver(calls, Standing.OPTIMISTIC)
        began = time.perf_counter()
        self._host.roll_back(settled + kept)
        took = time.perf_counter() - began
        assert self._host.position == settled + kept
        self._position = settled + kept
        self._host.settle(self._position)
        return took

    def _call(self, method: str, *args: object) -> Call:
        self._request += 1
        arguments = msgspec.Raw(msgspec.msgpack.encode(args))
        number = self._request
        return Call(self._front.session, number, method, arguments, 0, number, 0)

    def _deliver(self, commands: list[Call] | list[OpenSession], standing: Standing) -> None:
        first = self._position + 1
        payloads = [encode_command(command) for command in commands]
        self._host.deliver([Run(VIEW, first, first, ME, first, payloads)], standing)
        self._position += len(payloads)
