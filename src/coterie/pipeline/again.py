"""A run that has nothing new to find: the last one's results, without starting Spark.

What came of a run is remembered beside its results, with all that it followed from: the journals as
the file system describes them, what else their folders say, what was asked for, and the classes.
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.decoding import JsonDecoder
from coterie.pipeline.lake.lake import draft_of, is_lake
from coterie.pipeline.publish.manifest import is_whole
from coterie.pipeline.read.planning import survey

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = "outcome.json"


class _Remembered(msgspec.Struct):
    key: str
    told: dict[str, Any]
    lake: str = ""
    """A digest of what the file system says of the lake."""


_decode = JsonDecoder(_Remembered).decode


def remember(
    out: Path, roots: Sequence[str], asked: Sequence[str], told: dict[str, Any], *, growing: bool
) -> None:
    """Remember what came of a run."""
    key = _key_of(roots, asked, growing=growing)
    text = msgspec.json.encode(_Remembered(key, told, _files_below(out / "lake")))
    draft = draft_of(out / _NAME)
    draft.write_bytes(text)
    draft.replace(out / _NAME)


def recall(
    out: Path, roots: Sequence[str], asked: Sequence[str], *, growing: bool
) -> dict[str, Any] | None:
    """Give what came of the last run, if another would come to the same; None if it may not."""
    if not is_lake(out / "lake"):
        return None
    try:
        last = _decode((out / _NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    key = _key_of(roots, asked, growing=growing)
    if not key or last.key != key:
        return None
    if last.lake != _files_below(out / "lake"):
        return None
    report = last.told["report"]
    if (report and not Path(report).exists()) or not is_whole(out, _results(asked)):
        return None
    return {**last.told, "segments": 0, "seconds": {}}


def _results(asked: Sequence[str]) -> list[str]:
    tables = {
        "history": ["history"],
        "verify": ["verdicts", "violations"],
        "events": ["events", "states"],
    }
    return [name for job in asked for name in tables.get(job, ())]


def _key_of(roots: Sequence[str], asked: Sequence[str], *, growing: bool) -> str:
    """Give one value for all that results follow from; nothing if journals may be changing."""
    looked = survey(roots, growing=growing)
    if any(source.is_open for source in looked.sources):
        return ""
    if not all(task.signature for task in looked.tasks):
        return ""
    hashed = blake2b(digest_size=16)
    tasks = [
        [task.group, task.root, task.path, task.signature, task.last_valid] for task in looked.tasks
    ]
    sources = [msgspec.to_builtins(source) for source in looked.sources]
    files = [[each, _content(each)] for each in asked]
    parts = [version("coterie"), sorted(roots), files, tasks, sources, looked.findings]
    hashed.update(json.dumps(parts, default=str).encode())
    return hashed.hexdigest()


def _files_below(folder: Path) -> str:
    """Give one value for all files in a folder, as the file system describes them."""
    hashed = blake2b(digest_size=16)
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)  # noqa: PTH118 -- there are very many
            about = os.stat(path)  # noqa: PTH116
            told = (os.path.relpath(path, folder), about.st_size, about.st_mtime_ns)
            hashed.update(repr(told).encode())
    return hashed.hexdigest()


def _content(asked: str) -> str:
    """Give a digest of the file of a class that is asked for, as it is now."""
    name = asked.partition("=")[2].rpartition(":")[0]
    module = sys.modules.get(Path(name).stem if name.endswith(".py") else name)
    file = getattr(module, "__file__", None)
    return blake2b(Path(file).read_bytes()).hexdigest() if file else ""
