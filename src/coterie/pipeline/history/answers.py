"""The check *exactly once*, as far as it compares answers with each other.

A request may be answered many times, by several replicas, long after each other; all answers must
name one place in the history and one result. Answers to one request need not lie in one range, so
this check cannot be done range by range. Answers of a few sessions are enough, though: tasks share
out the sessions, and each reads the answers of all ranges and keeps those of its own. That is much
quicker than a shuffle as long as few tasks do it. Of a group with more answers than that, Spark
gathers them by request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from coterie.kernel.engine import FINAL
from coterie.pipeline.history.results import VIOLATIONS_MAX, Results
from coterie.pipeline.lake.lake import writer_of
from coterie.pipeline.lake.ranges import read_columns
from coterie.pipeline.read.columns import mix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from coterie.pipeline.lake.lake import Lake

CHECK = "exactly once"
ANSWERS_PER_TASK = 1 << 21
TASKS_MAX = 8
_COLUMNS = ("session", "request", "count", "position", "digest", "standing", "sequence")
_ROWS_MAX = 100_000
_ROWS_SHOWN = 10
_POSITIONS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers to some sessions of one group, to be compared: those that leave *part*."""

    group: str
    files: tuple[str, ...]
    part: int
    parts: int


def answered(lake: Lake, group: str) -> list[Answered]:
    """Share out the sessions of a group among tasks; none if that would be too many."""
    files = tuple(str(path) for path, _ in lake.files_of("replies", group))
    count = 0
    for file in files:
        count += pq.read_metadata(file).num_rows
        if count > ANSWERS_PER_TASK * TASKS_MAX:
            return []
    parts = -(-count // ANSWERS_PER_TASK)
    return [Answered(group, files, part, parts) for part in range(parts)]


def check_answered(task: Answered) -> Results:
    """Of all authoritative answers to one request, none names another place or another result."""
    results = Results(task.group)
    tables: list[pa.Table] = []
    for file in task.files:
        table = read_columns(file, _COLUMNS)
        session = table["session"].to_numpy()
        is_told = table["standing"].to_numpy() & FINAL != 0
        wanted = np.flatnonzero(is_told & (session != 0) & (session % task.parts == task.part))
        replica, incarnation = writer_of(file)
        mine = table.take(pa.array(wanted))
        mine = mine.append_column("replica", pa.repeat(replica, len(mine)))
        tables.append(mine.append_column("incarnation", pa.repeat(incarnation, len(mine))))
    if tables:
        _compare(pa.concat_tables(tables), results)
    return results


def _compare(answers: pa.Table, results: Results) -> None:
    request = _mixed(answers, "session", "request", "count")
    answer = _mixed(answers, "position", "digest")
    order = np.argsort(request)
    is_same = np.diff(request[order]) == 0
    differs = is_same & (np.diff(answer[order]) != 0)
    for each in np.unique(request[order][1:][differs])[:VIOLATIONS_MAX].tolist():
        rows = answers.take(pa.array(np.flatnonzero(request == np.uint64(each)))).to_pylist()
        _violate(results, rows)


def _mixed(table: pa.Table, *columns: str) -> NDArray[np.uint64]:
    """Give a number that stands for several."""
    result = np.zeros(len(table), np.uint64)
    for column in columns:
        result = mix(result + table[column].to_numpy().astype(np.uint64))
    return result


def _violate(results: Results, rows: list[dict[str, int | str]]) -> None:
    positions = sorted({int(row["position"]) for row in rows})
    ways = {(row["position"], row["digest"]) for row in rows}
    places = sorted(
        {(str(row["replica"]), int(row["incarnation"]), int(row["sequence"])) for row in rows}
    )
    results.violate(
        CHECK,
        f"request {rows[0]['request']} of session {rows[0]['session']} was answered in "
        f"{len(ways)} ways, from positions {positions[:_POSITIONS_SHOWN]}",
        position=positions[0],
        rows=places[:_ROWS_SHOWN],
    )


def executed_once(replies: DataFrame) -> Iterator[Results]:
    """Check the same by a shuffle, of groups with any number of answers."""
    answers = replies.where((F.col("standing").bitwiseAND(FINAL) != 0) & (F.col("session") != 0))
    # What travels is one number for each request and one for its answer; only requests that seem
    # to have different ones are looked at as a whole.
    request = F.xxhash64("group_name", "session", "request", "count")
    answer = F.xxhash64("position", "digest")
    suspects = (
        answers.select(request.alias("asked"), answer.alias("answer"))
        .groupBy("asked")
        .agg(F.min("answer").alias("one"), F.max("answer").alias("other"))
        .where("one <> other")
        .limit(VIOLATIONS_MAX)
    )
    suspected = [row["asked"] for row in suspects.toArrow().to_pylist()]
    if not suspected:
        return
    found: dict[tuple[str, int, int, int], list[dict[str, int | str]]] = {}
    seen = answers.where(request.isin(suspected)).limit(_ROWS_MAX)
    for row in seen.toArrow().to_pylist():
        key = (row["group_name"], row["session"], row["request"], row["count"])
        found.setdefault(key, []).append(row)
    for (group, *_), rows in sorted(found.items()):
        results = Results(group)
        _violate(results, rows)
        yield results
