"""The journal in golden/: one record of every kind, two lives, a torn tail, snapshots.

    python -m tests.journal.golden_journal

writes it anew. That is right only while no release with this format is in use: afterwards a change
of the bytes needs a new version of the format, and its own golden files beside the old ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from coterie.journal.format import Sync
from coterie.journal.life import begin_life
from coterie.journal.recovery import recover
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings, JournalWriter
from coterie.kernel.engine import Run, Standing, Version
from coterie.kernel.records import (
    Delivered,
    Delivery,
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Record,
    Recovered,
    Replied,
    Reply,
    RolledBack,
    Sent,
    Settled,
    Started,
    StateDigest,
    Stopped,
    TransitionalInstalled,
    ViewEnded,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId
from coterie.simulation.disk import SimulatedDisk

FOLDER = Path(__file__).parent / "golden"
GROUP, ID = "seats/LH 400", "a"
SCHEMA = (16, 96)
"""What the release that wrote it knew."""
PLACE = "seats%2FLH%20400/a"

A, B = Member("a", 1), Member("b", 2)
OLD, NEW = ViewId(6, "a", 1), ViewId(7, "b", 2)
YES, NO = True, False


def turns() -> list[list[Record]]:
    """The first life."""
    run = Run(NEW, 1, 1, B, 300, [b"one", b"", b"\xff" * 40])
    other = Run(NEW, 4, 3, A, 1, [b"three", b"four"])
    records: list[list[Record]] = [
        [
            Started(
                group=GROUP,
                member=A,
                at=1,
                stack="PRIMARY:DYNSEQ:VSYNC",
                configuration=Configuration(1, ("a", "b", "c")),
                is_zombie=NO,
            ),
            ViewProposed(group=GROUP, member=A, at=2, view=OLD, members=(A, B), after=NO_VIEW),
            ViewInstalled(
                group=GROUP,
                member=A,
                at=3,
                view=NEW,
                members=(B, A),
                previous=OLD,
                transitional=(A,),
            ),
            TransitionalInstalled(group=GROUP, member=A, at=4, view=OLD, members=(A,)),
        ],
        [
            Sent(group=GROUP, member=A, at=5, view=NEW, first=1, count=2, safe=YES, digest=1 << 31),
            Delivered(
                group=GROUP,
                member=A,
                at=1 << 40,
                view=NEW,
                sender=B,
                first=300,
                count=3,
                number=1,
                safe=NO,
                delivery=Delivery.TRANSITIONAL,
                digest=7,
            ),
        ],
        [
            PrimaryAccepted(
                group=GROUP, member=A, at=6, view=NEW, members=(B, A), version=Version(NO_VIEW, 0)
            ),
            PrimaryConfirmed(group=GROUP, member=A, at=7, view=NEW, position=0, accepted_by=(A, B)),
        ],
        [
            EntriesAccepted(group=GROUP, member=A, at=8, run=run),
            Settled(group=GROUP, member=A, at=9, position=2),
            StateDigest(group=GROUP, member=A, at=10, position=2, digest=bytes(range(16))),
            Replied(
                group=GROUP,
                member=A,
                at=11,
                replies=[Reply(5, 6, 2, NEW, 2, Standing.AUTHORITATIVE, 3, 9)],
            ),
        ],
        [
            HistoryAdopted(
                group=GROUP,
                member=A,
                at=12,
                view=NEW,
                source=B,
                version=Version(NEW, 4),
                kept=2,
                restored=0,
            ),
            ViewEnded(
                group=GROUP,
                member=A,
                at=13,
                view=NEW,
                counts=[2, 3],
                digest=4,
                transitional_counts=[0, 1],
                transitional_digest=5,
            ),
            RolledBack(group=GROUP, member=A, at=13, position=2),
            EntriesAccepted(group=GROUP, member=A, at=14, run=other),
            PrimaryAccepted(
                group=GROUP, member=A, at=15, view=NEW, members=(B, A), version=Version(NEW, 4)
            ),
        ],
        [
            Recovered(group=GROUP, member=A, at=16, version=Version(NEW, 4)),
            Stopped(group=GROUP, member=A, at=17),
        ],
    ]
    return records


def make() -> SimulatedDisk:
    """Write the journal with today's writer."""
    disk = SimulatedDisk(seed="golden")
    found_group(disk, GROUP, ID)
    settings = JournalSettings(sync=Sync.TURN, segment_bytes=680)
    writer = begin_life(disk, recover(disk, GROUP, ID), settings)
    for turn in turns():
        writer.append(turn)
        writer.sync()
    SnapshotStore(disk, GROUP, ID).begin(
        2, writer.facts().version, after=writer.end, origins=[(B, 301)]
    ).write([b"the state", b"in two chunks"])
    SnapshotStore(disk, GROUP, ID, name=DUMPS).begin(
        2, writer.facts().version, after=writer.end
    ).write([b"the state"])
    disk.die_in_write(after_bytes=50)
    try:
        writer.append([Stopped(group=GROUP, member=A, at=18)])
    except Exception as death:  # noqa: BLE001 -- it was planned
        assert type(death).__name__ == "Died"  # noqa: PT017
    writer = begin_life(disk, recover(disk, GROUP, ID), settings)
    writer.append([Stopped(group=GROUP, member=Member("a", 2), at=19)])
    writer.sync()
    return disk


def main() -> None:
    JournalWriter.schema = SCHEMA
    disk = make()
    shutil.rmtree(FOLDER, ignore_errors=True)
    for path in disk.paths:
        place = FOLDER / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(disk.read(path, 0, disk.size(path)))


if __name__ == "__main__":
    main()
