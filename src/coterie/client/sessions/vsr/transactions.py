"""Transactions over several groups, from a program that is none of them.

    async with connect(Bank, address, group="eu") as eu, connect(Bank, address, group="us") as us:
        async with transaction(eu, us) as t:
            await t.eu.withdraw("alice", 10)
            await t.us.deposit("bob", 10)

Leaving the block commits; an exception inside aborts, and goes on. The first group coordinates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.client.deadlines import check_deadline
from coterie.client.methods import RemoteObject, connection_of, definition_of
from coterie.client.sessions.vsr.calls import TransactedCalls
from coterie.kernel.errors import CoterieError
from coterie.transactional.face import TransactionBlock
from coterie.vsr.commit.client import Fate, TransactionOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.client.sessions.vsr.transaction_process import TransactionProcess
    from coterie.protocol.messages import Welcome
    from coterie.vsr.commit.client import TransactionClient
    from coterie.vsr.commit.psets import Aid


def transaction(*groups: object, deadline: float | None = None) -> TransactionBlock:
    """Begin a transaction over groups that `connect` gave; `async with` gives it.

    Each call, and the end, has an outcome within *deadline* seconds, by default that of the first
    group's client. Raises `CoterieError` if a group takes no transactions, or belongs to another
    cluster than the others, `NotDone` if the deadline has passed already.
    """
    if not groups:
        raise CoterieError("a transaction is over one group at least: transaction(eu, us)")
    if deadline is not None:
        check_deadline(deadline)
    process, first = _process_of(groups[0])
    for group in groups:
        _, welcome = _process_of(group)
        process.join(welcome, definition_of(group))
    if deadline is None:
        deadline = connection_of(groups[0]).client.settings.deadline
    return TransactionBlock(process.turns, first.group, deadline)


async def outcome_of(
    aid: Aid, group: object, *, deadline: float | None = None
) -> TransactionOutcome:
    """Ask how a transaction ended, by its name; *group* is the one that coordinated it.

    A transaction that is not decided yet is aborted by the question, so that there is an answer.
    The fate is unknown only if its coordinator does not answer either.
    """
    process, _ = _process_of(group)
    if deadline is None:
        deadline = connection_of(group).client.settings.deadline
    check_deadline(deadline)

    def ask(client: TransactionClient, then: Callable[[TransactionOutcome], None]) -> None:
        client.find_out(aid, then)

    try:
        return await process.turns.do(ask, deadline)
    except TimeoutError:
        return TransactionOutcome(Fate.UNKNOWN, aid, f"no answer within {deadline} s")


def _process_of(group: object) -> tuple[TransactionProcess, Welcome]:
    if not isinstance(group, RemoteObject):
        raise CoterieError(f"{group!r} is no group that connect() gave")
    connection = connection_of(group)
    welcome = connection.client.welcome
    assert welcome is not None, "who is connected was made welcome"
    if not isinstance(connection.session, TransactedCalls):
        raise CoterieError(
            f'the group {welcome.group!r} takes no transactions: it needs engine = "vsr"'
        )
    return connection.session.process, welcome
