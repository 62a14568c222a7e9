"""Whole processes over a partitioned network, with their journals, in one event loop over TCP."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import idle_time
from tests.colours.shop import STACK, Shop
from tests.patience import PATIENCE

import coterie
from coterie.client import ClientSettings
from coterie.journal.format import Sync
from coterie.kernel.components import GREEN, RED
from coterie.kernel.engine import Role
from coterie.kernel.errors import CoterieError, Refused
from coterie.kernel.settings import DEFAULT_SETTINGS, Settings
from coterie.objects import define
from coterie.service.config import ClusterConfig, ConfigError, GroupConfig, parse_config
from coterie.service.engines.colours import HostedColours
from coterie.service.operate.founding import make_config
from coterie.service.operate.overview import Overview, check_recovery, look
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

CLASS = f"{Shop.__module__}:{Shop.__qualname__}"
PATIENT = ClientSettings(deadline=PATIENCE)


class Deployment:
    """Three processes that can be started and ended one by one."""

    def __init__(self, folder: Path, sync: Sync) -> None:
        groups = {"g": GroupConfig(class_=CLASS, stack=STACK, sync=sync)}
        self.config: ClusterConfig = make_config(folder, "g", groups=groups, replicas=3)
        self.running: dict[str, ReplicaProcess] = {}
        self.settings = DEFAULT_SETTINGS
        self.seeds = [each.clients for each in self.config.replicas.values()]

    async def start(self, *ids: str, found: bool = False) -> None:
        for id in ids:
            objects = {"g": define(Shop)}
            process = ReplicaProcess(
                self.config, id, objects=objects, found=found, settings=self.settings
            )
            await process.__aenter__()
            self.running[id] = process

    async def end(self, *ids: str) -> None:
        for id in ids or list(self.running):
            await self.running.pop(id).__aexit__(None, None, None)

    def hosted(self, id: str) -> HostedColours:
        hosted = self.running[id].hosted["g"]
        assert isinstance(hosted, HostedColours)
        return hosted

    def here(self, id: str) -> set[str]:
        """Who is in touch with a replica."""
        status = self.hosted(id).status
        return set() if status is None else {member.id for member in status.members}

    async def look(self) -> Overview:
        addresses = {id: each.clients for id, each in self.config.replicas.items()}
        return await look(group="g", addresses=addresses, deadline=1)

    async def until(self, role: Role, *ids: str) -> None:
        """Wait until replicas, all of them if none is named, have a role, all in one view."""
        names = set(ids or self.running)

        def is_so() -> bool:
            seen = [self.hosted(id).status for id in names]
            return all(
                each is not None
                and each.role is role
                and {member.id for member in each.members} == names
                for each in seen
            )

        await self.until_so(is_so)

    async def until_so(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        changed = asyncio.Event()
        for process in self.running.values():
            process.live.driver.turn_ended.append(changed.set)
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                changed.clear()
                await changed.wait()


def play(
    folder: Path,
    story: Callable[[Deployment], Coroutine[None, None, None]],
    *,
    sync: Sync = Sync.NONE,
) -> None:
    async def run() -> None:
        deployment = Deployment(folder, sync)
        try:
            await story(deployment)
        finally:
            await deployment.end()

    idle_time.run(run())


@pytest.mark.parametrize("sync", [Sync.NONE, Sync.TURN])
def test_a_group_goes_on_from_its_journals(tmp_path: Path, sync: Sync) -> None:
    async def story(deployment: Deployment) -> None:
        for life in (1, 2):
            await deployment.start(*"abc", found=life == 1)
            await deployment.until(Role.PRIMARY)
            async with coterie.connect(Shop, deployment.seeds) as shop:
                assert await shop.sell("ada") == 3 - life
            await deployment.end()

    play(tmp_path, story, sync=sync)


def test_what_is_red_outlives_its_replica_and_becomes_green(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start("a", found=True)
        await deployment.until(Role.NON_PRIMARY)
        async with coterie.connect(Shop, deployment.seeds, settings=PATIENT) as shop:
            sell = shop.sell.options(colour="red")
            reds = [await sell.detailed("ada"), await sell.detailed("bob")]
            assert [(each.value, each.standing) for each in reds] == [(2, RED), (1, RED)]
            await deployment.end("a")
            await deployment.start("a")
            await deployment.until(Role.NON_PRIMARY)
            # It knows them still; the client asks again, and no other action comes of it.
            known = deployment.hosted("a").engine.queue
            before = len(known)
            assert await shop.left.options(level="dirty")() == 1
            assert len(known) == before
            await deployment.start("b", "c", found=True)
            greens = [await each.settled() for each in reds]
            assert [(each.value, each.standing) for each in greens] == [(2, GREEN), (1, GREEN)]
            assert await shop.customers() == {"ada": 1, "bob": 1}

    play(tmp_path, story)


def test_one_that_lost_its_disk_is_brought_up_to_date(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start(*"abc", found=True)
        await deployment.until(Role.PRIMARY)
        async with coterie.connect(Shop, deployment.seeds, settings=PATIENT) as shop:
            assert await shop.sell("ada") == 2
            await deployment.end("c")
            await deployment.until(Role.PRIMARY, "a", "b")
            shutil.rmtree(Path(deployment.config.replicas["c"].dir))
            assert await shop.sell("bob") == 1
            await deployment.start("c")
            await deployment.until(Role.PRIMARY)
            assert not deployment.hosted("c").engine.is_zombie
            assert deployment.running["c"].live.incarnation > 1
            assert deployment.hosted("c").position == deployment.hosted("a").position

    play(tmp_path, story)


@pytest.mark.parametrize("lost_disk", [False, True])
def test_where_one_never_returns_an_operator_s_word_goes_on(
    tmp_path: Path, *, lost_disk: bool
) -> None:
    """All die in a component, and one with its machine; perhaps another one has lost its disk."""

    async def story(deployment: Deployment) -> None:
        await deployment.start(*"abc", found=True)
        await deployment.until(Role.PRIMARY)
        async with coterie.connect(Shop, deployment.seeds, settings=PATIENT) as shop:
            assert await shop.sell("ada") == 2
        with pytest.raises(Refused, match="nothing has to be recovered"):
            await deployment.hosted("a").recover()
        await deployment.end()
        if lost_disk:
            shutil.rmtree(Path(deployment.config.replicas["b"].dir))
        await deployment.start("a")
        await deployment.until(Role.NON_PRIMARY)
        with pytest.raises(Refused, match="too few to go on"):
            await deployment.hosted("a").recover()
        with pytest.raises(Refused, match="too many may still remember: start b, c first"):
            check_recovery(await deployment.look(), "a")
        await deployment.start("b")
        lone = deployment.hosted("a")
        await deployment.until_so(
            lambda: len(deployment.here("a")) == 2 and bool(lone.why_not_primary)
        )
        assert check_recovery(await deployment.look(), "a").endswith("and c may know more")
        await lone.recover()
        await deployment.until(Role.PRIMARY)
        async with coterie.connect(Shop, deployment.seeds, settings=PATIENT) as shop:
            assert await shop.customers() == {"ada": 1}
            assert await shop.sell("bob") == 1

    play(tmp_path, story)


def test_status_says_what_is_red_and_what_is_missing(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start("a", found=True)
        await deployment.until(Role.NON_PRIMARY)
        async with coterie.connect(Shop, deployment.seeds, settings=PATIENT) as shop:
            await shop.sell.options(colour="red")("ada")
        [seen, *_] = (await deployment.look()).replicas
        assert seen.report is not None
        assert seen.report.role == "non-primary"
        assert seen.report.position == 0
        assert seen.report.details["component"] == "0: a b c"
        # The opening of the session, the call, and perhaps the closing.
        assert seen.report.details["red"] in {2, 3}
        assert seen.report.details["from"] in {"a:2", "a:3"}
        assert seen.report.details["because"] == ""
        assert "in touch with a, and it takes more than half; missing: b c" in seen.report.trouble
        figures = deployment.hosted("a").figures()
        assert figures["colours_red_actions"] == seen.report.details["red"]
        assert figures["colours_red_bytes"] > 0
        assert figures["colours_red_seconds"] > 0
        assert figures.keys() <= HostedColours.figures_help.keys()
        await deployment.start("b", "c", found=True)
        await deployment.until(Role.PRIMARY)
        for each in (await deployment.look()).replicas:
            assert each.report is not None
            assert each.report.details["red"] == 0
            assert each.report.details["from"] == ""
            assert str(each.report.details["component"]).endswith(": a b c")
            assert each.report.details["because"] in {
                # b and c may have been one before a was with them.
                "3 of the 3 of component 0",
                "2 of the 3 of component 0",
                "2 of the 2 of component 1",
            }
            assert not each.report.trouble
        assert deployment.hosted("a").figures()["colours_red_seconds"] == 0

    play(tmp_path, story)


def test_a_side_that_is_full_refuses_with_a_sentence(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        deployment.settings = Settings(red_bytes_max=4000)
        await deployment.start("a", found=True)
        await deployment.until(Role.NON_PRIMARY)
        async with coterie.connect(Shop, deployment.seeds, settings=PATIENT) as shop:
            sell = shop.sell.options(colour="red", deadline=1)
            taken = 0

            async def sell_on() -> None:
                nonlocal taken
                while True:
                    await sell("x" * 100, 0)
                    taken += 1

            with pytest.raises(coterie.NotDone, match=r"red_bytes_max is 4000.*wait for one, or"):
                await sell_on()
            assert 10 < taken < 40
            # What was answered is there, and what was read stays readable.
            assert await shop.left.options(level="dirty")() == 3

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('stack = "COLOURS:VSYNC"', "COLOURS needs .* for example COLOURS:DYNSEQ:VSYNC"),
        ('engine = "colours"\nstack = "SAFE:TOKEN:PVSYNC"', "take COLOURS:DYNSEQ:VSYNC"),
    ],
)
def test_a_stack_that_cannot_be_is_refused(lines: str, sentence: str) -> None:
    text = f"""
cluster = "c"
[groups.g]
class = "{CLASS}"
{lines}
[replicas.a]
listen = "127.0.0.1:1"
clients = "127.0.0.1:2"
dir = "a"
"""
    with pytest.raises(ConfigError, match=sentence):
        parse_config(text, source="file")


def test_the_journal_of_another_engine_is_not_taken(tmp_path: Path) -> None:
    async def found() -> None:
        deployment = Deployment(tmp_path, Sync.NONE)
        await deployment.start("a", found=True)
        await deployment.end()

    async def start() -> None:
        groups = {"g": GroupConfig(class_=CLASS)}
        config = make_config(tmp_path, "g", groups=groups, replicas=3)
        process = ReplicaProcess(config, "a", objects={"g": define(Shop)})
        await process.__aenter__()

    idle_time.run(found())
    with pytest.raises(CoterieError, match=r"cannot be changed|another engine"):
        idle_time.run(start())
