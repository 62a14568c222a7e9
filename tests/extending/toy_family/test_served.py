"""The toy family runs in the processes of the service, and clients call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.extending.toy_family.engine import COPIED, NAME
from tests.extending.toy_family.registry import registered
from tests.patience import PATIENCE
from tests.service.vsr_deployment import Deployment, play

import coterie
from coterie.client import ClientSettings
from coterie.kernel.errors import Refused
from coterie.ready import Counter
from coterie.service.config import GroupConfig, check_group
from coterie.service.engines import find_family
from coterie.service.operate.metrics import exposition, health

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

GROUP = GroupConfig(class_="coterie.ready:Counter", engine=NAME)


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with registered():
        yield


class ToyDeployment(Deployment):
    """Three processes with a replica of the group each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"g": GROUP})

    def positions(self) -> set[int]:
        return {process.hosted["g"].settled for process in self.running.values()}


def play_toy(folder: Path, story: Callable[[ToyDeployment], Coroutine[None, None, None]]) -> None:
    async def told(deployment: Deployment) -> None:
        assert isinstance(deployment, ToyDeployment)
        await deployment.start_all()
        await story(deployment)

    play(folder, told, make=ToyDeployment)


SETTINGS = ClientSettings(deadline=PATIENCE)


def test_it_is_called_watched_and_started_again(tmp_path: Path) -> None:
    async def story(deployment: ToyDeployment) -> None:
        async with coterie.connect(Counter, deployment.seeds, settings=SETTINGS) as counter:
            assert await counter.add(3) == 3
            await deployment.end("c")
            assert await counter.add(4) == 7  # two of three are a majority
            await deployment.end("a")
            await deployment.start("a")  # it goes on from its journal
            await deployment.start("c")
            done = await counter.add.detailed(5)
            assert (done.value, done.standing, done.standing.is_final) == (12, COPIED, True)
            assert await counter.total() == 12
        await deployment.until(lambda: deployment.serves("g") and len(deployment.positions()) == 1)

        overview = await deployment.look("g")
        assert overview.is_well
        roles = {each.id: each.report.role for each in overview.replicas if each.report}
        assert roles == {"a": "primary", "b": "backup", "c": "backup"}
        [leader, *_] = [each.report for each in overview.replicas if each.report]
        assert (leader.engine, leader.primary, leader.details) == (NAME, "a#2", {"waiting": 0})
        process = deployment.running["a"]
        assert health(process).is_well
        assert 'coterie_toy_waiting{replica="a",group="g"} 0' in exposition(process)
        with pytest.raises(Refused, match="goes on when its first replica is back"):
            await process.hosted["g"].recover()

    play_toy(tmp_path, story)


def test_without_its_leader_it_stands_still(tmp_path: Path) -> None:
    async def story(deployment: ToyDeployment) -> None:
        await deployment.end("a")
        await deployment.until(
            lambda: all(
                health(process).reasons == {"g": "minority"}
                for process in deployment.running.values()
            )
        )

    play_toy(tmp_path, story)


def test_what_it_cannot_do_is_refused() -> None:
    assert find_family(NAME).kept_by(GROUP) == NAME
    with pytest.raises(coterie.CoterieError, match='"toy" has no stack'):
        check_group(GroupConfig(class_="m:C", engine=NAME, stack="SAFE:DYNSEQ:PVSYNC"))
