"""Which segments there are, and what must be known of the others to read one alone.

A segment is what one task reads. Whether its end is the end of a life, where the next life took
over, and what follows it cannot be seen in the segment itself; so the plan, made in one place from
names and heads alone, tells every task.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.journal import FileDisk, JournalError, SegmentFile, list_journals, list_lives
from coterie.journal.reader import follows_of, limits_of
from coterie.journal.removed import read_removed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coterie.journal.segments import Life

NO_LIMIT = -1


class NoJournals(JournalError):
    """There is no journal where one was expected."""


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment to read, with what the plan knows of its surroundings. All plain values."""

    root: str
    group: str
    replica: str
    incarnation: int
    first: int
    path: str
    bytes: int
    limit: int
    """The last record of the life that counts; NO_LIMIT if no later life went on."""
    following: int
    """The first record of the next segment of this life; 0 if this is the last one."""
    is_first: bool
    """Whether no earlier segment of this life is there."""
    is_over: bool
    """Whether nobody writes to it any more."""
    removed: tuple[tuple[int, int], ...]
    """Which records of the life were removed on purpose."""
    absent_life: int = 0
    """The life from which this one went on, if that is not there at all."""
    absent_up_to: int = 0
    """How many records of it this life went on from."""
    is_life_removed: bool = False
    """Whether that life was removed on purpose."""

    @property
    def name(self) -> str:
        """A name for files made from this segment, unlike that of any other of its group."""
        replica = self.path.split("/")[1]
        return f"{replica}-{self.incarnation:06}-{self.first:015}"

    @property
    def file(self) -> SegmentFile:
        """The segment by its place."""
        return SegmentFile(self.incarnation, self.first, self.path)


def plan(
    roots: Sequence[str | Path],
    *,
    growing: bool = False,
    groups: Iterable[str] | None = None,
    replicas: Iterable[str] | None = None,
) -> list[SegmentTask]:
    """Give every segment below the folders *roots*, or those of some groups and replicas.

    *growing* says that the replicas may still be at work: what is cut off at the end of a last
    life is then on its way, and no damage.
    """
    wanted_groups = None if groups is None else set(groups)
    wanted_replicas = None if replicas is None else set(replicas)
    tasks: list[SegmentTask] = []
    seen: dict[tuple[str, str], str] = {}
    for root in roots:
        if not Path(root).is_dir():
            raise NoJournals(f"{root} is no folder: name the folder that holds the groups")
        disk = FileDisk(root)
        journals = list_journals(disk)
        if not journals:
            raise NoJournals(
                f"there is no journal in {root}: a journal is a folder <group>/<replica> there"
            )
        for group, replica in journals:
            other = seen.setdefault((group, replica), str(root))
            if other != str(root):
                raise NoJournals(
                    f"replica {replica} of group {group} has a journal in {other} and another in "
                    f"{root}: read one of them"
                )
            if wanted_groups is not None and group not in wanted_groups:
                continue
            if wanted_replicas is not None and replica not in wanted_replicas:
                continue
            tasks += _of_replica(str(root), disk, group, replica, growing=growing)
    return tasks


def _of_replica(
    root: str, disk: FileDisk, group: str, replica: str, *, growing: bool
) -> Iterator[SegmentTask]:
    lives = list_lives(disk, group, replica)
    follows = follows_of(disk, lives)
    limits = limits_of(lives, follows)
    removed = read_removed(disk, group, replica)
    present = {life.incarnation for life in lives}
    for life in lives:
        is_last_life = life is lives[-1]
        for index, file in enumerate(life.segments):
            following = _following(life, index)
            before = follows.get(life.incarnation) if index == 0 else None
            is_absent = before is not None and before.incarnation not in {0, *present}
            yield SegmentTask(
                root=root,
                group=group,
                replica=replica,
                incarnation=life.incarnation,
                first=file.first,
                path=file.path,
                bytes=disk.size(file.path),
                limit=limits.get(life.incarnation, NO_LIMIT),
                following=following,
                is_first=index == 0,
                is_over=not (growing and is_last_life and not following),
                removed=removed.get(life.incarnation, ()),
                absent_life=before.incarnation if before is not None and is_absent else 0,
                absent_up_to=before.sequence if before is not None and is_absent else 0,
                is_life_removed=before is not None and before.incarnation in removed,
            )


def _following(life: Life, index: int) -> int:
    return life.segments[index + 1].first if index + 1 < len(life.segments) else 0
