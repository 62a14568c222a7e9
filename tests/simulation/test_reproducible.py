"""The same seed gives the same run, byte for byte, whatever the interpreter's hashes are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from coterie.simulation import RunOptions, run_seed, seconds
from coterie.stacks import STACKS

PROGRAM = """
import sys
from coterie.simulation import RunOptions, run_seed, seconds

seed, *stacks = sys.argv[1:]
for stack in stacks:
    options = RunOptions(stack=stack, replicas=4, duration=seconds(2))
    print(run_seed(int(seed), options, trace=print))
"""


def trace_of(seed: int, stack: str) -> tuple[list[str], int]:
    lines: list[str] = []
    options = RunOptions(stack=stack, replicas=4, duration=seconds(2))
    run = run_seed(seed, options, trace=lines.append)
    return lines, run.digest


@pytest.mark.slow  # it starts two interpreters, because hashes are drawn when one starts
def test_a_run_does_not_depend_on_hashes() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, "5", *STACKS],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"installs view") > 30


@pytest.mark.parametrize("stack", STACKS)
def test_a_run_can_be_repeated_in_the_same_process(stack: str) -> None:
    once, digest = trace_of(5, stack)
    again, digest_again = trace_of(5, stack)
    assert once == again
    assert digest == digest_again
    assert len(once) > 500


def test_other_seeds_are_other_runs() -> None:
    digests = {trace_of(seed, "DYNSEQ:VSYNC")[1] for seed in range(4)}
    assert len(digests) == 4


def test_tracing_changes_nothing() -> None:
    options = RunOptions(stack="TOKEN:VSYNC", replicas=4, duration=seconds(2))
    traced, untraced = run_seed(5, options, trace=lambda _: None), run_seed(5, options)
    assert traced.events == untraced.events
    assert traced.deliveries == untraced.deliveries
    assert traced.frames == untraced.frames
