"""The figures of a report: who was in which view when, how much was done, and how long it took.

Times are those of the replicas' own clocks, in microseconds; a report lays the clocks of several
machines side by side as they are. Latencies are from the client's clock when it asked to the
replica's when it answered, so they are as good as these two agree.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from coterie.kernel.decoding import JsonDecoder
from coterie.pipeline.engines import family_in
from coterie.pipeline.lake.kept import kept
from coterie.pipeline.lake.ranges import ranges_of, read_columns
from coterie.pipeline.spark.tasks import batches, for_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Family
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.lake.ranges import Range

PRIMARY, OTHER, DOWN = "primary", "other", "down"
PROMISED = "promised"
"""The event of a view in which a replica left the one it was in, for one that is to come."""
STEPS_PER_OCTAVE = 4
BUCKETS = 40 * STEPS_PER_OCTAVE
"""Latencies from two microseconds up, a fifth more from one bucket to the next."""
UNTIMED = 0
"""The bucket of answers to requests that do not say when they were made."""
SLICES = 120
"""Into how many slices the time of a report is cut, about."""
_ROUND = (50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000, 10_000_000, 60_000_000)
"""Lengths of slices that people like, in microseconds."""
ANSWERS = pa.schema(
    [
        ("group_name", pa.string()),
        ("slice", pa.int64()),
        ("bucket", pa.int64()),
        ("count", pa.int64()),
        ("figures", pa.binary()),
    ]
)
"""How many answers of a slice of time took how long, or all figures of a group."""
Answers = dict[int, list[int]]
"""Answers by slice of time, as histograms of their latency."""
MANY_GROUPS = 32
"""From how many groups on tasks take them in batches."""
BATCH_GROUPS = 16


@dataclass(slots=True)
class Span:
    """A replica was in one state for a while."""

    replica: str
    start: int
    end: int
    state: str
    view: str = ""
    members: str = ""


@dataclass(slots=True)
class Change:
    """One primary view followed another."""

    at: int
    view: str
    members: str
    joined: str
    lost: str
    gap: int | None
    """Microseconds between the last answer before it and the first one after it."""


@dataclass(slots=True)
class TimeSlice:
    """What was answered in a slice of time."""

    at: int
    count: int
    per_second: float
    p50: float
    p99: float
    """The 99th percentile of the times to an answer, in microseconds, as is `p50`."""


@dataclass(slots=True)
class Figures:
    """All figures of one group."""

    group: str
    stack: str
    replicas: list[str]
    start: int
    end: int
    spans: list[Span]
    changes: list[Change] = field(default_factory=list)
    slices: list[TimeSlice] = field(default_factory=list)
    answers: int = 0
    p50: float = 0.0
    p99: float = 0.0
    availability: float = 0.0
    """In which part of the time, from the first primary view on, somebody was in one."""
    transactions: dict[str, int] = field(default_factory=dict)
    """How many transactions that this group coordinated ended how."""
    more: dict[str, Any] = field(default_factory=dict)
    """What the engine's family has to say beside that."""


_decode = JsonDecoder(Figures).decode


def slice_width(lake: Lake, group: str) -> int:
    """Give how long a slice of a group's time is, in microseconds."""
    times = lake.table("views", group)["recorded_at"].to_numpy()
    wanted = (int(times.max() - times.min()) if len(times) else 0) / SLICES
    return next((width for width in _ROUND if width >= wanted), int(wanted))


def all_figures(spark: SparkSession, lake: Lake) -> Iterator[Figures]:
    """Give the figures of all groups, in their order.

    Answers are counted by tasks, one a range. Where there are many groups, a task does all there is
    to do for a batch of those that have one range.
    """
    lake = kept(lake)
    groups = lake.groups()
    small = {group for group in groups if len(lake.ranges(group)) <= 1}
    if len(groups) < MANY_GROUPS:
        small = set()
    large = [group for group in groups if group not in small]
    widths = {group: slice_width(lake, group) for group in large}

    def work(task: Range | list[str]) -> Iterator[pa.RecordBatch]:
        if isinstance(task, list):
            for group in task:
                yield _as_row(_figures_of_small(kept(lake), group))
        else:
            yield _count_answers(task, widths[task.group])

    counted: dict[str, Answers] = defaultdict(no_answers)
    found: dict[str, Figures] = {}
    tasks: list[Range | list[str]] = [*ranges_of(lake, large)]
    tasks += batches(sorted(small), BATCH_GROUPS)
    rows = for_each(spark, tasks, work, ANSWERS).toArrow().to_pylist() if tasks else []
    for row in rows:
        if row["figures"] is not None:
            found[row["group_name"]] = _decode(row["figures"])
        else:
            counted[row["group_name"]][row["slice"]][row["bucket"]] += row["count"]
    for group in groups:
        if group not in found:
            found[group] = figures_of(lake, group, family_in(lake, group), counted[group])
        yield found[group]


def no_answers() -> Answers:
    """Give what to count answers in."""
    return defaultdict(lambda: [0] * BUCKETS)


def _figures_of_small(lake: Lake, group: str) -> Figures:
    """Give the figures of a group, its answers counted here."""
    width, answers = slice_width(lake, group), no_answers()
    for task in ranges_of(lake, [group]):
        for row in _count_answers(task, width).to_pylist():
            answers[row["slice"]][row["bucket"]] += row["count"]
    return figures_of(lake, group, family_in(lake, group), answers)


def _as_row(figures: Figures) -> pa.RecordBatch:
    """Give figures as a task hands them over."""
    row = {"group_name": figures.group, "figures": msgspec.json.encode(figures)}
    return pa.RecordBatch.from_pylist([row], ANSWERS)


def _count_answers(task: Range, width: int) -> pa.RecordBatch:
    keys: dict[tuple[int, int], int] = defaultdict(int)
    for file in task.replies:
        table = read_columns(file, ["recorded_at", "asked_at", "count"])
        at = table["recorded_at"].to_numpy()
        asked = table["asked_at"].to_numpy()
        counts = table["count"].to_numpy()
        took = np.where(asked > 0, np.maximum(at - asked, 2), 1)  # one is for UNTIMED
        buckets = np.minimum((np.log2(took) * STEPS_PER_OCTAVE).astype(np.int64), BUCKETS - 1)
        pairs = (at // width) * BUCKETS + buckets
        different, index = np.unique(pairs, return_inverse=True)
        sums = np.bincount(index, weights=counts)
        for pair, total in zip(different.tolist(), sums.tolist(), strict=True):
            keys[pair // BUCKETS, pair % BUCKETS] += int(total)
    rows = [
        {"group_name": task.group, "slice": slice_, "bucket": bucket, "count": count}
        for (slice_, bucket), count in keys.items()
    ]
    return pa.RecordBatch.from_pylist(rows, ANSWERS)


def quantile(histogram: list[int], share: float) -> float:
    """Give the latency below which *share* of the answers came, in microseconds; 0 if unknown."""
    total = sum(histogram) - sum(histogram[UNTIMED : UNTIMED + 1])
    reached = 0
    for bucket, count in enumerate(histogram[UNTIMED + 1 :], UNTIMED + 1):
        reached += count
        if count and reached >= share * total:
            return float(2 ** ((bucket + 0.5) / STEPS_PER_OCTAVE))
    return 0.0


def figures_of(lake: Lake, group: str, family: Family, answers: Answers) -> Figures:
    """Give the figures of one group."""
    lives = lake.table("lives", group).to_pylist()
    views = sorted(family.views(lake, group), key=_place)
    started = [row for row in lives if row["event"] == "started"]
    replicas = sorted({row["replica"] for row in [*views, *started]})
    times = [row["recorded_at"] for row in [*views, *lives]]
    standings = list(family.settlements(lake, group))
    settled = sorted(row["recorded_at"] for row in standings if row["event"] == "settled")
    heard: dict[tuple[str, int], int] = defaultdict(int)
    for row in [*views, *standings]:
        life = (row["replica"], row["incarnation"])
        heard[life] = max(heard[life], row["recorded_at"])
    start, end = min(times, default=0), max([*times, *settled[-1:]], default=0)
    spans = _spans(replicas, started, views, heard, end)
    found = Figures(
        group=group,
        stack=started[0]["stack"] if started else "",
        replicas=replicas,
        start=start,
        end=end,
        spans=spans,
        changes=_changes(views, settled),
        availability=_availability(spans),
        more=family.figures(lake, group),
    )
    whole = [0] * BUCKETS
    width = slice_width(lake, group)
    for number in range(min(answers, default=0), max(answers, default=-1) + 1):
        histogram = answers.get(number, [])
        count = sum(histogram)
        found.slices.append(
            TimeSlice(
                at=number * width + width // 2,
                count=count,
                per_second=count / width * 1e6,
                p50=quantile(histogram, 0.5),
                p99=quantile(histogram, 0.99),
            )
        )
        if histogram:
            whole = [one + other for one, other in zip(whole, histogram, strict=True)]
    found.answers = sum(whole)
    found.p50, found.p99 = quantile(whole, 0.5), quantile(whole, 0.99)
    return found


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["replica"], row["incarnation"], row["sequence"]


def _name(view: dict[str, Any]) -> str:
    return f"{view['number']}{view['proposer']}"


def _names(members: list[dict[str, Any]] | None) -> list[str]:
    return sorted(member["id"] for member in members or [])


def _spans(
    replicas: list[str],
    started: list[dict[str, Any]],
    views: list[dict[str, Any]],
    heard: dict[tuple[str, int], int],
    end: int,
) -> list[Span]:
    """Lay out what every replica was in, from its first start to the end.

    A life that ended without a word lasted at least until it was last *heard* of.
    """
    spans: list[Span] = []
    for replica in replicas:
        births = sorted(
            (row["incarnation"], row["recorded_at"]) for row in started if row["replica"] == replica
        )
        for index, (incarnation, born) in enumerate(births):
            mine = [
                row
                for row in views
                if row["replica"] == replica and row["incarnation"] == incarnation
            ]
            is_last = index == len(births) - 1
            died = end if is_last else max(heard[replica, incarnation], born)
            spans += _spans_of_life(replica, mine, died)
            if not is_last:
                spans.append(Span(replica, died, births[index + 1][1], DOWN))
    return [span for span in spans if span.end > span.start]


def _spans_of_life(replica: str, rows: list[dict[str, Any]], died: int) -> Iterator[Span]:
    current: Span | None = None
    for row in rows:
        if row["event"] == "installed":
            if current is not None:
                current.end = row["recorded_at"]
                yield current
            members = "".join(_names(row["members"]))
            current = Span(replica, row["recorded_at"], died, OTHER, _name(row["view"]), members)
        elif row["event"] == "confirmed" and current is not None:
            current.end = row["recorded_at"]
            yield current
            current = Span(
                replica, row["recorded_at"], died, PRIMARY, current.view, current.members
            )
        elif row["event"] == PROMISED and current is not None and current.state == PRIMARY:
            current.end = row["recorded_at"]
            yield current
            current = Span(replica, row["recorded_at"], died, OTHER, current.view, current.members)
    if current is not None:
        current.end = max(died, current.start)
        yield current


def _changes(views: list[dict[str, Any]], settled: list[int]) -> list[Change]:
    """Give every primary view as it took over from the one before."""
    first: dict[tuple[int, str, int], int] = {}
    members: dict[tuple[int, str, int], list[str]] = {}
    for row in views:
        view = row["view"]
        key = (view["number"], view["proposer"], view["incarnation"])
        if row["event"] == "installed":
            members.setdefault(key, _names(row["members"]))
        elif row["event"] == "confirmed":
            first[key] = min(first.get(key, row["recorded_at"]), row["recorded_at"])
    times = np.array(settled, dtype=np.int64)
    changes: list[Change] = []
    before: set[str] = set()
    for key in sorted(first):
        at = first[key]
        present = set(members.get(key, []))
        index = int(np.searchsorted(times, at))
        gap = int(times[index] - times[index - 1]) if 0 < index < len(times) else None
        changes.append(
            Change(
                at=at,
                view=f"{key[0]}{key[1]}",
                members="".join(sorted(present)),
                joined="".join(sorted(present - before)),
                lost="".join(sorted(before - present)),
                gap=gap if before else None,
            )
        )
        before = present
    return changes


def _availability(spans: list[Span]) -> float:
    """Give the part of the time in which some replica was in a primary view."""
    primary = sorted((span.start, span.end) for span in spans if span.state == PRIMARY)
    if not primary:
        return 0.0
    start, end = primary[0][0], max(span.end for span in spans)
    covered, reached = 0, start
    for begin, finish in primary:
        covered += max(0, finish - max(begin, reached))
        reached = max(reached, finish)
    return covered / (end - start) if end > start else 1.0
