"""Journals of any length, as five replicas of a busy group write them.

Positions come in runs of a few hundred, as turns under load have them: each run is the requests of
one replica's clients, which that replica answers. Every replica accepts and settles all of them.
The requests differ, so that nothing is easier than in a real history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Raw
from msgspec.msgpack import encode

from coterie.journal import FileDisk, JournalSettings, begin_life, recover
from coterie.journal.format import Sync
from coterie.journal.stable import found_group
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
from coterie.objects.execution.commands import Call, encode_command

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "bench"
NAMES = ("a", "b", "c", "d", "e")
_MEMBERS = tuple(Member(name, 1) for name in NAMES)
_VIEW = ViewId(1, NAMES[0], 1)
_RUN = 512
_SESSIONS = 64
"""How many sessions the clients of each replica have."""
_SEGMENT_BYTES = 8 << 20
_TURN_MICROSECONDS = 1000


class WrittenJournals(NamedTuple):
    """How many rows journals have, in all replicas together."""

    entries: int
    replies: int

    @property
    def rows(self) -> int:
        """How many rows there are, entries and replies together."""
        return self.entries + self.replies


def write_journals(folder: Path, rows: int, group: str = GROUP) -> WrittenJournals:
    """Write journals of a group with about *rows* entries and replies in all replicas together."""
    positions = rows // (len(NAMES) + 1)
    disk = FileDisk(folder)
    settings = JournalSettings(sync=Sync.NONE, segment_bytes=_SEGMENT_BYTES)
    writers = {}
    for name in NAMES:
        found_group(disk, group, name)
        writers[name] = begin_life(disk, recover(disk, group, name), settings)
        writers[name].append(_beginning(group, name))
    for turn, first in enumerate(range(1, positions + 1, _RUN)):
        requests = _requests(turn, range(first, min(first + _RUN, positions + 1)))
        for name, writer in writers.items():
            writer.append(_turn(group, name, requests))
    for writer in writers.values():
        writer.close()
    return WrittenJournals(positions * len(NAMES), positions)


def _beginning(group: str, name: str) -> list[Record]:
    me = Member(name, 1)
    common = (group, me, _TURN_MICROSECONDS)
    configuration = Configuration(1, NAMES)
    records: list[Record] = [
        Started(*common, stack="SAFE:DYNSEQ:PVSYNC", configuration=configuration)
    ]
    if name == _VIEW.proposer:
        records.append(ViewProposed(*common, view=_VIEW, members=_MEMBERS, after=NO_VIEW))
    return [
        *records,
        ViewInstalled(*common, view=_VIEW, members=_MEMBERS, previous=NO_VIEW, transitional=(me,)),
        PrimaryAccepted(*common, view=_VIEW, members=_MEMBERS, version=Version(NO_VIEW, 0)),
        PrimaryConfirmed(*common, view=_VIEW, position=0, accepted_by=_MEMBERS),
    ]


class _Requests(NamedTuple):
    """What one turn ordered, and what was answered."""

    at: int
    run: Run
    replies: list[Reply]


def _requests(turn: int, positions: range) -> _Requests:
    which, round_ = turn % len(NAMES), turn // len(NAMES)
    first = round_ * _RUN + 1  # of this origin's own numbers
    at = (turn + 2) * _TURN_MICROSECONDS
    asked_at = at - _TURN_MICROSECONDS // 2
    payloads: list[bytes] = []
    replies: list[Reply] = []
    for offset, position in enumerate(positions):
        session = 1 + which * _SESSIONS + offset % _SESSIONS
        request = 1 + (first + offset) // _SESSIONS
        arguments = Raw(encode([position * 7919 % 1_000_003, "abroad"]))
        call = Call(session, request, "record", arguments, asked_at, request, at)
        payloads.append(encode_command(call))
        place = (position, _VIEW, position)
        replies.append(
            Reply(session, request, *place, Standing.AUTHORITATIVE, asked_at, position & 0xFFFF)
        )
    run = Run(_VIEW, positions[0], positions[0], _MEMBERS[which], first, payloads)
    return _Requests(at, run, replies)


def _turn(group: str, name: str, requests: _Requests) -> list[Record]:
    common = (group, Member(name, 1), requests.at)
    last = requests.run.position + len(requests.run.payloads) - 1
    records: list[Record] = [
        EntriesAccepted(*common, run=requests.run),
        Settled(*common, position=last),
    ]
    if requests.run.origin.id == name:
        records.append(Replied(*common, replies=requests.replies))
    return records
