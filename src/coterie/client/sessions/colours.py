"""Sessions with a group over a partitioned network: calls that wait for green, and red answers.

A call that a replica outside of the primary component takes is *red*: on record there, executed in
a place that may change, and ordered for good, *green*, when a primary component learns of it. It
has the two answers of its two colours, which may differ. A plain call waits for green, and looks
for a replica in the primary component meanwhile. One with `colour="red"` gives its caller the red
answer at once, and goes on until it is green, however long the partition lasts; the caller may wait
for that (`Result.settled`), and learns whether the answer has changed.

What is red at a replica needs no further asking: the answer comes again by itself. Asked elsewhere
it would become one more action, executed once all the same, because the session knows the call.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coterie.client.errors import MethodFailed, NotDone
from coterie.client.requests import read_outcome
from coterie.client.results import Result
from coterie.client.sessions.stack import ClientSession
from coterie.client.updates import BatchRequest, UpdateRequest
from coterie.kernel.components import RED
from coterie.objects.classes.declared import NO_ERRORS
from coterie.objects.execution.outcomes import EXECUTED, Done, Failed, SessionEvicted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from coterie.client.channel import Channel
    from coterie.client.group import GroupClient
    from coterie.client.results import OnReordered
    from coterie.client.sessions.stack import Window
    from coterie.kernel.engine import Standing
    from coterie.objects import Answer
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.objects.execution.commands import Condition

COLOURS = ("red", "green")
AS_LONG_AS_IT_TAKES = 1e9
"""How many seconds a red answer is followed: as long as its client is there."""


class ColouredRequest(UpdateRequest):
    """One call of an update, through its colours."""

    red: Done | Failed | None = None
    """The red answer that its caller has."""
    on_reordered: OnReordered | None = None
    """Is told where the green outcome is another one."""

    def answered(self, channel: Channel, answer: Answer) -> None:
        outcome = answer.outcome
        if answer.standing.is_final or not isinstance(outcome, Done | Failed | SessionEvicted):
            super().answered(channel, answer)
        elif isinstance(outcome, SessionEvicted):
            self._session_is_unknown(channel)
        elif channel is self.channel:
            self._is_red(channel, outcome, answer.standing)

    def _is_red(self, channel: Channel, outcome: Done | Failed, standing: Standing) -> None:
        self.reason = (
            f"it is red at {channel.replica!r}, and becomes green when a primary component "
            "learns of it"
        )
        if self.wants_red and not self.is_given:
            self.is_given = True
            self.red = outcome
            self.deadline += AS_LONG_AS_IT_TAKES
            self._give_red(outcome, standing)
        self.client.rest(self)
        session = self.session
        assert isinstance(session, ColoursSession), "these are its requests"
        session.make_room()

    def _give_red(self, outcome: Done | Failed, standing: Standing) -> None:
        value, error = read_outcome(outcome, self.decode, standing, self.errors)
        if self.future.done():
            return
        if error is not None:
            failed = error if isinstance(error, MethodFailed) else error.__cause__
            assert isinstance(failed, MethodFailed), "declared errors have it as their cause"
            failed.follow = self._follow
            self.future.set_exception(error)
        elif self.is_detailed:
            self.future.set_result(Result(value, outcome.viewstamp, 0, standing, self._follow))
        else:
            self.future.set_result(value)

    def _finish(self, outcome: Done | Failed, standing: Standing) -> None:
        if self.on_reordered is not None and self.red is not None and not _same(self.red, outcome):
            # Not from here: whatever the application does in it must not keep answers back.
            told, final = self._seen_as(self.red, RED), self._seen_as(outcome, standing)
            self.future.get_loop().call_soon(self.on_reordered, told, final)
        value, error = read_outcome(outcome, self.decode, standing, self.errors)
        if error is not None:
            self.end(error=error)
        elif self.is_given or self.is_detailed:
            has_changed = self.red is not None and not _same(self.red, outcome)
            place = (outcome.viewstamp, outcome.position, standing)
            self.end(Result(value, *place, has_changed=has_changed))
        else:
            self.end(value)

    def _seen_as(self, outcome: Done | Failed, standing: Standing) -> Result[object] | Exception:
        value, error = read_outcome(outcome, self.decode, standing, self.errors)
        place = (outcome.viewstamp, outcome.position if standing.is_final else 0, standing)
        return Result(value, *place) if error is None else error

    def _session_is_unknown(self, channel: Channel) -> None:
        """Nothing was done: the replica is cut off, and does not know of this session's opening."""
        if self.wants_red and not self.is_given and self.attempts - self.refusals <= 1:
            self.session.move(self)  # there is no other attempt, so it can be made in another one
        else:
            self.refusals += 1
            self.client.try_later(self, channel, "the session is not known here")

    def release(self) -> bool:
        window = self.window
        if not super().release():
            return False
        if window is not None and window is not self.session.window and not window.pending:
            self.client.close_window(window.id)
        return True


class ColouredBatch(BatchRequest):
    """Calls that are made together, and wait for green."""

    def answered(self, channel: Channel, answer: Answer) -> None:
        if answer.standing.is_final or not isinstance(answer.outcome, EXECUTED):
            super().answered(channel, answer)
        elif channel is self.channel:
            self.client.rest(self)


class ColoursSession(ClientSession):
    """One session of a client, through all ids it may come to have."""

    batch_kind = ColouredBatch

    def call(  # noqa: PLR0913 -- a call has these parts
        self,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        deadline: float | None = None,
        is_detailed: bool = False,
        majority: bool = False,
        colour: str = "green",
        conditions: tuple[Condition, ...] = (),
        on_reordered: OnReordered | None = None,
    ) -> asyncio.Future[object]:
        """Make a call; the future is done when its outcome is known, in the colour asked for."""
        del majority  # what is green is at all members of the component
        if colour not in COLOURS:
            raise NotDone(f"there is no colour {colour!r} to wait for: choose red or green")
        client = self._client
        future = client.loop.create_future()
        until = client.until(deadline)
        made = ColouredRequest(client, future, until, self, method, arguments, decode, is_detailed)
        made.errors = errors
        made.wants_red = colour == "red"
        made.on_reordered = on_reordered
        made.rest_on(conditions)
        self._enter(made, 1)
        return future

    def _enter(self, request: UpdateRequest | BatchRequest, count: int) -> None:
        window = self.window
        if window is not None and not window.has_room(count) and _is_held_by_red(window):
            # It may be for long, so others go on in another session. This one is closed with the
            # last of them.
            self.window = None
        super()._enter(request, count)

    def make_room(self) -> None:
        """Have calls that wait go on in another session, where red ones hold this one."""
        window = self.window
        if self.queue and window is not None and not window.has_room(1) and _is_held_by_red(window):
            self.window = None
            self.open()


def _is_held_by_red(window: Window) -> bool:
    oldest = window.pending.get(window.lowest_now())
    return isinstance(oldest, UpdateRequest) and oldest.is_given


def _same(one: Done | Failed, other: Done | Failed) -> bool:
    if isinstance(one, Done) and isinstance(other, Done):
        return one.result == other.result
    return type(one) is type(other) and one.digest == other.digest


@asynccontextmanager
async def open_calls(client: GroupClient) -> AsyncIterator[ColoursSession]:
    """Give a session; it is closed with its client."""
    session = ColoursSession(client)
    client.add_session(session)
    yield session
