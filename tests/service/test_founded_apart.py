"""A group that is founded a second time is no part of the first, whatever its replicas say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.service.test_process import Deployment

import coterie
from coterie.journal.disk import FileDisk
from coterie.journal.format import Sync
from coterie.kernel.errors import CoterieError
from coterie.ready import Counter
from coterie.service.config import GroupConfig
from coterie.service.disk_marks import DiskMarks, found_groups
from coterie.service.operate.founding import make_config
from coterie.service.process import ReplicaProcess, load_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ENGINES = {
    "safe": GroupConfig(class_="coterie.ready:Counter", stack="SAFE:TOKEN:PVSYNC"),
    "optimistic": GroupConfig(class_="coterie.ready:Counter", stack="DYNSEQ:PVSYNC"),
    "vsr": GroupConfig(class_="coterie.ready:Counter", engine="vsr", sync=Sync.TURN),
    "colours": GroupConfig(
        class_="coterie.ready:Counter", engine="colours", stack="COLOURS:DYNSEQ:VSYNC"
    ),
}


class Founded(Deployment):
    """Three replicas of a group of any engine."""

    def __init__(self, folder: Path, engine: str) -> None:
        super().__init__(folder)
        self.config = make_config(folder, "g", groups={"g": ENGINES[engine]}, replicas=3)
        self.seeds = [each.clients for each in self.config.replicas.values()]

    async def start(self, id: str, *, found: bool = False) -> ReplicaProcess:
        objects = load_objects(self.config)
        process = ReplicaProcess(self.config, id, objects=objects, found=found)
        await process.__aenter__()
        self.running[id] = process
        return process

    async def begin(self, ids: str) -> None:
        for id in ids:
            await self.start(id, found=True)
        await self.until(lambda: self.serving == len(ids))

    @property
    def serving(self) -> int:
        """How many are in a view in which updates are taken."""
        roles = [
            None if (status := each.hosted["g"].status) is None else status.role.value
            for each in self.running.values()
        ]
        return sum(role in {"primary", "backup"} for role in roles)

    async def add(self, *at: str) -> int:
        seeds = [self.config.replicas[id].clients for id in at] or self.seeds
        async with coterie.connect(Counter, seeds, group="g") as counter:
            return await counter.add(1)

    def lose(self, ids: str) -> None:
        for id in ids:
            shutil.rmtree(self.config.replicas[id].dir)

    def refused(self, id: str) -> int:
        counters = self.running[id].live.transport.counters
        return counters.get("transport.hellos_rejected", 0)


def play(
    folder: Path, engine: str, story: Callable[[Founded], Coroutine[None, None, None]]
) -> None:
    async def run() -> None:
        deployment = Founded(folder, engine)
        try:
            await story(deployment)
        finally:
            await deployment.end_all()

    idle_time.run(run())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_founding_beside_a_disk_with_a_history_ends_with_a_sentence(
    tmp_path: Path, engine: str
) -> None:
    async def story(deployment: Founded) -> None:
        await deployment.begin("abc")
        assert await deployment.add() == 1
        await deployment.end_all()
        deployment.lose("ab")
        kept = await deployment.start("c")
        for id in "ab":
            process = await deployment.start(id, found=True)
            await deployment.until(process.refused.is_set)
            with pytest.raises(CoterieError, match=f"replica '{id}' was founded apart"):
                process.check_refusal()
            assert not deployment.serving
            await deployment.end(id)  # as its command does: two of them would be a group
        assert kept.hosted["g"].version.position

    play(tmp_path, engine, story)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_empty_group_acknowledged_does_not_vanish_when_the_third_comes(
    tmp_path: Path, engine: str
) -> None:
    """Nobody was there who knew, so two wiped replicas began anew; the third stays apart."""

    async def story(deployment: Founded) -> None:
        await deployment.begin("abc")
        for number in (1, 2, 3):
            assert await deployment.add() == number
        await deployment.end_all()
        deployment.lose("ab")
        await deployment.begin("ab")
        assert await deployment.add("a", "b") == 1
        third = await deployment.start("c")
        await deployment.until(lambda: deployment.refused("c") > 3)
        assert await deployment.add("a", "b") == 2
        assert not third.hosted["g"].is_primary
        assert not any(each.refused.is_set() for each in deployment.running.values())

    play(tmp_path, engine, story)


def test_without_marks_what_was_acknowledged_would_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule is what keeps it: the same story, where nobody asks for marks."""
    monkeypatch.setattr(DiskMarks, "why_not", lambda *_: "")

    async def story(deployment: Founded) -> None:
        await deployment.begin("abc")
        for number in (1, 2, 3):
            assert await deployment.add() == number
        await deployment.end_all()
        deployment.lose("ab")
        await deployment.begin("ab")
        assert await deployment.add("a", "b") == 1
        await deployment.start("c")
        await deployment.until(lambda: deployment.serving == 3)
        assert await deployment.add() != 2

    play(tmp_path, "safe", story)


def test_one_that_lost_its_folder_comes_back_without_founding(tmp_path: Path) -> None:
    async def story(deployment: Founded) -> None:
        await deployment.begin("abc")
        assert await deployment.add() == 1
        await deployment.end("a")
        deployment.lose("a")
        await deployment.start("a")
        await deployment.until(lambda: deployment.serving == 3)
        assert await deployment.add() == 2
        await deployment.end_all()
        for id in "abc":  # and `--found` again where it was given before changes nothing
            await deployment.start(id, found=id != "a")
        await deployment.until(lambda: deployment.serving == 3)
        assert await deployment.add() == 3

    play(tmp_path, "safe", story)


def test_one_that_founded_a_group_of_its_own_joins_no_other(tmp_path: Path) -> None:
    async def story(deployment: Founded) -> None:
        await deployment.start("a", found=True)
        await deployment.end("a")
        joining = msgspec.structs.replace(deployment.config.replicas["a"], joins=("g",))
        replicas = {**deployment.config.replicas, "a": joining}
        deployment.config = msgspec.structs.replace(deployment.config, replicas=replicas)
        with pytest.raises(CoterieError, match="its disk founded a g of its own"):
            await deployment.start("a")

    play(tmp_path, "safe", story)


def test_a_mark_is_drawn_with_a_new_folder_alone(tmp_path: Path) -> None:
    config = make_config(tmp_path, "g", groups={"g": ENGINES["safe"]}, replicas=1)
    disk = FileDisk(tmp_path / "a")
    found_groups(disk, config, "a", ["g"])
    mark = DiskMarks(disk, "a").mark
    assert mark
    found_groups(disk, config, "a", ["g"])
    assert DiskMarks(disk, "a").mark == mark
    shutil.rmtree(tmp_path / "a" / "g")
    with pytest.raises(ValueError, match="what it kept there is gone"):
        found_groups(disk, config, "a", ["g"])


def test_folders_of_an_earlier_release_have_no_mark_and_get_none(tmp_path: Path) -> None:
    async def story(deployment: Founded) -> None:
        await deployment.begin("abc")
        await deployment.end_all()
        for id in "abc":
            (Path(deployment.config.replicas[id].dir) / "marks").unlink()
        await deployment.begin("abc")
        assert await deployment.add() == 1
        assert not any(each.live.transport.marks.mark for each in deployment.running.values())

    play(tmp_path, "safe", story)


def test_marks_are_kept_and_the_first_one_counts(tmp_path: Path) -> None:
    marks = DiskMarks(FileDisk(tmp_path), "a")
    one, other = b"1" * 16, b"2" * 16
    assert not marks.why_not("b", one)
    marks.met("b", one)
    marks.met("c", b"")
    again = DiskMarks(FileDisk(tmp_path), "a")
    assert not again.why_not("b", one)
    assert "replica 'b' was founded apart" in again.why_not("b", other)
    assert not again.why_not("b", b""), "a zombie, or one that has joined, claims nothing"
    assert "founded apart" in again.why_not("c", one), "it had founded nothing"
    assert "no mark has 3 bytes" in again.why_not("b", b"odd")
    (tmp_path / "marks").write_bytes(b"damage")
    with pytest.raises(CoterieError, match="cannot be read"):
        DiskMarks(FileDisk(tmp_path), "a")
