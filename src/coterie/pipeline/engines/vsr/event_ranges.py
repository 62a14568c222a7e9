"""The events of a group of cohorts by ranges, in columns.

Views are totally ordered, and events of a view are numbered; so all events that anybody knows stand
in one row, and a *range* is a fixed number of places in it. Those that are authoritative have a
*position*, dense from 1 on, as entries of other engines have. One task takes one range: it compares
what all cohorts know of it, column against column, and decodes every event once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.engines.vsr.events import WORDS, Completed, Decided, read_all
from coterie.pipeline.engines.vsr.history import STANDINGS, EventStanding
from coterie.pipeline.engines.vsr.traces import (
    CODES,
    KINDS,
    NO_KIND,
    TOUCHED,
    TRACES,
    Tracer,
    uncollected,
)
from coterie.pipeline.history.reconstruct import write_handed_on
from coterie.pipeline.history.results import Results
from coterie.pipeline.lake.lake import writer_of
from coterie.pipeline.lake.ranges import read_columns
from coterie.pipeline.read.columns import views_array
from coterie.pipeline.read.schemas import FORCED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from coterie.kernel.views import ViewId
    from coterie.pipeline.engines.vsr.events import Event
    from coterie.pipeline.engines.vsr.history import CohortGroup
    from coterie.pipeline.engines.vsr.traces import Traces
    from coterie.pipeline.lake.lake import Lake

    Numbers = NDArray[np.int64]

NO_POSITION = -1
_COLUMNS = ("sequence", "recorded_at", "view", "number", "digest")
_AUTHORITATIVE = STANDINGS.index(EventStanding.AUTHORITATIVE)
_KIND_WORDS = pa.array([*(WORDS[kind] for kind in KINDS), None])
_ROLLED_BACK = STANDINGS.index(EventStanding.ROLLED_BACK)


class Piece(NamedTuple):
    """Consecutive events of one view."""

    view: int
    """Its place among all views of the group."""
    first: int
    last: int
    slot: int
    """The place of the first in the row of all events."""


@dataclass(frozen=True, slots=True)
class EventRange:
    """Consecutive events of one group, and the files of all cohorts that may speak of them."""

    group: str
    number: int
    pieces: tuple[Piece, ...]
    files: tuple[str, ...]


def event_ranges(lake: Lake, found: CohortGroup) -> list[EventRange]:
    """Cut the events of a group into ranges."""
    pieces: dict[int, list[Piece]] = {}
    slot = 0
    for index, view in enumerate(found.views):
        number, last = 1, found.extent[view]
        while number <= last:
            until = min(last, number + lake.width - slot % lake.width - 1)
            pieces.setdefault(slot // lake.width, []).append(Piece(index, number, until, slot))
            slot += until - number + 1
            number = until + 1
    spans = [(str(path), _span(path)) for path, _ in lake.files_of("event_records", found.group)]
    return [
        EventRange(
            found.group,
            number,
            tuple(mine),
            tuple(
                path
                for path, (low, high) in spans
                if found.views[mine[0].view].number <= high
                and found.views[mine[-1].view].number >= low
            ),
        )
        for number, mine in pieces.items()
    ]


def _span(path: Path) -> tuple[int, int]:
    """Give the numbers of the lowest and highest view that a file speaks of, from its end alone."""
    about = pq.read_metadata(path)
    found: list[int] = []
    for group in range(about.num_row_groups):
        for column in range(about.num_columns):
            part = about.row_group(group).column(column)
            if part.path_in_schema == "view.number" and part.statistics is not None:
                found += [part.statistics.min, part.statistics.max]
    return (min(found), max(found)) if found else (0, np.iinfo(np.int64).max)


@dataclass(slots=True)
class KnownEvents:
    """The events of a range, each once, in their order, as parallel columns."""

    found: CohortGroup
    slots: Numbers
    views: Numbers
    """Places among all views of the group."""
    numbers: Numbers
    standings: NDArray[np.int8]
    """Places in `STANDINGS`."""
    positions: Numbers
    known_by: NDArray[np.uint64]
    """Sets of cohorts, as bits."""
    tellers: Numbers
    """Whose record tells of it: the primary's, if there is one."""
    rows: pa.Table
    """Life, sequence, time and content, as that record has them."""
    traces: Traces
    """What each event tells of its transaction."""


class _Rows(NamedTuple):
    """What all cohorts tell of a range, in the order of their files, but for the events."""

    table: pa.Table
    slots: Numbers
    views: Numbers
    bits: Numbers
    files: list[tuple[str, Numbers]]
    """The files, and which of their rows these are."""

    def events(self, rows: Numbers) -> pa.ChunkedArray:
        """Give the events of some rows; only files that have any of them are read."""
        ends = np.cumsum([len(mine) for _, mine in self.files], dtype=np.int64)
        which = np.searchsorted(ends, rows, side="right")
        parts: list[pa.ChunkedArray] = []
        places: list[Numbers] = []
        for index in np.unique(which).tolist():
            file, mine = self.files[index]
            wanted = np.flatnonzero(which == index)
            start = 0 if index == 0 else int(ends[index - 1])
            data = read_columns(file, ["data"])["data"]
            inside = mine[rows[wanted] - start]
            is_all = len(inside) == len(data) and bool((np.diff(inside) == 1).all())
            parts.append(data if is_all else data.take(pa.array(inside)))
            places.append(wanted)
        chunks = [chunk for part in parts for chunk in part.chunks]
        joined = pa.chunked_array(chunks, pa.binary())
        order = np.concatenate(places) if places else np.zeros(0, np.int64)
        if bool((np.diff(order) == 1).all()):
            return joined
        return joined.take(pa.array(np.argsort(order, kind="stable")))


def _read(task: EventRange, found: CohortGroup) -> _Rows:
    tables: list[pa.Table] = []
    slots: list[Numbers] = []
    views: list[Numbers] = []
    bits: list[Numbers] = []
    files: list[tuple[str, Numbers]] = []
    for file in task.files:
        table = read_columns(file, _COLUMNS)
        slot, view = _place(task, found, table)
        mine = np.flatnonzero(slot >= 0)
        if not len(mine):
            continue
        replica, incarnation = writer_of(file)
        part = table.take(pa.array(mine)) if len(mine) < len(table) else table
        tables.append(part.append_column("incarnation", pa.repeat(incarnation, len(part))))
        slots.append(slot[mine])
        views.append(view[mine])
        bits.append(np.full(len(mine), found.names.index(replica), np.int64))
        files.append((file, mine))
    empty = np.zeros(0, np.int64)
    return _Rows(
        pa.concat_tables(tables) if tables else pa.table({}),
        np.concatenate([empty, *slots]),
        np.concatenate([empty, *views]),
        np.concatenate([empty, *bits]),
        files,
    )


def _place(task: EventRange, found: CohortGroup, table: pa.Table) -> tuple[Numbers, Numbers]:
    """Give the slot of each row, and its view; -1 where it is none of this range."""
    parts = table["view"].combine_chunks().flatten()
    of_view = parts[0].to_numpy(zero_copy_only=False)
    proposers = parts[1].dictionary_encode()
    codes = {name: code for code, name in enumerate(proposers.dictionary.to_pylist())}
    by_proposer = proposers.indices.to_numpy(zero_copy_only=False)
    incarnations = parts[2].to_numpy(zero_copy_only=False)
    numbers = table["number"].to_numpy()
    slots = np.full(len(table), -1, np.int64)
    views = np.full(len(table), -1, np.int64)
    for piece in task.pieces:
        view = found.views[piece.view]
        hit = np.flatnonzero(
            (of_view == view.number)
            & (by_proposer == codes.get(view.proposer, -1))
            & (incarnations == view.incarnation)
            & (numbers >= piece.first)
            & (numbers <= piece.last)
        )
        slots[hit] = numbers[hit] - piece.first + piece.slot
        views[hit] = piece.view
    return slots, views


def read_range(
    task: EventRange, told_of: Mapping[str, CohortGroup], results: Results
) -> KnownEvents:
    """Give the events of a range, each once; compare on the way what cohorts know of each."""
    found = told_of[task.group]
    told = _read(task, found)
    primaries = found.primaries
    leading = np.array(
        [
            found.names.index(primaries[view]) if primaries.get(view) in found.names else -1
            for view in found.views
        ],
        np.int64,
    )
    size = len(told.slots)
    is_other = told.bits != leading[told.views] if size else np.zeros(0, np.bool_)
    order = np.lexsort((np.arange(size), told.bits, is_other, told.slots))
    starts = np.flatnonzero(np.diff(told.slots[order], prepend=-1))
    chosen = order[starts]
    results.checked("one event", size)
    if size:
        _one_event(told, found, order, starts, results)
    rows = told.table.take(pa.array(chosen)) if size else told.table
    data = told.events(chosen)
    own = np.uint64(1) << told.bits[order].astype(np.uint64)
    views = told.views[chosen]
    numbers = rows["number"].to_numpy() if size else np.zeros(0, np.int64)
    standings, positions = _judge(found, views, numbers)
    with uncollected():
        events = read_all(data)
        traces = Tracer(task.group, told_of).trace(events, positions)
        del events
    return KnownEvents(
        found=found,
        slots=told.slots[chosen],
        views=views,
        numbers=numbers,
        standings=standings,
        positions=positions,
        known_by=np.bitwise_or.reduceat(own, starts) if size else own,
        tellers=told.bits[chosen],
        rows=rows.append_column("data", data) if size else rows,
        traces=traces,
    )


def _judge(
    found: CohortGroup, views: Numbers, numbers: Numbers
) -> tuple[NDArray[np.int8], Numbers]:
    """Give the standing of each event, and its position if it is authoritative."""
    authoritative = found.authoritative()
    counts = np.array([authoritative.get(view, 0) for view in found.views], np.int64)
    before = np.cumsum(counts) - counts
    last = max(found.forced, default=None)
    lost = np.array([last is not None and view < last for view in found.views], np.bool_)
    optimistic = STANDINGS.index(EventStanding.OPTIMISTIC)
    beyond = np.where(lost[views], _ROLLED_BACK, optimistic) if len(views) else views
    is_in = numbers <= counts[views] if len(views) else np.zeros(0, np.bool_)
    standings = np.where(is_in, _AUTHORITATIVE, beyond).astype(np.int8)
    positions = np.where(is_in, before[views] + numbers, NO_POSITION) if len(views) else views
    return standings, positions


def _one_event(
    told: _Rows, found: CohortGroup, order: Numbers, starts: Numbers, results: Results
) -> None:
    """Cohorts that know the event at a viewstamp know the same one."""
    digests = told.table["digest"].to_numpy()
    sorted_ = digests[order]
    differs = np.minimum.reduceat(sorted_, starts) != np.maximum.reduceat(sorted_, starts)
    for slot in told.slots[order[starts[differs]]].tolist():
        mine = np.flatnonzero(told.slots == slot)
        rows = told.table.take(pa.array(mine)).select(["incarnation", "sequence", "number"])
        known = [
            {**row, "replica": found.names[bit], "digest": digest}
            for row, bit, digest in zip(
                rows.to_pylist(), told.bits[mine].tolist(), digests[mine].tolist(), strict=True
            )
        ]
        names = ", ".join(f"{each['replica']} {each['digest']:08x}" for each in known)
        view = found.views[int(told.views[mine[0]])]
        results.violate(
            "one event",
            f"cohorts know different events at {view.number}.{view.proposer}:"
            f"{known[0]['number']}: {names}",
            rows=[(each["replica"], each["incarnation"], each["sequence"]) for each in known],
        )


# ---- as rows of the history


def tabulate_events(known: KnownEvents) -> pa.Table:
    """Give the events of a range as rows of `forced`."""
    found, size = known.found, len(known.slots)
    if not size:
        return FORCED.empty_table()
    views = views_array(found.views).take(pa.array(known.views))
    words = pa.array([str(each) for each in STANDINGS], pa.string())
    different, index = np.unique(known.known_by, return_inverse=True)
    names = [
        [name for bit, name in enumerate(found.names) if int(each) >> bit & 1] for each in different
    ]
    columns = {
        "group_name": pa.repeat(pa.scalar(found.group), size),
        "position": pa.array(known.positions, mask=known.positions == NO_POSITION),
        "view": views,
        "number": pa.array(known.numbers),
        "aid": pa.array(known.traces.names, pa.string()),
        "kind": _KIND_WORDS.take(pa.array(known.traces.rows["kind"].to_numpy() % len(_KIND_WORDS))),
        "data": known.rows["data"],
        "standing": words.take(pa.array(known.standings)),
        "known_by": pa.array(names, pa.list_(pa.string())).take(pa.array(index)),
    }
    return pa.table([columns[field.name] for field in FORCED], schema=FORCED)


# ---- handed on to those who look at transactions

OPERATIONS = pa.schema(
    [
        ("slot", pa.int64()),
        ("position", pa.int64()),
        ("standing", pa.int8()),
        ("view", pa.int64()),
        ("number", pa.int64()),
        ("at", pa.int64()),
        ("teller", pa.int64()),
        ("incarnation", pa.int64()),
        ("sequence", pa.int64()),
        ("data", pa.binary()),
        ("aid", pa.string()),
        *TRACES,
    ]
)
"""Events that tell of transactions: all of one transaction are in one part."""


def operations_of(known: KnownEvents) -> pa.Table:
    """Give the events of a range as those need them who look at transactions."""
    traces = known.traces.rows
    return pa.table(
        {
            "slot": known.slots,
            "position": known.positions,
            "standing": known.standings,
            "view": known.views,
            "number": known.numbers,
            "at": known.rows["recorded_at"],
            "teller": known.tellers,
            "incarnation": known.rows["incarnation"],
            "sequence": known.rows["sequence"],
            "data": known.rows["data"],
            "aid": pa.array(known.traces.names, pa.string()),
            **{name: traces[name] for name in TRACES.names},
        },
        schema=OPERATIONS,
    )


def hand_on(known: KnownEvents, task: EventRange, folder: str, parts: int) -> None:
    """Write the events of a range, and what they touched, shared out by their transactions."""
    if not len(known.slots):
        return
    counting = _counting(known)
    tables = {OPERATIONS_FILE: operations_of(known).filter(pa.array(counting))}
    tables[TOUCHED_FILE] = known.traces.touched
    for name, table in tables.items():
        shares = table["transaction"].to_numpy() % parts
        for part in range(parts):
            mine = np.flatnonzero(shares == part)
            if len(mine):
                place = f"{folder}/{part}/{quote(task.group, safe='')}/{task.number:09}{name}"
                rows = table if len(mine) == len(table) else table.take(pa.array(mine))
                write_handed_on(rows, place)


OPERATIONS_FILE, TOUCHED_FILE = ".parquet", ".touched"
"""How the files of events, and of what they touched, end."""


def _counting(known: KnownEvents) -> NDArray[np.bool_]:
    """Say which events tell anything: of those that are not forced, only few do."""
    kinds = known.traces.rows["kind"].to_numpy()
    # Lost calls, and decisions that may have been forced for all that is known.
    found: NDArray[np.bool_] = kinds == np.where(
        known.standings == _ROLLED_BACK, CODES[Completed], CODES[Decided]
    )
    found |= (known.standings == _AUTHORITATIVE) & (kinds != NO_KIND)
    return found


def read_handed_on(folder: str, part: int, group: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of what was handed on to a part: of events, or of what they touched."""
    is_touched = set(columns) <= set(TOUCHED.names)
    end, schema = (TOUCHED_FILE, TOUCHED) if is_touched else (OPERATIONS_FILE, OPERATIONS)
    empty = schema.empty_table().select(columns)
    files = sorted(Path(folder, str(part), quote(group, safe="")).glob(f"*{end}"))
    return pa.concat_tables(
        [empty, *(pq.ParquetFile(path).read(list(columns), use_threads=False) for path in files)]
    )


class Happened(NamedTuple):
    """One event of a group."""

    view: ViewId
    number: int
    position: int
    event: Event
    standing: EventStanding
    at: int
    place: tuple[str, int, int]


def happened(
    found: CohortGroup, folder: str, parts: range, without: Numbers | None = None
) -> Iterator[Happened]:
    """Give the events of a group that were handed on: the authoritative ones first, in order.

    Those of some transactions, by the bits that stand for them, are left out.
    """
    names = ("view", "number", "position", "standing", "at", "teller", "incarnation", "sequence")
    columns_read = [*names, "slot", "data", "transaction"]
    table = pa.concat_tables(
        [read_handed_on(folder, part, found.group, columns_read) for part in parts]
    )
    if without is not None:
        table = table.filter(pa.array(~np.isin(table["transaction"].to_numpy(), without)))
    if not len(table):
        return
    is_beyond = table["standing"].to_numpy() != _AUTHORITATIVE
    order = pa.array(np.lexsort((table["slot"].to_numpy(), is_beyond)))
    table = table.take(order)
    events = read_all(table["data"])
    columns: list[list[Any]] = [table[each].to_numpy().tolist() for each in names]
    for event, view, number, position, standing, at, teller, life, sequence in zip(
        events, *columns, strict=True
    ):
        assert event is not None, "others are not handed on"
        yield Happened(
            found.views[view],
            number,
            position,
            event,
            STANDINGS[standing],
            at,
            (found.names[teller], life, sequence),
        )
