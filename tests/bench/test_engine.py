from __future__ import annotations

import asyncio
import csv
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from coterie.bench.harness.controller import BenchError, worker_pool
from coterie.bench.harness.disk import file_system, sync_ms
from coterie.bench.harness.figures import Figure, Target, rate, show
from coterie.bench.harness.machine import Others
from coterie.bench.harness.protocol import HostAllReplicas, Load
from coterie.bench.harness.tables import busy_note, figures_table
from coterie.bench.suites import engine, engine_report, order
from coterie.bench.suites.engine import EnginePlan, EngineReport
from coterie.bench.suites.order import RoundsResult
from coterie.bench.workloads.measuring import Timing
from coterie.bench.workloads.rollback import RollBack
from coterie.cli import main as cli
from coterie.runtime.loop import run

if TYPE_CHECKING:
    from pathlib import Path

MACHINE: dict[str, str | int] = {
    "cores": 2,
    "processor": "Abacus",
    "system": "Linux 9",
    "python": "CPython 3.11.7",
    "loop": "asyncio",
    "coterie": "0.1.0",
    "load_average": "0.1",
    "loop_ns": 25,
}
FIGURES = [
    rate(
        section="loopback",
        what="packed",
        replicas=3,
        message_bytes=100,
        journal="on",
        rates=[400_000.0, 600_000.0, 510_000.0],
        echo_ms=0.05,
        cpu_us=3.21,
        target=Target(500_000),
    ),
    rate(section="loopback", what="one by one", rates=[90_000.0], echo_ms=0.05),
    Figure(
        section="transfer",
        what="pause",
        value=300.0,
        unit="ms",
        target=Target(250, is_floor=False),
    ),
]
ROUND = RoundsResult(
    stack="SAFE:TOKEN:PVSYNC",
    members=5,
    latency_ms=1.0,
    latency_ms_repeats=[1.0],
    latency_cpu_ms=0.1,
    echo_ratio=20.0,
    messages_per_member=10_000.0,
    messages_per_member_repeats=[10_000.0],
    messages_in_all=50_000.0,
    cpu_us_per_delivery=5.0,
    turns_per_round=3.0,
)
REPORT = EngineReport(
    machine=MACHINE,
    disk="ext4",
    sync_ms=3.96,
    busy_cores=1.2,
    plan=EnginePlan(),
    echo_ms=0.05,
    echo_ms_repeats=[0.05],
    echoes="Raw TCP round trip in the same run: 50 us between two cores, 20 us on one.",
    figures=FIGURES,
    rounds=[ROUND],
)


# ---- what is computed and shown


def test_a_rate_is_a_median_and_is_told_in_round_trips() -> None:
    figure = FIGURES[0]
    assert figure.value == 510_000
    assert figure.echoes == pytest.approx(25.5)
    assert str(figure).endswith(" packed, 3 replicas, 100 B, journal on: 510,000/s")


def test_targets_are_met_or_missed_in_their_own_direction() -> None:
    assert FIGURES[0].shown_target == ">= 500,000/s: met"
    assert FIGURES[1].shown_target == ""
    assert FIGURES[2].shown_target == "<= 250 ms: missed"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1234, "0.12 ms"), (12.34, "12.3 ms"), (1234.5, "1,234 ms")]
)
def test_three_digits_say_enough(value: float, shown: str) -> None:
    assert show(value, "ms") == shown


def test_a_column_that_says_nothing_is_left_out() -> None:
    loopback, transfer = figures_table(FIGURES).split("\n\n")
    assert [cell.strip() for cell in loopback.splitlines()[0].strip("|").split("|")] == [
        *("loopback", "replicas", "bytes", "journal", "", "x echo", "us CPU", "target")
    ]
    assert [cell.strip() for cell in transfer.splitlines()[0].strip("|").split("|")] == [
        *("transfer", "", "target")
    ]


def test_other_work_is_told() -> None:
    assert "kept 1.2 cores busy" in busy_note(MACHINE, 1.2)
    assert not busy_note(MACHINE, 0.2)
    assert "load average 1.5" in busy_note(MACHINE | {"load_average": "1.5"}, 0.2)


def test_our_own_work_is_not_that_of_others() -> None:
    others = Others()
    assert 0 <= others.busy_cores() < 1000


def test_all_files_are_written(tmp_path: Path) -> None:
    files = engine_report.write_files(REPORT, tmp_path, plot=True)
    assert [file.name for file in files] == [
        f"engine.{form}" for form in ("json", "csv", "md", "png")
    ]
    assert msgspec.json.decode(files[0].read_bytes(), type=EngineReport) == REPORT
    rows = list(csv.DictReader(files[1].read_text(encoding="utf-8").splitlines()))
    assert [(row["what"], row["target"], row["verdict"]) for row in rows] == [
        ("packed", "500000", "met"),
        ("one by one", "", ""),
        ("pause", "250", "missed"),
    ]
    page = files[2].read_text(encoding="utf-8")
    assert "Journals on ext4, where a small write and its fdatasync take 4.0 ms" in page
    assert "more replicas than cores" in page
    assert "22.3" in page  # the paper's
    assert engine_report.tables(REPORT) in page
    assert files[3].read_bytes().startswith(b"\x89PNG")


def test_large_calls_are_packed_into_entries_that_are_not_too_large() -> None:
    [(_, packed), (_, single)] = engine.loads(EnginePlan(), 1000)
    assert packed.calls * 1000 <= engine.PACK_BYTES_MAX
    assert (packed.is_packed, single.is_packed) == (True, False)


def test_a_part_that_cannot_be_measured_does_not_cost_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise BenchError("the moon was full")

    monkeypatch.setattr(engine, "measure_transfer", fail)
    parts = "--parts=transfer,roll-back"
    assert cli.main(["bench", "engine", "--quick", parts, f"--out={tmp_path}", "--no-plot"]) == 1
    out, err = capfd.readouterr()
    assert "Not measured: transfer: the moon was full." in out
    assert "transfer could not be measured: the moon was full" in err
    assert "1000 entries, 1000 kept" in out


# ---- what is measured in this process


def test_a_roll_back_is_one_and_takes_time() -> None:
    subject = RollBack(values=10, value_bytes=100)
    assert subject.measure(entries=50, kept=0, message_bytes=10) > 0
    assert subject.measure(entries=50, kept=20, message_bytes=10) > 0
    assert subject._host.position == 2 + 20


def test_the_disk_is_described(tmp_path: Path) -> None:
    assert file_system(str(tmp_path))
    assert sync_ms() > 0


# ---- misuse


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--parts=rounds,squares"], "--parts names no part 'squares'; the parts are in-process,"),
        (["--stack=VSYNC"], "--stack 'VSYNC' keeps no history; take SAFE:DYNSEQ:PVSYNC"),
        (["--stack=SAFE"], "'SAFE' has no layer at its bottom"),
        (["--replicas=1"], "--replicas '1' cannot be"),
    ],
)
def test_misuse_ends_in_one_sentence(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "engine", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err


# ---- real processes


@pytest.mark.slow  # starts real processes
def test_an_order_to_a_worker_that_has_died_ends_in_an_error() -> None:
    async def story() -> None:
        async with worker_pool(1) as started:
            [worker] = started.workers
            worker.tell(HostAllReplicas(replicas=3, stack="DYNSEQ:PVSYNC", subject="Box"))
            await worker.ready()
            worker.tell(Load(2, 3, 10, is_packed=True))
            await worker.ready()
            await worker.kill()
            with pytest.raises(BenchError, match="a member has ended before its time"):
                await asyncio.gather(worker.sample())

    run(story())


TINY = msgspec.structs.replace(
    engine.QUICK,
    timing=Timing(seconds=0.2, warm_up=0.05, repeats=1),
    state_mb=1,
    message_bytes=(100,),
    rounds=order.OrderPlan(
        stacks=("PVSYNC", "SAFE:DYNSEQ:PVSYNC"), members=(2,), repeats=1, rounds=20
    ),
)


@pytest.mark.slow  # measures real processes
def test_the_smallest_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUICK", TINY)
    options = ["--quick", "--json", "--parts=in-process", "--no-plot", f"--out={tmp_path}"]
    assert cli.main(["bench", "engine", *options]) == 0
    figures = json.loads(capfd.readouterr().out)["figures"]
    packed = [one["value"] for one in figures if one["what"] == "packed"]
    assert packed
    assert all(value > 0 for value in packed)


@pytest.mark.long  # starts two dozen processes, for half a minute of processor time
def test_a_tiny_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUICK", TINY)
    profiles = tmp_path / "profiles"
    options = ["--quick", "--json", f"--out={tmp_path}", f"--profile={profiles}"]
    assert cli.main(["bench", "engine", *options]) == 0
    measured = json.loads(capfd.readouterr().out)
    figures = {
        (one["section"], one["what"], one["journal"]): one["value"] for one in measured["figures"]
    }
    for mode in ("packed", "one by one"):
        assert figures["in process", mode, ""] > 0
        for journal in ("off", "on", "sync turn"):
            assert figures["loopback", mode, journal] > 0
    assert figures["transfer", "rate", ""] > 0
    assert figures["memory", "a replica with an empty object", ""] > 5
    assert [one["stack"] for one in measured["rounds"]] == ["PVSYNC", "SAFE:DYNSEQ:PVSYNC"]
    assert all(one["messages_per_member"] > 0 for one in measured["rounds"])
    assert (tmp_path / "engine.png").stat().st_size > 10_000
    assert (profiles / "loopback-3-sync-turn" / "a.pstats").exists()
