"""Running the history of a group, once: its states, its answers and its events.

The history is read from the rows that judging wrote, range after range. What replicas said of
their states is compared with the states that the single object passes through (4.1.1), what they
told clients with its answers, and what it executed is written as events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coterie.pipeline.history.authoritative import AuthoritativeRange
from coterie.pipeline.history.continued import keep_machine, keys_of, metadata_of, take_over
from coterie.pipeline.history.dumps import load
from coterie.pipeline.history.group_checks import valid_digests
from coterie.pipeline.history.range_checks import RangeFacts
from coterie.pipeline.history.reconstruct import history_file
from coterie.pipeline.history.replay import CannotReplay, Replay, runs_of
from coterie.pipeline.history.results import Results
from coterie.pipeline.lake.ranges import ranges_of
from coterie.pipeline.publish.events import EventFiles, events_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.kernel.engine import Run
    from coterie.objects.execution.machine import StateMachine
    from coterie.pipeline.engines.family import Wanted
    from coterie.pipeline.history.dumps import Agreed
    from coterie.pipeline.history.replay import Program, Step
    from coterie.pipeline.history.results import Place
    from coterie.pipeline.history.witnesses import Testimony
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.lake.ranges import Range

_CONTENT = ["position", "view", "number", "origin", "identity", "payload"]
Told = dict[int, dict[bytes, list["Place"]]]
"""What replicas said of the state at positions."""


class Rerun(NamedTuple):
    """A group whose history is to be run, from a dumped state if its beginning was removed."""

    group: str
    program: Program
    begin: Agreed | None = None


class WrittenRange(AuthoritativeRange):
    """A range as judging wrote it."""

    def __init__(self, task: Range, folder: str) -> None:
        wanted = pc.field("standing") == "authoritative"
        path = history_file(folder, task)
        self.rows = pq.read_table(path, columns=[*_CONTENT, "stamp"], filters=wanted)
        super().__init__(task, self.rows["position"].to_numpy())

    def load_stamps(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Give the stamps of the entries."""
        stamps: np.ndarray[tuple[int], np.dtype[np.int64]] = self.rows["stamp"].to_numpy()
        return stamps

    def content(self, after: int) -> pa.Table:
        """Give the entries above a position."""
        return self.rows.filter(pc.field("position") > after)


def runs_after(entries: AuthoritativeRange, after: int) -> Iterator[Run]:
    """Give the authoritative entries of a range above a position; they must follow each other."""
    positions = entries.positions[entries.positions > after]
    expected = np.arange(after + 1, after + 1 + len(positions))
    if not np.array_equal(positions, expected):
        gap = int(expected[np.argmax(positions != expected)])
        raise CannotReplay(
            f"the history of {entries.task.group} cannot be run: no authoritative entry is known "
            f"at {gap}"
        )
    yield from runs_of(entries.content(after))


def rerun(
    item: Rerun, testimony: Testimony, lake: Lake, folder: str, wanted: Wanted
) -> Iterator[Results]:
    """Run the history of one group; *folder* has it."""
    begin = None
    if item.begin is not None:
        majority = testimony.configuration_at(item.begin.position).majority
        begin = load(item.begin, item.program, majority)
    running = _Running(item, testimony, lake, begin)
    if wanted.events:
        running.events = EventFiles(wanted.events, item.group)
        if begin is None:
            running.take_over(folder, wanted)
    if begin is not None and running.events is not None:
        running.check_beginning(folder)
    try:
        for index, task in enumerate(running.ranges):
            if task.start + task.width > running.replay.position + 1 or begin is None:
                running.run(index, task, folder, wanted)
    except CannotReplay as error:
        running.give_up(error, has_checks=wanted.has_checks)
    if running.events is not None:
        running.results.events, running.results.problems = running.events.done()
    yield running.results


class _Running:
    """One history being run."""

    def __init__(
        self, item: Rerun, testimony: Testimony, lake: Lake, begin: StateMachine | None
    ) -> None:
        self.results = Results(item.group)
        self.replay = Replay(item.program, item.group, testimony.configuration.majority)
        self.events: EventFiles | None = None
        self.ranges = ranges_of(lake, [item.group])
        self.taken_over = 0
        """How many ranges were run before."""
        self._item = item
        self._testimony = testimony
        self._told = told_digests(lake, testimony)
        self.keys: list[str] = []
        """What ranges follow from, up to the first that is not as it should be."""
        if begin is not None:
            self.replay.begin_with(begin)
            remark = f"from {begin.position + 1} on, with a dumped state: the beginning was removed"
            for check in ("replicated state machine", "linearizability"):
                self.results.count(check).remark = remark

    def check_beginning(self, folder: str) -> None:
        """Events are of a whole history or of none: what came before is not known to have been."""
        assert self.events is not None
        try:
            for task in self.ranges[:1]:
                list(runs_after(WrittenRange(task, folder), 0))
        except CannotReplay as error:
            self.events.give_up(error, 0)

    def take_over(self, folder: str, wanted: Wanted) -> None:
        """Take over what was run before, and go on behind it."""
        assert self.events is not None
        program, majority = self._item.program, self._testimony.configuration.majority
        self.keys = keys_of(self.ranges, folder, self._told, program, majority, wanted)
        found = take_over(self.ranges, self.keys, program, majority, wanted)
        if found is None:
            return
        for each in found.ran:
            self.events.take_over(each.events)
            for check, count in each.checked.items():
                self.results.checked(check, count)
        self.replay.begin_with(found.machine)
        self.taken_over = len(found.ran)

    def run(self, index: int, task: Range, folder: str, wanted: Wanted) -> None:
        """Run one range, unless it was run before."""
        if index < self.taken_over:
            return
        key = self.keys[index] if index < len(self.keys) else ""
        whole, self.results = self.results, Results(self.results.group)
        try:
            self._run(WrittenRange(task, folder), key, has_checks=wanted.has_checks)
        finally:
            whole.add(self.results)
            self.results = whole
        if key:
            keep_machine(self.replay.machine, self.ranges, index, wanted.events)

    def _run(self, entries: WrittenRange, key: str, *, has_checks: bool) -> None:
        number = entries.task.number
        runs = runs_after(entries, self.replay.position)
        answers: dict[tuple[int, int, int], int] = {}
        written: tuple[int, list[str]] | None = None

        def see(step: Step) -> None:
            answers.update(step.answers)
            if has_checks:
                self._check_digest(step)

        if self.events is not None and not self.events.problem:
            written = self.events.write(number, events_of(self.replay, runs, see))
        else:
            for step in self.replay.run(runs):
                see(step)
        if has_checks:
            self._check_answers(entries, answers)
        if written is not None and self.events is not None:
            count, places = written
            places.append(self.events.state_place(number))
            metadata = metadata_of(key, self.results, count, places)
            self.events.write_state(number, self.replay.machine, metadata)

    def give_up(self, error: CannotReplay, *, has_checks: bool) -> None:
        """Learn that the history cannot be run any further."""
        if has_checks:
            self.results.undecided("replicated state machine", 1, str(error))
            self.results.undecided("linearizability", 1, str(error))
        if self.events is not None and not self.events.problem:
            self.events.give_up(error, self.replay.position)

    def _check_digest(self, step: Step) -> None:
        """4.1.1: the history, run on a single object, gives the states that there were."""
        if step.digest is None:
            return
        check = "replicated state machine"
        for digest, places in self._told.get(step.position, {}).items():
            self.results.checked(check, len(places))
            if digest != step.digest:
                self.results.violate(
                    check,
                    f"running the history gives another state at {step.position} than "
                    f"{', '.join(place[0] for place in places)} had",
                    position=step.position,
                    rows=places,
                )

    def _check_answers(
        self, entries: WrittenRange, answers: dict[tuple[int, int, int], int]
    ) -> None:
        """Compare what clients were told with what the replay says."""
        check = "linearizability"
        given, matching = entries.answers, entries.matching
        columns = (given[name][matching].tolist() for name in ("position", "session", "request"))
        digests = given["digest"][matching].tolist()
        checked = 0
        facts: RangeFacts | None = None
        for row, *key, digest in zip(matching.tolist(), *columns, digests, strict=True):
            expected = answers.get((key[0], key[1], key[2]))
            if expected is None:
                continue
            checked += 1
            if expected != digest:
                facts = facts or RangeFacts(entries.task, self._testimony)
                self.results.violate(
                    check,
                    f"{given.place(row)[0]} gave session {key[1]} another answer to request "
                    f"{key[2]} than running the history gives at {key[0]}",
                    position=key[0],
                    rows=[given.place(row), *facts.places(key[0])],
                )
        if checked:
            self.results.checked(check, checked)


def told_digests(lake: Lake, testimony: Testimony) -> Told:
    """Give what replicas said of the state at positions."""
    told: Told = {}
    for row in valid_digests(testimony, lake.table("digests", testimony.group)).to_pylist():
        place = (row["replica"], row["incarnation"], row["sequence"])
        told.setdefault(row["position"], {}).setdefault(row["digest"], []).append(place)
    return told
