"""Updates on their way: single calls, and batches of them.

A call whose answer is optimistic is followed until it is settled, if its caller asked for details:
rolled back, it is made again, under the same number. With `votes` the answers of several replicas
are counted instead; those with the same viewstamp count together, and a majority of them is
authoritative, because every replica that answers has the entry on record (**objects**, 5.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.client.errors import NotDone, OutcomeUnknown
from coterie.client.requests import OVERHEAD_BYTES, Request, read_outcome
from coterie.client.results import Result
from coterie.kernel.engine import Standing
from coterie.objects.execution.outcomes import (
    AllDone,
    Done,
    Failed,
    NotTaken,
    SessionEvicted,
    WindowFull,
)
from coterie.protocol.kinds import REFUSALS
from coterie.protocol.messages import Update, UpdateBatch, UpdateIf

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from coterie.client.channel import Channel, Parcel
    from coterie.client.requests import Requester
    from coterie.client.sessions.stack import ClientSession, Window
    from coterie.kernel.views import Viewstamp
    from coterie.objects import Answer
    from coterie.objects.execution.commands import Condition
    from coterie.protocol.messages import Refusal

_MISSING = object()
"""Stands for an answer that has not come."""


class UpdateRequest(Request):
    """One call of an update."""

    window: Window | None = None
    number = 0
    is_given = False
    """Whether the caller has an optimistic answer already."""
    final: asyncio.Future[Result[object]] | None = None
    """Done when that answer is settled, if somebody waits for it."""
    votes: dict[Viewstamp, set[str]] | None = None
    """Who answered optimistically, and where it was executed there; if a majority is asked."""
    watched_at: tuple[Channel, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """What has to hold where it is executed."""

    def __init__(  # noqa: PLR0913, PLR0917 -- made in one place
        self,
        client: Requester,
        future: asyncio.Future[object],
        deadline: float,
        session: ClientSession,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        is_detailed: bool,  # noqa: FBT001
    ) -> None:
        self.client = client
        self.future = future
        self.deadline = deadline
        self.size = len(arguments) + OVERHEAD_BYTES
        self.session = session
        self.method = method
        self.arguments = msgspec.Raw(arguments)
        self.decode = decode
        self.is_detailed = is_detailed

    def rest_on(self, conditions: tuple[Condition, ...]) -> None:
        """Have it executed only where these hold."""
        self.conditions = conditions
        self.size += sum(len(each.arguments) + OVERHEAD_BYTES for each in conditions)

    def release(self) -> bool:
        window = self.window
        if window is None:
            return False
        window.pending.pop(self.number, None)
        if self.watched_at:
            for channel in self.watched_at:
                if channel.is_ready:
                    channel.parcel().unwatches.append((window.id, self.number))
        return True

    def put(self, parcel: Parcel) -> None:
        window = self.window
        assert window is not None
        if self.conditions:
            place = (window.id, self.number, window.lowest_now())
            update = UpdateIf(*place, self.method, self.arguments, self.conditions)
            parcel.conditional.append(update)
            return
        parcel.updates.append(
            Update(window.id, self.number, window.lowest_now(), self.method, self.arguments)
        )

    def answered(self, channel: Channel, answer: Answer) -> None:
        outcome = answer.outcome
        kind = type(outcome)
        if kind is Done or kind is Failed:
            standing = answer.standing
            if standing.is_final:
                if kind is Failed or self.is_given or self.is_detailed:
                    self._finish(outcome, standing)  # type: ignore[arg-type]
                else:
                    self._end_well(outcome)  # type: ignore[arg-type]
            else:
                self._take_optimistic(channel, outcome)  # type: ignore[arg-type]
        elif kind is NotTaken or kind is WindowFull:
            reason = getattr(outcome, "reason", "the session's window is full")
            self.refusals += 1
            self.client.try_later(self, channel, reason)
        elif kind is SessionEvicted:
            self._evicted()
        else:
            self.end(error=OutcomeUnknown("the group does not remember this request any more"))

    def _end_well(self, outcome: Done) -> None:
        """Give the caller what most calls end in, and nothing else: an answer that stands."""
        try:
            value = self.decode(outcome.result)
        except msgspec.DecodeError:
            self._finish(outcome, Standing.AUTHORITATIVE)  # which says what is wrong
            return
        if not self.is_over:
            self.is_over = True
            self.client.finished(self)
            future = self.future
            if not future.done():
                future.set_result(value)

    def _finish(self, outcome: Done | Failed, standing: Standing) -> None:
        value, error = read_outcome(outcome, self.decode, standing, self.errors)
        if error is not None:
            self.end(error=error)
            return
        if self.is_detailed:
            value = Result(value, outcome.viewstamp, outcome.position, standing)
        self.end(value)

    def end(self, value: object = None, error: Exception | None = None) -> None:
        """Give the caller, or whoever waits for it to settle, what came of it."""
        if self.is_given and not self.is_over:
            self._end_final(value, error)
        super().end(value, error)

    def _end_final(self, value: object, error: Exception | None) -> None:
        final = self.final
        if final is None:
            final = self.final = self.future.get_loop().create_future()
        if final.done():
            return
        if error is None:
            assert isinstance(value, Result)
            final.set_result(value)
        else:
            final.set_exception(error)
            final.exception()  # if nobody asks whether it settled, nobody needs to know

    # ---- answers that may be rolled back

    def _take_optimistic(self, channel: Channel, outcome: Done | Failed) -> None:
        if self.votes is not None:
            voters = self.votes.setdefault(outcome.viewstamp, set())
            voters.add(channel.replica)
            if len(voters) >= self.client.majority:
                self._finish(outcome, Standing.AUTHORITATIVE)
            else:
                self.client.follow(self, channel, outcome)
        elif not self.is_detailed:
            self._finish(outcome, Standing.OPTIMISTIC)
        elif self.is_given:
            self.client.follow(self, channel, outcome)
        else:
            self._give(channel, outcome)

    def _give(self, channel: Channel, outcome: Done | Failed) -> None:
        """Give the caller an optimistic result, and follow what becomes of it."""
        value, error = read_outcome(outcome, self.decode, Standing.OPTIMISTIC, self.errors)
        if error is not None:
            self.end(error=error)
            return
        self.client.follow(self, channel, outcome)
        self.is_given = True
        if not self.future.done():
            place = (outcome.viewstamp, outcome.position, Standing.OPTIMISTIC)
            self.future.set_result(Result(value, *place, self._follow))

    def settle(self, outcome: Done | Failed) -> None:
        """What was answered optimistically is authoritative now."""
        if not self.is_over:
            self._finish(outcome, Standing.AUTHORITATIVE)

    def void(self) -> None:
        """What was answered optimistically was rolled back; the client makes it again."""
        if self.votes is not None:
            self.votes.clear()

    async def _follow(self) -> Result[object]:
        if self.final is None:
            self.final = self.future.get_loop().create_future()
        return await self.final

    def _evicted(self) -> None:
        """Whatever sent this attempt found no session, so this attempt was not executed.

        If it is the only one that can have been, the update was surely not executed, and may be
        made in a new session.
        """
        if self.attempts - self.refusals <= 1:
            self.session.move(self)
        else:
            self.session.renew(self.window)
            self.end(
                error=OutcomeUnknown(
                    "the session was evicted, or closed by an operator, while this was asked"
                    " several times: nobody remembers whether it was executed"
                )
            )


class BatchRequest(Request):
    """Calls of one update with consecutive numbers, which are made and answered together.

    What is still missing when the batch is made again is asked for call by call.
    """

    window: Window | None = None
    first = 0

    def __init__(  # noqa: PLR0913, PLR0917 -- made in one place
        self,
        client: Requester,
        future: asyncio.Future[object],
        deadline: float,
        session: ClientSession,
        method: str,
        arguments: Sequence[bytes],
        decode: Callable[[bytes], object],
    ) -> None:
        super().__init__(client, future, deadline, sum(map(len, arguments)))
        self.session = session
        self.method = method
        self.arguments = [msgspec.Raw(each) for each in arguments]
        self.decode = decode
        self.results: list[object] = [_MISSING] * len(arguments)
        self.item_refusals: dict[int, int] = {}
        self.left = len(arguments)

    def release(self) -> bool:
        if self.window is None:
            return False
        pending = self.window.pending
        for number in range(self.first, self.first + len(self.results)):
            pending.pop(number, None)
        return True

    def put(self, parcel: Parcel) -> None:
        window = self.window
        assert window is not None
        lowest = window.lowest_now()
        if self.left == len(self.results):
            calls = msgspec.Raw(msgspec.msgpack.encode(self.arguments))
            parcel.batches.append(UpdateBatch(window.id, self.first, lowest, self.method, calls))
            return
        for index, result in enumerate(self.results):
            if result is _MISSING:
                number = self.first + index
                parcel.updates.append(
                    Update(window.id, number, lowest, self.method, self.arguments[index])
                )

    def answered(self, channel: Channel, answer: Answer) -> None:
        outcome = answer.outcome
        index = answer.request - self.first
        if isinstance(outcome, AllDone):
            self._take_all(outcome, answer.standing)
        elif isinstance(outcome, Done | Failed):
            self._take(index, self._read(outcome, answer.standing))
        elif isinstance(outcome, NotTaken | WindowFull):
            self.item_refusals[index] = self.item_refusals.get(index, 0) + 1
            self.refusals = min(self.refusals + 1, self.attempts)
            reason = getattr(outcome, "reason", "the session's window is full")
            self.client.try_later(self, channel, reason)
        else:
            self.session.renew(self.window)
            refusals = self.item_refusals.get(index, 0)
            if isinstance(outcome, SessionEvicted) and self.attempts - refusals <= 1:
                self._take(index, NotDone("the session was evicted: make the call again"))
            else:
                self._take(index, OutcomeUnknown("the group does not remember this request"))

    def refused(self, refusal: Refusal) -> None:
        error = REFUSALS.get(refusal.kind, NotDone)
        for index in range(len(self.results)):
            self._take(index, error(refusal.reason))

    def _take_all(self, outcome: AllDone, standing: Standing) -> None:
        if outcome.first == self.first and self.left == len(outcome.results):
            try:
                self.end(list(map(self.decode, outcome.results)))
            except msgspec.DecodeError:
                pass
            else:
                return
        for number in range(outcome.first, outcome.first + len(outcome.results)):
            self._take(number - self.first, self._read(outcome.of(number), standing))

    def _read(self, outcome: Done | Failed, standing: Standing) -> object:
        value, error = read_outcome(outcome, self.decode, standing, self.errors)
        return value if error is None else error

    def _take(self, index: int, result: object) -> None:
        results = self.results
        if 0 <= index < len(results) and results[index] is _MISSING:
            results[index] = result
            self.left -= 1
            window = self.window
            assert window is not None
            window.pending.pop(self.first + index, None)
            if not self.left:
                self.end(results)

    def give_up(self, why: str) -> None:
        """The time is up: each call that has no answer has its own outcome."""
        for index, result in enumerate(self.results):
            if result is _MISSING:
                refusals = self.item_refusals.get(index, 0)
                self.results[index] = self._error(why, self.attempts, refusals)
        self.end(self.results)
