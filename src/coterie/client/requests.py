"""What a client asks for, from the call to its outcome.

A request is made at one replica, and again at others while nobody answers; it stays the same
request, known by its session and number, so it is executed once. `attempts` counts how often it
was sent and `refusals` how often it was surely not taken: if the two are equal at the deadline it
was surely not done, otherwise its outcome is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from coterie.client.errors import Changed, MethodFailed, NotDone, OutcomeUnknown
from coterie.client.results import Result
from coterie.kernel.errors import CoterieError
from coterie.objects.classes.declared import NO_ERRORS
from coterie.objects.execution.commands import Grounds
from coterie.objects.execution.outcomes import Done, Failed, NotTaken, Opened
from coterie.protocol.kinds import REFUSALS
from coterie.protocol.messages import Query

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from coterie.client.channel import Channel, Parcel
    from coterie.client.updates import UpdateRequest
    from coterie.kernel.engine import Standing
    from coterie.kernel.views import Viewstamp
    from coterie.objects import Answer
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.protocol.messages import Refusal

OVERHEAD_BYTES = 48
"""What a request weighs besides its arguments."""
GRAIN = 0.001
"""Loops round their timers; what is due within this many seconds is due now."""


class Requester(Protocol):
    """What requests need of the client that makes them."""

    def finished(self, request: Request) -> None:
        """Forget a request that is over."""

    def free(self, token: int) -> None:
        """Forget a request's token: nobody waits for its answer."""

    def try_later(self, request: Request, channel: Channel, reason: str) -> None:
        """Make a request again after a pause: it was not taken."""

    def follow(self, request: UpdateRequest, channel: Channel, outcome: Done | Failed) -> None:
        """Tell the request when an outcome is settled or rolled back where it was answered."""

    def rest(self, request: Request) -> None:
        """Ask no more for what is on record where it was asked: its answer comes by itself."""

    def close_window(self, id: int) -> None:
        """Forget a session id, and let the group forget it."""

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
    """Where the request was sent last; `sent_at` says when."""
    sent_at = 0.0
    attempts = 0
    refusals = 0
    reason = ""
    """Why the last attempt came to nothing."""
    is_over = False
    is_resting = False
    """Whether it is on record where it was asked last, and is answered once it is final."""
    wants_red = False
    """Whether its caller wants to stay where it is, on whichever side of a partition that is."""
    errors = NO_ERRORS
    """Which failures are raised as errors that the class declares."""

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
        """End without an answer, and say what is known: not done, or outcome unknown."""
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
            self._finish(outcome, answer)

    def _finish(self, outcome: Done | Failed, answer: Answer) -> None:
        standing = answer.standing
        value, error = read_outcome(outcome, self.decode, standing, self.errors)
        if error is not None:
            self.end(error=error)
            return
        if self.is_detailed:
            assert isinstance(outcome, Done), "what failed was raised"
            seen = Grounds(self.method, self.arguments, outcome.result)
            age = answer.age / 1_000_000 if answer.age >= 0 else None
            value = Result(
                value, *(outcome.viewstamp, outcome.position, standing), age=age, seen=seen
            )
        self.end(value)


def read_outcome(
    outcome: Done | Failed,
    decode: Callable[[bytes], object],
    standing: Standing,
    errors: DeclaredErrors,
) -> tuple[object, Exception | None]:
    """Give what a method answered, or what is to be raised: a declared error or `MethodFailed`."""
    if type(outcome) is Done:
        try:
            return decode(outcome.result), None
        except msgspec.DecodeError as error:
            # The class has another version there, and answers what ours does not promise.
            return None, MethodFailed("BadResult", str(error), outcome.viewstamp, standing)
    assert isinstance(outcome, Failed)
    kind = Changed if outcome.error == Changed.__name__ else MethodFailed
    failed = kind(outcome.error, outcome.message, outcome.viewstamp, standing, outcome.fields)
    return None, errors.as_raised(failed)
