"""Hostile disks: journals, snapshots and dumps with something wrong inside, given to replicas.

A replica that starts on such a disk says in a sentence why it does not, or it starts, perhaps as
one that has lost its memory, and takes turns. No turn may raise. If it comes to lead its group,
which has no other replicas here, it must carry out what a polite client asks.
"""

from __future__ import annotations

import contextlib
import time
from functools import cache
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.fuzz.files import (
    Files,
    wrong_file,
    wrong_segment,
    wrong_snapshot,
    wrong_stable,
)
from tests.fuzz.lives import (
    ALONE,
    DEFINITION,
    GROUP,
    ID,
    SETTINGS,
    Living,
    LivingCohort,
    LivingColours,
    LivingObject,
)
from tests.fuzz.memory_disk import MemoryDisk
from tests.fuzz.tally import Tally

from coterie.journal import DUMPS, JournalReader, SnapshotStore, list_journals
from coterie.journal.engines import FAMILIES
from coterie.kernel.errors import CoterieError
from coterie.objects.execution import snapshots as states
from coterie.objects.execution.machine_parts import machine_from_parts

if TYPE_CHECKING:
    from collections.abc import Callable


START_EVERY = 4
"""All disks are read back; on every so many of them a replica starts ..."""
USE_EVERY = 32
"""... and every so many of those disks are read as the pipeline does, and the replica is used."""


LIVES: dict[str, type[Living]] = {
    "stack": LivingObject,
    "colours": LivingColours,
    "vsr": LivingCohort,
}


# ---- a disk to begin with


@cache
def base(engine: str) -> Files:
    """Give the files of a replica that has lived three times, the last of them killed."""
    disk = MemoryDisk({})
    FAMILIES[engine].found(disk, GROUP, ID, ALONE)
    at = 1000
    for calls in (5, 4, 3):
        life = LIVES[engine](disk, at)
        life.turns(40)
        assert life.leads, "alone in its group it leads"
        life.use(calls)
        at = life.now + 1000
    return {path: bytes(data) for path, data in disk.files.items()}


# ---- inputs


class Kind(NamedTuple):
    """Which files are wrong, and how."""

    ending: str
    change: Callable[[bytes, Random], bytes]


def fuzz_journals(engine: str, seed: int, inputs: int) -> Tally:
    """Have replicas start with segments or stable values that are wrong inside."""
    segments = [path for path in base(engine) if path.endswith(".segment")]
    stable = [path for path in base(engine) if path.endswith("/stable")]
    return _fuzz_starts(engine, seed, inputs, [*segments, *stable], _wrong_part_of_journal)


def fuzz_snapshots(engine: str, seed: int, inputs: int) -> Tally:
    """Have replicas start with snapshots that are wrong inside."""
    snapshots = [path for path in base(engine) if "/snapshots/" in path]
    return _fuzz_starts(engine, seed, inputs, snapshots, wrong_snapshot)


def _wrong_part_of_journal(data: bytes, random: Random) -> bytes:
    is_segment = data.startswith(b"COTJRNL")
    return wrong_segment(data, random) if is_segment else wrong_stable(data, random)


def _fuzz_starts(
    engine: str,
    seed: int,
    inputs: int,
    paths: list[str],
    change: Callable[[bytes, Random], bytes],
) -> Tally:
    random = Random(f"{seed}/disks")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    files = base(engine)
    for number in range(inputs):
        wrong = wrong_file(files, random.choice(paths), random, change)
        tally.inputs += 1
        disk = MemoryDisk(wrong)
        if number % START_EVERY:
            tally.outcomes[recover(engine, disk)] += 1
        else:
            goes_far = number % USE_EVERY == 0
            tally.outcomes[start(engine, disk, tally, goes_far=goes_far)] += 1
    return tally


def recover(engine: str, disk: MemoryDisk) -> str:
    """Read a disk as a replica does first; say in a word what came of it."""
    try:
        found = FAMILIES[engine].recover(disk, GROUP, ID, ALONE)
    except CoterieError:
        return "refused"
    return "read, and found something" if found.findings else "read"


def start(engine: str, disk: MemoryDisk, tally: Tally, *, goes_far: bool) -> str:
    """Start on a disk; say in a word what came of it.

    With *goes_far* it is first read as the pipeline does, and used if it comes to lead.
    """
    if goes_far:
        for group, replica in list_journals(disk):
            with contextlib.suppress(CoterieError):
                for _ in JournalReader(disk, group, replica).turns():
                    pass
    try:
        life = LIVES[engine](disk, 10**9)
    except CoterieError:
        return "refused"
    life.turns(3)
    if not goes_far:
        return "started"
    if not life.leads:
        life.turns(30)
    if not life.leads:
        return "does not lead"
    begun = time.process_time()
    life.use(1)
    tally.latencies.append(time.process_time() - begun)
    return "served"


def fuzz_dumps(engine: str, seed: int, inputs: int) -> Tally:
    """Have dumps read that are wrong inside, as the pipeline reads them."""
    random = Random(f"{seed}/dumps")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    files = base(engine)
    dumps = [path for path in files if "/dumps/" in path]
    for _ in range(inputs):
        path = random.choice(dumps)
        wrong = wrong_file({path: files[path]}, path, random, wrong_snapshot)
        tally.inputs += 1
        tally.outcomes[load_dumps(MemoryDisk(wrong))] += 1
    return tally


def load_dumps(disk: MemoryDisk) -> str:
    """Load all dumps, and encode the states again."""
    snapshots, _ = SnapshotStore(disk, GROUP, ID, name=DUMPS).all()
    outcome = "refused"
    for snapshot in snapshots:
        with contextlib.suppress(CoterieError):
            machine = machine_from_parts(
                DEFINITION, SETTINGS, states.read(snapshot.chunks()), majority=1
            )
            machine.digest()
            outcome = "loaded"
    return outcome
