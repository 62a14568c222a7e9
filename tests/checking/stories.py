"""Small histories, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import GroupHistory
from coterie.kernel.records import (
    Delivered,
    Delivery,
    Sent,
    Started,
    TransitionalInstalled,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.records import Record

A, B, C, D = (Member(name, 1) for name in "abcd")


def view(name: str) -> ViewId:
    """The view "2.a" is number 2, proposed by a."""
    number, _, proposer = name.partition(".")
    return ViewId(int(number), proposer, 1)


def members(names: str) -> tuple[Member, ...]:
    return tuple(Member(name, 1) for name in names)


class Author:
    """Writes the records of one member, in its own words."""

    def __init__(self, name: str) -> None:
        self.me = Member(name, 1)
        self.records: list[Record] = []
        self.current = NO_VIEW

    def starts(self) -> Author:
        configuration = Configuration(1, ("a", "b", "c"))
        self.records.append(
            Started(
                group="g", member=self.me, at=0, stack="TOKEN:VSYNC", configuration=configuration
            )
        )
        alone = f"1.{self.me.id}"
        return self.proposes(alone, self.me.id).installs(alone, self.me.id, along=self.me.id)

    def proposes(self, name: str, who: str, *, after: str | None = None) -> Author:
        self.records.append(
            ViewProposed(
                group="g",
                member=self.me,
                at=0,
                view=view(name),
                members=members(who),
                after=self.current if after is None else view(after),
            )
        )
        return self

    def ends(self, along: str) -> Author:
        """Enter the transitional part of the current view."""
        self.records.append(
            TransitionalInstalled(
                group="g", member=self.me, at=0, view=self.current, members=members(along)
            )
        )
        return self

    def installs(self, name: str, who: str, *, along: str) -> Author:
        self.records.append(
            ViewInstalled(
                group="g",
                member=self.me,
                at=0,
                view=view(name),
                members=members(who),
                previous=self.current,
                transitional=members(along),
            )
        )
        self.current = view(name)
        return self

    def goes(self, name: str, who: str, *, along: str) -> Author:
        """Go on to the next view, with nothing to deliver in between."""
        return self.ends(along).installs(name, who, along=along)

    def sends(self, first: int, *, count: int = 1, safe: bool = False) -> Author:
        self.records.append(
            Sent(
                group="g",
                member=self.me,
                at=0,
                view=self.current,
                first=first,
                count=count,
                safe=safe,
                digest=_digest(self.me.id, first),
            )
        )
        return self

    def delivers(
        self,
        message: str,
        number: int = 0,
        *,
        count: int = 1,
        safe: bool = False,
        part: Delivery = Delivery.REGULAR,
    ) -> Author:
        """Deliver the message "a7", a's seventh, at a place of the order."""
        sender, first = message[0], int(message[1:])
        self.records.append(
            Delivered(
                group="g",
                member=self.me,
                at=0,
                view=self.current,
                sender=Member(sender, 1),
                first=first,
                count=count,
                number=number,
                safe=safe,
                delivery=part,
                digest=_digest(sender, first),
            )
        )
        return self


def _digest(sender: str, first: int) -> int:
    return ord(sender) * 1000 + first


def history_of(*authors: Author | Iterable[Record]) -> GroupHistory:
    """All that the authors wrote, one after the other."""
    history = GroupHistory()
    for author in authors:
        for record in author.records if isinstance(author, Author) else author:
            history.add(record)
    return history
