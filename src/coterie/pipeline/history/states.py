"""States of the object at any viewstamp, position or time, from the history."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from coterie.kernel.views import ViewId, Viewstamp
from coterie.pipeline.history.range_checks import RangeFacts
from coterie.pipeline.history.replay import CannotReplay, Program, Replay
from coterie.pipeline.history.rerun import runs_after
from coterie.pipeline.lake.ranges import ranges_of

if TYPE_CHECKING:
    from coterie.kernel.engine import Run
    from coterie.objects.execution.machine import StateMachine
    from coterie.pipeline.history.witnesses import Testimony
    from coterie.pipeline.lake.lake import Lake

_VIEWSTAMP = re.compile(r"(\d+)\.(.+?)(?:#(\d+))?:(\d+)")


def state_at(
    lake: Lake,
    testimony: Testimony,
    program: Program,
    place: int | Viewstamp,
    begin: StateMachine | None = None,
) -> StateMachine:
    """Give the object right after the entry at a position or viewstamp, by running the history.

    Raises `CannotReplay` if the history at hand does not reach that far, or has a gap. *begin* is
    a state to begin with (`coterie.pipeline.history.dumps`), where the beginning is not at hand.
    """
    replay = _replay(testimony, program, begin)
    for task in ranges_of(lake, [testimony.group]):
        if task.start + task.width <= replay.position:
            continue
        for run in runs_after(RangeFacts(task, testimony), replay.position):
            wanted = _up_to(run, place)
            if wanted is not None:
                for _ in replay.run([wanted]):
                    pass
            if wanted is not run:
                return _reached(replay, place)
    return _reached(replay, place)


def read_place(text: str) -> int | Viewstamp | datetime:
    """Read where a state is wanted: a position, a viewstamp such as `3.a:7`, or a time.

    Raises `ValueError` with a sentence if it is none of them. A time without a zone is UTC.
    """
    if text.isdecimal():
        return int(text)
    found = _VIEWSTAMP.fullmatch(text)
    if found is not None:
        number, proposer, incarnation, place = found.groups()
        return Viewstamp(ViewId(int(number), proposer, int(incarnation or 1)), int(place))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no place in a history: give a position (42), a viewstamp (3.a:7) or a "
            "time (2026-01-31T12:00:00+00:00)"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def last_position(lake: Lake, testimony: Testimony) -> int:
    """Give the last position that is known to be authoritative; 0 if there is none."""
    for task in reversed(ranges_of(lake, [testimony.group])):
        positions = RangeFacts(task, testimony).positions
        if len(positions):
            return int(positions[-1])
    return 0


def position_at(lake: Lake, testimony: Testimony, program: Program, time: datetime) -> int:
    """Give the last position that was executed by a time, as the group counts time."""
    wanted = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    replay = _replay(testimony, program, None)
    for task in ranges_of(lake, [testimony.group]):
        for run in runs_after(RangeFacts(task, testimony), replay.position):
            for position in range(run.position, run.last_position + 1):
                for _ in replay.run([run.after(position - 1).up_to(position)]):
                    pass
                if replay.machine.time.value > wanted:
                    return position - 1
    return replay.position


def _replay(testimony: Testimony, program: Program, begin: StateMachine | None) -> Replay:
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


def _reached(replay: Replay, place: int | Viewstamp) -> StateMachine:
    machine = replay.machine
    known = f"the history at hand ends at {machine.position}"
    if isinstance(place, int) and machine.position != place:
        raise CannotReplay(f"there is no state at {place}: {known}")
    return machine
