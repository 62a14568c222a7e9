"""Calls of a group under viewstamped replication: each is a transaction of its own.

To callers it is a session like any other, with the same outcomes. A transaction that was aborted
(its primary was lost, a lock was not free, a circle was broken up) surely had no effect, so the
call is made again, as another transaction, until its deadline. Once the end of one was asked for
and no answer has come, nobody here can say how it ended, and nothing is made again.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from coterie.client.errors import MethodFailed, NotDone, OutcomeUnknown
from coterie.client.results import OnReordered, Result
from coterie.client.sessions import refuse_red
from coterie.objects.classes.declared import NO_ERRORS
from coterie.objects.errors import NotAllowed
from coterie.protocol.kinds import REFUSALS
from coterie.transactional.failures import read_failure
from coterie.vsr.calls.remote import NotRun
from coterie.vsr.commit.client import Fate
from coterie.vsr.commit.psets import of_group
from coterie.vsr.standings import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.client.group import GroupClient
    from coterie.client.sessions.vsr.transaction_process import TransactionProcess
    from coterie.kernel.views import Viewstamp
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.objects.execution.commands import Condition
    from coterie.vsr.calls.executor import Completion
    from coterie.vsr.commit.client import ClientTransaction, TransactionClient, TransactionOutcome

CALLS_MAX = 64
"""How many calls of one session are in progress; further ones wait. More would not make it faster:
they would wait for each other's locks, longer than is allowed, and be made again and again."""
BATCH_MAX = 64
_REFUSED = {cls.__name__: cls for cls in REFUSALS.values()}
_ENDING_PATIENCE = 10.0
"""For how many seconds the end of what was given up is waited for; its client may be closed."""
_LATE = "no outcome by the deadline"
_CLOSED = "the client was closed"


class _Aborted(Exception):
    """The transaction had no effect; another one may have."""


class TransactedCalls:
    """The session of a client whose group takes transactions."""

    batch_max = BATCH_MAX

    def __init__(self, client: GroupClient, process: TransactionProcess) -> None:
        self.process = process
        self._client = client
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._waiting: dict[asyncio.Timeout, None] = {}
        """The deadlines of all calls that have no outcome yet."""
        self._is_closed = False
        self._random = Random()  # noqa: S311 -- spreads attempts in time, protects nothing
        self._ending: set[asyncio.Task[object]] = set()

    # ---- what callers ask for (`coterie.client.sessions.stack.Session`)

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
        """Make a call; the future is done when its outcome is known."""
        refuse_red(colour)
        if conditions:
            raise NotDone(
                "if_unchanged is for groups that put calls into order: make a transaction of the "
                "query and the update, which locks what it has read"
            )
        del on_reordered  # what is not red has one outcome
        del majority  # every answer is a majority's
        return self._begin(method, arguments, decode, errors, deadline, is_detailed, is_query=False)

    def query(  # noqa: PLR0913 -- a query has these parts
        self,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        level: str = "consistent",
        not_before: Viewstamp | None = None,
        deadline: float | None = None,
        is_detailed: bool = False,
    ) -> asyncio.Future[object]:
        """Execute a query; whatever *level* was asked for, the answer is consistent."""
        del level, not_before
        return self._begin(method, arguments, decode, errors, deadline, is_detailed, is_query=True)

    def call_many(
        self,
        method: str,
        arguments: Sequence[bytes],
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        deadline: float | None = None,
    ) -> asyncio.Future[object]:
        """Make calls side by side; gives a list of results and exceptions."""
        calls = [
            self.call(method, each, decode, errors=errors, deadline=deadline) for each in arguments
        ]
        return asyncio.ensure_future(asyncio.gather(*calls, return_exceptions=True))

    def open(self) -> asyncio.Future[object]:
        """There is nothing to open."""
        done = self._client.loop.create_future()
        done.set_result(0)
        return done

    def close(self) -> None:
        """Make no further calls; those that have no outcome get one now."""
        self._is_closed = True
        now = self._client.loop.time()
        for deadline in self._waiting:
            deadline.reschedule(now)

    # ---- inside

    def _begin(  # noqa: PLR0913, PLR0917 -- a call has these parts
        self,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        errors: DeclaredErrors,
        deadline: float | None,
        is_detailed: bool,  # noqa: FBT001
        *,
        is_query: bool,
    ) -> asyncio.Future[object]:
        until = self._client.until(deadline)
        if self._is_closed:
            raise NotDone(_CLOSED)
        if len(self._waiting) >= self._client.settings.queue_max:
            raise NotDone(f"{len(self._waiting)} calls wait in this client (queue_max)")

        async def call() -> object:
            try:
                result = await self._call(method, arguments, until, is_query=is_query)
            except MethodFailed as failed:
                error = errors.as_raised(failed)
                if error is failed:
                    raise
                raise error from failed
            value = decode(result.value)
            if not is_detailed:
                return value
            return Result(value, result.viewstamp, result.position, result.standing)

        return asyncio.ensure_future(call())

    async def _call(
        self, method: str, arguments: bytes, until: float, *, is_query: bool
    ) -> Result[bytes]:
        """Run transactions until one is committed, or time is up."""
        settings = self._client.settings
        pause = settings.retry_first
        attempt = _Attempt(self, method, arguments)
        timeout = asyncio.timeout_at(until)
        self._waiting[timeout] = None
        try:
            async with timeout, self._room:
                while True:
                    try:
                        return await attempt.run()
                    except _Aborted as aborted:
                        attempt = _Attempt(self, method, arguments, str(aborted))
                    await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
                    pause = min(2 * pause, settings.retry_max)
        except TimeoutError:
            late = _CLOSED if self._is_closed else _LATE
            if attempt.is_decided and not is_query:
                raise OutcomeUnknown(
                    f"{late}: transaction {attempt.aid} may be committed"
                ) from None
            raise NotDone(f"{late}: {attempt.reason}") from None
        finally:
            del self._waiting[timeout]

    @property
    def group(self) -> str:
        """The group that is called, and coordinates."""
        return self._client.group

    def end_later(self, ending: asyncio.Task[object]) -> None:
        """Keep hold of what nobody waits for; coordinators abort also what is not ended."""

        def ended(task: asyncio.Task[object]) -> None:
            self._ending.discard(task)
            if not task.cancelled():
                task.exception()  # the client may have been closed meanwhile

        self._ending.add(ending)
        ending.add_done_callback(ended)


class _Attempt:
    """One transaction with one call."""

    def __init__(
        self, calls: TransactedCalls, method: str, arguments: bytes, reason: str = ""
    ) -> None:
        self._calls = calls
        self._turns = calls.process.turns
        self._method = method
        self._arguments = arguments
        self._transaction: ClientTransaction | None = None
        self.is_decided = False
        """Whether its end was asked for, so that it may be committed."""
        self.reason = reason or f"{calls.group} did not answer"
        """Why there is no outcome, as far as is known."""

    @property
    def aid(self) -> object:
        """The transaction's name, as far as it is known."""
        return None if self._transaction is None else self._transaction.aid

    async def run(self) -> Result[bytes]:
        """Run it; raises `_Aborted`, `MethodFailed`, `OutcomeUnknown` or what is wrong with it."""
        try:
            completion = _ran(await self._turns.do(self._begin))
            # Also where the method raised: what it had read must have been the case.
            self.is_decided = not completion.is_failure
            outcome = await self._turns.do(self._commit)
        except BaseException:
            if not self.is_decided:
                self._abort()
            raise
        if outcome.fate is Fate.ABORTED:
            raise _Aborted(outcome.reason)
        if outcome.fate is Fate.UNKNOWN:
            raise OutcomeUnknown(f"nobody could say whether {outcome.aid} is committed")
        viewstamp = max(of_group(outcome.pset, self._calls.group))
        if completion.is_failure:
            raise _failure(completion, viewstamp)
        return Result(completion.result, viewstamp, viewstamp.number, COMMITTED)

    def _begin(
        self, client: TransactionClient, then: Callable[[Completion | NotRun], None]
    ) -> None:
        group = self._calls.group
        self._transaction = client.begin(group)
        self._transaction.call(group, self._method, self._arguments, then)

    def _commit(
        self, client: TransactionClient, then: Callable[[TransactionOutcome], None]
    ) -> None:
        del client
        transaction = self._transaction
        assert transaction is not None, "it has begun"
        transaction.commit(then)

    def _abort(self) -> None:
        """Let go of its locks; nobody waits for that."""
        transaction = self._transaction

        def abort(client: TransactionClient, then: Callable[[object], None]) -> None:
            del client
            if transaction is not None and not transaction.is_over:
                transaction.abort("its client gave it up", then)
            else:
                then(None)

        self._calls.end_later(asyncio.ensure_future(self._turns.do(abort, _ENDING_PATIENCE)))


def _ran(completion: Completion | NotRun) -> Completion:
    if isinstance(completion, NotRun):
        error, _, sentence = completion.reason.partition(": ")
        if error == NotAllowed.__name__:
            raise NotAllowed(sentence)  # it would be refused again
        raise _Aborted(completion.reason)
    return completion


def _failure(completion: Completion, viewstamp: Viewstamp) -> Exception:
    """Give the exception for a method that raised, or could not be called like this."""
    failed = read_failure(completion.result)
    if failed.error in _REFUSED:
        return _REFUSED[failed.error](failed.message)
    return MethodFailed(failed.error, failed.message, viewstamp, COMMITTED, failed.fields)
