"""What an answer of a transaction may claim (`coterie.kernel.engine.Standing`)."""

from __future__ import annotations

from coterie.kernel.engine import Standing

COMMITTED = Standing.declare("COMMITTED", 10)
"""A majority of the coordinator's group knows that the transaction is committed: it is final.

What was read or written by one that is not committed yet is tentative, and no answer to a client
outside of it; 8 and 9 are for tentative and prepared, 11 for aborted, when one is.
"""
