"""What groups and clients say to each other: calls, two-phase commit, queries.

Every message says which actor (a group or a client) it comes from; answers go to that actor at the
process that the message came from.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.views import ReplicaId, ViewId, Viewstamp
from coterie.vsr.psets import Aid, CallId, Progress, Pset


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    actor: str
    """Who speaks."""


# ---- finding the primary


class WhereIs(_Message, tag=32, frozen=True):
    """Asks who the primary is."""


class Elsewhere(_Message, tag=33, frozen=True):
    """This is the view I know, and its primary: ask there (3.3)."""

    view: ViewId
    primary: ReplicaId


# ---- calls


class Call(_Message, tag=34, frozen=True):
    """Run this, if `view` is your view."""

    view: ViewId
    aid: Aid
    call: CallId
    method: str
    arguments: bytes
    given_up: tuple[CallId, ...]
    """Calls that are no part of the transaction any more: forget what they did."""
    progress: Progress
    """Which other calls of the transaction may be running: they must not see each other's work."""


class Reply(_Message, tag=35, frozen=True):
    """The call ran, and this came of it."""

    aid: Aid
    call: CallId
    result: bytes
    is_failure: bool
    """Whether the method raised; `result` is then the error."""
    pset: Pset


class CallRefused(_Message, tag=36, frozen=True):
    """The call did not run and will not."""

    aid: Aid
    call: CallId
    reason: str
    groups: tuple[str, ...] = ()
    """Whom it had called before it was refused: they hold locks."""


# ---- transactions of unreplicated clients (3.5)


class Begin(_Message, tag=37, frozen=True):
    """Coordinate a transaction for me."""

    number: int
    """The client's own number for it."""


class Began(_Message, tag=38, frozen=True):
    """This is its name."""

    number: int
    aid: Aid


class End(_Message, tag=39, frozen=True):
    """Commit or abort my transaction."""

    aid: Aid
    commit: bool
    pset: Pset
    groups: tuple[str, ...]
    """All that were called, also in vain."""
    reason: str


class Ending(_Message, tag=40, frozen=True):
    """This became of your transaction."""

    aid: Aid
    committed: bool
    reason: str
    is_known: bool = True
    """False: it ended so long ago that nobody remembers how."""


class StillThere(_Message, tag=41, frozen=True):
    """Coordinator to a silent client: asks whether this transaction is still alive."""

    aid: Aid


class StillHere(_Message, tag=42, frozen=True):
    """It is."""

    aid: Aid


# ---- two-phase commit


class Prepare(_Message, tag=43, frozen=True):
    """Asks whether the transaction can be committed, with all these calls."""

    aid: Aid
    pset: Pset


class Prepared(_Message, tag=44, frozen=True):
    """Yes, whatever happens here."""

    aid: Aid
    is_read_only: bool


class Refused(_Message, tag=45, frozen=True):
    """No."""

    aid: Aid
    reason: str


class Commit(_Message, tag=46, frozen=True):
    """It is decided: install these calls."""

    aid: Aid
    calls: tuple[Viewstamp, ...]


class CommitDone(_Message, tag=47, frozen=True):
    """It is installed, and a majority knows."""

    aid: Aid


class Abort(_Message, tag=48, frozen=True):
    """It is void."""

    aid: Aid
    reason: str


class Query(_Message, tag=49, frozen=True):
    """Asks what became of a transaction."""

    aid: Aid


class Answer(_Message, tag=50, frozen=True):
    """This; and these are the calls for you to install."""

    aid: Aid
    committed: bool
    calls: tuple[Viewstamp, ...]
    reason: str


# ---- deadlocks over several groups


class WaitsFor(_Message, tag=51, frozen=True):
    """A call of your transaction waits here for locks of these."""

    aid: Aid
    holders: tuple[Aid, ...]


class Probe(_Message, tag=52, frozen=True):
    """Each of these waits for the next one."""

    path: tuple[Aid, ...]


TransactionMessage = (
    WhereIs
    | Elsewhere
    | Call
    | Reply
    | CallRefused
    | Begin
    | Began
    | End
    | Ending
    | StillThere
    | StillHere
    | Prepare
    | Prepared
    | Refused
    | Commit
    | CommitDone
    | Abort
    | Query
    | Answer
    | WaitsFor
    | Probe
)

decoder: msgspec.msgpack.Decoder[TransactionMessage] = msgspec.msgpack.Decoder(TransactionMessage)
