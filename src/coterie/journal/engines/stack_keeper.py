"""The journal of a replica whose engine orders entries: keeping it, and ending a zombie by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.engines.stack import Recovery, recover
from coterie.journal.format import Sync
from coterie.journal.keeper import Keeper, KeeperSettings
from coterie.journal.life import begin_life
from coterie.journal.writer import JournalSettings
from coterie.kernel.records import Recovered
from coterie.kernel.views import Member

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.kernel.engine import Past


class JournalKeeper(Keeper):
    """Keeps the journal of a replica whose engine orders entries.

    Making one recovers what earlier lives left, unless that is *found* already, and begins the
    next. Raises `StorageFailed` if the journal cannot be begun, `VersionUnknown` if a later release
    wrote it, and `WrongJournal` if it is another family's: the replica must not start.
    """

    recovery: Recovery

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        disk: Disk,
        group: str,
        replica: str,
        settings: KeeperSettings | None = None,
        *,
        incarnation_min: int = 1,
        at: int = 0,
        found: Recovery | None = None,
    ) -> None:
        if found is None:
            found = recover(disk, group, replica, incarnation_min=incarnation_min)
        super().__init__(disk, found, settings, at=at)

    def past(self) -> Past:
        """Give what the engine is to know of earlier lives."""
        return self.recovery.past()


def mark_recovered(disk: Disk, group: str, replica: str, *, at: int) -> Recovery:
    """Let the history of a zombie count again, on the word of an operator who accepts loss.

    For a replica that is not running. Writes, as a life of its own, the `Recovered` record that
    names the history; gives what the replica's next start will find. *at* is the time for the
    record. Raises `ValueError` if the replica is no zombie, since then there is nothing to accept.
    """
    recovery = recover(disk, group, replica)
    if not recovery.is_zombie:
        raise ValueError(
            f"replica {replica} of group {group} has lost nothing ({recovery.reason}): "
            "just start it"
        )
    writer = begin_life(disk, recovery, JournalSettings(sync=Sync.TURN), at=at)
    writer.append(
        [
            Recovered(
                group=group,
                member=Member(replica, recovery.incarnation),
                at=at,
                version=recovery.version,
            )
        ]
    )
    writer.sync()
    writer.close()
    return recover(disk, group, replica)
