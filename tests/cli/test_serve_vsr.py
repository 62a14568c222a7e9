"""`coterie serve --engine vsr`: several groups at once, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import pytest
from tests.service.banks import ServedBanks

from coterie.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

TICKING = """
import coterie


class Ticking:
    count: int = 0

    @coterie.update
    def add(self) -> int:
        self.count += 1
        return self.count

    def on_tick(self) -> None:
        self.count = 0


class Patient:
    count: int = 0

    @coterie.update
    async def add(self) -> int:
        self.count += 1
        return self.count
"""


@pytest.mark.slow  # starts real processes
def test_several_groups_are_served_called_killed_and_stopped(tmp_path: Path) -> None:
    async def story() -> None:
        async with ServedBanks(tmp_path) as served:
            await served.until_all_lead()
            assert await served.run("call", "eu", "deposit", "alice", "30") == (0, "30\n", "")
            done = await served.run("call", "eu", "send", "alice", "10", "us", "bob")
            assert done == (0, "20\n", "")
            status, out, _ = await served.run("call", "us", "balance", "bob", "--json")
            answer = json.loads(out)
            assert (status, answer["value"], answer["standing"]) == (0, 10, "committed")
            status, _, err = await served.run("call", "us", "deposit", "bob", "-50")
            assert (status, err) == (4, "coterie: failed: ValueError: bob has too little\n")
            status, _, err = await served.run("call", "bank", "total")
            assert status == 2
            assert "'bank' is several groups together: say which of eu, us, asia" in err
            status, _, err = await served.run("call", "africa", "total")
            assert (status, "no group 'africa' was served on this machine" in err) == (2, True)

            out = await served.until_shown("3 of 3", "eu")
            assert out.startswith("eu (Bank) serves: 3 of 3 replicas are up\n")
            assert "position  lag  viewstamp  transactions" in out
            out = await served.until_shown("", "bank", "--json")
            seen = [json.loads(line) for line in out.splitlines()]
            assert [each["group"] for each in seen] == ["eu", "us", "asia"]
            primary = served.primary("eu")
            assert all(each["primary"] == primary for each in seen[0]["replicas"])
            status, _, err = await served.run("recover", "eu", "--from", "a", "--accept-loss")
            assert (status, "a group under vsr is not recovered" in err) == (1, True)

            served.signal(signal.SIGKILL, primary)
            assert await served.run("call", "eu", "balance", "alice") == (0, "20\n", "")
            served.signal(signal.SIGKILL)
            assert await served.run("call", "us", "balance", "bob") == (0, "10\n", "")
            status, out, _ = await served.run("stop", "us")
            assert out == "coterie: the group 'us', served with eu, asia, has stopped\n"
            assert (status, await served.ended()) == (0, 0)
        async with ServedBanks(tmp_path) as served:
            await served.until_all_lead()
            assert await served.run("call", "us", "balance", "bob") == (0, "10\n", "")
            assert await served.stop() == 0
        status, _, err = await served.run("serve", "--name", "bank", "--stack", "DYNSEQ:PVSYNC")
        assert (status, "founded with vsr" in err) == (2, True)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["x.py:Ticking", "--engine", "vsr"], "Ticking has on_tick, and nothing ticks"),
        (
            ["x.py:Patient", "--engine", "vsr", "--stack", "DYNSEQ:PVSYNC"],
            'engine = "vsr" has no stack: leave one of the two out',
        ),
        (["x.py:Patient"], "add"),
        (["a=x.py:Patient", "a=x.py:Patient", "--engine", "vsr"], "two groups are called 'a'"),
        (["x.py:Patient", "b=x.py:Patient"], "give it a name: eu=x.py:Patient"),
        (["a/b=x.py:Patient", "--engine", "vsr"], "'a/b' is no name"),
        (["x.py:Patient", "--sync", "primary"], 'sync = "primary" is not for engine = "stack"'),
    ],
)
def test_what_cannot_be_served_is_refused_and_leaves_no_trace(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    reason: str,
) -> None:
    (tmp_path / f"{tmp_path.name}.py").write_text(TICKING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = [word.replace("x.py", f"{tmp_path.name}.py") for word in words]
    assert main(["serve", *words]) == 2
    assert reason.replace("x.py", f"{tmp_path.name}.py") in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
