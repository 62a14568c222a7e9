"""States of the object, from the history: at any viewstamp, and checked at every digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.pipeline.group_checks import valid_digests
from coterie.pipeline.range_checks import RangeFacts
from coterie.pipeline.ranges import ranges_of
from coterie.pipeline.replay import CannotReplay, Program, Replay, runs_of
from coterie.pipeline.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.kernel.engine import Run
    from coterie.kernel.views import Viewstamp
    from coterie.objects.machine import Machine
    from coterie.pipeline.lake import Lake
    from coterie.pipeline.ranges import Range
    from coterie.pipeline.results import Place
    from coterie.pipeline.witnesses import Testimony

_CONTENT = ("position", "view", "number", "origin", "identity", "payload")


def runs_of_range(facts: RangeFacts, after: int) -> Iterator[Run]:
    """Give the authoritative entries of a range above a position; they must follow each other."""
    chosen = facts.chosen[facts.positions > after]
    positions = facts.judgement.positions[chosen]
    expected = np.arange(after + 1, after + 1 + len(positions))
    if not np.array_equal(positions, expected):
        gap = int(expected[np.argmax(positions != expected)])
        raise CannotReplay(
            f"the history of {facts.task.group} cannot be run: no authoritative entry is known "
            f"at {gap}"
        )
    yield from runs_of(facts.files.take(facts.judgement.rows[chosen], _CONTENT))


def state_at(
    lake: Lake,
    testimony: Testimony,
    program: Program,
    place: int | Viewstamp,
    begin: Machine | None = None,
) -> Machine:
    """Give the object right after the entry at a position or viewstamp, by running the history.

    Raises `CannotReplay` if the history at hand does not reach that far, or has a gap. *begin* is
    a state to begin with (`coterie.pipeline.dumps`), where the beginning is not at hand.
    """
    replay = _replay(testimony, program, begin)
    for task in ranges_of(lake, [testimony.group]):
        if task.start + task.width <= replay.position:
            continue
        for run in runs_of_range(RangeFacts(task, testimony), replay.position):
            wanted = _up_to(run, place)
            if wanted is not None:
                for _ in replay.run([wanted]):
                    pass
            if wanted is not run:
                return _reached(replay, place)
    return _reached(replay, place)


def _replay(testimony: Testimony, program: Program, begin: Machine | None) -> Replay:
    replay = Replay(program, testimony.group, testimony.configuration.majority)
    if begin is not None:
        replay.begin_with(begin)
    return replay


def _up_to(run: Run, place: int | Viewstamp) -> Run | None:
    """Give the part of a run that is not behind a place; None if all of it is."""
    if not isinstance(place, int):
        if run.view != place.view:
            return run if run.view < place.view else None
        place = run.position + place.number - run.number
    if run.position > place:
        return None
    return run if run.last_position <= place else run.up_to(place)


def _reached(replay: Replay, place: int | Viewstamp) -> Machine:
    machine = replay.machine
    known = f"the history at hand ends at {machine.position}"
    if isinstance(place, int) and machine.position != place:
        raise CannotReplay(f"there is no state at {place}: {known}")
    return machine


def check_replay(
    lake: Lake, testimony: Testimony, program: Program, begin: Machine | None = None
) -> Results:
    """4.1.1: the history, run on a single object, gives the states and the answers there were."""
    results = Results(testimony.group)
    replay = _replay(testimony, program, begin)
    told = _told_digests(lake, testimony)
    if begin is not None:
        remark = f"from {begin.position + 1} on, with a dumped state: the beginning was removed"
        for check in ("replicated state machine", "linearizability"):
            results.count(check).remark = remark
    try:
        for task in ranges_of(lake, [testimony.group]):
            if task.start + task.width > replay.position + 1:
                _check_range(replay, task, testimony, told, results)
    except CannotReplay as error:
        results.undecided("replicated state machine", 1, str(error))
        results.undecided("linearizability", 1, str(error))
    return results


def _told_digests(lake: Lake, testimony: Testimony) -> dict[int, dict[bytes, list[Place]]]:
    """Give what replicas said of the state at positions."""
    told: dict[int, dict[bytes, list[Place]]] = {}
    for row in valid_digests(testimony, lake.table("digests", testimony.group)).to_pylist():
        place = (row["replica"], row["incarnation"], row["sequence"])
        told.setdefault(row["position"], {}).setdefault(row["digest"], []).append(place)
    return told


def _check_range(
    replay: Replay,
    task: Range,
    testimony: Testimony,
    told: dict[int, dict[bytes, list[Place]]],
    results: Results,
) -> None:
    facts = RangeFacts(task, testimony)
    answers: dict[tuple[int, int, int], int] = {}
    for step in replay.run(runs_of_range(facts, replay.position)):
        answers.update(step.answers)
        if step.digest is None:
            continue
        for digest, places in told.get(step.position, {}).items():
            results.checked("replicated state machine", len(places))
            if digest != step.digest:
                results.violate(
                    "replicated state machine",
                    f"running the history gives another state at {step.position} than "
                    f"{', '.join(place[0] for place in places)} had",
                    position=step.position,
                    rows=places,
                )
    _check_answers(facts, answers, results)


def _check_answers(
    facts: RangeFacts, answers: dict[tuple[int, int, int], int], results: Results
) -> None:
    """Compare what clients were told with what the replay says."""
    check = "linearizability"
    given = facts.answers
    matching = facts.matching
    columns = (given[name][matching].tolist() for name in ("position", "session", "request"))
    digests = given["digest"][matching].tolist()
    for row, *key, digest in zip(matching.tolist(), *columns, digests, strict=True):
        expected = answers.get((key[0], key[1], key[2]))
        if expected is None:
            continue
        results.checked(check, 1)
        if expected != digest:
            results.violate(
                check,
                f"{given.place(row)[0]} gave session {key[1]} another answer to request {key[2]} "
                f"than running the history gives at {key[0]}",
                position=key[0],
                rows=[given.place(row), *facts.places(key[0])],
            )
