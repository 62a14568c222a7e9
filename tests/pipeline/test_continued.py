"""What was run of a history stays run; who goes on behind it comes to what a fresh run comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.pipeline.here import Row
from tests.pipeline.test_growth import grow_in_order
from tests.pipeline.test_jobs import COUNTER

from coterie.pipeline.history import continued, rerun
from coterie.pipeline.history.replay import Program
from coterie.pipeline.jobs import JUDGED, JobOutcome, judge_and_publish
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.sealing import seal_surveyed
from coterie.pipeline.read.planning import survey

WIDTH = 20
TABLES = ("history", "events", "states", "verdicts", "violations", "update_counter_add")


@dataclass
class Runs:
    """Which ranges were run on the class, in the run that was last."""

    numbers: list[int] = field(default_factory=list)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    run = rerun._Running._run

    def noting(
        self: rerun._Running, entries: rerun.WrittenRange, key: str, *, has_checks: bool
    ) -> None:
        found.numbers.append(entries.task.number)
        run(self, entries, key, has_checks=has_checks)

    monkeypatch.setattr(rerun._Running, "_run", noting)
    return found


def published(lake: Lake, out: Path, program: Program = COUNTER) -> JobOutcome:
    out.mkdir(exist_ok=True)
    outcome = JobOutcome(out, groups=lake.groups())
    judge_and_publish(None, lake, [], outcome, JUDGED, {"group": program})
    return outcome


def tables(out: Path) -> dict[str, list[Row]]:
    return {
        name: [
            row
            for path in sorted((out / "tables" / name).rglob("*.parquet"))
            for row in pq.ParquetFile(path).read().to_pylist()
        ]
        for name in TABLES
    }


def sealed(journals: Path, folder: Path, *, growing: bool = False) -> Lake:
    lake = Lake.make(folder, width=WIDTH)
    seal_surveyed(None, survey([journals], growing=growing), lake)
    return lake


def test_each_run_comes_to_what_a_whole_run_comes_to(
    counter_journals: Path, tmp_path: Path, runs: Runs
) -> None:
    journals = tmp_path / "journals"
    random = Random(5)  # noqa: S311 -- reproducible on purpose
    most = step = 0
    is_growing = True
    while is_growing:
        is_growing = grow_in_order(counter_journals, journals, random)
        lake = sealed(journals, tmp_path / "lake", growing=is_growing)
        step += 1
        runs.numbers.clear()
        found = published(lake, tmp_path / "out")
        first = min(runs.numbers, default=0)
        most = max(most, first)
        runs.numbers.clear()
        fresh = published(lake, tmp_path / f"fresh-{step}")
        assert min(runs.numbers, default=0) == 0
        assert tables(tmp_path / "out") == tables(tmp_path / f"fresh-{step}")
        assert found.events == fresh.events
        assert not found.violations
    assert step > 1
    assert most > 0, "something was taken over"
    runs.numbers.clear()
    published(Lake.open(tmp_path / "lake"), tmp_path / "out")
    assert len(runs.numbers) == 1, "nothing has changed, and the last range is not whole"
    machines = list((tmp_path / "out" / "tables" / "states").resolve().rglob("_machine"))
    assert len(machines) <= continued.MACHINES_KEPT


def test_another_class_or_other_limits_begin_again(
    counter_journals: Path, tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, out = sealed(counter_journals, tmp_path / "lake"), tmp_path / "out"
    published(lake, out)
    whole = [*runs.numbers]

    def ran(program: Program = COUNTER) -> list[int]:
        runs.numbers.clear()
        published(lake, out, program)
        return [*runs.numbers]

    assert len(whole) > 2
    assert ran() == whole[-1:]
    other = replace(COUNTER, settings=replace(COUNTER.settings, digest_interval=0))
    assert ran(other) == whole
    assert ran(other) == whole[-1:]
    monkeypatch.setattr(continued, "code_of", lambda _: b"changed")
    assert ran(other) == whole


def test_what_is_missing_of_the_last_run_is_run_again(
    counter_journals: Path, tmp_path: Path, runs: Runs
) -> None:
    lake, out = sealed(counter_journals, tmp_path / "lake"), tmp_path / "out"
    published(lake, out)
    whole, expected = [*runs.numbers], tables(out)
    for pattern in ("_machine", "events/*/*/part.parquet", "states/*/*/part.parquet"):
        for path in (out / "tables").resolve().rglob(pattern):
            path.unlink()
        runs.numbers.clear()
        published(lake, out)
        assert runs.numbers == whole, pattern
        assert tables(out) == expected
    for path in (out / "tables").resolve().rglob("_machine"):
        path.write_bytes(path.read_bytes()[:-9])
    runs.numbers.clear()
    published(lake, out)
    assert runs.numbers == whole


def test_the_code_of_a_class_is_that_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class changes with the modules that it has names from."""
    (tmp_path / "helping_module.py").write_text("def twice(n):\n    return 2 * n\n", "utf-8")
    (tmp_path / "counting_module.py").write_text(
        "from coterie import update\nfrom helping_module import twice\n\n\n"
        "class Doubled:\n    n: int = 0\n\n    @update\n    def add(self, n: int) -> int:\n"
        "        self.n += twice(n)\n        return self.n\n",
        "utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    program = Program(name="counting_module:Doubled")
    before = continued.code_of(program)
    assert continued.code_of(program) == before
    (tmp_path / "helping_module.py").write_text("def twice(n):\n    return n + n\n", "utf-8")
    assert continued.code_of(program) != before
