"""Which segments there are, and what must be known of the others to read one alone.

A segment is what one task reads. Whether its end is the end of a life, where the next life took
over, and what follows it cannot be seen in the segment itself; so the plan, made in one place from
names and heads alone, tells every task.

A *survey* is the plan, and what else the folders say: which lives there were, by the stable values
and the notes of what was removed; which journals are still being written; and which files and
folders cannot be read at all, each a finding with its name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.journal import (
    FileDisk,
    Kind,
    SegmentFile,
    Stable,
    VersionUnknown,
    list_journals,
    list_lives,
)
from coterie.journal.format import folder_of
from coterie.journal.reader import follows_of, limits_of
from coterie.journal.removed import read_removed
from coterie.pipeline.read.live import Live
from coterie.pipeline.read.places import NoJournals, as_text, is_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coterie.journal.segments import Life

Row = dict[str, Any]
NO_LIMIT = -1
SETTLED_SECONDS = 2.0
"""A file that was written more recently may be written again without a new time of change."""


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
    last_valid: int
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
    signature: tuple[int, ...] = ()
    """What the file system says of the file: another one if it was written since. Empty if it was
    written so recently that this could not tell."""

    @property
    def name(self) -> str:
        """A name for files made from this segment, unlike that of any other of its group."""
        replica = self.path.split("/")[1]
        return f"{replica}-{self.incarnation:06}-{self.first:015}"

    @property
    def file(self) -> SegmentFile:
        """The segment by its place."""
        return SegmentFile(self.incarnation, self.first, self.path)


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """What the folder of one replica says beside its segments."""

    group: str
    replica: str
    root: str
    claimed: int
    """The highest life that may have begun, by its stable values; 0 if they do not tell."""
    lives: tuple[int, ...]
    """The lives that are there."""
    removed: tuple[tuple[int, int, int], ...]
    """Which records of which lives were removed on purpose: life, first, last."""
    is_open: bool
    """Whether it is still being written."""
    boot_id: str
    """The run of the machine in which it was looked at."""


@dataclass(slots=True)
class Survey:
    """All that the folders of journals say by names and heads."""

    tasks: list[SegmentTask] = field(default_factory=list)
    sources: list[JournalFolder] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    """What cannot be read at all, as rows of `findings`."""

    def find(  # noqa: PLR0913, PLR0917 -- what a finding has
        self,
        group: str,
        replica: str,
        path: str,
        reason: str,
        incarnation: int = 0,
        first: int = 0,
    ) -> None:
        """Learn of something that cannot be read."""
        self.findings.append(
            {
                "group_name": group,
                "replica": replica,
                "incarnation": incarnation,
                "path": path,
                "byte_offset": 0,
                "kind": Kind.UNREADABLE.value,
                "reason": reason,
                "first": first,
                "last": 0,
            }
        )


def plan(
    roots: Sequence[str | Path],
    *,
    growing: bool = False,
    groups: Iterable[str] | None = None,
    replicas: Iterable[str] | None = None,
) -> list[SegmentTask]:
    """Give every segment below the folders *roots*, or those of some groups and replicas."""
    return survey(roots, growing=growing, groups=groups, replicas=replicas).tasks


def survey(
    roots: Sequence[str | Path],
    *,
    growing: bool = False,
    quiet_seconds: float = 0.0,
    groups: Iterable[str] | None = None,
    replicas: Iterable[str] | None = None,
) -> Survey:
    """Look at all journals below the folders *roots*, or those of some groups and replicas.

    Journals that are being written on this machine are recognised. *growing* says that all may be,
    because these are copies: what is cut off at the end of a last life is then on its way, and no
    damage. With *quiet_seconds* that holds for those which were written as recently as that.
    """
    wanted_groups = None if groups is None else set(groups)
    wanted_replicas = None if replicas is None else set(replicas)
    found = Survey()
    looking = _Looking(found, Live(), growing=growing, quiet_seconds=quiet_seconds)
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
            if not (is_text(group) and is_text(replica)):
                names = as_text(group), as_text(replica)
                found.find(*names, "/".join(names), "its name is no text: rename the folder")
                continue
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
            looking.at(str(root), disk, group, replica)
    return found


class _Looking:
    """One survey while it is made."""

    def __init__(self, found: Survey, live: Live, *, growing: bool, quiet_seconds: float) -> None:
        self._found = found
        self._live = live
        self._growing = growing
        self._quiet = quiet_seconds
        self._now = time.time()

    def at(self, root: str, disk: FileDisk, group: str, replica: str) -> None:
        """Look at the journal of one replica."""
        folder = folder_of(group, replica)
        try:
            lives = list_lives(disk, group, replica)
            removed = read_removed(disk, group, replica)
        except OSError as error:
            self._found.find(group, replica, folder, f"it cannot be read: {error.strerror}")
            return
        lives = [self._readable(disk, group, replica, life) for life in lives]
        is_open = self._is_open(root, lives)
        self._found.sources.append(
            JournalFolder(
                group=group,
                replica=replica,
                root=root,
                claimed=self._claimed(disk, group, replica),
                lives=tuple(life.incarnation for life in lives if life.segments),
                removed=tuple(
                    (life, *part) for life, parts in sorted(removed.items()) for part in parts
                ),
                is_open=is_open,
                boot_id=disk.boot_id,
            )
        )
        self._found.tasks += self._tasks(root, disk, group, replica, lives, is_open=is_open)

    def _claimed(self, disk: FileDisk, group: str, replica: str) -> int:
        """Give the highest life that stable values speak of; 0 if they cannot be read."""
        try:
            stable = Stable(disk, group, replica)
        except (OSError, VersionUnknown) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        else:
            if not stable.damage:
                return stable.values.incarnation if stable.exists else 0
            reason = stable.damage
        path = f"{folder_of(group, replica)}/stable"
        self._found.find(group, replica, path, f"its stable values cannot be read: {reason}")
        return 0

    def _readable(self, disk: FileDisk, group: str, replica: str, life: Life) -> Life:
        """Leave out the segments that cannot even be opened; each is a finding."""
        segments: list[SegmentFile] = []
        for file in life.segments:
            try:
                disk.read(file.path, 0, 1)
            except OSError as error:
                reason = f"it cannot be read: {error.strerror}"
                self._found.find(group, replica, file.path, reason, life.incarnation, file.first)
            else:
                segments.append(file)
        return life._replace(segments=segments)

    def _is_open(self, root: str, lives: list[Life]) -> bool:
        if self._growing or self._live.is_locked(root):
            return True
        last = next((life.segments[-1] for life in reversed(lives) if life.segments), None)
        if last is None:
            return False
        place = Path(root) / last.path
        if self._quiet and self._now - place.stat().st_mtime < self._quiet:
            return True
        return self._live.is_open(place)

    def _tasks(  # noqa: PLR0913 -- one step of `at`
        self,
        root: str,
        disk: FileDisk,
        group: str,
        replica: str,
        lives: list[Life],
        *,
        is_open: bool,
    ) -> Iterator[SegmentTask]:
        follows = follows_of(disk, lives)
        limits = limits_of(lives, follows)
        removed = read_removed(disk, group, replica)
        present = {life.incarnation for life in lives if life.segments}
        for life in lives:
            is_last_life = life is lives[-1]
            for index, file in enumerate(life.segments):
                following = _following(life, index)
                before = follows.get(life.incarnation) if index == 0 else None
                is_absent = before is not None and before.incarnation not in {0, *present}
                size, signature = self._look(Path(root) / file.path)
                yield SegmentTask(
                    root=root,
                    group=group,
                    replica=replica,
                    incarnation=life.incarnation,
                    first=file.first,
                    path=file.path,
                    bytes=size,
                    last_valid=limits.get(life.incarnation, NO_LIMIT),
                    following=following,
                    is_first=index == 0,
                    is_over=not (is_open and is_last_life and not following),
                    removed=removed.get(life.incarnation, ()),
                    absent_life=before.incarnation if before is not None and is_absent else 0,
                    absent_up_to=before.sequence if before is not None and is_absent else 0,
                    is_life_removed=before is not None and before.incarnation in removed,
                    signature=signature,
                )

    def _look(self, path: Path) -> tuple[int, tuple[int, ...]]:
        """Give the size of a file, and what tells whether it is written again."""
        about = path.stat()
        is_recent = max(about.st_mtime, about.st_ctime) > self._now - SETTLED_SECONDS
        marks = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
        return about.st_size, () if is_recent else marks


def _following(life: Life, index: int) -> int:
    return life.segments[index + 1].first if index + 1 < len(life.segments) else 0
