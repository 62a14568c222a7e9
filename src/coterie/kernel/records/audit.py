"""What a replica reports of who asked it for what, where its group is audited."""

from __future__ import annotations

import msgspec

from coterie.kernel.decoding import Int64
from coterie.kernel.records.base import Record


class AskedCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that a client asked for."""

    what: str
    """`update`, `query`, or `commit` and `abort` of a transaction."""
    method: str
    session: Int64
    """The session of an update, else 0; with `request` it is found among entries and replies."""
    request: Int64
    count: Int64
    """How many calls of the method this is."""
    transaction: str
    """The transaction that a call is part of; empty where there are none."""
    refused: str
    """Why it was refused; empty if it was not."""


class CallsAsked(Record, tag=64, frozen=True, kw_only=True):
    """A client asked this member for calls: written before any answer to them leaves.

    What is asked for again, because no answer came, is written again.
    """

    client: str
    """What the configuration calls it; empty where anybody may call."""
    address: str
    calls: list[AskedCall]
