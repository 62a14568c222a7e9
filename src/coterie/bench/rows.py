"""Journals of any size for `coterie bench pipeline`: what five replicas of a busy group write.

Positions come in runs of a few hundred, as turns under load have them, and every replica accepts
and settles all of them. The payloads differ, so that nothing is easier than in a real history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal import FileDisk, JournalSettings, begin_life, recover
from coterie.journal.format import Sync
from coterie.journal.stable import found_group
from coterie.kernel.engine import Run, Version
from coterie.kernel.records import (
    EntriesAccepted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Record,
    Settled,
    Started,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUP = "bench"
NAMES = ("a", "b", "c", "d", "e")
_MEMBERS = tuple(Member(name, 1) for name in NAMES)
_VIEW = ViewId(1, NAMES[0], 1)
_RUN = 512
_SEGMENT_BYTES = 8 << 20


def write_journals(folder: Path, rows: int) -> int:
    """Write journals with about *rows* entries in all replicas together; give how many they are."""
    positions = rows // len(NAMES)
    disk = FileDisk(folder)
    settings = JournalSettings(sync=Sync.NONE, segment_bytes=_SEGMENT_BYTES)
    for name in NAMES:
        found_group(disk, GROUP, name)
        writer = begin_life(disk, recover(disk, GROUP, name), settings)
        for turn in _turns(name, positions):
            writer.append(turn)
        writer.close()
    return positions * len(NAMES)


def _turns(name: str, positions: int) -> Iterator[list[Record]]:
    me = Member(name, 1)
    at = 1_000_000
    common = (GROUP, me, at)
    configuration = Configuration(1, NAMES)
    yield [Started(*common, stack="SAFE:DYNSEQ:PVSYNC", configuration=configuration)]
    if name == _VIEW.proposer:
        yield [ViewProposed(*common, view=_VIEW, members=_MEMBERS, after=NO_VIEW)]
    yield [
        ViewInstalled(*common, view=_VIEW, members=_MEMBERS, previous=NO_VIEW, transitional=(me,)),
        PrimaryAccepted(*common, view=_VIEW, members=_MEMBERS, version=Version(NO_VIEW, 0)),
        PrimaryConfirmed(*common, view=_VIEW, position=0, accepted_by=_MEMBERS),
    ]
    for first in range(1, positions + 1, _RUN):
        last = min(first + _RUN - 1, positions)
        at += 1000
        payloads = [b"call %15d" % (position * 7919) for position in range(first, last + 1)]
        run = Run(_VIEW, first, first, _MEMBERS[0], first, payloads)
        yield [
            EntriesAccepted(GROUP, me, at, run=run),
            Settled(GROUP, me, at, position=last),
        ]
