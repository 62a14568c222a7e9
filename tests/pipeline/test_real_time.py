"""The order in real time: what ended before something else was asked for stands before it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.pipeline.by_hand import NAMES, begin, entries, replied, settled, write
from tests.pipeline.here import seal_here, verify_here

from coterie.objects.execution.commands import Call, encode_command
from coterie.pipeline.history.results import Results

SECOND = 1_000_000
NO_ARGUMENTS = msgspec.Raw(msgspec.msgpack.encode(()))


def verify_calls(folder: Path, times: list[tuple[int, int]], *, width: int = 100) -> Results:
    """Check a history of calls, each asked for and answered at some time."""
    payloads = [
        encode_command(Call(1, number, "add", NO_ARGUMENTS, asked, 1, 0))
        for number, (asked, _) in enumerate(times, 1)
    ]
    told = {
        name: [
            *begin("g", name),
            entries("g", name, 1, payloads),
            settled("g", name, len(payloads)),
        ]
        for name in NAMES
    }
    told["a"] += [
        replied("g", "a", at=answered, session=1, request=number, position=number)
        for number, (_, answered) in enumerate(times, 1)
    ]
    write(folder / "journals", "g", told)
    lake = seal_here(folder / "journals", folder / "lake", width=width)
    return verify_here(lake, clock_bound=SECOND)["g"]


FINE = [(10, 20), (15, 40), (30, 50), (45, 60)]
SWAPPED = [(10, 20), (30, 50), (21, 24), (45, 60)]


@pytest.mark.parametrize("width", [100, 2])
def test_calls_that_overlap_may_stand_in_any_order(width: int, tmp_path: Path) -> None:
    times = [(asked * SECOND, answered * SECOND) for asked, answered in FINE]
    results = verify_calls(tmp_path, times, width=width)
    assert results.count("linearizability").checked == 4
    assert not results.violations


@pytest.mark.parametrize("width", [100, 3, 2])
def test_a_call_before_one_that_had_ended_is_found(width: int, tmp_path: Path) -> None:
    """Within one range of positions and across two."""
    times = [(asked * SECOND, answered * SECOND) for asked, answered in SWAPPED]
    results = verify_calls(tmp_path, times, width=width)
    [violation] = results.violations
    assert violation["check_name"] == "linearizability"
    assert violation["position"] == 2
    assert "what stands at 3 had been answered" in violation["evidence"]
    assert {row["replica"] for row in violation["rows"]} == set(NAMES)


def test_clocks_may_differ_by_the_bound(tmp_path: Path) -> None:
    times = [(asked * SECOND // 10, answered * SECOND // 10) for asked, answered in SWAPPED]
    assert not verify_calls(tmp_path, times).violations


def test_an_answer_of_another_request_is_found(tmp_path: Path) -> None:
    payload = encode_command(Call(1, 1, "add", NO_ARGUMENTS, 0, 1, 0))
    told = {name: [*begin("g", name), entries("g", name, 1, [payload])] for name in NAMES}
    told["b"].append(replied("g", "b", at=1, session=1, request=2, position=1))
    write(tmp_path / "journals", "g", told)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake")
    [violation] = verify_here(lake)["g"].violations
    assert violation["check_name"] == "exactly once"
    assert "where request 1 of session 1 stands" in violation["evidence"]
