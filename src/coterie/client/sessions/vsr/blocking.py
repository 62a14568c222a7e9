"""Transactions for programs without an event loop.

    with (
        connect_blocking(Bank, address, group="eu") as eu,
        connect_blocking(Bank, address, group="us") as us,
    ):
        with transaction_blocking(eu, us) as t:
            t.eu.withdraw("alice", 10)
            t.us.deposit("bob", 10)

Leaving the block commits; an exception inside aborts, and goes on. Everything happens in the thread
of the first group's client, and ends as `coterie.transaction` and `coterie.outcome_of` say.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coterie.client.blocking import behind
from coterie.client.sessions.vsr.transactions import outcome_of, transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from coterie.client.blocking import LoopThread
    from coterie.transactional.face import TransactionBlock
    from coterie.vsr.commit.client import TransactionOutcome
    from coterie.vsr.commit.psets import Aid


class BlockingTransaction:
    """One transaction: its attributes are the groups, as are its items: `t["eu-west"]`."""

    def __init__(self, thread: LoopThread, block: TransactionBlock) -> None:
        self._thread = thread
        self._block = block

    @property
    def aid(self) -> Aid | None:
        """The transaction's name, by which its outcome can be asked for; None before a call."""
        return self._block.aid

    @property
    def outcome(self) -> TransactionOutcome | None:
        """How it ended, once the block is left."""
        return self._block.outcome

    def part(self) -> AbstractContextManager[None]:
        """Have all calls in the block fail together, and alone, as `coterie.transaction` does."""
        return _run_part(self._thread, self._block)

    def __getattr__(self, group: str) -> BlockingGroup:
        if group.startswith("_"):
            raise AttributeError(group)
        return self[group]

    def __getitem__(self, group: str) -> BlockingGroup:
        return BlockingGroup(self._thread, self._block[group])


class BlockingGroup:
    """A group as part of a transaction: its attributes are the methods of its class."""

    def __init__(self, thread: LoopThread, group: object) -> None:
        self._thread = thread
        self._group = group

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._group, name)

        def call(*args: object, **kwargs: object) -> Any:  # noqa: ANN401 -- as annotated
            return self._thread.run(_called(method, args, kwargs))

        return call


async def _called(
    method: Callable[..., Awaitable[Any]], args: Sequence[object], kwargs: Mapping[str, object]
) -> Any:  # noqa: ANN401 -- as annotated
    return await method(*args, **kwargs)


def transaction_blocking(
    *groups: object, deadline: float | None = None
) -> AbstractContextManager[BlockingTransaction]:
    """Begin a transaction over groups that `connect_blocking` gave; `with` gives it.

    Outcomes, deadline and errors are those of `coterie.transaction`.
    """
    remotes = [behind(group)[1] for group in groups]
    # It raises at once if the groups cannot take part in one transaction.
    thread = behind(groups[0])[0] if groups else None
    block = transaction(*remotes, deadline=deadline)
    assert thread is not None, "a transaction over no group is refused"
    return _run(thread, block)


@contextmanager
def _run(thread: LoopThread, block: TransactionBlock) -> Iterator[BlockingTransaction]:
    thread.run(block.__aenter__())
    try:
        yield BlockingTransaction(thread, block)
    except BaseException:
        thread.run(block.__aexit__(*sys.exc_info()))
        raise
    thread.run(block.__aexit__(None, None, None))


@contextmanager
def _run_part(thread: LoopThread, block: TransactionBlock) -> Iterator[None]:
    part = block.part()
    thread.run(part.__aenter__())
    try:
        yield
    except BaseException:
        thread.run(part.__aexit__(*sys.exc_info()))
        raise
    thread.run(part.__aexit__(None, None, None))


def outcome_of_blocking(
    aid: Aid, group: object, *, deadline: float | None = None
) -> TransactionOutcome:
    """Ask how a transaction ended, by its name, as `coterie.outcome_of` does."""
    thread, remote = behind(group)
    return thread.run(outcome_of(aid, remote, deadline=deadline))
