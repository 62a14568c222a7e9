"""Five real processes over a network that is cut: what callers saw, and the pipeline's verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.colours import cut_network
from tests.pipeline.here import judge_here

from coterie.bench.harness import wire
from coterie.runtime.loop import run


@pytest.mark.long  # real processes in namespaces, started three times
@pytest.mark.skipif(bool(wire.why_not()), reason=wire.why_not())
def test_both_sides_of_every_cut_are_told_right(tmp_path: Path) -> None:
    """Slides 25-28: by the eventual path, all are never in touch; slides 31-32: all crash."""
    found, world = run(cut_network.run(tmp_path, seconds=0.2, rate=10))
    assert not found
    told = world.told()
    # The story was what it is meant to be: there were reds, and some had another place at last.
    assert any(each.has_changed for each in told)
    assert {each.red > 0 for each in told} == {False, True}
    outcome = judge_here(tmp_path, tmp_path / "lake")
    assert not outcome.violations
    assert outcome.verdicts


def test_a_wire_says_why_it_cannot_be_laid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "need root" in wire.why_not()
