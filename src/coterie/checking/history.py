"""A recorded history, arranged the way the properties speak of it.

One *life* per member (a restarted replica has a new one); in it one *era* per regular view the
member installed, with everything it proposed, sent and delivered there. Histories come from the
simulator or from the files of real processes; the checks are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coterie.kernel.records import (
    Delivered,
    Delivery,
    Sent,
    Started,
    Stopped,
    TransitionalInstalled,
    ViewInstalled,
    ViewProposed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.kernel.records import Record
    from coterie.kernel.views import Member, ViewId

Message = tuple[str, int, int, int, int]
"""A delivered batch as checks compare it: sender, its life, first number, count, digest."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: its name, and the evidence in words.

    `about` names what the evidence speaks of, where a reader wants to look it up.
    """

    check: str
    evidence: str
    about: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.check}: {self.evidence}"


@dataclass(slots=True)
class Era:
    """What one member did from the installation of one view to the next."""

    installed: ViewInstalled
    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    transitional: list[tuple[int, TransitionalInstalled]] = field(default_factory=list)
    """Transitional views, each with how many deliveries came before it."""
    successor: ViewInstalled | None = None

    @property
    def view(self) -> ViewId:
        """The view of this era."""
        return self.installed.view

    def messages(self) -> list[Message]:
        """All deliveries, as they can be compared between members."""
        return [message_of(record) for record in self.delivered]


@dataclass(slots=True)
class MemberLife:
    """One member from its start to its end."""

    member: Member
    eras: list[Era] = field(default_factory=list)
    proposals: list[ViewProposed] = field(default_factory=list)
    has_ended: bool = False
    """Whether the member crashed or stopped, so that nothing more can be asked of it."""

    def era_of(self, view: ViewId) -> Era | None:
        """Give the era of a view, if the member installed it."""
        for era in self.eras:
            if era.view == view:
                return era
        return None


class GroupHistory:
    """All lives of one group, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.lives: dict[Member, MemberLife] = {}
        self.records = 0
        self.end_time = 0
        self.strays: list[Record] = []
        """Records that no view of their member covers; each is a violation."""

    def add(self, record: Record, *, true_time: int = 0) -> None:
        """Append a record; each member's records must come in their order."""
        self.records += 1
        self.end_time = max(self.end_time, true_time or record.at)
        life = self.lives.get(record.member)
        if life is None:
            life = self.lives[record.member] = MemberLife(record.member)
        if life.has_ended:
            self.strays.append(record)
            return
        match record:
            case Delivered() | Sent() | TransitionalInstalled():
                self._add_in_view(life, record)
            case ViewInstalled():
                if life.eras:
                    life.eras[-1].successor = record
                life.eras.append(Era(record))
            case ViewProposed():
                life.proposals.append(record)
            case Stopped():
                life.has_ended = True
            case Started():
                pass

    def _add_in_view(
        self, life: MemberLife, record: Delivered | Sent | TransitionalInstalled
    ) -> None:
        if not life.eras or life.eras[-1].view != record.view:
            self.strays.append(record)
            return
        era = life.eras[-1]
        match record:
            case Delivered():
                era.delivered.append(record)
            case Sent():
                era.sent.append(record)
            case TransitionalInstalled():
                era.transitional.append((len(era.delivered), record))

    def crashed(self, member: Member) -> None:
        """Learn that a member's life ended without a word."""
        if member in self.lives:
            self.lives[member].has_ended = True

    def eras(self) -> Iterator[tuple[MemberLife, Era]]:
        """Go through all eras of all lives."""
        for life in self.lives.values():
            for era in life.eras:
                yield life, era

    def by_view(self) -> dict[ViewId, list[tuple[MemberLife, Era]]]:
        """Give for each view the members that installed it, with their eras."""
        views: dict[ViewId, list[tuple[MemberLife, Era]]] = {}
        for life, era in self.eras():
            views.setdefault(era.view, []).append((life, era))
        return views

    def together(self) -> dict[tuple[ViewId, ViewId], list[tuple[MemberLife, Era]]]:
        """Give for each pair of consecutive views the members that went from one to the other."""
        pairs: dict[tuple[ViewId, ViewId], list[tuple[MemberLife, Era]]] = {}
        for life, era in self.eras():
            if era.successor is not None:
                pairs.setdefault((era.view, era.successor.view), []).append((life, era))
        return pairs


def message_of(record: Delivered | Sent) -> Message:
    """Give a batch as it can be compared between members."""
    sender = record.sender if isinstance(record, Delivered) else record.member
    return (sender.id, sender.incarnation, record.first, record.count, record.digest)


def in_order(era: Era) -> list[Delivered]:
    """Give the deliveries that count for the strong prefix property."""
    return [record for record in era.delivered if record.delivery is not Delivery.AFTER_HOLE]
