"""Transactions as Python has them: a block that commits when it is left.

    async with groups.transaction() as t:
        await t.eu.withdraw("alice", 10)
        await t.us.deposit("bob", 10)

Leaving the block commits; an exception inside aborts, and goes on. A transaction that does not
commit raises: `TransactionAborted` with the reason, and then it surely had no effect, or
`TransactionUnknown`, when nobody could say by the deadline.

A part of it can fail alone, and something else be tried:

        try:
            async with t.part():
                await t.us.deposit("bob", 10)
        except (PartAborted, NoSuchAccount):
            await t.asia.deposit("bob", 10)
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from coterie.kernel.errors import CoterieError, Refused
from coterie.transactional.failures import read_failure
from coterie.vsr.calls.primary_requests import UnknownGroup
from coterie.vsr.calls.remote import NotRun
from coterie.vsr.commit.client import Fate, TransactionOutcome, TransactionOver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from types import TracebackType

    from coterie.objects import Definition, Method
    from coterie.vsr.calls.executor import Completion
    from coterie.vsr.commit.client import ClientTransaction, Subaction, TransactionClient
    from coterie.vsr.commit.psets import Aid

T = TypeVar("T")


class TransactionAborted(Refused):
    """The transaction had no effect, and will have none; the message says why."""


class PartAborted(Refused):
    """A part of a transaction had no effect, and will have none; the transaction goes on."""


class TransactionUnknown(CoterieError):
    """Nobody could say in time whether the transaction is committed; `aid` is its name."""

    def __init__(self, aid: Aid | None) -> None:
        super().__init__(f"nobody could say in time whether transaction {aid} is committed")
        self.aid = aid


class Turns:
    """The client of a process whose turns somebody else takes."""

    def __init__(
        self,
        client: TransactionClient,
        submit: Callable[[Callable[[], None]], None],
        definitions: Mapping[str, Definition],
    ) -> None:
        self._client = client
        self._submit = submit
        self._is_closed = False
        self.definitions = definitions

    def close(self) -> None:
        """Learn that no further turns are taken."""
        self._is_closed = True

    async def do(
        self,
        what: Callable[[TransactionClient, Callable[[T], None]], None],
        deadline: float | None = None,
    ) -> T:
        """Have *what* done inside a turn, and wait for what it passes on.

        Raises `TimeoutError` if that takes longer than *deadline*, in seconds.
        """
        if self._is_closed:
            # A coordinator aborts what it hears nothing more of.
            raise TransactionAborted("the client was closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def then(result: T) -> None:
            if not future.done():
                future.set_result(result)

        def inside() -> None:
            try:
                what(self._client, then)
            except CoterieError as error:
                if not future.done():
                    future.set_exception(error)

        self._submit(inside)
        async with asyncio.timeout(deadline):
            return await future


class TransactionBlock:
    """One transaction: its attributes are the groups, as are its items: `t["eu-west"]`.

    With a *deadline*, in seconds, each call and the end have an outcome within it.
    """

    def __init__(self, turns: Turns, coordinator: str, deadline: float | None = None) -> None:
        self._turns = turns
        self._coordinator = coordinator
        self._deadline = deadline
        self._transaction: ClientTransaction | None = None
        self._is_over = False
        self._doom = ""
        """Why it can only be aborted."""
        self._depth = 0
        """How many parts are open."""
        self.outcome: TransactionOutcome | None = None
        """How it ended, once the block is left."""

    async def __aenter__(self) -> Self:
        def begin(client: TransactionClient, then: Callable[[ClientTransaction], None]) -> None:
            then(client.begin(self._coordinator))

        self._transaction = await self._turns.do(begin)
        return self

    @property
    def aid(self) -> Aid | None:
        """The transaction's name, by which its outcome can be asked for; None before a call."""
        return None if self._transaction is None else self._transaction.aid

    def __getattr__(self, group: str) -> Any:  # noqa: ANN401 -- it has the methods of a class
        if group.startswith("_"):
            raise AttributeError(group)
        return self[group]

    def __getitem__(self, group: str) -> Any:  # noqa: ANN401 -- it has the methods of a class
        definition = self._turns.definitions.get(group)
        if definition is None:
            known = ", ".join(sorted(self._turns.definitions))
            raise UnknownGroup(f"there is no group {group!r}; there are {known}")
        return GroupFace(definition, lambda method, data: self.call(group, method, data))

    async def call(self, group: str, method: Method, arguments: bytes) -> object:
        """Make one call; `t.group.method(...)` is the way to write it."""
        transaction = self._going_on()

        def call(client: TransactionClient, then: Callable[[Completion | NotRun], None]) -> None:
            del client
            transaction.call(group, method.name, arguments, then)

        try:
            outcome = await self._turns.do(call, self._deadline)
        except TimeoutError:
            outcome = NotRun(f"{group} did not answer within {self._deadline} s")
        if isinstance(outcome, NotRun):
            if self._depth:
                raise PartAborted(outcome.reason)
            self._doom = outcome.reason
            raise TransactionAborted(outcome.reason)
        if outcome.is_failure:
            raise self._turns.definitions[group].errors.as_raised(read_failure(outcome.result))
        return method.decode_result(outcome.result)

    @asynccontextmanager
    async def part(self) -> AsyncIterator[None]:
        """Have all calls in the block fail together, and alone: the transaction goes on.

        An exception in the block aborts the part, and goes on; so does a call in it that did not
        run, as `PartAborted`. Parts may be within parts. While one is open, all calls of the
        transaction are calls of it; those under way before it must have been answered.
        """
        transaction = self._going_on()

        def begin(client: TransactionClient, then: Callable[[Subaction], None]) -> None:
            del client
            then(transaction.begin_part())

        def end(client: TransactionClient, then: Callable[[NotRun | None], None]) -> None:
            del client
            then(transaction.end_part(part))

        def abort(client: TransactionClient, then: Callable[[None], None]) -> None:
            del client
            transaction.abort_part(part, "its part of the transaction was aborted")
            then(None)

        part = await self._turns.do(begin)
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            await self._turns.do(abort)
            raise
        self._depth -= 1
        failed = await self._turns.do(end)
        if failed is not None:
            raise PartAborted(failed.reason)

    def _going_on(self) -> ClientTransaction:
        if self._is_over or self._transaction is None:
            raise TransactionOver("this transaction is over: begin another one")
        return self._transaction

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        transaction = self._transaction
        assert transaction is not None, "the block was entered"
        reason = self._doom if error is None else f"{type(error).__name__}: {error}"
        is_commit = error is None and not self._doom

        def end(client: TransactionClient, then: Callable[[TransactionOutcome], None]) -> None:
            del client
            if transaction.outcome is not None:
                then(transaction.outcome)  # it never began
            elif is_commit:
                transaction.commit(then)
            else:
                transaction.abort(reason, then)

        try:
            self.outcome = await self._turns.do(end, self._deadline)
        except TimeoutError:
            # Whoever has asked for an abort needs no answer: nothing else can become of it.
            fate = Fate.UNKNOWN if is_commit else Fate.ABORTED
            self.outcome = TransactionOutcome(
                fate, transaction.aid, reason or "no answer by the deadline"
            )
        if error is not None:
            return
        if self.outcome.fate is Fate.ABORTED:
            raise TransactionAborted(self.outcome.reason)
        if self.outcome.fate is Fate.UNKNOWN:
            raise TransactionUnknown(self.outcome.aid)


class GroupFace:
    """The methods of a group's class, awaited."""

    def __init__(
        self,
        definition: Definition,
        call: Callable[[Method, bytes], Awaitable[object]],
    ) -> None:
        self._definition = definition
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = self._definition.method(name)

        def call(*args: object, **kwargs: object) -> Awaitable[Any]:
            # Bad arguments are an error to their sender, before anything is sent.
            return self._call(method, method.encode(args, kwargs))

        return call
