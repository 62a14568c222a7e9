"""Application events: what clients had done, once each, as rows for the lake's users.

An event is an update that was executed: which method with which arguments, when by group time, for
which session and request, and how it ended. Retries are not events, what was rolled back is not,
and a request that found its session gone is not either: only running the history tells, so the
class is needed.

Beside them stand the same events with typed columns, in a table for each method
(`coterie.pipeline.publish.typed`), and the states that the object had at the end of each range of
positions.

All tables have one file for each group and range, whose content follows from the history alone. So
a task that is repeated leaves each event there once, and a run that is killed leaves no version of
its tables at all (`coterie.pipeline.publish.manifest`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from coterie.kernel.decoding import decode_any
from coterie.kernel.engine import Run
from coterie.kernel.requests import ServiceRequest
from coterie.objects import AllDone, Done, Failed
from coterie.objects.classes.methods import decode_parts
from coterie.objects.execution.commands import Call, CallIf, Calls, decode_command
from coterie.pipeline.history.reconstruct import FILE, write_file
from coterie.pipeline.lake.lake import folder_of
from coterie.pipeline.publish.json_text import json_of
from coterie.pipeline.publish.typed import Typed, TypedRows
from coterie.pipeline.read.rows import view_row
from coterie.pipeline.read.schemas import EVENTS, STATES, spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from coterie.objects import Answer
    from coterie.objects.classes.definition import Definition
    from coterie.objects.classes.methods import Method
    from coterie.objects.execution.machine import StateMachine
    from coterie.pipeline.history.replay import CannotReplay, Replay, Step


class EventFiles:
    """The files of one group's events and states while its history is run."""

    def __init__(self, root: str, group: str) -> None:
        self.problem = ""
        """Why no more events are written, in a sentence."""
        self._root = root
        self._group = group
        self._events = 0
        self._typed = TypedRows()

    def write(
        self, number: int, found: Iterable[tuple[dict[str, Any], Typed | None]]
    ) -> tuple[int, list[str]]:
        """Write the events of one range; give how many there are, and the files."""
        rows: list[dict[str, Any]] = []
        for row, typed in found:
            rows.append({"group_name": self._group, **row})
            if typed is not None:
                self._typed.add(rows[-1], typed)
        events = pa.Table.from_pylist(rows, EVENTS)
        places = [self._write("events", number, events)]
        places += [self._write(place, number, table) for place, table in self._typed.take()]
        self._events += len(events)
        return len(events), places

    def write_state(
        self, number: int, machine: StateMachine, metadata: Mapping[bytes, bytes]
    ) -> None:
        """Write the state that the events of a range leave; last of all."""
        state = {"group_name": self._group, **state_row(machine)}
        self._write("states", number, pa.Table.from_pylist([state], STATES), metadata)

    def take_over(self, events: int) -> None:
        """Learn of events that were written before."""
        self._events += events

    def state_place(self, number: int) -> str:
        """Give the place of the state behind a range, below the folder of the tables."""
        return f"states/{folder_of(self._group, number)}/{FILE}"

    def _write(
        self,
        table: str,
        number: int,
        rows: pa.Table,
        metadata: Mapping[bytes, bytes] | None = None,
    ) -> str:
        place = f"{table}/{folder_of(self._group, number)}/{FILE}"
        write_file(rows, f"{self._root}/{place}", metadata=metadata)
        return place

    def give_up(self, error: CannotReplay, position: int) -> None:
        """Learn that the history cannot be run beyond a position."""
        after = f"after {position} " if position else ""
        self.problem = f"group {self._group}: no events {after}are written: {error}"

    def done(self) -> tuple[int, list[str]]:
        """Give how many events there are, and why there are no more."""
        return self._events, [self.problem] if self.problem else []


def read_events(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Give the events as Spark reads them."""
    schema = spark_schema(EVENTS)
    if not any(Path(folder).rglob("*.parquet")):
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(str(folder)).select(schema.names)


def events_of(
    replay: Replay, runs: Iterable[Run], see: Callable[[Step], None] = lambda _: None
) -> Iterator[tuple[dict[str, Any], Typed | None]]:
    """Run entries, and give the updates that were executed on the way; *see* gets every step.

    Each comes as a row and with its values, if the class still has the method.
    """
    for run in runs:
        for index, payload in enumerate(run.payloads):
            one = Run(
                run.view,
                run.number + index,
                run.position + index,
                run.origin,
                run.first + index,
                [payload],
            )
            answers: list[Answer] = []
            for step in replay.run([one]):
                see(step)
                answers += step.given
            command = decode_command(payload)
            if isinstance(command, ServiceRequest):
                command = call_of(command)
            if isinstance(command, Call | CallIf | Calls):
                yield from _events_of_entry(replay, one, command, answers)


def call_of(request: ServiceRequest) -> Call:
    """Give the request of an unaware client as the call that it amounts to."""
    return Call(
        *(request.client, request.number, request.method, request.arguments),
        *(0, request.number, request.clock),
    )


def _events_of_entry(
    replay: Replay, entry: Run, command: Call | CallIf | Calls, answers: list[Answer]
) -> Iterator[tuple[dict[str, Any], Typed | None]]:
    definition = replay.machine.definition
    if isinstance(command, Calls):
        parts, first = decode_parts(command.arguments), command.first
    else:
        parts, first = [command.arguments], command.request
    for request, outcome in _executed(answers, entry.position):
        method = definition.methods.get(command.method)
        value = result = error = typed = None
        if isinstance(outcome, Failed):
            error = f"{outcome.error}: {outcome.message}"
        elif method is not None:
            value = method.decode_result(outcome.result)
            result = json_of(value)
        part = parts[request - first]
        if method is not None:
            typed = _typed(definition, method, part, value, is_done=error is None)
        row = {
            "position": entry.position,
            "index": request - first,
            "view": view_row(entry.view),
            "number": entry.number,
            "session": command.session,
            "request": request,
            "method": command.method,
            "arguments": json_of(decode_any(part)),
            "result": result,
            "error": error,
            "executed_at": replay.machine.time.value,
            "asked_at": command.asked_at or None,
        }
        yield row, typed


def _typed(
    definition: Definition,
    method: Method,
    arguments: bytes | msgspec.Raw,
    result: object,
    *,
    is_done: bool,
) -> Typed | None:
    """Give an update with its values; None if its arguments are those of another signature."""
    try:
        values = method.decode(arguments)
    except msgspec.DecodeError:
        return None
    return Typed(definition, method, values, result, is_done)


def _executed(answers: list[Answer], position: int) -> Iterator[tuple[int, Done | Failed]]:
    """Give the requests that this entry executed; a retry has the place of the first time."""
    for answer in answers:
        outcome = answer.outcome
        if isinstance(outcome, AllDone):
            for request in range(outcome.first, outcome.first + len(outcome.results)):
                yield request, outcome.of(request)
        elif isinstance(outcome, Done | Failed) and outcome.position == position:
            yield answer.request, outcome


def state_row(machine: StateMachine) -> dict[str, Any]:
    """Give the state of an object as a row of `states`, but for its group."""
    definition = machine.definition
    return {
        "position": machine.position,
        "view": view_row(machine.view),
        "number": machine.number,
        "executed_at": machine.time.value,
        "class_name": definition.name,
        "class_version": definition.version,
        "digest": machine.digest(),
        "state": json_of(definition.state(machine.object)),
    }
