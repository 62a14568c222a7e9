"""Journals written record by record, for what no simulated run shows on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coterie.journal import FileDisk, begin_life, recover
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings
from coterie.kernel.engine import Run, Standing, Version
from coterie.kernel.records import (
    EntriesAccepted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Record,
    Replied,
    Reply,
    Settled,
    Started,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId

NAMES = ("a", "b", "c")
VIEW = ViewId(1, "a", 1)
MEMBERS = tuple(Member(name, 1) for name in NAMES)


def begin(group: str, name: str, names: Sequence[str] = NAMES) -> list[Record]:
    """The records of a replica that came into the first primary view."""
    me = Member(name, 1)
    members = tuple(Member(each, 1) for each in names)
    common = (group, me, 1)
    configuration = Configuration(1, tuple(names))
    records: list[Record] = [
        Started(*common, stack="SAFE:DYNSEQ:PVSYNC", configuration=configuration)
    ]
    if name == VIEW.proposer:
        records.append(ViewProposed(*common, view=VIEW, members=members, after=NO_VIEW))
    return [
        *records,
        ViewInstalled(*common, view=VIEW, members=members, previous=NO_VIEW, transitional=(me,)),
        PrimaryAccepted(*common, view=VIEW, members=members, version=Version(NO_VIEW, 0)),
        PrimaryConfirmed(*common, view=VIEW, position=0, accepted_by=members),
    ]


def entries(
    group: str, name: str, position: int, payloads: Sequence[bytes], *, view: ViewId = VIEW
) -> EntriesAccepted:
    run = Run(view, position, position, MEMBERS[0], position, list(payloads))
    return EntriesAccepted(group, Member(name, 1), 1, run=run)


def settled(group: str, name: str, position: int) -> Settled:
    return Settled(group, Member(name, 1), 1, position=position)


def replied(  # noqa: PLR0913 -- what an answer has
    group: str,
    name: str,
    *,
    at: int,
    session: int,
    request: int,
    position: int,
    digest: int = 0,
    number: int = 0,
) -> Replied:
    reply = Reply(
        session=session,
        request=request,
        position=position,
        view=VIEW,
        number=number or position,
        standing=Standing.AUTHORITATIVE,
        asked_at=0,
        digest=digest,
    )
    return Replied(group, Member(name, 1), at, replies=[reply])


def write(
    folder: Path,
    group: str,
    records: Mapping[str, Sequence[Record]],
    *,
    incarnation: int = 1,
    settings: JournalSettings | None = None,
) -> None:
    """Write a life for each replica, one turn a record; from the second on it is a later one."""
    disk = FileDisk(folder)
    for name, told in records.items():
        found_group(disk, group, name)
        found = recover(disk, group, name, incarnation_min=incarnation)
        writer = begin_life(disk, found, settings)
        for record in told:
            writer.append([record])
        writer.close()
