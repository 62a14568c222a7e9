"""The journals in golden/: one record of every kind, two lives, a torn tail, snapshots.

One is of a replica whose engine orders entries, one of a cohort, one of a group that is audited,
one of a server over a partitioned network.

    python -m tests.journal.golden_journal

writes it anew. That is right only while no release with this format is in use: afterwards a change
of the bytes needs a new version of the format, and its own golden files beside the old ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec.msgpack import encode
from tests.journal.golden_llft import make_program

from coterie.journal.engines.colours import COLOURS
from coterie.journal.engines.stack import recover
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.journal.format import Sync
from coterie.journal.keeper import KeeperSettings
from coterie.journal.life import begin_life
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.stable import found_group, join_group
from coterie.journal.writer import JournalSettings, JournalWriter
from coterie.kernel.components import (
    Action,
    ActionId,
    Component,
    Promises,
    ServerMemory,
    Vulnerable,
    Yellow,
)
from coterie.kernel.configuration import encode_change
from coterie.kernel.engine import Checkpoint, Run, Standing, Version
from coterie.kernel.records import (
    ActionsGreen,
    ActionsKnown,
    AskedCall,
    CallsAsked,
    Catastrophe,
    ComponentAttempted,
    ComponentInstalled,
    ComponentState,
    ConfigurationForced,
    ConfigurationSettled,
    Delivered,
    Delivery,
    EntriesAccepted,
    EventsKnown,
    Forced,
    GreenLines,
    HistoryAdopted,
    InvitationAccepted,
    InvitationsMade,
    MembersChanged,
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
    StateAdopted,
    StateAt,
    StateDigest,
    StateEntered,
    StateTaken,
    Stopped,
    TransitionalInstalled,
    ViewEnded,
    ViewFormed,
    ViewInstalled,
    ViewProposed,
    ViewStarted,
    WordGiven,
)
from coterie.kernel.views import (
    NO_VIEW,
    ChangedConfiguration,
    Configuration,
    Member,
    ReplicaAddresses,
    ViewId,
    Viewstamp,
)
from coterie.simulation.world.disk import SimulatedDisk

FOLDER = Path(__file__).parent / "golden"
GROUP, ID = "seats/LH 400", "a"
SCHEMA = (27, 156)
"""What the release that wrote it knew."""
PLACE = "seats%2FLH%20400/a"
COHORT_GROUP = "bank"
AUDITED_GROUP = "vault"
CHANGED_GROUP = "crew"
BRANCHES_GROUP = "branches"
SERVER_GROUP = "flights"
COHORTS = Configuration(1, ("a", "b", "c"))
JOINING = Configuration(0, ("b",))

A, B = Member("a", 1), Member("b", 2)
OLD, NEW = ViewId(6, "a", 1), ViewId(7, "b", 2)
PRIM = Component(1, OLD, ("a", "b", "c"))
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


def cohort_turns() -> list[list[Record]]:
    """The first life of the cohort."""
    group, first = COHORT_GROUP, Viewstamp(NO_VIEW, 0)
    began = (first, Viewstamp(OLD, 0))
    taken = (first, Viewstamp(OLD, 3), Viewstamp(NEW, 0))
    return [
        [Started(group=group, member=A, at=1, stack="VSR", configuration=COHORTS)],
        [InvitationsMade(group=group, member=A, at=2, view=OLD)],
        [
            ViewFormed(group=group, member=A, at=3, view=OLD, primary=A, members=(A, B)),
            ViewStarted(
                group=group, member=A, at=4, view=OLD, primary=A, members=(A, B), history=began
            ),
        ],
        [
            EventsKnown(group=group, member=A, at=5, view=OLD, first=1, events=[b"one", b"two"]),
            Forced(group=group, member=A, at=6, view=OLD, number=1),
            StateAt(group=group, member=A, at=7, known=Viewstamp(OLD, 2), digest=bytes(range(16))),
            MembersChanged(group=group, member=A, at=8, view=OLD, members=(A,)),
        ],
        [
            Catastrophe(group=group, member=A, at=9, view=OLD, normal=(A,), crashed=(B,)),
            InvitationAccepted(
                group=group,
                member=A,
                at=10,
                view=NEW,
                crashed=NO,
                known=Viewstamp(OLD, 2),
                was_primary=YES,
            ),
        ],
        [
            StateTaken(group=group, member=A, at=11, view=NEW, source=B, history=taken),
            ViewStarted(
                group=group, member=A, at=12, view=NEW, primary=B, members=(A, B), history=taken
            ),
        ],
        [
            EventsKnown(group=group, member=A, at=13, view=NEW, first=1, events=[b"three"]),
            Stopped(group=group, member=A, at=14),
        ],
    ]


def changed_turns() -> list[list[Record]]:
    """The first life of a replica that saw a member come and another one go."""
    joint = ChangedConfiguration(
        3,
        ("a", "c"),
        ("d",),
        ("a", "b"),
        ("e",),
        (ReplicaAddresses("c", "10.0.0.3:7001", "10.0.0.3:7101"),),
    )
    group = CHANGED_GROUP
    return [
        [
            Started(
                group=group,
                member=A,
                at=1,
                stack="PRIMARY:DYNSEQ:VSYNC",
                configuration=COHORTS,
                is_zombie=NO,
            )
        ],
        [ConfigurationSettled(group=group, member=A, at=2, position=300, configuration=joint)],
        [Stopped(group=group, member=A, at=3)],
    ]


def branches_turns() -> list[list[Record]]:
    """The first life of a cohort that joins its group, and learns that it is to be a member."""
    group, joint = BRANCHES_GROUP, ChangedConfiguration(3, ("b", "a"), (), ("b",))
    admitted = encode_change(ChangedConfiguration(2, ("b",), ("a",)))
    return [
        [Started(group=group, member=A, at=1, stack="VSR", configuration=JOINING)],
        [EventsKnown(group=group, member=A, at=2, view=OLD, first=1, events=[admitted])],
        [
            ConfigurationForced(
                group=group, member=A, at=3, known=Viewstamp(OLD, 300), configuration=joint
            )
        ],
    ]


def audited_turns() -> list[list[Record]]:
    """The first life of a replica that writes down who asked for what."""
    group = AUDITED_GROUP
    calls = [
        AskedCall("update", "add", 7, 1, 3, "", ""),
        AskedCall("query", "total", 0, 300, 1, "", "client 'x' has no role"),
        AskedCall("commit", "", 0, 0, 1, "bank/7.b/1", ""),
    ]
    return [
        [
            Started(
                group=group,
                member=A,
                at=1,
                stack="PRIMARY:DYNSEQ:VSYNC",
                configuration=COHORTS,
                is_zombie=NO,
            )
        ],
        [
            CallsAsked(
                group=group,
                member=A,
                at=2,
                client="x",
                address="127.0.0.1:5",
                calls=calls,
            )
        ],
    ]


def make() -> SimulatedDisk:
    """Write the journals with today's writer."""
    disk = SimulatedDisk(seed="golden")
    _make_replica(disk)
    _make_cohort(disk)
    found_group(disk, AUDITED_GROUP, ID)
    writer = begin_life(disk, recover(disk, AUDITED_GROUP, ID), JournalSettings(sync=Sync.TURN))
    for turn in audited_turns():
        writer.append(turn)
        writer.sync()
    writer.close()
    _make_server(disk)
    make_program(disk)
    found_group(disk, CHANGED_GROUP, ID)
    recovery = recover(disk, CHANGED_GROUP, ID)
    writer = begin_life(disk, recovery, JournalSettings(sync=Sync.TURN))
    for turn in changed_turns():
        writer.append(turn)
        writer.sync()
    writer.close()
    join_group(disk, BRANCHES_GROUP, ID, JOINING)
    keeper = CohortKeeper(disk, BRANCHES_GROUP, ID, JOINING)
    for turn in branches_turns():
        keeper.write(turn)
    keeper.close()
    return disk


def _make_server(disk: SimulatedDisk) -> None:
    COLOURS.found(disk, SERVER_GROUP, ID)
    found = COLOURS.recover(disk, SERVER_GROUP, ID)
    settings = KeeperSettings(journal=JournalSettings(sync=Sync.NONE))
    keeper = COLOURS.open(disk, found, settings)
    state = ServerMemory(Promises(PRIM, None, Yellow(2)), 2, ((B, 2),), (), (("a", 2),), 9, 7)
    keeper.checkpoint = lambda: Checkpoint(
        2, Version(OLD, 2), iter([encode(state), b"the object"]), ((B, 2),)
    )
    for turn in server_turns():
        keeper.write(turn)
    keeper.close()


def server_turns() -> list[list[Record]]:
    """The first life of a server over a partitioned network, with a state that it took over."""
    group = SERVER_GROUP
    red = [Action(A, 1, 10, b"red"), Action(B, 3, 11, b"yellow")]
    attempt = Vulnerable(1, NEW, ("a", "b"), ("a",))
    yellow = Yellow(2, (ActionId(B, 3),))
    return [
        [
            StateAdopted(group=group, member=A, at=1, source=B, position=2, greens=((B, 2),)),
            ActionsKnown(group=group, member=A, at=1, actions=[]),
        ],
        [
            StateEntered(group=group, member=A, at=2, view=NEW, state="NonPrim", reason="alone"),
            ActionsKnown(group=group, member=A, at=2, actions=red),
            GreenLines(group=group, member=A, at=2, lines=(("a", 2), ("b", 300)), white=2),
        ],
        [
            ComponentState(
                group=group,
                member=A,
                at=3,
                view=NEW,
                promises=Promises(PRIM, None, yellow),
                position=2,
            )
        ],
        [
            ComponentAttempted(
                group=group, member=A, at=4, view=NEW, promises=Promises(PRIM, attempt, yellow)
            ),
        ],
        [
            ComponentInstalled(
                group=group,
                member=A,
                at=5,
                view=NEW,
                promises=Promises(Component(2, NEW, ("a", "b")), attempt, None),
                position=2,
            ),
            ActionsGreen(
                group=group,
                member=A,
                at=5,
                view=NEW,
                number=1,
                position=3,
                actions=[ActionId(B, 3), ActionId(A, 1)],
                digests=[7, 1 << 31],
            ),
        ],
        [WordGiven(group=group, member=A, at=6, prim=PRIM, position=4)],
    ]


def _make_cohort(disk: SimulatedDisk) -> None:
    found_group(disk, COHORT_GROUP, ID, COHORTS)
    settings = KeeperSettings(journal=JournalSettings(sync=Sync.PRIMARY, segment_bytes=500))
    keeper = CohortKeeper(disk, COHORT_GROUP, ID, COHORTS, settings)
    history = (Viewstamp(NO_VIEW, 0), Viewstamp(OLD, 3), Viewstamp(NEW, 0))
    version = Version(history[-1].view, sum(each.number for each in history))
    keeper.checkpoint = lambda: Checkpoint(
        version.position, version, iter([b"one two", b" and a half"]), history=history
    )
    for turn in cohort_turns():
        keeper.write(turn)
        if keeper.needs_sync(0):
            keeper.sync()
    keeper.close()


def _make_replica(disk: SimulatedDisk) -> None:
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


def main() -> None:
    JournalWriter.schema = lambda _: SCHEMA  # type: ignore[assignment]
    disk = make()
    shutil.rmtree(FOLDER, ignore_errors=True)
    for path in disk.paths:
        place = FOLDER / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(disk.read(path, 0, disk.size(path)))


if __name__ == "__main__":
    main()
