from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from coterie.bench.harness import plots
from coterie.bench.harness.controller import BenchError, worker_pool
from coterie.bench.harness.protocol import Measured
from coterie.bench.suites import order, order_report
from coterie.bench.suites.order import OrderPlan, OrderReport, RoundsResult
from coterie.cli import main as cli
from coterie.runtime.loop import run

if TYPE_CHECKING:
    from pathlib import Path

STACKS = ("VSYNC", "DYNSEQ:VSYNC")


def result(stack: str, members: int) -> RoundsResult:
    return RoundsResult(
        stack=stack,
        members=members,
        latency_ms=0.25 * members,
        latency_ms_repeats=[0.25 * members],
        latency_cpu_ms=0.1,
        echo_ratio=5.0,
        messages_per_member=123_456.7 / members,
        messages_per_member_repeats=[123_456.7 / members],
        messages_in_all=123_456.7,
        cpu_us_per_delivery=1.234,
        turns_per_round=2.0,
    )


REPORT = OrderReport(
    machine={
        "cores": 4,
        "processor": "Abacus",
        "system": "Linux 9",
        "python": "CPython 3.11.7",
        "loop": "asyncio",
        "coterie": "0.1.0",
        "load_average": "1.5",
        "loop_ns": 25,
    },
    plan=OrderPlan(members=(2, 5), stacks=STACKS),
    message_bytes=100,
    burst=100,
    echo_ms=0.05,
    echo_ms_repeats=[0.05],
    echoes="Raw TCP round trip in the same run: 50 us between two cores, 20 us on one.",
    results=[result(stack, members) for stack in STACKS for members in (2, 5)],
)


# ---- what is computed


def test_medians_over_repeats_of_means_over_members() -> None:
    plan = OrderPlan(rounds=100, warm_up=10, repeats=3)
    raw = order._Raw(
        echo_ms=[0.1, 0.2, 0.1],
        single=[[Measured(s, s / 2, 220), Measured(s, s / 2, 220)] for s in (0.1, 0.4, 0.2)],
        burst=[[Measured(s, s / 4), Measured(s, s / 4)] for s in (1.0, 2.0, 4.0)],
    )
    summary = order._summarize(plan, "VSYNC", 2, raw)
    assert summary.latency_ms == pytest.approx(2.0)
    assert summary.latency_cpu_ms == pytest.approx(1.0)
    assert summary.echo_ratio == pytest.approx(20.0)
    assert summary.messages_per_member == pytest.approx(5000)
    assert summary.messages_in_all == pytest.approx(10_000)
    assert summary.cpu_us_per_delivery == pytest.approx(0.5e6 / 20_000)
    assert summary.turns_per_round == pytest.approx(2.0)


# ---- what is shown


def test_the_table_has_our_figures_beside_those_of_the_paper() -> None:
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in order_report.table(REPORT).splitlines()
    ]
    assert lines[2] == ["VSYNC", "2", "0.500", "5.0", "61,728", "123,457", "1.23", "1.6", "14,666"]
    assert lines[5][:2] + lines[5][-2:] == ["DYNSEQ:VSYNC", "5", "12.2", "2,915"]


def test_all_files_are_written(tmp_path: Path) -> None:
    files = order_report.write_files(REPORT, tmp_path / "new" / "folder", plot=True)
    assert [file.name for file in files] == ["order.json", "order.csv", "order.md", "order.png"]
    assert msgspec.json.decode(files[0].read_bytes(), type=OrderReport) == REPORT
    rows = list(csv.DictReader(files[1].read_text(encoding="utf-8").splitlines()))
    assert [(row["stack"], row["members"]) for row in rows] == [
        (one.stack, str(one.members)) for one in REPORT.results
    ]
    assert float(rows[0]["messages_in_all"]) == 123_456.7
    page = files[2].read_text(encoding="utf-8")
    assert (
        "4 cores of Abacus, Linux 9, CPython 3.11.7 (25 ns for a step of a plain loop), asyncio"
        in page
    )
    assert "more members than cores" in page
    assert "busy with other work (load average 1.5 before the run)" in page
    assert order_report.table(REPORT) in page
    assert files[3].read_bytes().startswith(b"\x89PNG")


# ---- misuse


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--members=1-3"], "--members '1-3' cannot be; write 3, 2-5 or 2,4, from 2 up to 26"),
        (["--members=many"], "--members 'many' cannot be"),
        (["--members=27"], "--members '27' cannot be"),
        (["--stacks=VSYNC,RING"], "'RING' names no layer 'RING'"),
        (["--rounds=0"], "--rounds 0 cannot be; it is 1 or more"),
        (["--repeats=-1"], "--repeats -1 cannot be; it is 1 or more"),
        (["--stack=VSYNC"], "has no option '--stack'; did you mean '--stacks'?"),
    ],
)
def test_misuse_ends_in_one_sentence(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "order", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err


def test_a_benchmark_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench"]) == 2
    assert "<benchmark>" in capsys.readouterr().err


def test_a_missing_matplotlib_is_noticed_before_the_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    assert cli.main(["bench", "order"]) == 2
    assert capsys.readouterr().err == (
        "coterie: the plot needs matplotlib: pip install 'coterie[bench]', or give --no-plot\n"
    )


# ---- real processes


@pytest.mark.slow  # starts real processes
def test_a_member_that_dies_is_an_error_and_not_a_wait() -> None:
    async def story() -> None:
        async with worker_pool(1) as started:
            [worker] = started.workers
            worker._process.kill()
            with pytest.raises(BenchError, match="a member has ended before its time"):
                await worker.answer()

    run(story())


def check_plausible(one: dict[str, float]) -> None:
    """See that figures hold together, however slow the machine is.

    A round is more than a one-way trip, nobody works longer than it takes, and what a member
    delivers in a second is no more than a second's work.
    """
    assert one["latency_ms"] > 0.01
    assert 0 < one["latency_cpu_ms"] <= one["latency_ms"]
    assert 0 < one["cpu_us_per_delivery"] * one["messages_in_all"] <= 1.1e6


TOKENS = ("TOKEN:VSYNC", "TOKEN:VSYNC, held 1 ms")
"""The token is measured passed on at once, and kept for a while."""


@pytest.mark.slow  # measures real processes
def test_the_smallest_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--quick", "--json", "--stacks=TOKEN:VSYNC", "--members=2", "--no-plot"]
    assert cli.main(["bench", "order", *options, f"--out={tmp_path}"]) == 0
    results = json.loads(capfd.readouterr().out)["results"]
    assert [(one["stack"], one["members"]) for one in results] == [(name, 2) for name in TOKENS]
    for one in results:
        check_plausible(one)


@pytest.mark.long  # starts fifteen processes, for half a minute of processor time
def test_a_quick_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "order", "--quick", "--json", f"--out={tmp_path}"]) == 0
    out, err = capfd.readouterr()
    measured = json.loads(out)
    assert [(one["stack"], one["members"]) for one in measured["results"]] == [
        (stack, members) for stack in ("VSYNC", "DYNSEQ:VSYNC", *TOKENS) for members in (2, 3)
    ]
    for one in measured["results"]:
        check_plausible(one)
    assert "[ 8/8] TOKEN:VSYNC, held 1 ms" in err
    assert (tmp_path / "order.png").stat().st_size > 10_000
