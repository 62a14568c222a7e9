"""The contract between an engine, which decides order and standing, and the host, which executes.

There are two kinds of engine. *Ordered* ones (**objects**, **transis**, **rsp**) deliver commands
and every replica executes them; *primary* ones (**vsr**) have one replica execute and replicate
the effects. One host serves both: an entry holds a command, effects, or control, and the host
offers `execute` and `apply`.

Upwards an engine calls the host inside its turn:

- `deliver`: entries in order, and what an answer based on them may claim (their standing);
- `settle`: everything up to a position, delivered earlier, is now authoritative;
- `roll_back`: everything delivered above a position is void;
- `status`: whether this replica may take updates, and why not;
- `snapshot` and `restore`: the state as it was at the last settled position, in bounded chunks;
- `finish_turn`: the turn ends.

Downwards the host calls `propose`. Nothing on this boundary waits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from coterie.kernel.views import NO_VIEW, Member, ViewId, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Sequence


class Standing(enum.IntEnum):
    """What an answer may claim. Higher is safer within one engine."""

    NON_PRIMARY = 0
    """Seen by a minority view only; it never becomes part of the history by itself."""
    OPTIMISTIC = 1
    """Ordered in a confirmed primary view; it may still be rolled back."""
    AUTHORITATIVE = 2
    """Accepted by a majority of the configuration; it is in every later history."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive entries of one origin, ordered one after the other.

    Entry *i* has the identity (origin, first + i), the viewstamp (view, number + i) and the
    position position + i. Runs, not entries, are what travels, is kept and is delivered.
    """

    view: ViewId
    number: int
    position: int
    origin: Member
    first: int
    payloads: list[bytes]

    @property
    def last_position(self) -> int:
        """The position of the last entry."""
        return self.position + len(self.payloads) - 1

    def viewstamp(self, index: int = 0) -> Viewstamp:
        """Where entry *index* was ordered."""
        return Viewstamp(self.view, self.number + index)

    def up_to(self, position: int) -> Run:
        """Give the part of this run that does not lie above *position*."""
        if position >= self.last_position:
            return self
        kept = self.payloads[: position - self.position + 1]
        return Run(self.view, self.number, self.position, self.origin, self.first, kept)

    def after(self, position: int) -> Run:
        """Give the part of this run that lies above *position*."""
        skip = position - self.position + 1
        if skip <= 0:
            return self
        return Run(
            self.view,
            self.number + skip,
            self.position + skip,
            self.origin,
            self.first + skip,
            self.payloads[skip:],
        )


class Version(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """How advanced a history is: the last confirmed primary view in it, and its length."""

    view: ViewId
    position: int

    def __str__(self) -> str:
        return f"{self.view}@{self.position}"


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica brings from its earlier lives."""

    is_zombie: bool = False
    """Whether it once was in a primary view and has lost what it knew there."""
    highest_view: int = 0
    """The highest view number it may have taken part in."""
    version: Version = Version(NO_VIEW, 0)
    settled: int = 0
    position: int = 0
    """Of the state in `chunks`; 0 where there is none."""
    chunks: tuple[bytes, ...] = ()
    origins: tuple[tuple[Member, int], ...] = ()
    runs: tuple[Run, ...] = ()
    """The entries above the state."""


class Chunks(Iterator[bytes]):
    """An encoded state: that of the moment it was asked for, however late it is read.

    It may still be being encoded somewhere else. To iterate waits, and is for threads; whoever
    must not wait asks `poll`.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._rest = iter(chunks)

    def __next__(self) -> bytes:
        return next(self._rest)

    def poll(self) -> bytes | None:
        """Give the next chunk, or None if it is not ready; raise `StopIteration` at the end."""
        return next(self._rest)

    def close(self) -> None:
        """Let go of it, read to the end or not."""


class Checkpoint(NamedTuple):
    """The authoritative part of a history as a state, for a snapshot on disk."""

    position: int
    """The state is that after the entry at this position, which is settled."""
    version: Version
    """Of the whole history, with what is not settled."""
    origins: tuple[tuple[Member, int], ...]
    """For every origin, the number of its last entry up to `position`."""
    chunks: Iterator[bytes]


class Role(enum.Enum):
    """What a replica may do at present."""

    PRIMARY = "primary"
    """In a confirmed primary view, with the whole history: takes updates."""
    BACKUP = "backup"
    """Under **vsr**, in a view that another replica leads, with the whole history."""
    LEARNER = "learner"
    """In a primary view, but still fetching what it missed."""
    FORMING = "forming"
    """In a view that may become primary once a majority has accepted it."""
    MINORITY = "minority"
    """In a view without a majority: queries only."""

    @property
    def is_in_service(self) -> bool:
        """Whether a replica with this role does its part."""
        return self in {Role.PRIMARY, Role.BACKUP}


class Status(msgspec.Struct, frozen=True):
    """Where a replica stands, for clients, operators and the host."""

    role: Role
    view: ViewId
    members: tuple[Member, ...]
    position: int
    settled: int
    is_zombie: bool


class EngineHost(Protocol):
    """What an engine needs of whatever executes entries."""

    def deliver(self, runs: list[Run], standing: Standing) -> None:
        """Execute entries in order; answer the clients whose requests came through here."""

    def settle(self, position: int) -> None:
        """Learn that everything up to *position* is authoritative."""

    def roll_back(self, position: int) -> None:
        """Forget everything delivered above *position*; it is never below a settled one."""

    def status(self, status: Status) -> None:
        """Learn that this replica's standing in the group changed."""

    def snapshot(self) -> Iterator[bytes]:
        """Give the state at the last settled position, in chunks of bounded size.

        The state given is that of the moment of the call, however late the chunks are taken. What
        is still being encoded elsewhere is given as `Chunks`.
        """

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        """Take over a whole state; the old one stays until the last chunk is read."""

    def finish_turn(self) -> None:
        """Propose what gathered during the turn."""


class Engine(Protocol):
    """What the host asks of an engine."""

    def propose(self, payloads: Sequence[bytes]) -> None:
        """Have commands ordered.

        Raises `Refused`, with no effect, when too much is waiting. A command whose view ends
        before it is ordered is proposed again by the engine in the next primary view, as a new
        entry; a command is known by its request id, not by its entry's identity.
        """
