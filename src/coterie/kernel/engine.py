"""The contract between an engine, which decides order and standing, and the host, which executes.

There are two kinds of engine. *Ordered* ones (**objects**, **transis**, **rsp**) deliver commands
and every replica executes them: this is their contract, and one host serves them all. *Primary*
ones (**vsr**) have one replica execute and replicate the effects, under locks; the contract of
their executor is in `coterie.vsr.calls.executor`.

Upwards an engine calls the host inside its turn:

- `deliver`: entries in order, and what an answer based on them may claim (their standing);
- `settle`: everything up to a position, delivered earlier, is now authoritative;
- `roll_back`: everything delivered above a position is void;
- `status_changed`: whether this replica may take updates, and why not;
- `snapshot` and `restore`: the state as it was at the last settled position, in bounded chunks;
- `finish_turn`: the turn ends.

Downwards the host calls `propose`, and `confirm` for a read that takes no place in the order.
Nothing on this boundary waits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import msgspec

from coterie.kernel.decoding import Int64
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


FINAL = 2
"""The bit of a standing's code that says whether what it stands for can be taken back."""
_CODES = range(256)
_UNNAMED = "STANDING_"


class Standing(enum.IntEnum):
    """What an answer may claim.

    The three below are those of engines that keep a history (**objects**). Another engine has
    others, and declares them with its own words:

        COMMITTED = Standing.declare("COMMITTED", 10)

    What nobody needs to know the engine for is whether an answer is final, and its code says so,
    in journals, too: of each block of four codes the upper two are final. An engine has a block of
    its own, or several. Taken are 0 to 3 (histories) and 8 to 11 (**vsr**); 4 to 7 are for red,
    yellow, green and white (**transis**). A code that was never declared here, as that of a later
    release, still says whether it is final.
    """

    is_final: bool
    """Whether what was answered stands for ever, whatever fails."""

    def __new__(cls, code: int) -> Self:
        made = int.__new__(cls, code)
        made._value_ = code
        made.is_final = bool(code & FINAL)
        return made

    NON_PRIMARY = 0
    """Seen by a minority view only; it never becomes part of the history by itself."""
    OPTIMISTIC = 1
    """Ordered in a confirmed primary view; it may still be rolled back."""
    AUTHORITATIVE = 2
    """Accepted by a majority of the configuration; it is in every later history."""

    @classmethod
    def declare(cls, name: str, code: int) -> Standing:
        """Give the standing of that name and code, which only one engine may declare."""
        known = cls._value2member_map_.get(code)
        if known is not None and known.name == name:
            return cls(code)
        if known is not None and not known.name.startswith(_UNNAMED):
            raise ValueError(f"{code} is the standing {known.name} already")
        return cls._add(name, code)

    @classmethod
    def _missing_(cls, value: object) -> Standing | None:
        if not isinstance(value, int) or value not in _CODES:
            return None
        # Decoders ask here for everything that was not there when they were made.
        known = cls._value2member_map_.get(value)
        return cls._add(f"{_UNNAMED}{value}", value) if known is None else cls(value)

    @classmethod
    def _add(cls, name: str, code: int) -> Standing:
        made = int.__new__(cls, code)
        made._name_, made._value_ = name, code
        made.is_final = bool(code & FINAL)
        cls._value2member_map_[code] = made
        return made


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive entries of one origin, ordered one after the other.

    Entry *i* has the identity (origin, first + i), the viewstamp (view, number + i) and the
    position position + i. Runs, not entries, are what travels, is kept and is delivered.
    """

    view: ViewId
    number: Int64
    position: Int64
    origin: Member
    first: Int64
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
    position: Int64

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
    """The position of the state in `chunks`; 0 where there is none."""
    chunks: tuple[bytes, ...] = ()
    origins: tuple[tuple[Member, int], ...] = ()
    runs: tuple[Run, ...] = ()
    """The entries above the state."""
    more: msgspec.Struct | None = None
    """What else the replica's engine remembers, if it is one that has more to remember."""


class Chunks(Iterator[bytes]):
    """An encoded state: that of the moment it was asked for, however late it is read.

    It may still be being encoded somewhere else. To iterate waits, and is for threads; whoever
    must not wait asks `poll`.
    """

    is_elsewhere = False
    """Whether it is encoded by somebody else, so that what is not ready comes later."""

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
    """A history, or the authoritative part of it, as a state: for a snapshot on disk."""

    position: int
    """The state is that after the entry at this position."""
    version: Version
    """How advanced the whole history is, also with what is not in the state."""
    chunks: Iterator[bytes]
    origins: tuple[tuple[Member, int], ...] = ()
    """Where entries have origins: for each, the number of its last entry up to `position`."""
    history: tuple[Viewstamp, ...] = ()
    """Where entries are numbered by views: for each view, how many of its entries are in it."""


class HistoryKeeper(Protocol):
    """What keeps the history of a replica, whichever engine it is: `Replica.history`."""

    @property
    def version(self) -> Version:
        """How advanced the history is."""

    @property
    def position(self) -> int:
        """The position of its last entry."""

    @property
    def settled(self) -> int:
        """Up to which position the history is authoritative."""

    @property
    def is_zombie(self) -> bool:
        """Whether the replica once was in a primary view and has lost what it knew there."""

    def checkpoint(self) -> Checkpoint:
        """Give the authoritative part of the history as a state, for a snapshot on disk."""

    def recover(self) -> None:
        """Let the history count although entries may have been lost: an operator's word.

        Raises `Refused` where the engine knows no such way out.
        """


class Role(enum.Enum):
    """What a replica may do at present."""

    PRIMARY = "primary"
    """In a confirmed primary view, with the whole history: takes updates."""
    BACKUP = "backup"
    """In a view that another replica leads, with the whole history: follows it."""
    LEARNER = "learner"
    """In a primary view, but still fetching what it missed."""
    FORMING = "forming"
    """In a view that may become primary once a majority has accepted it."""
    MINORITY = "minority"
    """In a view without a majority: queries only."""
    NON_PRIMARY = "non-primary"
    """In a component that is not primary: takes updates, which stay red until one knows them."""

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
    leader: Member | None = None
    """Who leads the view, in engines in which one does."""
    configuration: Configuration | None = None
    """Who belongs to the group, as far as is settled here, in engines that change it."""


class EngineHost(Protocol):
    """What an engine needs of whatever executes entries."""

    def deliver(self, runs: list[Run], standing: Standing) -> None:
        """Execute entries in order; answer the clients whose requests came through here."""

    def settle(self, position: int) -> None:
        """Learn that everything up to *position* is authoritative."""

    def roll_back(self, position: int) -> None:
        """Forget everything delivered above *position*; it is never below a settled one."""

    def status_changed(self, status: Status) -> None:
        """Learn that what this replica may do, or with whom, has changed."""

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

    def confirm(self, serial: int, confirmed: Callable[[int], None]) -> None:
        """Have *confirmed* called when everything has settled here that had anywhere.

        That is everything that was authoritative at any replica when this was asked. Serials rise;
        one that is confirmed confirms those before it. While the replica is in no primary view it
        waits. Only for engines that deliver nothing but what is authoritative.
        """
