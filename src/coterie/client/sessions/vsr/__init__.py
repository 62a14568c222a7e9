"""Viewstamped replication: each call is a transaction, and a program may make one of several."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coterie.client.sessions.vsr.calls import TransactedCalls
from coterie.client.sessions.vsr.transaction_process import TransactionProcess
from coterie.vsr import DEFAULT_VSR_SETTINGS, VsrSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coterie.client.group import GroupClient


@asynccontextmanager
async def open_calls(
    client: GroupClient, settings: VsrSettings = DEFAULT_VSR_SETTINGS
) -> AsyncIterator[TransactedCalls]:
    """Give calls that are transactions, and the process that makes them."""
    assert client.welcome is not None, "who opens calls was made welcome"
    process = TransactionProcess(
        client.access, client.settings, settings, owner=client.welcome.owner
    )
    process.join(client.welcome)
    calls = TransactedCalls(client, process)
    try:
        yield calls
    finally:
        calls.close()
        await process.close()
