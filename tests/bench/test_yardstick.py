"""What figures are compared with, and what marks those that were disturbed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from coterie.bench.harness import gathering
from coterie.bench.harness.echo import usable_cores
from coterie.bench.harness.figures import Figure
from coterie.bench.harness.gathering import Gathered
from coterie.bench.harness.tables import figures_table
from coterie.bench.harness.yardstick import yardstick


@pytest.mark.slow  # processes
def test_round_trips_are_measured_on_two_cores_and_on_one() -> None:
    async def story() -> str:
        async with yardstick() as stick:
            found = [await stick.measure(), await stick.measure()]
            assert stick.trips_ms == found
            assert len(stick.one_core_ms) == (2 if usable_cores() else 0)
            assert all(trip > 0 for trip in found + stick.one_core_ms)
            return str(stick)

    assert asyncio.run(story()).startswith("Raw TCP round trip in the same run: ")


def test_figures_that_others_disturbed_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([0.1, 0.7])

    class FakeOthers:
        def busy_cores(self) -> float:
            return next(loads)

    monkeypatch.setattr(gathering, "Others", FakeOthers)
    monkeypatch.setattr(gathering, "TOGETHER_SECONDS", -1.0)
    said: list[str] = []
    gathered = Gathered(said.append)
    quiet = Figure(section="calls", what="quiet", value=1.0, unit="/s")
    gathered.add(quiet)
    gathered.add(msgspec.structs.replace(quiet, what="disturbed"))
    assert [figure.is_clean for figure in gathered.figures] == [True, False]
    assert len(said) == 2
    head, _, first, second = figures_table(gathered.figures).splitlines()
    assert "others" in head
    assert "0.1" not in first
    assert "0.7" in second


def test_figures_of_one_measurement_share_what_others_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "TOGETHER_SECONDS", float("inf"))
    gathered = Gathered(lambda _: None)
    gathered.add(Figure(section="calls", what="p50", value=1.0, unit="us"))
    assert gathered.figures[0].others_cores == 0.0
