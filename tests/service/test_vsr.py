"""Groups under viewstamped replication in processes, and their clients over the network."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.patience import PATIENCE
from tests.service.vsr_deployment import GROUPS, Deployment, play
from tests.transactional.banks import ClassBank, Overdrawn

import coterie
from coterie.client import MethodFailed, NotDone, NotWelcome, connect_untyped, connection_of
from coterie.journal import WrongJournal
from coterie.kernel.errors import CoterieError
from coterie.objects import BadArguments, UnknownMethod
from coterie.ready.locations import LOCATIONS, Locations
from coterie.service.config import GroupConfig
from coterie.service.operate.metrics import exposition, health
from coterie.service.process import ReplicaProcess, load_objects
from coterie.transactional import TransactionAborted, TransactionUnknown
from coterie.vsr.calls.primary_requests import UnknownGroup
from coterie.vsr.commit.client import Fate, TransactionOver
from coterie.vsr.standings import COMMITTED

if TYPE_CHECKING:
    from coterie.transactional.face import TransactionBlock

BANKS = {name: GROUPS[name] for name in ("eu", "us")}


def _withdraw_blocking(seeds: list[str]) -> int:
    with coterie.connect_blocking(ClassBank, seeds, group="eu") as eu:
        return eu.withdraw("alice", 6)


@pytest.mark.slow  # they take their turns
def test_many_callers_of_one_lock_all_get_their_turn(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.plain() as plain:
            await asyncio.gather(*(plain.add(1) for _ in range(100)))
            assert await plain.total() == 100

    play(tmp_path, story, {"plain": GROUPS["plain"]})


async def _move(transaction: TransactionBlock) -> None:
    async with transaction as t:
        await t.eu.deposit("alice", 1)
        await t.near.deposit("alice", -1)


async def _change_mind(transaction: TransactionBlock) -> None:
    async with transaction as t:
        await t.eu.withdraw("alice", 10)
        await t.us.deposit("bob", 10)
        raise RuntimeError("changed my mind")


async def _lose_all(transaction: TransactionBlock, deployment: Deployment) -> None:
    """Have everybody gone when it is to be committed."""
    async with transaction as t:
        await t.eu.deposit("alice", 1)
        await t.us.deposit("bob", -1)
        await deployment.end_all()


def test_each_call_is_a_transaction_of_its_own(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu, deployment.plain() as plain:
            assert await eu.deposit("alice", 5) == 105
            done = await eu.deposit.detailed("alice", 1)
            assert done.value == 106
            assert done.standing is COMMITTED
            assert done.standing.is_final
            assert done.viewstamp.view.number >= 1
            assert await eu.balance.options(level="weak")("alice") == 106
            with pytest.raises(MethodFailed, match="alice") as failed:
                await eu.withdraw("alice", 200)
            assert failed.value.error == Overdrawn.__name__
            assert await eu.balance("alice") == 106
            assert await plain.add.many([(1,), (2,), (3,)]) != []
            assert await plain.total() == 6
        answer = await asyncio.to_thread(_withdraw_blocking, deployment.seeds)
        assert answer == 100
        # A stack beside it, in the same processes.
        async with deployment.hits() as hits:
            assert await hits.add(2) == 2

    play(tmp_path, story)


def test_a_transaction_is_in_all_its_groups_or_in_none(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu, deployment.bank("us") as us:
            async with coterie.transaction(eu, us) as t:
                await t.eu.withdraw("alice", 10)
                await t["us"].deposit("bob", 10)
                assert await t.us.balance("bob") == 110
            assert t.outcome is not None
            assert t.outcome.fate is Fate.COMMITTED
            t = coterie.transaction(eu, us)
            with pytest.raises(RuntimeError, match="changed my mind"):
                await _change_mind(t)
            assert t.outcome is not None
            assert t.outcome.fate is Fate.ABORTED
            # What a method raised is undone, and the transaction may go on.
            async with coterie.transaction(eu, us) as t:
                with pytest.raises(MethodFailed, match="Overdrawn"):
                    await t.eu.withdraw("alice", 1000)
                await t.us.deposit("bob", 1)
            # A call that calls another group is a part of the same transaction.
            send = cast("Any", us.send)
            assert await send("bob", 11, "eu", "alice") == 100
            # A read of several groups is a transaction.
            async with coterie.transaction(us, eu) as t:
                assert await t.us.balance("bob") + await t.eu.balance("alice") == 201
            assert t.aid is not None
            assert (await coterie.outcome_of(t.aid, us)).fate is Fate.COMMITTED

    play(tmp_path, story, BANKS)


@pytest.mark.slow  # waits for failures to be noticed
def test_the_loss_of_primaries_costs_nothing_that_was_committed(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu, deployment.bank("us") as us:
            await eu.deposit("alice", 10)
            for group in ("eu", "us"):
                lost = deployment.primary(group)
                await deployment.end(lost)
                assert await eu.balance("alice") == 110
                async with coterie.transaction(eu, us, deadline=20.0) as t:
                    await t.eu.deposit("alice", -1)
                    await t.us.deposit("bob", 1)
                await deployment.start(lost)
                await deployment.until(lambda: deployment.serves("eu") and deployment.serves("us"))
                await eu.deposit("alice", 1)
            assert await us.balance("bob") == 102
        # All at once, and again from the journals.
        await deployment.end_all()
        await deployment.start_all(found=False)
        async with deployment.bank("us") as us:
            assert await us.balance("bob") == 102
            assert connection_of(us).client.welcome is not None

    play(tmp_path, story, BANKS)


def test_a_transaction_that_was_in_progress_goes_on_after_a_view_change(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu, deployment.bank("us") as us:
            coordinator = deployment.primary("eu")
            async with coterie.transaction(eu, us, deadline=20.0) as t:
                await t.eu.deposit("alice", 1)
                await t.us.deposit("bob", 1)
                if deployment.primary("us") != coordinator:
                    await deployment.end(deployment.primary("us"))
            assert await us.balance("bob") == 101

    play(tmp_path, story, BANKS)


def test_what_a_client_can_get_wrong_is_said_at_once(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu, deployment.hits() as hits:
            with pytest.raises(BadArguments):
                await eu.deposit("alice", "much")  # type: ignore[arg-type]
            async with connect_untyped(deployment.seeds, group="eu") as untyped:
                with pytest.raises(BadArguments):
                    await untyped.method("deposit")("alice", "much")
                with pytest.raises(UnknownMethod, match="nonsense"):
                    untyped.method("nonsense")
                assert await untyped.method("deposit")("alice", 1) == 101
            with pytest.raises(CoterieError, match="'hits' takes no transactions"):
                coterie.transaction(eu, hits)
            with pytest.raises(CoterieError, match="one group at least"):
                coterie.transaction()
            with pytest.raises(CoterieError, match="no group that connect"):
                coterie.transaction(ClassBank)
            async with coterie.transaction(eu) as t:
                with pytest.raises(UnknownGroup, match="there is no group 'us'; there are eu"):
                    await t.us.deposit("bob", 1)
            with pytest.raises(TransactionOver, match="begin another one"):
                await t.eu.deposit("alice", 1)
            with pytest.raises(NotDone, match="the deadline has passed"):
                await eu.deposit.options(deadline=0)("alice", 1)
            async with coterie.transaction(eu) as t:
                with pytest.raises(TransactionAborted, match="over the limit"):
                    await t.eu.deposit("a" * (1 << 20), 1)
                t.outcome = None
            assert t.outcome is not None

    with pytest.raises(TransactionAborted, match="over the limit"):
        play(tmp_path, story)


def test_a_circle_of_locks_is_broken_and_one_is_told_why(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu, deployment.bank("us") as us:
            both = asyncio.Barrier(2)

            async def move(first: str, second: str) -> str:
                try:
                    async with coterie.transaction(eu, us, deadline=20.0) as t:
                        await t[first].deposit("x", 1)
                        await both.wait()
                        await t[second].deposit("x", -1)
                except TransactionAborted as aborted:
                    return str(aborted)
                return ""

            ends = await asyncio.gather(move("eu", "us"), move("us", "eu"))
            reasons = [reason for reason in ends if reason]
            assert reasons
            assert all("deadlock" in reason or "waited too long" in reason for reason in reasons)
            assert await eu.balance("x") + await us.balance("x") == 200

    play(tmp_path, story, BANKS)


def test_who_never_answers_costs_a_deadline_and_no_more(tmp_path: Path) -> None:
    """The participant is cut off from a majority: it runs nothing, and says nothing."""

    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("near") as near, deployment.bank("eu") as eu:
            await deployment.end("c")  # one of the two that `near` has
            await deployment.until(lambda: not deployment.primary("near"))
            with pytest.raises(NotDone, match="no outcome by the deadline"):
                await near.deposit.options(deadline=0.5)("alice", 1)
            with pytest.raises(TransactionAborted, match="near did not answer within"):
                await _move(coterie.transaction(eu, near, deadline=0.5))
            assert await eu.balance("alice") == 100
            await deployment.start("c")
            assert await near.balance("alice") == 100

    groups = {"eu": GROUPS["eu"], "near": GROUPS["us"]}
    play(tmp_path, story, groups, {"near": ("a", "c")})


@pytest.mark.slow  # waits for failures to be noticed
def test_how_it_ended_can_be_asked_for_when_nobody_could_say(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu, deployment.bank("us") as us:
            t = coterie.transaction(eu, us, deadline=0.7)
            with pytest.raises(TransactionUnknown, match="whether transaction eu/") as unknown:
                await _lose_all(t, deployment)
            aid = unknown.value.aid
            assert aid is not None
            assert (await coterie.outcome_of(aid, eu, deadline=0.3)).fate is Fate.UNKNOWN
            await deployment.start_all(found=False)
            outcome = await coterie.outcome_of(aid, eu, deadline=20.0)
            assert outcome.fate is Fate.ABORTED
            assert await eu.balance("alice") == await us.balance("bob") == 100

    play(tmp_path, story, BANKS)


def test_a_client_that_is_closed_ends_its_calls(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu:
            await deployment.end_all()
            call = asyncio.ensure_future(eu.deposit("alice", 1))
            query = asyncio.ensure_future(eu.balance("alice"))
            await asyncio.sleep(0)  # they begin
            transaction = coterie.transaction(eu)
            t = await transaction.__aenter__()
        for ended in (call, query):
            with pytest.raises(NotDone, match="the client was closed"):
                await ended
        with pytest.raises(NotDone, match="the client was closed"):
            await eu.deposit("alice", 1)
        with pytest.raises(TransactionAborted, match="the client was closed"):
            await t.eu.deposit("alice", 1)
        with pytest.raises(TransactionAborted, match="the client was closed"):
            await transaction.__aexit__(None, None, None)

    play(tmp_path, story, {"eu": GROUPS["eu"]})


def test_operators_see_cohorts(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        async with deployment.bank("eu") as eu:
            await eu.deposit("alice", 1)
        overview = await deployment.look("eu")
        assert overview.is_well
        primary = deployment.primary("eu")
        for replica in overview.replicas:
            assert replica.report is not None
            assert replica.report.primary == primary
            assert replica.report.role == ("primary" if replica.id == primary else "backup")
            assert replica.report.engine == "vsr"
            assert replica.report.details.keys() == {"viewstamp", "transactions"}
        process = deployment.running[primary]
        assert health(process).is_well
        figures = exposition(process)
        assert f'coterie_vsr_objects{{replica="{primary}",group="eu"}} 2' in figures
        assert f'coterie_vsr_view_members{{replica="{primary}",group="eu"}} 3' in figures
        assert "coterie_vsr_transactions" in figures
        assert f'coterie_vsync_view_members{{replica="{primary}",group="hits"}} 3' in figures

    play(tmp_path, story)


def test_groups_are_where_they_are_placed_and_led_by_whom_they_prefer(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        assert "near" not in deployment.running["a"].hosted
        assert [deployment.config.members(name)[0] for name in ("eu", "near")] == ["a", "c"]
        seeds = [deployment.config.replicas[id].clients for id in ("b", "c")]
        connecting = coterie.connect(ClassBank, seeds, group="near")
        async with deployment.bank("eu") as eu, connecting as near:
            await _move(coterie.transaction(eu, near))
            assert await near.balance("alice") == 99

    groups = {"eu": GROUPS["eu"], "near": GROUPS["us"]}
    play(tmp_path, story, groups, {"near": ("c", "b")})


def test_the_location_service_leads_from_any_process_to_any_group(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        stranger = deployment.config.replicas["a"].clients
        async with coterie.connect(Locations, stranger, group=LOCATIONS) as locations:
            async with asyncio.timeout(PATIENCE):
                while await locations.names() != ["eu", "near"]:
                    pass  # each process registers what it has
            found = await locations.find("near")
            assert found is not None
            assert found.members == ["c", "b"]
            assert found.addresses == [deployment.config.replicas[id].clients for id in "cb"]
        async with coterie.connect(ClassBank, stranger, group="near") as near:
            assert await near.deposit("alice", 1) == 101
        with pytest.raises(NotWelcome, match="no group 'far' at this replica; there is eu"):
            async with coterie.connect(ClassBank, stranger, group="far"):
                pass

    groups = {"eu": GROUPS["eu"], "near": GROUPS["us"]}
    play(tmp_path, story, groups, {"near": ("c", "b")})


def test_who_belongs_to_a_group_is_not_what_the_file_says_but_what_its_disks_do(
    tmp_path: Path,
) -> None:
    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        await deployment.end_all()
        other = Deployment(tmp_path, BANKS, {"us": ("a", "b")})
        process = await other.start("a")
        assert process.hosted["us"].configuration.members == deployment.config.members("us")
        await other.end_all()

    play(tmp_path, story, BANKS)


def test_an_empty_disk_is_not_taken_for_a_cohort(tmp_path: Path) -> None:
    async def story(deployment: Deployment) -> None:
        objects = load_objects(deployment.config)
        with pytest.raises(WrongJournal):
            async with ReplicaProcess(deployment.config, "a", objects=objects):
                pass

    play(tmp_path, story, BANKS)


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "transfers.py"
    bank = GroupConfig(class_=f"{path}:Bank", engine="vsr")

    async def story(deployment: Deployment) -> None:
        await deployment.start_all()
        example = sys.modules["transfers"]  # the class of the groups was loaded from there
        await example.main(deployment.seeds[0])
        await example.main(deployment.seeds[1])

    play(tmp_path, story, {"eu": bank, "us": bank})
    assert capsys.readouterr().out.splitlines() == ["alice 0 bob 10", "alice 0 bob 20"]
