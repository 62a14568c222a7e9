"""What groups and clients say to each other: calls, two-phase commit, queries.

Every message says which actor (a group or a client) it comes from; answers go to that actor at the
process that the message came from.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.views import ChangedConfiguration, ReplicaId, ViewId, Viewstamp
from coterie.vsr.commit.psets import Aid, CallId, CallsProgress, Pset


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    actor: str
    """The group or client that the message comes from."""


# ---- finding the primary


class WhereIs(_Message, tag=32, frozen=True):
    """Asks a replica who the primary of its group is, or of another one that is silent."""

    group: str = ""
    """Which group; empty for that of whoever is asked."""


class Elsewhere(_Message, tag=33, frozen=True):
    """Tells the view that the sender knows, and its primary, which is whom to ask (3.3)."""

    view: ViewId
    primary: ReplicaId
    configuration: ChangedConfiguration | None = None
    """Who belongs to the group, if that has changed."""


# ---- calls


class CallRequest(_Message, tag=34, frozen=True):
    """Asks the primary of a group to run a method, if it is still primary of `view`."""

    view: ViewId
    aid: Aid
    call: CallId
    method: str
    arguments: bytes
    given_up: tuple[CallId, ...]
    """Calls that are no part of the transaction any more: forget what they did."""
    progress: CallsProgress
    """Which other calls of the transaction may be running: they must not see each other's work."""


class CallReply(_Message, tag=35, frozen=True):
    """What came of a call that ran."""

    aid: Aid
    call: CallId
    result: bytes
    is_failure: bool
    """Whether the method raised; `result` is then the error."""
    pset: Pset
    void: tuple[CallId, ...] = ()
    """What was called on the way and is no part of the transaction, as a method raised."""
    groups: tuple[str, ...] = ()
    """Groups that were called on the way, and are not in the pset: they hold locks."""


class CallRefused(_Message, tag=36, frozen=True):
    """A call did not run and will not."""

    aid: Aid
    call: CallId
    reason: str
    groups: tuple[str, ...] = ()
    """Whom it had called before it was refused: they hold locks."""


# ---- transactions of unreplicated clients (3.5)


class BeginTransaction(_Message, tag=37, frozen=True):
    """Client to group: asks it to coordinate a transaction."""

    number: int
    """The client's own number for the transaction."""


class TransactionBegun(_Message, tag=38, frozen=True):
    """Coordinator to client: the name of the transaction that it asked for."""

    number: int
    aid: Aid


class EndTransaction(_Message, tag=39, frozen=True):
    """Client to coordinator: asks it to commit or to abort the transaction."""

    aid: Aid
    commit: bool
    pset: Pset
    groups: tuple[str, ...]
    """All groups that were called, also in vain."""
    reason: str


class TransactionEnded(_Message, tag=40, frozen=True):
    """Coordinator to client: what became of its transaction."""

    aid: Aid
    committed: bool
    reason: str
    is_known: bool = True
    """False: the transaction ended so long ago that nobody remembers how."""


class StillThere(_Message, tag=41, frozen=True):
    """Coordinator to a silent client: asks whether this transaction is still alive."""

    aid: Aid


class StillHere(_Message, tag=42, frozen=True):
    """Client to coordinator: the transaction is still alive (the answer to `StillThere`)."""

    aid: Aid


# ---- two-phase commit


class Prepare(_Message, tag=43, frozen=True):
    """Coordinator to participant: asks whether it can commit, with all these calls."""

    aid: Aid
    pset: Pset


class Prepared(_Message, tag=44, frozen=True):
    """Participant to coordinator: it can commit, and still can whatever happens to its primary."""

    aid: Aid
    is_read_only: bool


class PrepareRefused(_Message, tag=45, frozen=True):
    """Participant to coordinator: it cannot commit the transaction."""

    aid: Aid
    reason: str


class Commit(_Message, tag=46, frozen=True):
    """Coordinator to participant: the transaction is committed; install these calls."""

    aid: Aid
    calls: tuple[Viewstamp, ...]


class CommitDone(_Message, tag=47, frozen=True):
    """Participant to coordinator: the calls are installed, and a majority of its cohorts knows."""

    aid: Aid


class Abort(_Message, tag=48, frozen=True):
    """Coordinator to participant: the transaction is aborted, and all its calls are void."""

    aid: Aid
    reason: str


class OutcomeQuery(_Message, tag=49, frozen=True):
    """Asks the group that coordinates a transaction what became of it."""

    aid: Aid


class OutcomeAnswer(_Message, tag=50, frozen=True):
    """The answer to `OutcomeQuery`; `calls` are those that the asker has to install."""

    aid: Aid
    committed: bool
    calls: tuple[Viewstamp, ...]
    reason: str


# ---- deadlocks over several groups


class WaitsFor(_Message, tag=51, frozen=True):
    """Tells a transaction's coordinator that a call of it waits for locks that `holders` have."""

    aid: Aid
    holders: tuple[Aid, ...]


class Probe(_Message, tag=52, frozen=True):
    """A path of transactions, each of which waits for the next one: a circle is a deadlock."""

    path: tuple[Aid, ...]


class CohortDigest(_Message, tag=53, frozen=True):
    """What digest the sender, a cohort of the same group, has of its state after an event."""

    at: Viewstamp
    digest: Annotated[bytes, msgspec.Meta(max_length=64)]


TransactionMessage = (
    WhereIs
    | Elsewhere
    | CallRequest
    | CallReply
    | CallRefused
    | BeginTransaction
    | TransactionBegun
    | EndTransaction
    | TransactionEnded
    | StillThere
    | StillHere
    | Prepare
    | Prepared
    | PrepareRefused
    | Commit
    | CommitDone
    | Abort
    | OutcomeQuery
    | OutcomeAnswer
    | WaitsFor
    | Probe
    | CohortDigest
)

decoder: Decoder[TransactionMessage] = Decoder(TransactionMessage)
