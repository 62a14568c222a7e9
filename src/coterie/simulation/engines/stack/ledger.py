"""The simplest object an engine can replicate: a ledger that chains everything it is given.

Its state is how many entries it has executed and a digest over all of them in order, so any
difference in what two replicas executed, or in which order, shows at once. Where there is no order
the digest is a sum, which shows everything but the order.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Role, Standing
from coterie.kernel.records import Replied, Reply, StateDigest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coterie.kernel.engine import Run, Status
    from coterie.kernel.layers import Context

DIGEST_EVERY = 5
CHUNK = 16
"""States travel in many small chunks here, so that transfers have something to lose."""


class LedgerState(msgspec.Struct, frozen=True, array_like=True):
    """A ledger after some entries."""

    position: int = 0
    chain: bytes = b""

    def after(self, payload: bytes) -> LedgerState:
        """Give the state after one more entry."""
        chain = blake2b(self.chain + payload, digest_size=16).digest()
        return LedgerState(self.position + 1, chain)


class SumState(LedgerState, frozen=True, array_like=True):
    """A ledger after some entries, in whatever order."""

    def after(self, payload: bytes) -> SumState:
        total = (int.from_bytes(self.chain) + weigh(payload)) % (1 << 128)
        return SumState(self.position + 1, total.to_bytes(16))


def weigh(payload: bytes) -> int:
    """Give what an entry adds to the digest where there is no order."""
    return int.from_bytes(blake2b(payload, digest_size=16).digest())


def replay(history: list[bytes], *, beginning: int = 0) -> dict[int, bytes]:
    """Run a whole history on a single ledger, which begins there; give its digests."""
    state = LedgerState(beginning)
    digests = {}
    for payload in history:
        state = state.after(payload)
        digests[state.position] = state.chain
    return digests


class Ledger:
    """A host for engines, as `coterie.kernel.engine.EngineHost` has it."""

    answers_as: Standing = Standing.AUTHORITATIVE
    """What is said of an entry once it is settled."""

    def __init__(self, context: Context, *, is_ordered: bool = True) -> None:
        self._context = context
        self._type = LedgerState if is_ordered else SumState
        self.state = self._type()
        self.settled = self._type()
        self.status: Status | None = None
        self.rolled_back = 0
        self._unsettled: deque[Run] = deque()

    def deliver(self, runs: list[Run], standing: Standing) -> None:
        if standing is Standing.NON_PRIMARY:
            return
        for run in runs:
            self._unsettled.append(run)
            self._execute(run)

    def _execute(self, run: Run) -> None:
        assert run.position == self.state.position + 1, "entries must follow each other"
        for payload in run.payloads:
            self.state = self.state.after(payload)
            if self.state.position % DIGEST_EVERY == 0:
                self._report(StateDigest, position=self.state.position, digest=self.state.chain)

    def settle(self, position: int) -> None:
        while self._unsettled and self._unsettled[0].position <= position:
            run = self._unsettled.popleft()
            if run.last_position > position:
                self._unsettled.appendleft(run.after(position))
                run = run.up_to(position)
            for payload in run.payloads:
                self.settled = self.settled.after(payload)
            if run.origin == self._context.me:
                self._acknowledge(run)
        assert self.settled.position == position, "settled more than was delivered"

    def _acknowledge(self, run: Run) -> None:
        self._report(
            Replied,
            replies=[
                Reply(
                    session=0,
                    request=run.first + index,
                    position=run.position + index,
                    view=run.view,
                    number=run.number + index,
                    standing=self.answers_as,
                    asked_at=0,
                    digest=0,
                )
                for index in range(len(run.payloads))
            ],
        )

    def roll_back(self, position: int) -> None:
        assert position >= self.settled.position, "rolled back below what is settled"
        self.rolled_back += self.state.position - position
        kept = [run.up_to(position) for run in self._unsettled if run.position <= position]
        self._unsettled = deque(kept)
        self.state = self.settled
        for run in kept:
            for payload in run.payloads:
                self.state = self.state.after(payload)

    def status_changed(self, status: Status) -> None:
        self.status = status

    def snapshot(self) -> Iterator[bytes]:
        data = msgspec.msgpack.encode(self.settled)
        return iter([data[at : at + CHUNK] for at in range(0, len(data), CHUNK)])

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        state = Decoder(self._type).decode(b"".join(chunks))
        assert state.position == position, "the state is not of the position it was offered for"
        self.state = self.settled = state
        self._unsettled.clear()

    def finish_turn(self) -> None:
        pass

    @property
    def is_primary(self) -> bool:
        """Whether updates are taken here at present."""
        return self.status is not None and self.status.role is Role.PRIMARY

    def _report(self, kind: type, **fields: object) -> None:
        context = self._context
        context.report(kind(group=context.group, member=context.me, at=context.now, **fields))
