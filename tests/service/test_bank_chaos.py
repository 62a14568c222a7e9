"""Banks under chaos: nothing is lost, and what would be is found."""

from __future__ import annotations

import asyncio

import pytest
from tests.service import bank_chaos
from tests.service.banks import TOTAL


@pytest.mark.long
def test_money_is_conserved_while_primaries_are_killed_and_paused() -> None:
    findings = asyncio.run(bank_chaos.run(20, seed=3, clients=3, pause=3.0))
    assert findings.problems == [], findings.report()
    assert len(findings.faults) >= bank_chaos.FAULTS_MIN
    transfers = [line for line in findings.of("transfer") if line["outcome"] == "committed"]
    assert len(transfers) > bank_chaos.TRANSFERS_MIN
    assert any(line["outcome"] == "committed" for line in findings.of("audit"))


def test_a_broken_promise_would_be_found() -> None:
    line = {"reason": "", "banks": ["eu"], "at": 1.0, "took": 0.1}
    findings = bank_chaos.Findings(
        lines=[
            line | {"kind": "audit", "outcome": "committed", "total": TOTAL},
            line | {"kind": "audit", "outcome": "committed", "total": TOTAL - 1},
            line | {"kind": "transfer", "outcome": "aborted", "took": 60.0, "reason": "eu/1 is"},
        ]
    )
    findings.check()
    wrong, late = findings.problems
    assert wrong == f"an audit saw {TOTAL - 1}, and there is {TOTAL}"
    assert late.startswith("a transaction took 60.0 s")
    assert "BROKEN" in findings.report()
    assert "100.0% were aborted" in findings.report()


def test_a_gap_belongs_to_the_fault_that_made_it() -> None:
    committed = {"kind": "transfer", "outcome": "committed", "banks": ["eu", "us"], "took": 0.1}
    faults = [
        bank_chaos.Fault(1.5, "kill a primary", "eu", ["a"]),
        bank_chaos.Fault(1.6, "pause a primary", "asia", ["b"]),
    ]
    findings = bank_chaos.Findings([committed | {"at": at} for at in (1.0, 3.0, 3.5)], faults)
    findings.check()
    assert [fault.gap for fault in faults] == [2.0, 0.0]
    assert "no transfer for 2.00 s" in findings.report()
