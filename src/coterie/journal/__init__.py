"""What replicas write down: the journal, from which they recover and the pipeline learns.

`docs/journal-format.md` specifies the format. In short, a driver does this:

    keeper = JournalKeeper(disk, group, replica)     # and hands keeper.past() to the engine
    ...
    keeper.write(effects.records)                    # every turn, before its frames leave
    if keeper.needs_sync(now):
        keeper.sync()

`JournalKeeper` puts the parts together: `recover`, `begin_life`, the writer, snapshots, retention.
`CohortKeeper` does so for a cohort of viewstamped replication.

Recordings (`coterie.journal.recording`) are simpler: the history of one process in one file.
"""

from coterie.journal.cohort_keeper import CohortKeeper
from coterie.journal.cohorts import CohortRecovery, recover_cohort
from coterie.journal.disk import Disk, FileDisk
from coterie.journal.format import (
    Finding,
    JournalDamaged,
    JournalError,
    Kind,
    Mark,
    Sync,
    VersionUnknown,
    WrongJournal,
)
from coterie.journal.keeper import JournalKeeper, Keeper, KeeperSettings
from coterie.journal.life import begin_life, mark_recovered
from coterie.journal.reader import JournalReader, Offset
from coterie.journal.recovery import Recovery, recover
from coterie.journal.retention import Retention, retain
from coterie.journal.segments import SegmentFile, SegmentReader, Turn, list_journals, list_lives
from coterie.journal.snapshots import DUMPS, SNAPSHOTS, Snapshot, SnapshotStore
from coterie.journal.stable import Stable, found_group
from coterie.journal.writer import JournalSettings, JournalWriter, StorageFailed, StorageFull

__all__ = [
    "DUMPS",
    "SNAPSHOTS",
    "CohortKeeper",
    "CohortRecovery",
    "Disk",
    "FileDisk",
    "Finding",
    "JournalDamaged",
    "JournalError",
    "JournalKeeper",
    "JournalReader",
    "JournalSettings",
    "JournalWriter",
    "Keeper",
    "KeeperSettings",
    "Kind",
    "Mark",
    "Offset",
    "Recovery",
    "Retention",
    "SegmentFile",
    "SegmentReader",
    "Snapshot",
    "SnapshotStore",
    "Stable",
    "StorageFailed",
    "StorageFull",
    "Sync",
    "Turn",
    "VersionUnknown",
    "WrongJournal",
    "begin_life",
    "found_group",
    "list_journals",
    "list_lives",
    "mark_recovered",
    "recover",
    "recover_cohort",
    "retain",
]
