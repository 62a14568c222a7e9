"""The group state: objects, transactions in progress, and how transactions ended.

It is a function of the events performed, the same at every cohort. Completed calls are kept until
the outcome of their transaction is known (3.3): only then their versions are installed. Locks are
not here; a primary derives them from the completed calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import BadMessage
from coterie.kernel.views import Viewstamp
from coterie.vsr.commit.events import (
    Aborted,
    CallsGivenUp,
    Committed,
    Committing,
    CompletedCall,
    DecisionKnown,
    GroupCalls,
)
from coterie.vsr.commit.psets import Aid, CallId, is_within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from coterie.vsr.commit.events import Event


class BaseVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base version of an object, and the event that installed it."""

    value: bytes
    by: Viewstamp


class KeptCall(msgspec.Struct, frozen=True, array_like=True):
    """A completed call whose transaction is still in progress."""

    vs: Viewstamp
    record: CompletedCall


class TransactionInProgress(msgspec.Struct, array_like=True):
    """What a group knows of a transaction in progress."""

    calls: dict[CallId, KeptCall] = {}
    given_up: list[CallId] = []

    def tentative(self, name: str) -> tuple[bool, bytes | None]:
        """Say whether the transaction has written an object, and what."""
        for kept in reversed(self.calls.values()):
            for write in kept.record.writes:
                if write.name == name:
                    return True, write.value
        return False, None

    @property
    def is_read_only(self) -> bool:
        """Whether the transaction has only read locks here."""
        return not any(kept.record.writes for kept in self.calls.values())


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a transaction ended, and the event that says so."""

    committed: bool
    vs: Viewstamp
    reason: str = ""
    is_read_only: bool = False
    """Its part here is over because it had only read; how it ended is not known from this."""


class _Whole(msgspec.Struct, array_like=True):
    """The whole state of a group, as it travels in a snapshot."""

    objects: list[tuple[str, BaseVersion]]
    transactions: list[tuple[Aid, TransactionInProgress]]
    committing: list[tuple[Aid, list[GroupCalls]]]
    ended: list[tuple[Aid, Ended]]
    forgotten: list[Aid] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = Decoder(_Whole)


class GroupState:
    """The gstate of one cohort."""

    def __init__(self, *, ended_max: int, chunk_bytes: int) -> None:
        self.objects: dict[str, BaseVersion] = {}
        self.transactions: dict[Aid, TransactionInProgress] = {}
        self.committing: dict[Aid, list[GroupCalls]] = {}
        """Decided here as coordinator, and perhaps not known to all participants."""
        self.ended: dict[Aid, Ended] = {}
        """The latest transactions that ended here, or whose coordinator is here."""
        self.forgotten: dict[str, Aid] = {}
        """For each group that coordinates, the highest name whose end is not kept any more."""
        self._ended_max = ended_max
        self._chunk_bytes = chunk_bytes

    # ---- events

    def perform(self, vs: Viewstamp, event: Event) -> None:
        """Change the state by an event, which stands at *vs*."""
        aid = event.aid
        match event:
            case CompletedCall(call=call):
                transaction = self.transactions.setdefault(aid, TransactionInProgress())
                transaction.calls[call] = KeptCall(vs, event)
            case CallsGivenUp(calls=calls):
                self._give_up(self.transactions.setdefault(aid, TransactionInProgress()), calls)
            case Committing(parts=parts):
                self.committing[aid] = parts
                self._end(aid, Ended(committed=True, vs=vs))
            case DecisionKnown():
                self.committing.pop(aid, None)
            case Committed(calls=calls, is_read_only=is_read_only):
                self._install(aid, calls, vs)
                self._end(aid, Ended(committed=True, vs=vs, is_read_only=is_read_only))
            case Aborted(reason=reason):
                self.transactions.pop(aid, None)
                self._end(aid, Ended(committed=False, vs=vs, reason=reason))

    def _give_up(self, transaction: TransactionInProgress, calls: tuple[CallId, ...]) -> None:
        transaction.given_up.extend(calls)
        for call in list(transaction.calls):
            if any(is_within(call, each) for each in calls):
                del transaction.calls[call]

    def _install(self, aid: Aid, calls: tuple[Viewstamp, ...], vs: Viewstamp) -> None:
        """Make the tentative versions of the calls named the base versions.

        Only of those: a call that the transaction gave up may have run here unknown to it.
        """
        transaction = self.transactions.pop(aid, None)
        if transaction is None:
            return
        for kept in transaction.calls.values():
            if kept.vs not in calls:
                continue
            for write in kept.record.writes:
                if write.value is None:
                    self.objects.pop(write.name, None)
                else:
                    self.objects[write.name] = BaseVersion(write.value, vs)

    def decision(self, aid: Aid) -> Ended | None:
        """Give how a transaction ended everywhere, if that is known here."""
        ended = self.ended.get(aid)
        return None if ended is None or ended.is_read_only else ended

    def _end(self, aid: Aid, ended: Ended) -> None:
        if self.decision(aid) is None:
            self.ended[aid] = ended
        if len(self.ended) > self._ended_max:
            oldest = next((each for each in self.ended if each not in self.committing), None)
            if oldest is None:
                return  # Each of them may still be asked about; they end one by one.
            del self.ended[oldest]
            self.forgotten[oldest.group] = max(self.forgotten.get(oldest.group, oldest), oldest)

    def may_be_forgotten(self, aid: Aid) -> bool:
        """Say whether a transaction of which nothing is known may have ended long ago."""
        last = self.forgotten.get(aid.group)
        return last is not None and aid <= last

    # ---- the whole state

    def encode(self) -> bytes:
        """Give all of it as bytes, the same at every cohort that performed the same events."""
        return _encoder.encode(
            _Whole(
                list(self.objects.items()),
                list(self.transactions.items()),
                list(self.committing.items()),
                list(self.ended.items()),
                list(self.forgotten.values()),
            )
        )

    def snapshot(self) -> Iterator[bytes]:
        """Encode all of it, chunk by chunk: the bytes of `encode`, never whole in memory.

        What is given is the state at the time of each step, so whoever lets anything happen
        between two of them encodes in a copy of the process.
        """
        size = self._chunk_bytes
        buffer = bytearray()
        for piece in self._pieces():
            buffer += piece
            while len(buffer) >= size:
                yield bytes(buffer[:size])
                del buffer[:size]
        if buffer:
            yield bytes(buffer)

    def _pieces(self) -> Iterator[bytes]:
        parts: tuple[Collection[object], ...] = (
            self.objects.items(),
            self.transactions.items(),
            self.committing.items(),
            self.ended.items(),
            self.forgotten.values(),
        )
        yield _array_head(len(parts))
        for part in parts:
            yield _array_head(len(part))
            for item in part:
                yield _encoder.encode(item)

    def restore(self, chunks: Sequence[bytes]) -> None:
        """Take over a whole state."""
        try:
            whole = _decoder.decode(b"".join(chunks))
        except msgspec.DecodeError as error:
            raise BadMessage("the chunks are no group state") from error
        ended = dict(whole.ended)
        if any(aid not in ended for aid, _ in whole.committing):
            raise BadMessage("a group state in which a commit was decided nowhere")
        self.objects = dict(whole.objects)
        self.transactions = dict(whole.transactions)
        self.committing = dict(whole.committing)
        self.ended = ended
        self.forgotten = {aid.group: aid for aid in whole.forgotten}


def _array_head(length: int) -> bytes:
    """Give the bytes with which an array of MessagePack begins."""
    if length < 1 << 4:
        return bytes([0x90 | length])
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")
