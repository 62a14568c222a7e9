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
from coterie.client.messages import Query
from coterie.client.results import Result
from coterie.kernel.errors import CoterieError
from coterie.objects.outcomes import Done, Failed, NotTaken, Opened

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from coterie.client.channel import Channel, Parcel
    from coterie.client.messages import Refusal
    from coterie.client.updates import UpdateRequest
    from coterie.kernel.engine import Standing
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
    """Where it was sent last, and when."""
    sent_at = 0.0
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
            self.refusals += 1
            reason = f"the state at {channel.replica} ({viewstamp}) is older than asked for"
            self.client.try_later(self, channel, reason)
        else:
            self._finish(outcome, answer.standing)

    def _finish(self, outcome: Done | Failed, standing: Standing) -> None:
        try:
            value = read_outcome(outcome, self.decode, standing)
        except MethodFailed as error:
            self.end(error=error)
            return
        if self.is_detailed:
            value = Result(value, outcome.viewstamp, outcome.position, standing)
        self.end(value)


def read_outcome(
    outcome: Done | Failed, decode: Callable[[bytes], object], standing: Standing
) -> object:
    """Give what a method answered, or raise `MethodFailed`."""
    if type(outcome) is Done:
        try:
            return decode(outcome.result)
        except msgspec.DecodeError as error:
            # The class has another version there, and answers what ours does not promise.
            raise MethodFailed("BadResult", str(error), outcome.viewstamp, standing) from None
    assert isinstance(outcome, Failed)
    raise MethodFailed(outcome.error, outcome.message, outcome.viewstamp, standing)
