"""What clients do is the same in a group of this process and in processes over TCP.

Both run the same client and port; this holds them to it. Every test runs in both worlds, under a
stack and under viewstamped replication.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import pytest
from tests import idle_time
from tests.client.ledger import Ledger, TooMuch
from tests.service.vsr_deployment import Deployment

import coterie
from coterie.client import ClientSettings, connection_of
from coterie.client.pending import PendingCall
from coterie.kernel.engine import Standing
from coterie.local_group import group_of
from coterie.local_transactions import local_groups
from coterie.service.config import GroupConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

SETTINGS = ClientSettings(deadline=30.0, in_flight_max=8)
"""Little room, so that calls wait for each other in the client."""


class World(Protocol):
    """A group of ledgers with a client."""

    ledger: type[Ledger]
    ids: tuple[str, ...]

    async def kill(self, id: str) -> None:
        """End a replica."""

    async def start(self, id: str) -> None:
        """Start it again."""


class _Local:
    def __init__(self, ledger: type[Ledger], group: object) -> None:
        self.ledger = ledger
        self.group = group
        self.ids: tuple[str, ...] = group.ids  # type: ignore[attr-defined]

    async def kill(self, id: str) -> None:
        self.group.kill(id)  # type: ignore[attr-defined]

    async def start(self, id: str) -> None:
        self.group.start(id)  # type: ignore[attr-defined]


class _Served:
    def __init__(self, ledger: type[Ledger], deployment: Deployment) -> None:
        self.ledger = ledger
        self.deployment = deployment
        self.ids = deployment.config.ids

    async def kill(self, id: str) -> None:
        await self.deployment.end(id)

    async def start(self, id: str) -> None:
        await self.deployment.start(id)


@asynccontextmanager
async def local_stack(_: Path) -> AsyncIterator[World]:
    async with coterie.local(Ledger, settings=SETTINGS) as ledger:
        yield _Local(ledger, group_of(ledger))


@asynccontextmanager
async def local_vsr(_: Path) -> AsyncIterator[World]:
    async with local_groups(ledger=Ledger, client_settings=SETTINGS) as groups:
        yield _Local(groups.ledger, groups)


@asynccontextmanager
async def _served(folder: Path, engine: str) -> AsyncIterator[World]:
    groups = {"ledger": GroupConfig(class_="tests.client.ledger:Ledger", engine=engine)}
    deployment = Deployment(folder, groups)
    try:
        await deployment.start_all()
        async with coterie.connect(
            Ledger, deployment.seeds, group="ledger", settings=SETTINGS
        ) as ledger:
            yield _Served(ledger, deployment)
    finally:
        await deployment.end_all()


def served_stack(folder: Path) -> AbstractAsyncContextManager[World]:
    return _served(folder, "stack")


def served_vsr(folder: Path) -> AbstractAsyncContextManager[World]:
    return _served(folder, "vsr")


STACK = {"local": local_stack, "connect": served_stack}
ALL = {**STACK, "local-vsr": local_vsr, "connect-vsr": served_vsr}


def conformance(
    worlds: dict[str, Callable[[Path], AbstractAsyncContextManager[World]]],
) -> Callable[[Callable[[World], Coroutine[None, None, None]]], Callable[[Path, str], None]]:
    """Run a story in each of these worlds."""

    def decorate(story: Callable[[World], Coroutine[None, None, None]]) -> Callable[..., None]:
        @pytest.mark.parametrize("world_name", worlds)
        def test(tmp_path: Path, world_name: str) -> None:
            async def run() -> None:
                async with worlds[world_name](tmp_path) as world:
                    await story(world)

            idle_time.run(run())

        return test

    return decorate


@conformance(ALL)
async def test_a_call_returns_one_type_that_goes_everywhere(world: World) -> None:
    ledger = world.ledger
    for call in (ledger.add(1), ledger.add.detailed(1), ledger.add.many([[1]]), ledger.total()):
        assert isinstance(call, PendingCall)
        await call
    async with asyncio.TaskGroup() as tasks:
        added = tasks.create_task(ledger.add(1))
        many = tasks.create_task(ledger.add.many([[1], [1]]))
    assert added.result() in {4, 5, 6}
    assert len(many.result()) == 2
    results = await asyncio.gather(ledger.add(1), ledger.total(), ledger.add.many([[1]]))
    assert len(results) == 3
    pending = asyncio.ensure_future(ledger.add(1))
    assert await asyncio.wait([pending]) == ({pending}, set())
    assert await asyncio.wait_for(ledger.add(1), 20) == 10
    # A call is made when it is called; whoever does not wait for it only does not hear of it.
    begun = ledger.add(1)
    assert await ledger.add(1) in {11, 12}
    assert await begun in {11, 12}


@conformance(ALL)
async def test_calls_beyond_the_window_wait_and_each_is_executed_once(world: World) -> None:
    ledger = world.ledger
    totals = await asyncio.gather(*(ledger.add(1) for _ in range(60)))
    assert sorted(totals) == list(range(1, 61))
    packed = await ledger.add.many([1] for _ in range(60))
    assert {*packed} == {*range(61, 121)}
    assert await ledger.count() == 120


@conformance(ALL)
async def test_outcomes_are_told_apart(world: World) -> None:
    ledger = world.ledger
    with pytest.raises(coterie.MethodFailed, match="ValueError: not today") as failed:
        await ledger.refuse("not today")
    assert (failed.value.error, failed.value.message) == ("ValueError", "not today")
    with pytest.raises(coterie.BadArguments, match="amount"):
        await ledger.add("one")  # type: ignore[arg-type]
    with pytest.raises(coterie.UnknownMethod, match="multiply"):
        await ledger.multiply(2)  # type: ignore[attr-defined]
    with pytest.raises(coterie.NotDone, match="deadline has passed"):
        await ledger.add.options(deadline=0)(1)
    mixed = await ledger.add.many([[1], [2]])
    assert {*mixed} in ({1, 3}, {2, 3})  # under viewstamped replication they are side by side
    assert await ledger.count() == 2


@conformance(ALL)
async def test_declared_errors_are_caught_by_their_class(world: World) -> None:
    ledger = world.ledger
    with pytest.raises(TooMuch, match="30 is more than 10") as caught:
        await ledger.add_some(30)
    assert (caught.value.amount, caught.value.limit) == (30, 10)
    failed = caught.value.__cause__
    assert isinstance(failed, coterie.MethodFailed)
    assert failed.error == "TooMuch"
    assert failed.standing is not None
    assert failed.standing.is_final
    with pytest.raises(TooMuch):
        await ledger.add_some.detailed(11)
    with pytest.raises(LookupError) as missing:
        await ledger.at(7)
    assert missing.value.args == (7,)
    first, second, third = await ledger.add_some.many([[1], [20], [3]])
    assert (first, third) == (1, 3)
    assert isinstance(second, TooMuch)
    assert second.amount == 20
    assert await ledger.total() == 4


@conformance(ALL)
async def test_a_caller_cannot_assign_to_the_object(world: World) -> None:
    for name in ("amounts", "add", "anything"):
        with pytest.raises(AttributeError, match=rf"Ledger\.{name} cannot be assigned by a caller"):
            setattr(world.ledger, name, [])
    assert await world.ledger.add(1) == 1


@conformance(STACK)
async def test_results_say_where_they_stand(world: World) -> None:
    ledger = world.ledger
    first = await ledger.add.detailed(3)
    assert (first.value, first.standing) == (3, Standing.AUTHORITATIVE)
    seen = await ledger.total.detailed()
    assert (seen.value, seen.standing) == (3, Standing.AUTHORITATIVE)
    assert seen.position >= first.position
    for level in ("weak", "dirty"):
        fresh = ledger.total.options(level=level, not_before=first.viewstamp)
        assert await fresh() == 3
    assert (await first.settled()).value == 3


@conformance(ALL)
async def test_a_replica_that_dies_costs_no_call(world: World) -> None:
    ledger = world.ledger
    calls = [asyncio.ensure_future(ledger.add(1)) for _ in range(30)]
    await asyncio.sleep(0)
    home = connection_of(ledger).client.replicas.home
    assert home is not None
    await world.kill(home.replica)
    totals = await asyncio.gather(*calls)
    assert sorted(totals) == list(range(1, 31))
    await world.start(home.replica)
    assert await ledger.add(1) == 31


@conformance(ALL)
async def test_without_a_majority_every_call_ends_by_its_deadline(world: World) -> None:
    ledger = world.ledger
    await ledger.add(1)
    for id in world.ids[1:]:
        await world.kill(id)
    with pytest.raises((coterie.NotDone, coterie.OutcomeUnknown)):
        await ledger.add.options(deadline=0.5)(1)
    with pytest.raises(coterie.NotDone):
        await ledger.total.options(deadline=0.5)()


@conformance(ALL)
async def test_whoever_gives_a_call_up_disturbs_nobody(world: World) -> None:
    ledger = world.ledger
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await ledger.add(1)
    cancelled = ledger.add(1)
    assert isinstance(cancelled, PendingCall)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await ledger.add(1) in {1, 2, 3}
