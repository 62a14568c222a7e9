"""Running the global order of a group on a single object: its states, its answers, its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coterie.kernel.engine import FINAL
from coterie.pipeline.history.reconstruct import FILE
from coterie.pipeline.history.replay import CannotReplay, Replay, runs_of
from coterie.pipeline.history.results import Results
from coterie.pipeline.lake.lake import folder_of, writer_of
from coterie.pipeline.lake.ranges import read_columns
from coterie.pipeline.publish.events import EventFiles, events_of

if TYPE_CHECKING:
    from coterie.kernel.engine import Run
    from coterie.pipeline.engines.colours.order import GreenRange
    from coterie.pipeline.engines.colours.told import ToldColours
    from coterie.pipeline.engines.family import Wanted
    from coterie.pipeline.history.replay import Program, Step
    from coterie.pipeline.history.results import Place
    from coterie.pipeline.lake.lake import Lake

_ANSWERS = ("position", "standing", "session", "request", "sequence", "digest")
_STATES, _RESULTS = "replicated state machine", "linearizability"


class RerunColours(NamedTuple):
    """A group whose order is to be run."""

    group: str
    program: Program


def rerun(  # noqa: PLR0913, PLR0917 -- a task, and what it works on
    item: RerunColours,
    found: ToldColours,
    lake: Lake,
    ranges: list[GreenRange],
    folder: str,
    wanted: Wanted,
) -> Results:
    """Run the order of one group; *folder* has it."""
    running = _Running(item, found, lake)
    if wanted.events:
        running.events = EventFiles(wanted.events, item.group)
    try:
        for task in ranges:
            if task.greens:
                running.run(task, folder, has_checks=wanted.has_checks)
    except CannotReplay as error:
        running.give_up(error, has_checks=wanted.has_checks)
    if running.events is not None:
        running.results.events, running.results.problems = running.events.done()
    return running.results


class _Running:
    """One order being run."""

    def __init__(self, item: RerunColours, found: ToldColours, lake: Lake) -> None:
        self.results = Results(item.group)
        self.events: EventFiles | None = None
        majority = found.testimony.configuration.majority
        self._replay = Replay(item.program, item.group, majority)
        self._found = found
        self._told: dict[int, dict[bytes, list[Place]]] = {}
        for row in lake.table("digests", item.group).to_pylist():
            place = (row["replica"], row["incarnation"], row["sequence"])
            at = self._told.setdefault(row["position"], {})
            at.setdefault(row["digest"], []).append(place)

    def run(self, task: GreenRange, folder: str, *, has_checks: bool) -> None:
        """Run one range."""
        runs = self._runs(task, folder)
        answers: dict[tuple[int, int, int], int] = {}

        def see(step: Step) -> None:
            answers.update(step.answers)
            if has_checks:
                self._check_digest(step)

        if self.events is not None:
            self.events.write(task.number, events_of(self._replay, runs, see))
            self.events.write_state(task.number, self._replay.machine, {})
        else:
            for step in self._replay.run(runs):
                see(step)
        if has_checks:
            self._check_answers(task, answers)

    def _runs(self, task: GreenRange, folder: str) -> list[Run]:
        path = f"{folder}/{folder_of(task.group, task.number)}/{FILE}"
        table = pq.read_table(path, filters=pc.field("standing") == "authoritative")
        position = self._replay.position
        for each in table["position"].to_pylist():
            position += 1
            if each != position:
                raise CannotReplay(
                    f"the history of {task.group} cannot be run: no journal has what is green at "
                    f"{position}"
                )
        return list(runs_of(table))

    def give_up(self, error: CannotReplay, *, has_checks: bool) -> None:
        """Learn that the order cannot be run any further."""
        if has_checks:
            self.results.undecided(_STATES, 1, str(error))
            self.results.undecided(_RESULTS, 1, str(error))
        if self.events is not None:
            self.events.give_up(error, self._replay.position)

    def _check_digest(self, step: Step) -> None:
        if step.digest is None or step.position > self._found.given_up:
            return
        for digest, places in self._told.get(step.position, {}).items():
            self.results.checked(_STATES, len(places))
            if digest != step.digest:
                self.results.violate(
                    _STATES,
                    f"running the order gives another state at {step.position} than "
                    f"{', '.join(place[0] for place in places)} had",
                    position=step.position,
                    rows=places,
                )

    def _check_answers(self, task: GreenRange, answers: dict[tuple[int, int, int], int]) -> None:
        """Compare what clients were told for good with what the replay says."""
        for file in task.replies:
            table = read_columns(file, _ANSWERS)
            final = table["standing"].to_numpy() & FINAL != 0
            for row in table.filter(pa.array(final)).to_pylist():
                key = (row["position"], row["session"], row["request"])
                expected = answers.get(key)
                if expected is None or row["position"] > self._found.given_up:
                    continue
                self.results.checked(_RESULTS, 1)
                if expected != row["digest"]:
                    replica, incarnation = writer_of(file)
                    self.results.violate(
                        _RESULTS,
                        f"{replica} gave session {key[1]} another answer to request {key[2]} than "
                        f"running the order gives at {key[0]}",
                        position=key[0],
                        rows=[(replica, incarnation, row["sequence"])],
                    )
