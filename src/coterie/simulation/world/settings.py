"""How replicas behave and keep their journals in a simulation, unless a story says otherwise."""

from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import milliseconds
from coterie.kernel.settings import Settings

SIMULATED_SETTINGS = Settings(
    # Half as many life signs as in production: they are most of what a simulation has to do.
    heartbeat_interval=milliseconds(100),
    suspect_after_min=milliseconds(350),
)

SIMULATED_JOURNAL = KeeperSettings(
    # Small enough for segments, snapshots and retention to happen in a short run.
    journal=JournalSettings(segment_bytes=20_000),
    retention=Retention(journal_bytes_max=50_000),
    snapshot_bytes=10_000,
)
