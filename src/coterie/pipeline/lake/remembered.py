"""What a lake remembers of the files it was made from, and of its own.

A segment's row has a digest of the bytes that were read. A file that the file system calls
unchanged since then is not read again, unless somebody asks for it; one that may have changed is,
and if what was read is no longer there, the segment was *altered*: the lake keeps what it has,
which is what the replica had written when it was first looked at, and says so. The same goes for
files that are gone.

Of its own files a lake knows sizes and digests. A file that is missing or cut off is noticed
whenever journals are looked at, a changed one when somebody asks; both are made anew while the
journal is there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coterie.journal import Kind
from coterie.journal.disk import sync_place
from coterie.kernel.decoding import JsonDecoder
from coterie.pipeline.lake.findings import segment_finding
from coterie.pipeline.lake.lake import LakeDamaged, draft_of
from coterie.pipeline.lake.sources import groups_looked_at, sources_of
from coterie.pipeline.read.content import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.read.planning import SegmentTask, Survey

Row = dict[str, Any]
Key = tuple[str, str, int, int]
"""Group, replica, incarnation, and the first record of a segment."""
_SEEN = "seen.json"
_decode_seen = JsonDecoder(dict[str, list[int]]).decode


# ---- whether files have been written since


def read_seen(lake: Lake) -> dict[str, tuple[int, ...]]:
    """Give what the file system said of each segment when it was sealed."""
    try:
        told = _decode_seen(lake.path(_SEEN).read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}  # then all of them are looked into
    return {name: tuple(marks) for name, marks in told.items()}


def write_seen(lake: Lake, tasks: Iterable[SegmentTask]) -> None:
    """Remember what the file system says of segments that are sealed as they are."""
    told = {_name(task): task.signature for task in tasks if task.signature}
    draft = draft_of(lake.path(_SEEN))
    draft.write_text(json.dumps(told) + "\n", encoding="utf-8")
    sync_place(draft)
    draft.replace(lake.path(_SEEN))


def is_unseen(task: SegmentTask, seen: dict[str, tuple[int, ...]]) -> bool:
    """Say whether a segment may have been written since it was sealed."""
    return not task.signature or seen.get(_name(task)) != task.signature


def _name(task: SegmentTask) -> str:
    return f"{task.group}/{task.name}"


# ---- what is gone


def gone(looked: Survey, known: dict[Key, Row]) -> Iterator[Row]:
    """Give findings for segments that were sealed, and that nobody removed on purpose."""
    present = {(task.group, task.replica, task.incarnation, task.first) for task in looked.tasks}
    unread = {(row["group_name"], row["path"]) for row in looked.findings}
    removed = {(source.group, source.replica): source.removed for source in looked.sources}
    for key, row in sorted(known.items()):
        if key in present or (row["group_name"], row["path"]) in unread:
            continue
        parts = removed.get((row["group_name"], row["replica"]), ())
        if not any(
            life == row["incarnation"] and first <= row["first"] and row["last"] <= last
            for life, first, last in parts
        ):
            yield finding(row, "it was sealed by an earlier run, and is in no folder any more")


def finding(row: Row, reason: str, kind: Kind = Kind.ALTERED) -> Row:
    """Give a finding about a whole segment of which something was sealed."""
    return segment_finding(row, reason, kind) | {"last": max(row["last"], row["first"])}


# ---- files of the lake


class BadFile(NamedTuple):
    """A file of the lake that is not as it was written."""

    group: str
    segment: str
    """The path of the segment in its journal; empty if the file is of no single one."""
    file: str
    reason: str

    def __str__(self) -> str:
        return f"group {self.group}: the lake's file {self.file} {self.reason}"


def check_files(lake: Lake, *, has_content: bool) -> Iterator[BadFile]:
    """Say which files of a lake are missing, cut off or, if *has_content*, changed."""
    marks: dict[tuple[str, str], str] = {}
    for group in lake.groups():
        for path, _ in lake.files_of("segments", group):
            name = str(path.relative_to(lake.root))
            try:
                rows = lake.read_file(path, lake.schema("segments")).to_pylist()
            except LakeDamaged as error:
                yield BadFile(group, "", name, f"cannot be read: {error.__cause__ or error}")
                continue
            for row in rows:
                marks[group, row["path"]] = name
                yield from _check_row(lake, row, has_content=has_content)
    for group in groups_looked_at(lake):
        for row in sources_of(lake, group):
            for path in row["sealed"] or ():
                if (group, path) not in marks:
                    yield BadFile(group, path, f"segments/…/{path}", "is missing")


def _check_row(lake: Lake, row: Row, *, has_content: bool) -> Iterator[BadFile]:
    columns = (row["files"], row["sizes"] or (), row["digests"] or ())
    for name, size, digest in zip(*columns, strict=False):
        path = lake.path(name)
        reason = ""
        if not path.is_file():
            reason = "is missing"
        elif path.stat().st_size != size:
            reason = f"has {path.stat().st_size} bytes in the place of {size}"
        elif has_content and digest_of(path) != digest:
            reason = "was changed"
        if reason:
            yield BadFile(row["group_name"], row["path"], name, reason)
