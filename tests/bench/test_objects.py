from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from coterie.bench.harness.figures import rate
from coterie.bench.harness.protocol import Latencies
from coterie.bench.suites import objects, objects_report
from coterie.bench.suites.objects import ObjectsPlan, ObjectsReport
from coterie.bench.workloads.measuring import Timing, summarize
from coterie.cli import main as cli

if TYPE_CHECKING:
    from pathlib import Path

FIGURES = [
    *objects._latencies(Latencies(149.0, 900.0, 10.0), 0.05, 3, 100, "on"),
    rate(
        section="calls",
        what="multiplexed",
        replicas=3,
        message_bytes=100,
        journal="on",
        rates=[110_000.0],
        echo_ms=0.05,
        target=objects.RATE_TARGETS["multiplexed", "on"],
    ),
]
REPORT = ObjectsReport(
    machine={
        "cores": 2,
        "processor": "Abacus",
        "system": "Linux 9",
        "python": "CPython 3.11.7",
        "loop": "asyncio",
        "coterie": "0.1.0",
        "load_average": "0.1",
        "loop_ns": 25,
    },
    disk="ext4",
    sync_ms=3.96,
    busy_cores=0.0,
    pysyncobj="0.3.17",
    plan=ObjectsPlan(),
    echo_ms=0.05,
    echo_ms_repeats=[0.05],
    echoes="Raw TCP round trip in the same run: 50 us between two cores, 20 us on one.",
    figures=FIGURES,
)


def test_latencies_are_told_by_their_middle_and_their_end() -> None:
    times = [number / 1e6 for number in range(1000, 0, -1)]
    found = summarize(times, 0.5)
    assert found.median_us == pytest.approx(501)
    assert found.p99_us == pytest.approx(991)
    assert found.cpu_us == pytest.approx(500)
    assert summarize([1e-6], 0.0) == Latencies(1.0, 1.0, 0.0)


def test_a_client_is_measured_against_the_raw_round_trip() -> None:
    p50, p99 = FIGURES[:2]
    assert p50.echoes == pytest.approx(2.98)
    assert (p50.shown_target, p99.shown_target) == ("<= 150 us: met", "<= 800 us: missed")
    other = objects._latencies(Latencies(149.0, 900.0, 10.0), 0.05, 5, 100, "on")
    assert [figure.target for figure in other] == [None, None]


def test_large_calls_are_packed_less() -> None:
    loads = {(name, load.message_bytes): load for name, _, load in objects._loads(ObjectsPlan())}
    assert loads["packed", 100].calls == 250
    assert loads["packed", 1000].calls == objects.PACK_BYTES_MAX // 1000
    assert loads["128 connections", 100].sessions == 128


def test_all_files_are_written(tmp_path: Path) -> None:
    files = objects_report.write_files(REPORT, tmp_path, plot=True)
    assert [file.suffix for file in files] == [".json", ".csv", ".md", ".png"]
    assert msgspec.json.decode(files[0].read_bytes(), type=ObjectsReport) == REPORT
    rows = list(csv.DictReader(files[1].read_text(encoding="utf-8").splitlines()))
    assert [row["verdict"] for row in rows] == ["met", "missed", "missed"]
    page = files[2].read_text(encoding="utf-8")
    assert "1024 sessions on 2 connections if multiplexed" in page
    assert "PySyncObj is 0.3.17." in page
    assert "busy" not in objects_report.setting(REPORT)
    assert files[3].read_bytes().startswith(b"\x89PNG")


def test_misuse_ends_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "objects", "--parts=walls"]) == 2
    assert capsys.readouterr().err == (
        "coterie: --parts names no part 'walls'; the parts are calls, fail-over, pysyncobj, peers\n"
    )


TINY = msgspec.structs.replace(
    objects.QUICK,
    timing=Timing(seconds=0.2, warm_up=0.1, repeats=1),
    alone=30,
    alone_warm_up=5,
    multiplexed=(2, 20),
    connections=8,
    packed=(1, 2, 10),
    kills=1,
    kill_pause=0.5,
    pysyncobj_calls=20,
)


@pytest.mark.slow  # measures real processes
def test_the_smallest_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "QUICK", TINY)
    monkeypatch.setattr(objects, "JOURNALS", {"on": "none"})
    options = ["--quick", "--json", "--parts=calls", "--no-plot", f"--out={tmp_path}"]
    assert cli.main(["bench", "objects", *options]) == 0
    measured = json.loads(capfd.readouterr().out)
    figures = {(one["section"], one["what"]): one["value"] for one in measured["figures"]}
    assert 10 < figures["one client", "p50"] <= figures["one client", "p99"]
    for what in ("multiplexed", "8 connections", "packed"):
        assert figures["calls", what] > 0


@pytest.mark.long  # starts two dozen processes, for half a minute of processor time
def test_a_tiny_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "QUICK", TINY)
    profiles = tmp_path / "profiles"
    options = ["--quick", "--json", f"--out={tmp_path}", f"--profile={profiles}"]
    assert cli.main(["bench", "objects", *options]) == 0
    measured = json.loads(capfd.readouterr().out)
    figures = {
        (one["section"], one["what"], one["journal"]): one["value"] for one in measured["figures"]
    }
    for journal in ("on", "sync turn"):
        assert 10 < figures["one client", "p50", journal] <= figures["one client", "p99", journal]
        for what in ("multiplexed", "8 connections", "packed"):
            assert figures["calls", what, journal] > 0
        assert figures["memory", "a replica after all calls", journal] > 5
    assert figures["fail-over", "longest wait of a client, worst of 1 kills", ""] > 0
    if measured["pysyncobj"]:
        assert figures["PySyncObj", "20 calls outstanding", ""] > 0
    assert (tmp_path / "objects.png").stat().st_size > 10_000
    assert (profiles / "objects-3-on" / "clients.pstats").exists()
