"""A served group under load: kills, pauses, restarts, and nothing acknowledged is ever lost."""

from __future__ import annotations

import signal
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests import idle_time
from tests.service import chaos
from tests.service.load import Load, Notes
from tests.service.served import Served

from coterie.checking.linearizability import At, Operation, ReadRegister, WriteRegister

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 20
REPLICAS = 5
ACKNOWLEDGED = 40
"""How many updates are acknowledged between two kills."""


@pytest.mark.long
def test_chaos_breaks_no_promise() -> None:
    findings = idle_time.run(chaos.run(15, seed=7, replicas=5, pause=2.0, sync="none"))
    assert findings.problems() == [], findings.report()
    assert len(findings.faults) >= chaos.FAULTS_MIN
    assert len(findings.notes.done_at) > 100


@pytest.mark.long
def test_all_killed_at_once_under_load_again_and_again(tmp_path: Path) -> None:
    """With `sync = "turn"`; what was acknowledged is in the journals of a majority."""

    async def story() -> Notes:
        async with Served(tmp_path, f"--replicas={REPLICAS}", "--sync=turn") as served:
            await served.until_primary(REPLICAS)
            # The load is the same each time, and when the kills come is up to the machine.
            random = Random(1)  # noqa: S311
            async with Load(served.addresses, random, scribes=4, readers=1) as load:
                for _ in range(ROUNDS):
                    await load.until(len(load.notes.done_at) + ACKNOWLEDGED)
                    assert len(served.signal(signal.SIGKILL)) >= REPLICAS // 2 + 1
                await load.until(len(load.notes.done_at) + ACKNOWLEDGED)
            await load.check_end()
            return load.notes

    notes = idle_time.run(story())
    assert notes.violations == []
    assert chaos.Findings(notes).problems() == []
    assert len(notes.done_at) > ROUNDS * ACKNOWLEDGED


def test_a_broken_promise_would_be_found() -> None:
    notes = Notes()
    write, read = At("x", WriteRegister(1)), At("x", ReadRegister())
    notes.history = [
        Operation(process="a", command=write, result=None, called=0, returned=1),
        Operation(process="b", command=read, result=0, called=2, returned=3),
    ]
    notes.violations.append("scribe 0: 7 was acknowledged, and 6 is known")
    notes.latest = 5.0
    findings = chaos.Findings(notes)
    lost, unreadable, late = findings.problems()
    assert lost.startswith("scribe 0")
    assert unreadable.startswith("Not linearizable")
    assert late == "a call ended 5.00 s after its deadline"
    assert findings.report().count("BROKEN") == 3


def test_a_gap_belongs_to_the_fault_that_made_it() -> None:
    notes = Notes(done_at=[1.0, 1.1, 1.5, 1.6, 4.0, 4.1])
    faults = [
        chaos.Fault(1.2, "pause", ["a"]),
        chaos.Fault(1.7, "kill all", []),
        chaos.Fault(2.0, "restart", ["b"], is_whole=False),
    ]
    findings = chaos.Findings(notes, faults)
    findings.measure()
    assert [round(fault.gap, 1) for fault in faults] == [0.4, 2.4, 0.1]
    report = findings.report()
    assert "longest gap in service: 2.40 s" in report
    assert "pause             while all were up              1 times: gap 0.40 s" in report
