"""What is decided stays decided; who takes it over comes to what a fresh run comes to."""

from __future__ import annotations

from pathlib import Path
from random import Random
from shutil import copytree

import pyarrow.parquet as pq
import pytest
from tests.pipeline.by_hand import NAMES, entries, replied, settled, write
from tests.pipeline.here import Row
from tests.pipeline.test_growth import grow_in_order
from tests.pipeline.test_tampering import harm, tell

from coterie.pipeline.history import decided
from coterie.pipeline.jobs import JobOutcome, judge_and_publish
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.sealing import seal_surveyed
from coterie.pipeline.read.planning import survey

JOBS = ("history", "verify")


class Followed:
    """Results that a run after the other brings up to date, without Spark."""

    def __init__(self, journals: Path, out: Path, *, width: int = 50) -> None:
        self.journals, self.out = journals, out
        self.lake = Lake.make(out / "lake", width=width)

    def run(self, *, growing: bool = True) -> JobOutcome:
        seal_surveyed(None, survey([self.journals], growing=growing), self.lake)
        return judged(self.lake, self.out)

    def places(self) -> dict[str, int]:
        """The files of the history, and which file of the disk each is."""
        return {
            str(path.relative_to(self.out / "tables")): path.stat().st_ino
            for path in sorted((self.out / "tables" / "history").resolve().rglob("*.parquet"))
            for path in [self.out / "tables" / "history" / Path(*path.parts[-3:])]
        }


def judged(lake: Lake, out: Path) -> JobOutcome:
    out.mkdir(exist_ok=True)
    outcome = JobOutcome(out, groups=lake.groups())
    judge_and_publish(None, lake, [], outcome, JOBS, {})
    return outcome


def history(out: Path) -> list[Row]:
    rows: list[Row] = []
    for path in sorted((out / "tables" / "history").rglob("*.parquet")):
        rows += pq.ParquetFile(path).read().to_pylist()
    return rows


def comes_to_the_same(followed: Followed, found: JobOutcome, alone: Path) -> None:
    """A run over the same lake, into a folder that remembers nothing."""
    fresh = judged(followed.lake, alone)
    assert found.verdicts == fresh.verdicts
    assert found.violations == fresh.violations
    assert history(followed.out) == history(alone)


def grow(whole: Path, journals: Path, random: Random, steps: int) -> bool:
    """Let journals grow, by several steps at once."""
    return all(grow_in_order(whole, journals, random) for _ in range(steps))


def same(before: dict[str, int], after: dict[str, int]) -> int:
    return sum(after.get(name) == inode for name, inode in before.items())


@pytest.mark.parametrize(("name", "steps"), [("counter_journals", 1), ("optimistic_journals", 6)])
def test_each_step_of_following_comes_to_what_a_whole_run_comes_to(
    name: str, steps: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole: Path = request.getfixturevalue(name)
    followed = Followed(tmp_path / "journals", tmp_path / "out")
    random = Random(5)  # noqa: S311 -- reproducible on purpose
    taken = step = 0
    before: dict[str, int] = {}
    while grow(whole, followed.journals, random, steps):
        step += 1
        comes_to_the_same(followed, followed.run(), tmp_path / f"alone-{step}")
        after = followed.places()
        taken += same(before, after)
        before = after
    comes_to_the_same(followed, followed.run(growing=False), tmp_path / "alone")
    assert step > 1
    assert taken > 0
    last = followed.places()
    comes_to_the_same(followed, followed.run(growing=False), tmp_path / "again")
    assert same(last, followed.places()) == len(last), "nothing has changed"


@pytest.mark.parametrize("name", ["bank_journals", "colours_journals", "program_journals"])
def test_other_families_followed_to_the_end(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """On the way nothing seems broken, and at the end all is as if it had been read at once."""
    whole: Path = request.getfixturevalue(name)
    followed = Followed(tmp_path / "journals", tmp_path / "out")
    random = Random(6)  # noqa: S311 -- reproducible on purpose
    steps = 0
    while grow_in_order(whole, followed.journals, random):
        steps += 1
        assert not followed.run().violations
    assert steps > 1
    found = followed.run(growing=False)
    once = Followed(followed.journals, tmp_path / "once").run(growing=False)
    assert found.verdicts == once.verdicts
    assert found.violations == once.violations == []


@pytest.mark.parametrize("seed", range(2))
def test_damage_between_two_runs(seed: int, optimistic_journals: Path, tmp_path: Path) -> None:
    """Whatever is lost of journals afterwards, nothing is taken over that would be judged anew."""
    journals = copytree(optimistic_journals, tmp_path / "journals")
    followed = Followed(journals, tmp_path / "out", width=200)
    random = Random(seed)  # noqa: S311 -- reproducible on purpose
    for step in range(3):
        comes_to_the_same(followed, followed.run(growing=False), tmp_path / f"alone-{step}")
        harm(journals, random)
    comes_to_the_same(followed, followed.run(growing=False), tmp_path / "alone")


@pytest.fixture
def closed(tmp_path: Path) -> Followed:
    """Three replicas that have settled three ranges and a half."""
    write(tmp_path / "journals", "g", {name: tell(name, 34) for name in NAMES})
    followed = Followed(tmp_path / "journals", tmp_path / "out", width=10)
    assert not followed.run().violations
    return followed


def go_on(followed: Followed, **told: object) -> dict[str, int]:
    """Write the journals anew, with more behind what was there; give the files as they were."""
    places = followed.places()
    for name in NAMES:
        for path in (followed.journals / "g" / name).rglob("*.segment"):
            path.unlink()
    more = {name: [*tell(name, 34), *told.get(name, ())] for name in NAMES}  # type: ignore[misc]
    for name, records in more.items():
        place = followed.journals.parent / f"more-{name}"
        write(place, "g", {name: records})
        copytree(place / "g" / name, followed.journals / "g" / name, dirs_exist_ok=True)
    return places


def test_closed_ranges_are_taken_over_and_the_open_one_is_judged(closed: Followed) -> None:
    more = {
        name: [
            record
            for position in range(35, 39)
            for record in (entries("g", name, position, [b"x"]), settled("g", name, position))
        ]
        for name in NAMES
    }
    before = go_on(closed, **more)
    found = closed.run()
    assert not found.violations
    after = closed.places()
    assert same(before, after) == 3
    assert len(after) == 4


def test_who_goes_back_on_a_closed_range_is_found(closed: Followed) -> None:
    before = go_on(closed, b=[entries("g", "b", 12, [b"another"])])
    found = closed.run()
    assert {row["check_name"] for row in found.violations} >= {"one authoritative entry"}
    assert same(before, closed.places()) == len(before) - 1, "all but the second range"
    comes_to_the_same(closed, found, closed.out.parent / "alone")
    # What was broken is judged each time, and stays broken.
    assert closed.run().violations == found.violations


def test_an_answer_that_speaks_of_a_closed_range_is_looked_at(closed: Followed) -> None:
    forged = replied("g", "a", at=6, session=1, request=7, position=12, number=99)
    before = go_on(closed, a=[forged])
    found = closed.run()
    assert {row["check_name"] for row in found.violations} == {"acknowledged means authoritative"}
    assert same(before, closed.places()) == len(before) - 1


def test_other_code_takes_nothing_over(closed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    before = closed.places()
    closed.run()
    assert same(before, closed.places()) == len(before)
    monkeypatch.setattr("coterie.pipeline.jobs.code_digest", lambda: "other")
    closed.run()
    assert same(before, closed.places()) == 0
    assert decided.code_digest() == decided.code_digest() != "other"
