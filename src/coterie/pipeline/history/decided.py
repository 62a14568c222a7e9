"""What is decided stays decided: a range of which nothing new is known is not judged again.

What comes of judging a range follows from the files of the range and from what the testimony says
*about these positions*: later views, settlements above them and records that are still on their way
change nothing. So a testimony is cut down to a range before the range is judged (`about`), and what
was judged has a *key*: a digest of all that it followed from. The key, and what the checks counted,
stand in the file of the history itself, as metadata of Parquet. So a later run that comes to the
same key takes over file and counts as they are; and nothing has to be kept in step with the tables.

All replicas settle a range sooner or later; then its key does not change any more while they work.
Whatever could change a verdict changes the key as well: a roll-back below what was settled, a state
that a replica took over again, another configuration, a file of another content, other code.

A range with a violation is judged each time, as its evidence names the latest records. So is one in
which a replica holds, and never gave up, another entry than the authoritative one: every further
primary view that it accepts is then looked at.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.kernel.decoding import JsonDecoder
from coterie.pipeline.history.judging import fates
from coterie.pipeline.history.results import Count, Results
from coterie.pipeline.history.witnesses import NEVER, SEQUENCE_MAX
from coterie.pipeline.lake.lake import link_file, writer_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.pipeline.engines.family import Wanted
    from coterie.pipeline.history.range_checks import RangeFacts
    from coterie.pipeline.history.witnesses import Testimony, Witness
    from coterie.pipeline.lake.ranges import Range

_METADATA = b"coterie.judged"


class _Judged(msgspec.Struct, frozen=True):
    """What came of a range without violations."""

    key: str
    counts: dict[str, tuple[int, int, int, str]]
    """By check: rows that were checked, undecided, waited for, and a remark."""
    extents: list[tuple[int, int, int]]


_decode = JsonDecoder(_Judged).decode


# ---- what a testimony says of some positions


def about(testimony: Testimony, start: int, end: int) -> Testimony:
    """Cut a testimony down to what concerns the positions from *start* up to *end*."""
    witnesses = [_about(each, start, end) for each in testimony.witnesses]
    return replace(testimony, witnesses=witnesses)


def _about(witness: Witness, start: int, end: int) -> Witness:
    settlements: list[tuple[int, int]] = []
    for rank, position in witness.settlements:
        settlements.append((rank, min(position, end)))
        if position >= end:
            break
    return replace(
        witness,
        voidings=[
            replace(
                event,
                given_up_above=min(event.given_up_above, end),
                settled=min(event.settled, end),
            )
            for event in witness.voidings
            if event.above < end
        ],
        settled=min(witness.settled, end),
        covered=min(witness.covered, end),
        unseen=min(witness.unseen, end),
        settlements=settlements,
        restorations=[
            (rank, min(restored, end))
            for rank, restored in witness.restorations
            if restored >= start
        ],
        silences=[
            (max(above, start - 1), min(last, end))
            for above, last in witness.silences
            if above < end and last >= start
        ],
        is_cut_off=witness.is_cut_off and witness.settled < end,
    )


def key_of(testimony: Testimony, task: Range, asked: Iterable[object]) -> str:
    """Give one value for all that judging a range follows from."""
    end = task.start + task.width - 1
    said = about(testimony, task.start, end)
    reached = _reached(testimony, task)
    told: list[object] = [
        version("coterie"),
        *asked,
        (task.group, task.number, task.width, task.content),
        (said.names, said.configuration, said.changes, said.has_accepted_loss),
    ]
    for witness in said.witnesses:
        # What it wrote behind all records of these positions tells of later ones.
        last = max([reached.get(witness.replica, 0), *(each.key for each in witness.voidings)])
        told.append(
            (
                witness.lives[: last // SEQUENCE_MAX + 1],
                [
                    (e.key, e.above, int(e.kind), e.given_up_above, e.settled)
                    for e in witness.voidings
                ],
                (witness.settled, min(witness.settled_max, end), witness.covered, witness.unseen),
                [each for each in witness.views if each[0] <= last],
                [each for each in witness.acceptances if each[0] <= last],
                (witness.settlements, witness.restorations, witness.silences),
                (witness.is_complete, witness.is_shortened, witness.is_cut_off),
            )
        )
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()


def _reached(testimony: Testimony, task: Range) -> dict[str, int]:
    """Give the last record of each replica that holds an entry of the range, by the files' ends."""
    found: dict[str, int] = {}
    for file in task.entries:
        replica, incarnation = writer_of(file)
        key = testimony.witness(replica).key(incarnation, _last_sequence(file))
        found[replica] = max(found.get(replica, 0), key)
    return found


def _last_sequence(file: str) -> int:
    read = pq.read_metadata(file)
    index = read.schema.to_arrow_schema().get_field_index("sequence")
    last = 0
    for number in range(read.num_row_groups):
        statistics = read.row_group(number).column(index).statistics
        if statistics is None or not statistics.has_min_max:
            return SEQUENCE_MAX - 1
        last = max(last, statistics.max)
    return last


@cache
def code_digest() -> str:
    """Give a digest of our code: other code may come to something else."""
    hashed = blake2b(digest_size=16)
    waiting = [files("coterie")]
    while waiting:
        for each in sorted(waiting.pop().iterdir(), key=lambda each: each.name):
            if each.is_dir():
                waiting.append(each)
            elif each.name.endswith(".py"):
                hashed.update(each.name.encode() + b"\0" + each.read_bytes())
    return hashed.hexdigest()


# ---- in the file of the history


def metadata_of(facts: RangeFacts, results: Results | None, key: str) -> dict[bytes, bytes]:
    """Give what the file of a range should remember; nothing if it is to be judged each time."""
    if results is not None and results.violations:
        return {}
    if _has_open_strays(facts):
        return {}
    counts = results.counts if results is not None else {}
    told = _Judged(
        key,
        {
            name: (count.checked, count.undecided, count.waiting, count.remark)
            for name, count in counts.items()
        },
        results.extents if results is not None else [],
    )
    return {_METADATA: msgspec.json.encode(told)}


def _has_open_strays(facts: RangeFacts) -> bool:
    """Say whether a replica holds, and never gave up, another entry than the authoritative one."""
    rows = facts.rows
    prints = facts.dense(facts.judgement.fingerprints[facts.chosen], 0)
    differs = rows.fingerprints != prints[rows.positions - facts.task.start]
    strays = differs & facts.is_known(rows.positions)
    if not strays.any():
        return False
    until, _, _ = fates(rows, facts.testimony)
    return bool((until[strays] == NEVER).any())


def _read(path: str) -> _Judged | None:
    try:
        return _decode((pq.read_metadata(path).metadata or {})[_METADATA])
    except (OSError, KeyError, pa.ArrowException, msgspec.DecodeError):
        return None


def judged_key(path: str) -> str:
    """Give the key of a range by the file of its history; nothing if it is judged each time."""
    told = _read(path)
    return told.key if told is not None else ""


def take_over(group: str, last: str, path: str, key: str) -> Results | None:
    """Take over what was judged of a range, file and counts; None if it must be judged again."""
    told = _read(last)
    if told is None or told.key != key:
        return None
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # what a task left that was begun before this one
    try:
        link_file(Path(last), target)
    except OSError:
        return None
    results = Results(group, extents=[*told.extents])
    for name, (checked, undecided, waiting, remark) in told.counts.items():
        results.counts[name] = Count(checked, 0, undecided, remark, waiting)
    return results


def asked_of(wanted: Wanted) -> tuple[object, ...]:
    """Give what of a run's wishes matters for judging a range."""
    return (wanted.code, wanted.has_checks, int(wanted.clock_bound))
