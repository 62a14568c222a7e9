"""`coterie serve` and its kin in real processes, tried as a new user would."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE
from tests.service.served import LEDGER, Served

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # starts real processes


def test_the_first_hour_of_a_new_user(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            await served.until_primary(3)
            assert await served.run("call", "ledger", "enter", "ada", "1") == (0, "0\n", "")
            status, out, _ = await served.run("call", "ledger", "last", "ada", "--json")
            answer = json.loads(out)
            assert (status, answer["value"], answer["outcome"]) == (0, 1, "done")
            assert answer["standing"] == "authoritative"

            status, out, err = await served.run("call", "ledger", "enter", "ada", "7")
            assert (status, out) == (4, "")
            assert err == "coterie: failed: ValueError: ada entered 1 and now 7\n"
            status, _, err = await served.run("call", "ledger", "enter", "ada", "two")
            assert status == 2
            assert "number" in err
            status, _, err = await served.run("call", "ledger", "entre")
            assert (status, err.startswith("coterie: Ledger has no method 'entre'")) == (2, True)
            status, out, _ = await served.run("call", "ledger")
            assert "update enter(client: str, number: int) -> int" in out

            out = await served.until_shown("3 of 3", "ledger")
            assert out.startswith("ledger (Ledger) serves: 3 of 3 replicas are up\n")
            assert "\x1b" not in out  # no terminal, no colour
            address = served.addresses[0]
            out = await served.until_shown("", "ledger", "--address", address, "--json")
            assert [each["id"] for each in json.loads(out)["replicas"]] == ["a", "b", "c"]

            status, _, err = await served.run("recover", "ledger", "--from", "a", "--accept-loss")
            assert (status, "nothing has to be recovered" in err) == (1, True)
            status, _, err = await served.run("serve", "ledger.py:Ledger")
            assert (status, "is being served already: coterie stop ledger" in err) == (69, True)

    asyncio.run(story())


def test_a_group_survives_a_kill_and_a_stop(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            await served.until_primary(3)
            assert await served.run("call", "ledger", "enter", "ada", "1") == (0, "0\n", "")
            before = len(served.events)
            served.signal(signal.SIGKILL, "b")
            await served.until_primary(3, after=before)
            ended = [event for event in served.events if event["event"] == "ended"]
            assert [(each["replica"], each["reason"]) for each in ended] == [
                ("b", "killed (SIGKILL)")
            ]

            status, out, _ = await served.run("stop", "ledger")
            assert (status, out) == (0, "coterie: the group 'ledger' has stopped\n")
            assert await served.ended() == 0
            assert served.events[-1]["event"] == "stopped"

            status, out, _ = await served.run("status", "ledger")
            assert status == 1
            assert "- it is not being served: coterie serve --name ledger" in out
            status, _, err = await served.run("stop", "ledger")
            assert (status, err) == (1, "coterie: the group 'ledger' is not running\n")
            # At once, because it is known: the deadline is longer than any test may take.
            status, _, err = await served.run("call", "ledger", "last", "ada", "--deadline=9999")
            told = "coterie: not done: it is not being served: coterie serve --name ledger\n"
            assert (status, err) == (1, told)

            status, out, _ = await served.run("serve", "--name", "ledger", "--detach")
            assert (status, "The group ledger serves: 127.0.0.1:" in out) == (0, True)
            assert await served.run("call", "ledger", "last", "ada") == (0, "1\n", "")
            assert "primary view: " in (served.place / "serve.log").read_text()
            assert (await served.run("stop", "ledger"))[0] == 0

    asyncio.run(story())


def test_a_lost_memory_is_shown_and_recovered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            await served.until_primary(3)
            assert (await served.run("call", "ledger", "write", "x", "5"))[0] == 0
            await served.stop()
            for id in "bc":
                shutil.rmtree(served.place / id)
            served.events.clear()
            await served.start()
            await served.until(
                lambda: {each["replica"] for each in served.events if "zombie" in each} == {*"bc"}
            )
            async with asyncio.timeout(PATIENCE):
                while "--from a --accept-loss" not in (await served.run("status", "ledger"))[1]:
                    pass
            status, _, err = await served.run("recover", "ledger", "--from", "b", "--accept-loss")
            assert (status, "replica 'a' knows more" in err) == (1, True)
            status, _, err = await served.run("recover", "ledger", "--from", "a")
            assert (status, "--accept-loss does it" in err) == (1, True)
            status, out, err = await served.run("recover", "ledger", "--from", "a", "--accept-loss")
            assert (status, err) == (0, "")
            assert "serves again" in out
            assert await served.run("call", "ledger", "read", "x") == (0, "5\n", "")
            assert any(each["event"] == "recovered" for each in served.events)

    asyncio.run(story())


def test_what_cannot_be_cured_is_reported_and_not_hammered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            await served.until_primary(3)
            # From now on no process can be started again with this class.
            (tmp_path / "ledger.py").write_text(LEDGER.replace("class Ledger", "class Book"))
            served.signal(signal.SIGKILL, "c")
            await served.until(lambda: any(e["event"] == "given up" for e in served.events))
            [event] = [each for each in served.events if each["event"] == "given up"]
            assert event["replica"] == "c"
            assert "has no class 'Ledger'; it has Book" in event["reason"]
            await served.until_shown("- c is not running: ", "ledger")

    asyncio.run(story())


def test_replicas_stop_when_their_supervisor_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path) as served:
            await served.until_primary(3)
            served._process.kill()
            await served._process.wait()
            # They let go of their folders, so a new supervisor can have them.
            await served.start()
            await served.until_primary(3, after=len(served.events))
            await served.until_shown("3 of 3", "ledger")

    asyncio.run(story())
