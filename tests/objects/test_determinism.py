"""The same on every machine: what the order of a set is, nobody sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.objects import classes

from coterie.objects import NotInAnUpdate, new_id, now, random, standing_in

ROOT = Path(__file__).parent.parent.parent
PROGRAM = "tests.objects.one_history"


def run(hash_seed: int, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.splitlines()


def test_digests_and_results_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    store = tmp_path / "state"
    first = run(1, str(store))
    assert len(first) == 41 + 8 + 1
    assert run(2) == first
    # A state made there and taken over here has the same digest.
    assert run(3, str(store)) == first[-1:]


def test_outside_updates_there_is_no_group_time_chance_or_id() -> None:
    for ask in (now, random, new_id):
        with pytest.raises(NotInAnUpdate, match="inside updates"):
            ask()


def test_a_class_can_be_tried_without_a_group() -> None:
    lottery = classes.Lottery()
    with standing_in(time=7):
        first = lottery.draw(100)
        assert first[0] == 7
        assert new_id() != first[2]
    with standing_in(time=7):
        assert lottery.draw(100) == first
    with standing_in(time=7, seed=b"another"):
        assert lottery.draw(10**9) != first
