"""Every limit and interval of viewstamped replication, in one place."""

from __future__ import annotations

import msgspec

from coterie.kernel.clock import Duration, milliseconds, seconds


class VsrSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are durations in microseconds; sizes are bytes."""

    # View changes.
    resend: Duration = milliseconds(40)
    """How often an unanswered message between cohorts is repeated."""
    manager_patience: Duration = milliseconds(250)
    """How long a manager waits for cohorts that should answer before it goes on without them."""
    manager_stagger: Duration = milliseconds(100)
    """How much later each cohort of lower priority becomes a manager than the one before it."""
    manager_pause: Duration = milliseconds(200)
    """How long, on average, a manager that could not form a view waits before it tries again."""
    underling_patience: Duration = milliseconds(600)
    """How long an underling waits for the view it accepted before it becomes a manager."""
    recovery_patience: Duration = milliseconds(300)
    """How long a cohort that has just started waits to be added to a view that is at work."""
    hand_over_after: Duration = milliseconds(0)
    """How long a cohort leads before it hands over to one that the configuration names earlier;
    0: never, because transactions that it coordinates abort."""

    # The communication buffer.
    buffer_bytes_max: int = 16 << 20
    """How many bytes of events may wait for a sub-majority; beyond it calls are refused."""
    window_events: int = 4096
    """How many events may be on the way to one backup, unacknowledged."""
    packet_bytes_max: int = 256 << 10
    """Events are packed up to this size; one larger event travels alone."""

    # Bringing a cohort up to date.
    log_bytes: int = 32 << 20
    """How many bytes of events are kept for cohorts that come back; who needs older ones gets
    the whole state."""
    history_views_max: int = 1000
    """How many views a history goes back; a transaction with calls in an older one aborts."""
    chunk_bytes: int = 256 << 10
    """A whole state travels in chunks of about this size."""
    chunks_ahead: int = 4
    """How many chunks one request asks for."""
    offer_lasts: Duration = seconds(5)
    """How long the state offered to a cohort is kept after the last question about it."""

    # Transactions.
    request_resend: Duration = milliseconds(100)
    """How often a request to another group is repeated while unanswered."""
    call_patience: Duration = seconds(3)
    """How long a caller waits for an answer in one view before it gives the call up."""
    force_calls: bool = False
    """Whether a call is answered only when a majority knows it: then no view change aborts a
    transaction for what was answered, and each call waits for the backups (section 6)."""
    lock_patience: Duration = seconds(1)
    """How long a call waits for a lock before it is refused."""
    prepare_patience: Duration = seconds(3)
    """How long a coordinator waits for participants to prepare before it aborts."""
    sweep: Duration = milliseconds(100)
    """How often a primary looks for calls and transactions that have waited for too long."""
    query_after: Duration = seconds(1)
    """How long a participant hears nothing of a transaction before it asks the coordinator."""
    client_patience: Duration = seconds(2)
    """How long a client may be silent before its coordinator asks for it, and then again before
    it aborts the transaction."""
    outcome_patience: Duration = seconds(10)
    """How long a client waits to hear how its transaction ended before it calls it unknown."""
    ended_max: int = 100_000
    """How many ended transactions are remembered, for queries and late messages."""
    calls_max: int = 10_000
    """How many calls may run or wait at a primary; beyond it calls are refused."""
    transactions_max: int = 100_000
    """How many transactions may be in progress at a group; beyond it their calls are refused."""
    event_bytes_max: int = 1 << 20
    """The largest event: a call that reads or writes more is refused."""
    call_bytes_max: int = 512 << 10
    """The largest arguments of a call; larger ones are refused to the caller."""
    digest_interval: int = 0
    """At every so many events of a view the state's digest goes on record; 0: never, because it
    takes time that grows with the state."""
    digest_bytes: int = 1 << 20
    """A state of more bytes is digested as much more rarely."""
    compare_digests: bool = False
    """Whether cohorts tell each other their digests, and one that differs from most stops."""


DEFAULT_VSR_SETTINGS = VsrSettings()
