"""COLOURS on the command line: what the simulator takes, and what is said where it is not known."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.service.served import Served

from coterie.cli.main import main

STACK = "COLOURS:DYNSEQ:VSYNC"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--object", "locks"], "choose counter, dictionary or tally"),
        (["--faults", "amnesia"], "are not for COLOURS yet"),
    ],
)
def test_the_simulator_says_what_is_not_built(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "--stack", STACK, "--seeds", "1", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_seed_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--replicas", "3", "--seed", "7", "--duration", "3", "--object", "tally", "--trace"]
    assert main(["sim", "--stack", STACK, *words]) == 0
    assert "is in RegPrim (1a)" in capsys.readouterr().out


def test_it_is_a_family_of_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--replicas", "3", "--seed", "7", "--duration", "3", "--object", "tally", "--trace"]
    assert main(["sim", "--engine", "colours", *words]) == 0
    by_family = capsys.readouterr().out
    assert main(["sim", "--stack", STACK, *words]) == 0
    assert by_family == capsys.readouterr().out


def test_benchmarks_do_not_measure_it_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "engine", "--stack", STACK]) == 2
    assert "is not measured yet" in capsys.readouterr().err


FLIGHT = Path(__file__).parents[2] / "examples" / "flight.py"


class Flown(Served):
    """The flight of the page on partitions."""

    name = "flight"
    words = ("flight.py:Flight",)


@pytest.mark.slow  # real processes
def test_a_side_that_is_cut_off_answers_red_on_the_command_line(tmp_path: Path) -> None:
    """What `docs/use/partitions.md` has its readers try."""

    async def story() -> None:
        options = ["--stack", STACK]
        source = FLIGHT.read_text(encoding="utf-8")
        async with Flown(tmp_path, *options, source=source) as served:
            await served.until_primary(3)
            assert await served.run("call", "flight", "book", "ada") == (0, "seat 1\n", "")
            served.signal(signal.SIGSTOP, "b", "c")
            shown = await _until_shown(served, "takes red updates only")
            assert "it takes more than half; missing: b c" in shown
            status, out, err = await served.run("call", "flight", "book", "dora", "--colour", "red")
            assert (status, out) == (0, "seat 2\n")
            assert "red: it is ordered, and may become another answer" in err
            _, out, _ = await served.run("call", "flight", "booked", "--level=weak", "--json")
            weak = json.loads(out)
            assert weak["value"] == ["ada"]
            assert weak["age"] > 0
            _, out, err = await served.run("call", "flight", "booked", "--level", "dirty")
            assert out == '["ada","dora"]\n'
            assert "updates are in it that are not ordered yet" in err
            status, out, err = await served.run("call", "flight", "booked", "--colour", "red")
            assert status == 2
            assert "is a query, and a --colour is for updates" in err
            served.signal(signal.SIGCONT, "b", "c")
            # Two of three may go on before they meet the third, and what it has.
            async with asyncio.timeout(PATIENCE):
                while out != '["ada","dora"]\n':
                    _, out, _ = await served.run("call", "flight", "booked")
                    assert out in {'["ada"]\n', '["ada","dora"]\n'}
            assert "because" in await served.until_shown("serves: 3 of 3", "flight")

    idle_time.run(story())


async def _until_shown(served: Served, text: str) -> str:
    async with asyncio.timeout(PATIENCE):
        while True:
            _, out, _ = await served.run("status", "flight", "--deadline=1")
            if text in out:
                return out
