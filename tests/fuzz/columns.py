"""Hostile journals for the pipeline: segments with something wrong inside, read into columns.

A journal may say anything in well-formed words, such as numbers that no column holds. Whatever a
segment says, it is read into tables, or what cannot be is a row of `findings`, or the reader says
in a sentence what is wrong with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.files import wrong_file, wrong_segment
from tests.fuzz.journals import base
from tests.fuzz.tally import Tally

from coterie.kernel.errors import CoterieError
from coterie.pipeline.read.planning import plan
from coterie.pipeline.read.reading import read_segment

if TYPE_CHECKING:
    from tests.fuzz.files import Files

    from coterie.pipeline.read.planning import SegmentTask

PLAN_EVERY = 1024
"""Every so many inputs the whole folder is looked at anew, as the pipeline does first."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- a folder in it is made
"""Where files cost no disk, if there is such a place."""


def fuzz(engine: str, seed: int, inputs: int) -> Tally:
    """Have wrong segments read into tables."""
    random = Random(f"{seed}/columns")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    files = base(engine)
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        root = Path(folder)
        _write(root, files)
        tasks = {task.path: task for task in plan([root])}
        paths = sorted(tasks)
        for number in range(inputs):
            path = random.choice(paths)
            wrong = wrong_file(files, path, random, wrong_segment)
            changed = {at: data for at, data in wrong.items() if files.get(at) is not data}
            gone = [at for at in files if at not in wrong]
            _write(root, changed)
            for at in gone:
                (root / at).unlink()
            if number % PLAN_EVERY == 0:
                read = list(plan([root]))
            else:
                read = [_sized(tasks[at], changed) for at in (*changed, *gone) if at in tasks]
            tally.inputs += 1
            tally.outcomes[_read(read)] += 1
            _write(root, {at: files[at] for at in (*changed, *gone) if at in files})
            for at in changed.keys() - files.keys():
                (root / at).unlink()
    return tally


def _write(root: Path, files: Files) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def _sized(task: SegmentTask, changed: Files) -> SegmentTask:
    data = changed.get(task.path)
    return task if data is None else dataclasses.replace(task, bytes=len(data))


def _read(tasks: list[SegmentTask]) -> str:
    """Read segments; say in a word what came of it."""
    outcome = "read"
    for task in tasks:
        with contextlib.suppress(CoterieError):
            for table, batch in read_segment(task):
                if table == "findings":
                    outcome = "found"
                batch.validate(full=True)
            continue
        outcome = "refused"
    return outcome
