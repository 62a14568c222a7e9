"""What a client asks for, from the call to its outcome.

A request is made at one replica, and again at others while nobody answers; it stays the same
request, known by its session and number, so it is executed once. `attempts` counts how often it
was sent and `refusals` how often it was surely not taken: if the two are equal at the deadline it
was surely not done, otherwise its outcome is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from coterie.client.errors import REFUSALS, MethodFailed, NotDone, OutcomeUnknown
from coterie.client.messages import Batch, Query, Update
from coterie.client.results import Result
from coterie.kernel.engine import Standing
from coterie.kernel.errors import CoterieError
from coterie.objects.outcomes import (
    Done,
    Failed,
    NotTaken,
    Opened,
    SessionEvicted,
    WindowFull,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from coterie.client.channel import Channel, Parcel
    from coterie.client.messages import Refusal
    from coterie.client.session import Session, Window
    from coterie.kernel.views import Viewstamp
    from coterie.objects import Answer

OVERHEAD_BYTES = 48
"""What a request weighs besides its arguments."""
GRAIN = 0.001
"""Loops round their timers; what is due within this many seconds is due now."""


class Requester(Protocol):
    """What requests need of the client that makes them."""

    def finished(self, request: Request) -> None:
        """Forget a request that is over."""

    def free(self, token: int) -> None:
        """Forget a token."""

    def try_later(self, request: Request, channel: Channel, reason: str) -> None:
        """Make a request again after a pause: it was not taken."""

    def follow(self, request: UpdateRequest, channel: Channel, outcome: Done | Failed) -> None:
        """Tell the request when an outcome is settled or rolled back where it was answered."""

    @property
    def majority(self) -> int:
        """How many replicas are a majority."""


class Request:
    """One thing asked for. What most requests never change has its value in the class."""

    check_at = 0.0
    """When something must be done if no answer has come."""
    wait = 0.0
    """How long to wait for an answer before asking elsewhere; it grows."""
    channel: Channel | None = None
    """Where it was sent last."""
    attempts = 0
    refusals = 0
    reason = ""
    """Why the last attempt came to nothing."""
    is_over = False

    def __init__(
        self, client: Requester, future: asyncio.Future[object], deadline: float, size: int
    ) -> None:
        self.client = client
        self.future = future
        self.deadline = deadline
        self.size = size + OVERHEAD_BYTES

    def put(self, parcel: Parcel) -> None:
        """Add what is to be sent."""
        raise NotImplementedError

    def answered(self, channel: Channel, answer: Answer) -> None:
        """Take an answer."""
        raise NotImplementedError

    def refused(self, refusal: Refusal) -> None:
        """Take the word of a replica that this cannot be asked."""
        error = REFUSALS.get(refusal.kind, NotDone)
        self.end(error=error(refusal.reason))

    def release(self) -> bool:
        """Let go of the number or token; say whether the request had begun."""
        raise NotImplementedError

    def end(self, value: object = None, error: Exception | None = None) -> None:
        """Give the caller what came of it."""
        if not self.is_over:
            self.is_over = True
            self.client.finished(self)
            future = self.future
            if not future.done():
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)

    def give_up(self, why: str) -> None:
        """The time is up."""
        self.end(error=self._error(why, self.attempts, self.refusals))

    def _error(self, why: str, attempts: int, refusals: int) -> CoterieError:
        reason = f"{why}: {self.reason}" if self.reason else why
        if attempts == refusals:
            return NotDone(reason)
        return OutcomeUnknown(f"{reason}; it may have been executed, or may be yet, but not twice")


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

    def __init__(  # noqa: PLR0913, PLR0917 -- made in one place
        self,
        client: Requester,
        future: asyncio.Future[object],
        deadline: float,
        session: Session,
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
        parcel.updates.append(
            Update(window.id, self.number, window.lowest_now(), self.method, self.arguments)
        )

    def answered(self, channel: Channel, answer: Answer) -> None:
        outcome = answer.outcome
        kind = type(outcome)
        if kind is Done or kind is Failed:
            if answer.standing is Standing.AUTHORITATIVE:
                self._finish(outcome, Standing.AUTHORITATIVE)  # type: ignore[arg-type]
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

    def _finish(self, outcome: Done | Failed, standing: Standing) -> None:
        if type(outcome) is Failed:
            error = MethodFailed(outcome.error, outcome.message, outcome.viewstamp, standing)
            self.end(error=error)
            return
        assert isinstance(outcome, Done)
        try:
            value = self.decode(outcome.result)
        except msgspec.DecodeError as error:
            self.end(error=MethodFailed("BadResult", str(error), outcome.viewstamp, standing))
            return
        if self.is_detailed:
            self.end(Result(value, outcome.viewstamp, outcome.position, standing))
        else:
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
        elif not self.is_detailed or (type(outcome) is Failed and not self.is_given):
            self._finish(outcome, Standing.OPTIMISTIC)
        else:
            self.client.follow(self, channel, outcome)
            if not self.is_given and not self.future.done():
                assert isinstance(outcome, Done)
                self.is_given = True
                value = self.decode(outcome.result)
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
    """Calls of one update with consecutive numbers, which are answered together."""

    window: Window | None = None
    first = 0

    def __init__(  # noqa: PLR0913, PLR0917 -- made in one place
        self,
        client: Requester,
        future: asyncio.Future[object],
        deadline: float,
        session: Session,
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
            batch = Batch(window.id, self.first, lowest, self.method, self.arguments)
            parcel.batches.append(batch)
            return
        for index, result in enumerate(self.results):
            if result is _MISSING:
                parcel.updates.append(
                    Update(
                        window.id, self.first + index, lowest, self.method, self.arguments[index]
                    )
                )

    def answered(self, channel: Channel, answer: Answer) -> None:
        outcome = answer.outcome
        index = answer.request - self.first
        if type(outcome) is Done:
            try:
                value = self.decode(outcome.result)
            except msgspec.DecodeError as error:
                value = MethodFailed("BadResult", str(error), outcome.viewstamp, answer.standing)
            self._take(index, value)
        elif type(outcome) is Failed:
            standing = answer.standing
            failed = MethodFailed(outcome.error, outcome.message, outcome.viewstamp, standing)
            self._take(index, failed)
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
        self._take(refusal.request - self.first, error(refusal.reason))

    def _take(self, index: int, result: object) -> None:
        results = self.results
        if results[index] is _MISSING:
            results[index] = result
            self.left -= 1
            window = self.window
            assert window is not None
            del window.pending[self.first + index]
            if not self.left:
                self.end(results)

    def give_up(self, why: str) -> None:
        """The time is up: each call that has no answer has its own outcome."""
        for index, result in enumerate(self.results):
            if result is _MISSING:
                refusals = self.item_refusals.get(index, 0)
                self.results[index] = self._error(why, self.attempts, refusals)
        self.end(self.results)


class TokenRequest(Request):
    """A request without a session, known by a token; making it twice does no harm."""

    def __init__(
        self,
        client: Requester,
        future: asyncio.Future[object],
        deadline: float,
        token: int,
        size: int = 0,
    ) -> None:
        super().__init__(client, future, deadline, size)
        self.token = token

    def release(self) -> bool:
        self.client.free(self.token)
        return True

    def answered(self, channel: Channel, answer: Answer) -> None:
        outcome = answer.outcome
        if isinstance(outcome, NotTaken):
            self.refusals += 1
            self.client.try_later(self, channel, outcome.reason)
        else:
            self.taken(channel, answer)

    def taken(self, channel: Channel, answer: Answer) -> None:
        """Take an answer that is not a refusal."""
        raise NotImplementedError

    def give_up(self, why: str) -> None:
        """The time is up; nothing was changed."""
        self.end(error=NotDone(f"{why}: {self.reason}" if self.reason else why))


class OpenRequest(TokenRequest):
    """Open a session."""

    def put(self, parcel: Parcel) -> None:
        parcel.opens.append(self.token)

    def taken(self, channel: Channel, answer: Answer) -> None:
        del channel
        if isinstance(answer.outcome, Opened):
            self.end(answer.outcome.session)


class ReportRequest(TokenRequest):
    """Ask a replica for a report."""

    def put(self, parcel: Parcel) -> None:
        parcel.reports.append(self.token)


class QueryRequest(TokenRequest):
    """One call of a query."""

    def __init__(  # noqa: PLR0913, PLR0917 -- made in one place
        self,
        client: Requester,
        future: asyncio.Future[object],
        deadline: float,
        token: int,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        level: str,
        not_before: Viewstamp | None,
        is_detailed: bool,  # noqa: FBT001
    ) -> None:
        super().__init__(client, future, deadline, token, len(arguments))
        self.method = method
        self.arguments = msgspec.Raw(arguments)
        self.decode = decode
        self.level = level
        self.not_before = not_before
        self.is_detailed = is_detailed

    def put(self, parcel: Parcel) -> None:
        parcel.queries.append(Query(self.token, self.level, self.method, self.arguments))

    def taken(self, channel: Channel, answer: Answer) -> None:
        outcome = answer.outcome
        if not isinstance(outcome, Done | Failed):
            return
        viewstamp = outcome.viewstamp
        if self.not_before is not None and viewstamp < self.not_before:
            reason = f"the state at {channel.replica} ({viewstamp}) is older than asked for"
            self.client.try_later(self, channel, reason)
        elif isinstance(outcome, Failed):
            error = MethodFailed(outcome.error, outcome.message, viewstamp, answer.standing)
            self.end(error=error)
        else:
            self._finish(outcome, answer.standing)

    def _finish(self, outcome: Done, standing: Standing) -> None:
        try:
            value = self.decode(outcome.result)
        except msgspec.DecodeError as error:
            self.end(error=MethodFailed("BadResult", str(error), outcome.viewstamp, standing))
            return
        if self.is_detailed:
            self.end(Result(value, outcome.viewstamp, outcome.position, standing))
        else:
            self.end(value)


_MISSING = object()
"""Stands for an answer that has not come."""
