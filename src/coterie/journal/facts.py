"""What a replica remembers, told by its records one after the other.

The writer follows the records it writes, so that each segment can say at its beginning what the
replica remembered there; recovery follows the records it reads. Both do it with the memory of the
replica's engine family, so one rebuilt from any segment on is the one that the writer had.

`Facts` is what a segment says. It was made for the engines that order entries; a family that needs
no more than a snapshot and the records behind it leaves the rest of it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.decoding import Int64
from coterie.kernel.engine import Version
from coterie.kernel.views import NO_VIEW, ViewId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coterie.kernel.records import Record

CONTRADICTIONS_MAX = 8


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica remembers at one place of its journal, without the entries."""

    version: Version = Version(NO_VIEW, 0)
    """The last confirmed primary view in its history, and the length of the history."""
    settled: Int64 = 0
    """Everything up to here is authoritative."""
    highest_view_number: Int64 = 0
    """No view it may have taken part in has a higher number."""
    accepted: ViewId = NO_VIEW
    """The last primary view it accepted."""
    restored: Int64 = 0
    """The position of the last state it took over whole; 0 for none."""
    restored_at: tuple[Int64, Int64] = (0, 0)
    """Life and record where the state at `restored` was taken over."""
    rebased: tuple[Int64, Int64] = (0, 0)
    """Life and record where settled entries were last given up, which takes an accepted loss or a
    zombie that began with nothing: no snapshot taken before that is of use."""
    base: tuple[Int64, Int64, Int64] = (0, 0, 0)
    """The one older snapshot that is: life, record and position of that on which a fresh life
    rests."""
    is_zombie: bool = False
    is_adopting: bool = False
    """Whether it is in the middle of adopting a history: recovery cannot begin here."""
    is_fresh: bool = False
    """Whether a life begins here that rests on no record of an earlier one, because too much of
    them was lost: only on the state at the position of `version`."""


class Memory:
    """Follows records; `facts` gives what they amount to.

    Families derive theirs, and put into `acts` what each kind of record does. This one remembers
    what it began with.
    """

    def __init__(self, facts: Facts) -> None:
        self.place = (0, 0)
        """Life and number of the first record of the turn that is being applied."""
        self.contradictions: list[str] = []
        """What cannot be true, in words; the first few."""
        self.promises: msgspec.Struct | None = None
        """What must be on stable storage before a turn that changes it counts; another object
        whenever it is another value. None where a family has none."""
        self.acts: dict[type[Record], Callable[[Any], None]] = {}
        self._first = facts

    def apply(self, records: Iterable[Record]) -> None:
        """Take the records of one turn; `place` says which."""
        acts = self.acts
        for record in records:
            act = acts.get(type(record))
            if act is not None:
                act(record)

    def facts(self) -> Facts:
        """Give what the records so far amount to."""
        return self._first

    def may_be_stored(self, position: int) -> bool:
        """Say whether the state is worth a snapshot, after one at *position*."""
        del position
        return True

    def contradict(self, sentence: str) -> None:
        """Learn that something cannot be true."""
        if len(self.contradictions) < CONTRADICTIONS_MAX:
            self.contradictions.append(sentence)
