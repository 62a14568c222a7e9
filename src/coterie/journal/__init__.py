"""What replicas write down: the journal, from which they recover and the pipeline learns.

`docs/internals/journal-format.md` specifies the format. In short, a driver does this:

    keeper = JournalKeeper(disk, group, replica)     # and hands keeper.past() to the engine
    ...
    keeper.write(effects.records)                    # every turn, before its frames leave
    if keeper.needs_sync(now):
        keeper.sync()

`Keeper` puts the parts together: `begin_life`, the writer, snapshots, retention. What is another
thing for each engine is asked of its `JournalFamily`, by whose name `journal_family` gives it;
`JournalKeeper` and `CohortKeeper` are the keepers of the two families here.
"""

from coterie.journal.disk import Disk, FileDisk
from coterie.journal.engines import FAMILIES, journal_family
from coterie.journal.engines.stack import Recovery, recover
from coterie.journal.engines.stack_keeper import JournalKeeper, mark_recovered
from coterie.journal.engines.vsr import CohortRecovery, recover_cohort
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.journal.family import JournalFamily, LifeFound
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
from coterie.journal.keeper import Keeper, KeeperSettings
from coterie.journal.life import begin_life
from coterie.journal.reader import JournalReader, Offset
from coterie.journal.retention import Retention, retain
from coterie.journal.segments import SegmentFile, SegmentReader, Turn, list_journals, list_lives
from coterie.journal.snapshots import DUMPS, SNAPSHOTS, Snapshot, SnapshotStore
from coterie.journal.stable import Stable, found_group
from coterie.journal.writer import JournalSettings, JournalWriter, StorageFailed, StorageFull

__all__ = [
    "DUMPS",
    "FAMILIES",
    "SNAPSHOTS",
    "CohortKeeper",
    "CohortRecovery",
    "Disk",
    "FileDisk",
    "Finding",
    "JournalDamaged",
    "JournalError",
    "JournalFamily",
    "JournalKeeper",
    "JournalReader",
    "JournalSettings",
    "JournalWriter",
    "Keeper",
    "KeeperSettings",
    "Kind",
    "LifeFound",
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
    "journal_family",
    "list_journals",
    "list_lives",
    "mark_recovered",
    "recover",
    "recover_cohort",
    "retain",
]
