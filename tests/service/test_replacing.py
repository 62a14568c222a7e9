"""Members change while a served group is under load: nothing is lost, and nothing done twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.pipeline.here import judge_here
from tests.service.replacing import replace_all
from tests.service.served import Served

from coterie.service.config import encode_config
from coterie.service.state_folder import read_config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
def test_every_replica_that_began_is_replaced_under_load(tmp_path: Path) -> None:
    """It needs processes, some of which start while others serve."""

    async def story() -> None:
        async with Served(tmp_path, "--replicas=1") as served:
            outcome = await replace_all(served)
            assert outcome.problems == [], outcome.report()
            assert len(outcome.founders) == 5
            assert len(outcome.members) == 3
            assert not {*outcome.founders} & {*outcome.members}
            # The group goes on from what is on its disks.
            await served.stop()
            before = len(served.events)
            await served.start()
            await served.until_primary(3, after=before)

    asyncio.run(story())
    outcome = judge_here(tmp_path / "state" / "coterie" / Served.name, tmp_path / "judged")
    assert (outcome.violations, outcome.problems) == ([], [])
    basis = outcome.bases[Served.name]
    assert basis.lives > 10, "those of old members are there, too"
    assert basis.positions == basis.positions_known


@pytest.mark.long
def test_every_cohort_that_began_is_replaced_under_load(tmp_path: Path) -> None:
    """The same under viewstamped replication; the location service changes with the processes."""

    async def story() -> None:
        async with Served(tmp_path, "--replicas=1", "--engine=vsr") as served:
            outcome = await replace_all(served)
            assert outcome.problems == [], outcome.report()
            assert len(outcome.founders) == 5
            assert len(outcome.members) == 3
            assert not {*outcome.founders} & {*outcome.members}
            await served.stop()
            before = len(served.events)
            await served.start()
            await served.until_primary(1, after=before)
            assert (await served.run("call", Served.name, "read", "x"))[0] == 0

    asyncio.run(story())
    outcome = judge_here(tmp_path / "state" / "coterie" / Served.name, tmp_path / "judged")
    assert (outcome.violations, outcome.problems) == ([], [])
    assert outcome.bases[Served.name].lives > 10, "those of old members are there, too"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--engine=vsr",)], ids=["stack", "vsr"])
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, options: tuple[str, ...]) -> None:
    """It needs processes, as the commands do."""

    async def story() -> None:
        async with Served(tmp_path, "--replicas=1", *options) as served:
            await served.until_shown("ledger", "ledger")

            async def refused(*words: str) -> str:
                before = read_config(served.place)
                status, _, err = await served.run(*words)
                assert status == 1, err
                assert read_config(served.place) == before
                return err

            assert "the last member: coterie stop" in await refused("remove", "ledger", "a")
            assert "belongs to the group already" in await refused("add", "ledger", "a")
            assert "does not belong to the group; it has a" in await refused(
                "remove", "ledger", "z"
            )
            # One that is in a file, and that nobody has started.
            config = read_config(served.place)
            absent = msgspec.structs.replace(
                config.replicas["a"], listen="127.0.0.1:1", clients="127.0.0.1:2", joins=("ledger",)
            )
            file = tmp_path / "absent.toml"
            replicas = {**config.replicas, "z": absent}
            file.write_text(encode_config(msgspec.structs.replace(config, replicas=replicas)))
            silent = await refused("add", "ledger", "z", f"--config={file}")
            assert "z does not answer at 127.0.0.1:2" in silent
            assert "start it first, with coterie replica --config FILE --id z" in silent
            status, out, _ = await served.run("add", "ledger")
            assert (status, out.splitlines()[-1]) == (0, "coterie: b is a member of ledger now")
            status, out, _ = await served.run("members", "ledger")
            assert [line.split()[:2] for line in out.splitlines()] == [
                ["a", "member"],
                ["b", "member"],
            ]
            assert (await served.run("replace", "ledger", "a"))[0] == 0
            assert "removed from the group before" in await refused("remove", "ledger", "a")
            assert "ids are never used again" in await refused("add", "ledger", "a")

    asyncio.run(story())


@pytest.mark.slow
def test_a_backup_taken_while_the_group_serves_is_restored_as_another_group(tmp_path: Path) -> None:
    """It needs processes, and two groups one after the other."""
    file = tmp_path / "backup"

    async def story() -> None:
        async with Served(tmp_path, "--replicas=1") as served:
            await served.until_primary(1)
            for number in range(1, 4):
                await served.run("call", "ledger", "enter", "ada", str(number))
            await served.run("add", "ledger")  # members of the old group are not those of the new
            status, out, err = await served.run("backup", "ledger", str(file))
            assert (status, "has ledger at position" in out) == (0, True), err
            status, _, err = await served.run("backup", "ledger", str(file))
            assert (status, "is there already" in err) == (1, True)
            await served.run("call", "ledger", "enter", "ada", "4")
            words = ("restore", str(file), "--name", "again", "--replicas", "2")
            status, out, err = await served.run(*words)
            assert (status, "coterie serve --name again" in out) == (0, True), err
            status, _, err = await served.run(*words)
            assert (status, "already" in err) == (2, True)
            (tmp_path / "short").write_bytes(file.read_bytes()[:-9])
            status, _, err = await served.run("restore", str(tmp_path / "short"), "--name", "x")
            assert (status, "cut off" in err) == (2, True), err

    asyncio.run(story())

    class Restored(Served):
        name = "again"
        words = ("--name", "again")

    async def later() -> None:
        async with Restored(tmp_path) as restored:
            await restored.until_primary(2)
            status, out, err = await restored.run("call", "again", "last", "ada")
            assert (status, out.strip()) == (0, "3"), err
            assert (await restored.run("call", "again", "enter", "ada", "4"))[0] == 0
            await restored.stop()
            await restored.start()
            await restored.until_primary(2, after=len(restored.events))

    asyncio.run(later())
