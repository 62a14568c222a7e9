"""A replica that begins with a state: what is on its disk before its first life in the group.

The journal is that of a replica that was in a primary view, settled everything up to a position,
and kept a snapshot there and no entries. The code that writes every journal writes this one, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.engines.stack import Recovery
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.facts import Facts
from coterie.journal.format import Mark
from coterie.journal.snapshots import SnapshotStore
from coterie.kernel.records import Started
from coterie.kernel.views import Member

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.engine import Version
    from coterie.kernel.views import Configuration


_NOWHERE = Mark(0, 0)


def begin_with_state(  # noqa: PLR0913 -- what a journal is made of
    disk: Disk,
    stack: str,
    group: str,
    id: str,
    *,
    configuration: Configuration,
    version: Version,
    chunks: Iterable[bytes],
    settings: KeeperSettings,
    origins: Sequence[tuple[Member, int]] = (),
    end: Mark = _NOWHERE,
) -> None:
    """Write the disk of a founder whose history, up to *version*, is the state in *chunks*.

    *end* is where its earlier lives had come to, which are not there any more.
    """
    life = end.incarnation + 1
    found = Recovery(
        group=group,
        replica=id,
        incarnation=life,
        reason="",
        is_zombie=False,
        is_broken=False,
        is_founder=True,
        facts=Facts(version, version.position, version.view.number, version.view),
        snapshot=None,
        end=end,
    )
    keeper = JournalKeeper(disk, group, id, settings, found=found)
    me = Member(id, life)
    keeper.write([Started(group=group, member=me, at=0, stack=stack, configuration=configuration)])
    keeper.sync()
    store = SnapshotStore(disk, group, id)
    after = keeper.writer.end
    store.begin(version.position, version, after=after, origins=origins).write(chunks)
    keeper.close()
