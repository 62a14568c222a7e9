"""Reading back a snapshot and the records behind it, for families that need nothing else.

What is known is that of the newest snapshot whose place the journal reaches, and what the records
behind it say. A snapshot rests on nothing before its place. What is missing *right behind* its
place is not in it, and is missed.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from coterie.journal.format import Kind
from coterie.journal.replay import Recalling
from coterie.journal.snapshots import mark_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.journal.facts import Facts
    from coterie.journal.format import SegmentHead
    from coterie.journal.replay import Stage
    from coterie.journal.snapshots import Snapshot
    from coterie.kernel.records import Record


class AboveSnapshot:
    """What records amount to, above a snapshot (*base*) or from the beginning.

    A history is derived from its family's `Memory` and from this.
    """

    place: tuple[int, int]

    def __init__(self, base: Snapshot | None) -> None:
        self.base = base
        self.is_at_base = base is None
        self.lost = ""
        """Why what is known is not whole, in words; empty if it is."""
        self.reached = (0, 0)

    @abstractmethod
    def apply(self, records: Iterable[Record]) -> None:
        """Take the records of one turn, and begin with `reach_base`."""

    @abstractmethod
    def take_base(self, base: Snapshot) -> None:
        """Know what the snapshot holds, and nothing else: its place is reached."""

    @abstractmethod
    def forget(self) -> None:
        """Know nothing: a life begins that rests on nothing before it."""

    def begin_life(self, facts: Facts) -> None:
        """Go on with the next life."""
        self.reach_base()
        if not facts.is_fresh:
            return
        self.lost = ""
        if self.base is None or mark_of(self.base)[0] < self.place[0]:
            self.base, self.is_at_base = None, True
            self.forget()

    def reach_base(self) -> None:
        """Begin with the snapshot if its place is reached."""
        if self.base is None or self.is_at_base or self.reached != mark_of(self.base):
            return
        self.is_at_base, self.lost = True, ""
        self.take_base(self.base)

    def break_off(self, reason: str) -> None:
        """Learn that something is missing here."""
        self.reach_base()
        self.lost = self.lost or reason


History = TypeVar("History", bound=AboveSnapshot)


class ReadingBack(Recalling, Generic[History]):
    """One run of a recovery that begins with a snapshot; subclasses judge what was found."""

    @abstractmethod
    def begin_at(self, base: Snapshot | None) -> History:
        """Give a history that has not read anything yet."""

    def why_unreadable(self, base: Snapshot) -> str:
        """Say why a snapshot whose checksums are right is of no use; nothing if it is."""
        del base
        return ""

    def read_back(self) -> tuple[History, list[Stage]]:
        """Read from the newest snapshot on to which the journal leads; without one, everything."""
        found_before = len(self.findings)
        for base in self.snapshots.good():
            wrong = self.why_unreadable(base)
            if wrong:
                self.find(Kind.DAMAGED, base.path, wrong)
                found_before = len(self.findings)
                continue
            history, stages = self._read_from(base)
            if history.is_at_base:
                return history, stages
            del self.findings[found_before:]
        return self._read_from(None)

    def useless(self, base: Snapshot | None) -> tuple[str, ...]:
        """Give the snapshots that nothing will ever refer to: the journal does not reach them."""
        end = (self.end.incarnation, self.end.sequence)
        behind = (each for each in self.snapshots.all if mark_of(each) > end)
        # One that a life was begun with stays, whatever the segments are that stand around it.
        return tuple(each.path for each in behind if base is None or each.path != base.path)

    def _read_from(self, base: Snapshot | None) -> tuple[History, list[Stage]]:
        start = (0, 0) if base is None else mark_of(base)
        start = (start[0], max(start[1], 1))

        def is_enough(head: SegmentHead) -> bool:
            return _is_fresh(head) or (head.incarnation, head.first) <= start

        stages = self.walk_back(is_enough)
        history = self.begin_at(base)
        if base is None and stages and not _is_beginning(stages[0].head):
            # Behind a head that cannot be read there is no way to what came before it.
            history.break_off("the beginning of the journal is not there")
        for stage in stages:
            self.read(stage, history)
        history.reach_base()
        return history, stages


def _is_fresh(head: SegmentHead) -> bool:
    return head.facts.is_fresh and head.first == 1


def _is_beginning(head: SegmentHead | None) -> bool:
    """Say whether nothing comes before a segment."""
    if head is None:
        return False
    return _is_fresh(head) or (head.first, head.follows.incarnation) == (1, 0)
