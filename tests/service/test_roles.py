"""What clients may do is said in the configuration, for both engines; and who did what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.pipeline.here import seal_here
from tests.service.test_secured import make_security
from tests.service.vsr_deployment import SETTINGS, Deployment, play
from tests.transactional.banks import ClassBank

import coterie
from coterie.client import ClientSettings
from coterie.client.connecting import connect_untyped
from coterie.ready import Counter
from coterie.ready.locations import LOCATIONS, Location, Locations
from coterie.runtime.security import read_secret
from coterie.service.config import ClientConfig, GroupConfig
from coterie.service.security import write_secrets
from coterie.transactional import TransactionAborted

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

BANK = "tests.transactional.banks:ClassBank"
GROUPS = {
    "eu": GroupConfig(class_=BANK, engine="vsr", audit=True),
    "us": GroupConfig(class_=BANK, engine="vsr"),
    "hits": GroupConfig(class_="coterie.ready:Counter", audit=True),
}
CLIENTS = {
    "owner": ClientConfig(),
    "reader": ClientConfig(may={"hits": "read", "eu": "read"}),
    "clerk": ClientConfig(may={"eu": ("deposit",), "hits": ("add",)}),
    "slow": ClientConfig(rate=5),
}


class Secured(Deployment):
    """A deployment whose clients have secrets, and some of them not all rights."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GROUPS)
        self.folder = folder
        self.config = msgspec.structs.replace(
            self.config,
            security=make_security(folder, tls=False),
            clients={
                name: msgspec.structs.replace(each, secret_file=str(folder / "secrets" / name))
                for name, each in CLIENTS.items()
            },
        )
        write_secrets(self.config)

    def connect(
        self, cls: type, group: str, client: str, settings: ClientSettings = SETTINGS
    ) -> AbstractAsyncContextManager[Any]:
        secret = read_secret(self.folder / "secrets" / client)
        return coterie.connect(cls, self.seeds, group=group, secret=secret, settings=settings)

    def counted(self, counter: str) -> int:
        return sum(each.port.counters.get(counter, 0) for each in self.running.values())

    def audit(self, group: str) -> list[dict[str, Any]]:
        """What the journals say of who called what, as the pipeline reads them."""
        folders = [self.folder / id for id in self.config.ids]
        lakes = [seal_here(each, self.folder / f"lake {each.name}") for each in folders]
        return [row for lake in lakes for row in lake.table("audit", group).to_pylist()]


async def ask_within_a_transaction(eu: type[ClassBank]) -> None:
    async with coterie.transaction(eu) as t:
        await t.eu.deposit("alice", 1)
        await t.eu.balance("alice")


def test_who_may_read_an_object_does_not_change_it(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        async with deployment.connect(Counter, "hits", "owner") as hits:
            assert await hits.add(3) == 3
        async with deployment.connect(Counter, "hits", "reader") as hits:
            assert await hits.total() == 3
            with pytest.raises(coterie.NotAllowed, match="may make no updates in hits"):
                await hits.add(1)
            with pytest.raises(coterie.NotAllowed):
                await hits.add.many([(1,), (2,)])
            assert await hits.total() == 3
        async with connect_untyped(
            deployment.seeds, group="hits", secret=read_secret(tmp_path / "secrets" / "reader")
        ) as hits:
            assert hits.report.class_name == "Counter"
        with pytest.raises(coterie.NotWelcome, match="may do nothing in group 'us'") as refusal:
            async with deployment.connect(ClassBank, "us", "reader"):
                pass
        assert refusal.value.kind == "client"

    play(tmp_path, story, make=Secured)


def test_who_may_call_one_method_calls_no_other(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        async with deployment.connect(Counter, "hits", "clerk") as hits:
            assert await hits.add(3) == 3
            with pytest.raises(coterie.NotAllowed, match="may call add in hits, not total"):
                await hits.total()
            # The outcome would tell what it may not ask.
            async with deployment.connect(Counter, "hits", "owner") as owner:
                seen = await owner.total.detailed()
                assert await owner.add.options(if_unchanged=[seen])(1) == 4
            with pytest.raises(coterie.NotAllowed, match="may call add in hits, not total"):
                await hits.add.options(if_unchanged=[seen])(1)
        async with deployment.connect(ClassBank, "eu", "clerk") as eu:
            assert await eu.deposit("alice", 5) == 105
            with pytest.raises(coterie.NotAllowed, match="may call deposit in eu, not withdraw"):
                await eu.withdraw("alice", 5)
            with pytest.raises(TransactionAborted, match="may call deposit in eu, not balance"):
                await ask_within_a_transaction(eu)
        async with deployment.connect(ClassBank, "eu", "reader") as eu:
            assert await eu.balance("alice") == 105
            with pytest.raises(coterie.NotAllowed, match="has the role read in eu"):
                await eu.deposit("alice", 5)
        assert deployment.counted("port.calls_not_allowed") >= 4

    play(tmp_path, story, make=Secured)


def test_only_an_operator_moves_groups(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        false = Location(9, ["a"], ["127.0.0.1:1"])
        async with deployment.connect(Locations, LOCATIONS, "clerk") as locations:
            await locations.find("eu")
            with pytest.raises(coterie.NotAllowed):
                await locations.register("eu", false)
        async with deployment.connect(Locations, LOCATIONS, "owner") as locations:
            await locations.register("eu", false)

    play(tmp_path, story, make=Secured)


def test_who_calls_too_often_is_slowed_down_and_told_why(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        hurried = ClientSettings(deadline=1.0)
        async with deployment.connect(Counter, "hits", "slow", hurried) as hits:
            # At every replica it goes deep into debt, and comes out of it later than it waits.
            answers = [await hits.add.many([(1,)] * 50) for _ in range(4)]
            assert answers[0] == list(range(1, 51))
            late = answers[-1][0]
            assert isinstance(late, coterie.NotDone)
            assert "client 'slow' makes more than 5 calls a second: ask later" in str(late)
        async with deployment.connect(ClassBank, "eu", "slow") as eu:
            for _ in range(7):  # slower than it would like, but all of them
                await eu.deposit("alice", 1)
            assert await eu.balance("alice") == 107
        assert deployment.counted("port.calls_over_rate") > 0

    play(tmp_path, story, make=Secured)


def test_who_called_what_is_in_the_journals(tmp_path: Path) -> None:
    """Written in the turn that takes it: what was answered was on the disk before."""

    async def story(deployment: Deployment) -> None:
        assert isinstance(deployment, Secured)
        await deployment.start_all()
        async with deployment.connect(Counter, "hits", "clerk") as hits:
            await hits.add(3)
            await hits.add.many([(1,), (2,)])
            with pytest.raises(coterie.NotAllowed):
                await hits.total()
        async with deployment.connect(ClassBank, "eu", "clerk") as eu:
            await eu.deposit("alice", 5)
            with pytest.raises(coterie.NotAllowed):
                await eu.balance("alice")
        async with deployment.connect(ClassBank, "us", "owner") as us:
            await us.deposit("alice", 5)
        await deployment.end_all()
        await deployment.start_all(found=False)  # it is nothing to recovery
        async with deployment.connect(Counter, "hits", "owner") as hits:
            assert await hits.total() == 6
        await deployment.end_all()
        rows = deployment.audit("hits")
        mine = [row for row in rows if row["client"] == "clerk"]
        asked = {(row["what"], row["method"], row["count"]) for row in mine}
        assert asked == {("update", "add", 1), ("update", "add", 2), ("query", "total", 1)}
        assert all(row["session"] and row["request"] for row in mine if row["what"] == "update")
        assert all(row["address"].startswith("127.0.0.1:") for row in mine)
        [refused] = {row["refused"] for row in mine if row["what"] == "query"}
        assert refused == "client 'clerk' may call add in hits, not total"
        assert {row["client"] for row in rows} == {"clerk", "owner"}
        calls = deployment.audit("eu")
        kinds = {(row["what"], row["method"], bool(row["refused"])) for row in calls}
        assert {("update", "deposit", False), ("query", "balance", True)} <= kinds
        assert ("commit", "", False) in kinds
        assert all(row["transaction"].startswith("eu/") for row in calls)
        assert {row["client"] for row in calls} == {"clerk"}
        assert not deployment.audit("us")

    play(tmp_path, story, make=Secured)
