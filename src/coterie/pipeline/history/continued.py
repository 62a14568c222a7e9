"""What was run of a history stays run: a later run of the class goes on behind it.

Running the class takes longer than all else, and a history only grows. So each range that was run
leaves, beside its events and the state at its end, a *key* of all that they followed from: the
history up to there, what replicas said of its states, the class and all code of its user's that it
comes with, and ours. Behind the last ranges that were whole lies the object itself, with its
sessions, as replicas send it to each other. A run that comes to the same keys takes over the files
of these ranges and what was counted, and goes on with the object.

A history of which something was not as it should be is run from its beginning, each time.
"""

from __future__ import annotations

import sys
import sysconfig
from hashlib import blake2b
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.kernel.decoding import JsonDecoder
from coterie.objects import BadSnapshot
from coterie.objects.execution import snapshots
from coterie.objects.execution.machine_parts import machine_from_parts, parts_of
from coterie.pipeline.history.decided import judged_key
from coterie.pipeline.history.reconstruct import FILE, history_file
from coterie.pipeline.lake.lake import draft_of, folder_of, link_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.objects.execution.machine import StateMachine
    from coterie.pipeline.engines.family import Wanted
    from coterie.pipeline.history.replay import Program
    from coterie.pipeline.history.rerun import Told
    from coterie.pipeline.history.results import Results
    from coterie.pipeline.lake.ranges import Range

METADATA = b"coterie.ran"
_MACHINE = "_machine"
"""The object behind a range; what begins so is no part of a table."""
MACHINES_KEPT = 2
"""Behind how many of the last ranges that were whole the object is kept."""


class Ran(msgspec.Struct, frozen=True):
    """What came of running a range, in which all was as it should be."""

    key: str
    checked: dict[str, int]
    events: int
    places: list[str]
    """Its files, below the folder of the tables."""


class Continued(NamedTuple):
    """Ranges that were run before, and the object behind them."""

    ran: list[Ran]
    machine: StateMachine


_decode = JsonDecoder(Ran).decode


# ---- what running a range follows from


def keys_of(  # noqa: PLR0913, PLR0917 -- all that running a history follows from
    ranges: Sequence[Range],
    folder: str,
    told: Told,
    program: Program,
    majority: int,
    wanted: Wanted,
) -> list[str]:
    """Give the keys of ranges, up to the first that was not judged to be as it should be."""
    if not wanted.code:
        return []
    asked = (wanted.code, wanted.has_checks, majority, program.name, program.settings)
    hashed = blake2b(repr(asked).encode() + code_of(program), digest_size=16)
    positions = sorted(told)
    found: list[str] = []
    for task in ranges:
        judged = judged_key(history_file(folder, task))
        if not judged:
            break
        end = task.start + task.width
        said = [(at, sorted(told[at].items())) for at in positions if task.start <= at < end]
        hashed.update(repr((task.number, judged, said)).encode())
        found.append(hashed.hexdigest())
    return found


def code_of(program: Program) -> bytes:
    """Give a digest of the module of a class, and of all of its user's that it has names from."""
    program.load()
    installed = tuple(
        {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    )
    seen: dict[str, bytes] = {}
    waiting = [program.name.partition(":")[0]]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        is_ours = name.partition(".")[0] == "coterie"  # is in the digest of our code
        if name in seen or is_ours or not file or str(file).startswith(installed):
            continue
        try:
            seen[name] = Path(file).read_bytes()
        except OSError:
            seen[name] = b""  # in an archive, which is never written again
        for value in list(vars(module).values()):
            if isinstance(value, ModuleType):
                waiting.append(value.__name__)
            elif isinstance(value, type | FunctionType):
                waiting.append(value.__module__)
    hashed = blake2b(digest_size=16)
    for name in sorted(seen):
        hashed.update(name.encode() + b"\0" + seen[name])
    return hashed.digest()


# ---- taken over


def take_over(
    ranges: Sequence[Range], keys: Sequence[str], program: Program, majority: int, wanted: Wanted
) -> Continued | None:
    """Take over all ranges that were run before, as far as there is an object to go on with."""
    if not (wanted.last and wanted.events):
        return None
    ran: list[Ran] = []
    for task, key in zip(ranges, keys, strict=False):
        told = _read(f"{wanted.last}/{_place(task)}/{FILE}")
        if told is None or told.key != key:
            break
        ran.append(told)
    for count in range(len(ran), 0, -1):
        machine = _load(f"{wanted.last}/{_place(ranges[count - 1])}", program, majority)
        if machine is not None and _link(ranges[:count], ran[:count], wanted):
            return Continued(ran[:count], machine)
    return None


def _read(path: str) -> Ran | None:
    try:
        return _decode((pq.read_metadata(path).metadata or {})[METADATA])
    except (OSError, KeyError, pa.ArrowException, msgspec.DecodeError):
        return None


def _load(folder: str, program: Program, majority: int) -> StateMachine | None:
    try:
        chunks = [Path(folder, _MACHINE).read_bytes()]
    except OSError:
        return None
    try:
        return machine_from_parts(
            program.load(), program.settings, snapshots.read(chunks), majority=majority
        )
    except BadSnapshot:
        return None


def _link(ranges: Sequence[Range], ran: Sequence[Ran], wanted: Wanted) -> bool:
    """Let files stand in the tables of this run, too; say whether all of them are there."""
    places = [place for each in ran for place in each.places]
    machines = [f"{_place(task)}/{_MACHINE}" for task in ranges[-MACHINES_KEPT:]]
    places += [place for place in machines if Path(wanted.last, place).exists()]
    for place in places:
        target = Path(wanted.events, place)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # what a task left that was begun before this one
        try:
            link_file(Path(wanted.last, place), target)
        except OSError:
            return False
    return True


# ---- left behind


def metadata_of(key: str, results: Results, events: int, places: list[str]) -> dict[bytes, bytes]:
    """Give what the file of a range's state should remember; nothing if it is to be run again."""
    if not key or results.violations:
        return {}
    checked = {name: count.checked for name, count in results.counts.items()}
    return {METADATA: msgspec.json.encode(Ran(key, checked, events, places))}


def keep_machine(machine: StateMachine, ranges: Sequence[Range], index: int, folder: str) -> None:
    """Keep the object behind a range, if that is whole, in place of an earlier one."""
    task = ranges[index]
    if machine.position != task.start + task.width - 1:
        return
    target = Path(folder, _place(task), _MACHINE)
    draft = draft_of(target)
    with draft.open("wb") as file:
        for chunk in snapshots.write(parts_of(machine), machine.settings.chunk_bytes):
            file.write(chunk)
    draft.replace(target)
    for earlier in ranges[max(0, index - MACHINES_KEPT) : max(0, index - MACHINES_KEPT + 1)]:
        Path(folder, _place(earlier), _MACHINE).unlink(missing_ok=True)


def _place(task: Range) -> str:
    """Give the folder of the state behind a range, below the tables."""
    return f"states/{folder_of(task.group, task.number)}"
