"""Application events: what clients had done, once each, as rows for the lake's users.

An event is an update that was executed: which method with which arguments, when by group time, for
which session and request, and how it ended. Retries are not events, what was rolled back is not,
and a request that found its session gone is not either: only running the history tells, so the
class is needed.

The table is Parquet, one file for each group and range of positions:

    <events>/group=<group>/range=<number>/events.parquet

A file is written as a draft and renamed, and its content follows from the history alone. So a run
that is repeated, restarted or killed anywhere leaves each event there once; drafts of a killed run
are swept by the next. While the history grows the file of the last range is replaced by a longer
one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.objects import AllDone, Done, Failed
from coterie.objects.commands import Call, Calls, decode_command
from coterie.objects.methods import decode_parts
from coterie.pipeline.range_checks import RangeFacts
from coterie.pipeline.ranges import ranges_of
from coterie.pipeline.replay import CannotReplay, Program, Replay
from coterie.pipeline.schemas import EVENTS, spark_schema
from coterie.pipeline.states import runs_of_range
from coterie.pipeline.tasks import for_each
from coterie.pipeline.witnesses import testimonies_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from coterie.kernel.engine import Run
    from coterie.objects import Answer
    from coterie.pipeline.lake import Lake
    from coterie.pipeline.witnesses import Testimony

DRAFT = "_draft-"
FILE = "events.parquet"
WRITTEN = pa.schema([("events", pa.int64()), ("problem", pa.string())])
"""What came of each range; a problem is the last that is said of a group."""


class Written(NamedTuple):
    """What a run wrote."""

    events: int
    problems: list[str]
    """Of groups whose history could not be run to its end, in sentences."""


class _Job(NamedTuple):
    group: str
    program: Program


def write_events(
    spark: SparkSession, lake: Lake, folder: str | Path, programs: Mapping[str, Program]
) -> Written:
    """Bring the events of all groups with a program up to date; say how many there are."""
    testimonies = testimonies_of(lake)
    root = str(folder)
    jobs = [_Job(group, programs[group]) for group in testimonies if group in programs]

    def work(job: _Job) -> Iterator[pa.RecordBatch]:
        rows = list(_write_group(lake, testimonies[job.group], job.program, Path(root)))
        yield pa.RecordBatch.from_pylist(rows, WRITTEN)

    written = for_each(spark, jobs, work, WRITTEN).toArrow().to_pylist() if jobs else []
    problems = [row["problem"] for row in written if row["problem"]]
    return Written(sum(row["events"] for row in written), problems)


def read_events(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Give the events as Spark reads them."""
    schema = spark_schema(EVENTS)
    if not any(Path(folder).glob(f"group=*/range=*/{FILE}")):
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
    return reader.option("pathGlobFilter", FILE).parquet(str(folder))


def _write_group(
    lake: Lake, testimony: Testimony, program: Program, root: Path
) -> Iterator[dict[str, Any]]:
    group = testimony.group
    place = root / f"group={quote(group, safe='')}"
    for orphan in place.glob(f"range=*/{DRAFT}*"):
        orphan.unlink()
    replay = Replay(program, group, testimony.configuration.majority)
    for task in ranges_of(lake, [group]):
        try:
            runs = runs_of_range(RangeFacts(task, testimony), replay.position)
            rows = list(events_of(replay, runs))
        except CannotReplay as error:
            after = f"after {replay.position} " if replay.position else ""
            yield {"events": 0, "problem": f"group {group}: no events {after}are written: {error}"}
            return
        table = pa.Table.from_pylist([{"group": group, **row} for row in rows], EVENTS)
        folder = place / f"range={task.number:09}"
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{DRAFT}{FILE}"
        pq.write_table(table, draft, compression="zstd")
        draft.replace(folder / FILE)
        yield {"events": len(table), "problem": ""}


def events_of(replay: Replay, runs: Iterator[Run]) -> Iterator[dict[str, Any]]:
    """Run entries, and give the updates that were executed on the way."""
    for run in runs:
        for index in range(len(run.payloads)):
            one = run.after(run.position + index - 1).up_to(run.position + index)
            answers = [answer for step in replay.run([one]) for answer in step.given]
            command = decode_command(one.payloads[0])
            if isinstance(command, Call | Calls):
                yield from _events_of_entry(replay, one, command, answers)


def _events_of_entry(
    replay: Replay, entry: Run, command: Call | Calls, answers: list[Answer]
) -> Iterator[dict[str, Any]]:
    definition = replay.machine.definition
    parts = [command.arguments] if isinstance(command, Call) else decode_parts(command.arguments)
    first = command.request if isinstance(command, Call) else command.first
    for request, outcome in _executed(answers, entry.position):
        method = definition.methods.get(command.method)
        result = error = None
        if isinstance(outcome, Failed):
            error = f"{outcome.error}: {outcome.message}"
        elif method is not None:
            result = _json(method.decode_result(outcome.result))
        yield {
            "position": entry.position,
            "index": request - first,
            "view": _view(entry),
            "number": entry.number,
            "session": command.session,
            "request": request,
            "method": command.method,
            "arguments": _json(msgspec.msgpack.decode(parts[request - first])),
            "result": result,
            "error": error,
            "time": replay.machine.time.value,
            "asked_at": command.asked_at,
        }


def _executed(answers: list[Answer], position: int) -> Iterator[tuple[int, Done | Failed]]:
    """Give the requests that this entry executed; a retry has the place of the first time."""
    for answer in answers:
        outcome = answer.outcome
        if isinstance(outcome, AllDone):
            for request in range(outcome.first, outcome.first + len(outcome.results)):
                yield request, outcome.of(request)
        elif isinstance(outcome, Done | Failed) and outcome.position == position:
            yield answer.request, outcome


def _view(entry: Run) -> dict[str, object]:
    view = entry.view
    return {"number": view.number, "proposer": view.proposer, "incarnation": view.incarnation}


def _json(value: object) -> str:
    """Give a value as JSON; what JSON lacks (bytes) as msgspec writes it."""
    return msgspec.json.encode(value).decode()
