"""What processes cost, whether they have ended or not."""

from __future__ import annotations

import subprocess
import sys

from coterie.bench.harness.machine import family_seconds

WORKER = """
import time
while time.process_time() < 0.2:
    pass
print(time.process_time(), flush=True)
input()
"""


def test_children_count_while_they_live_and_after() -> None:
    before = family_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        took = float(worker.stdout.readline())
        tick = 0.02  # the system counts in ticks, of user and system time each
        assert family_seconds() - before >= took - tick
        worker.communicate("\n")
    assert family_seconds() - before >= took - tick
