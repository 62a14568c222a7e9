"""`coterie call`: what is typed becomes arguments, and every ending has its exit status."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.service.groups import PortGroup

from coterie.cli import exits
from coterie.cli import main as cli
from coterie.cli.commands import call
from coterie.cli.commands.call import signature, understand
from coterie.cli.errors import UsageError
from coterie.cli.target import KnownGroup
from coterie.client import MethodFailed, MethodReport, NotDone, NotWelcome, OutcomeUnknown, Result
from coterie.client.group import GroupClient
from coterie.kernel.engine import Standing
from coterie.kernel.views import NO_VIEW, Viewstamp
from coterie.objects import define, update
from coterie.objects.execution.outcomes import Done, Failed
from coterie.runtime.loop import LOOPS
from coterie.service.caller import Caller
from coterie.service.describe import describe_methods

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from coterie.client.channel import Channel
    from coterie.objects import Answer


class Shop:
    """Has parameters of many kinds."""

    sold: int = 0

    @update
    def sell(self, item: str, pieces: int, tags: list[str], note: str | None = None) -> int:
        """Sell something."""
        self.sold += pieces + len(item) + len(tags) + len(note or "")
        return self.sold

    @update
    def close(self) -> None:
        self.sold = 0


SELL, CLOSE = sorted(describe_methods(define(Shop)), key=lambda each: each.name != "sell")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["tea", "3", "[]"], ["tea", 3, []]),
        (["12", "3", '["a", "b"]'], ["12", 3, ["a", "b"]]),  # a text may look like a number
        (['"12"', "3", "[]"], ["12", 3, []]),  # and may be JSON
        (["true", "-3", "[]", "null"], ["true", -3, [], None]),
        (["tea", "three", "[]", "a note"], ["tea", "three", [], "a note"]),  # the group refuses it
    ],
)
def test_words_become_values(words: list[str], values: list[object]) -> None:
    assert understand(SELL, words) == values


@pytest.mark.parametrize("words", [[], ["tea", "3"], ["tea", "3", "[]", "x", "y"]])
def test_too_few_or_too_many_show_the_signature(words: list[str]) -> None:
    with pytest.raises(UsageError) as refusal:
        understand(SELL, words)
    assert str(refusal.value) == f"{len(words)} arguments do not fit: {signature(SELL)}"


def test_a_signature_reads_like_python() -> None:
    assert signature(SELL) == (
        "sell(item: str, pieces: int, tags: list[str], note: str | None = None) -> int"
    )
    assert signature(CLOSE) == "close() -> None"
    assert isinstance(CLOSE, MethodReport)


@pytest.mark.parametrize(
    "words",
    [
        ["shop", "sell", "tea", "-3", "--deadline", "2"],
        ["--deadline=2", "shop", "sell", "tea", "-3"],
        ["shop", "--deadline", "2", "sell", "tea", "-3"],
        ["shop", "sell", "--deadline", "2", "tea", "-3"],
    ],
)
def test_options_may_stand_anywhere(words: list[str]) -> None:
    args = cli.build_parser().parse_args(["call", *words])
    found = (args.name, args.method, args.arguments, args.deadline)
    assert found == ("shop", "sell", ["tea", "-3"], 2.0)


STAMP = Viewstamp(NO_VIEW, 1)


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (MethodFailed("SoldOut", "tea", STAMP, Standing.AUTHORITATIVE), 4, "failed: SoldOut: tea"),
        (OutcomeUnknown("no answer"), 3, "unknown: no answer"),
        (NotDone("nobody there"), 1, "not done: nobody there"),
        (NotWelcome("group", "another group"), 2, "another group"),
    ],
)
def test_every_ending_has_its_status(
    error: Exception,
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(_args: argparse.Namespace, _target: object) -> int:
        raise error

    monkeypatch.setattr(call, "_call", fail)
    words = ["call", "shop", "sell", "--address", "127.0.0.1:1"]
    assert cli.main(words) == status
    assert capsys.readouterr().err == f"coterie: {sentence}\n"
    assert str(status) in exits.TABLE


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["call", "shop"], "no group 'shop' was served on this machine; there is none yet"),
        (["call", "../shop"], "'../shop' is no name"),
        (["call", "shop", "--deadline=0"], "--deadline 0 leaves no time"),
        (["call", "shop", "--deadline=nan"], "--deadline nan leaves no time"),
        (["call", "shop", "--deadline", "-2"], "--deadline -2 leaves no time; give seconds above"),
        (["call", "shop", "--deadline=x"], "--deadline 'x' is no number of seconds; give one such"),
        (["call", "shop", "--deadline=inf"], "--deadline inf never comes; give a number of sec"),
        (["status", "shop", "--deadline=soon"], "--deadline 'soon' is no number of seconds"),
        (["call", "shop", "--level=strong"], "has no --level 'strong' (choose from dirty, weak"),
        (["call", "shop", "--address=nowhere"], "'nowhere' is no address"),
        (["call", "shop", "--config=gone.toml"], "gone.toml cannot be read: No such file"),
        (["status", "shop", "--deadline=-1"], "--deadline -1 leaves no time"),
        (["status", "shop"], "no group 'shop' was served"),
        (["stop", "shop"], "no group 'shop' was served"),
        (["recover", "shop", "--from=a"], "no group 'shop' was served"),
        (["recover", "shop"], "the following arguments are required: --from"),
        (["serve"], "say what to serve: MODULE:CLASS, or --name of a group that was served"),
        (["serve", "--name=shop"], "there is no group 'shop' yet, so say what it is"),
        (["serve", "shop:Shop"], "there is no module 'shop', neither in"),
        (["serve", "coterie.ready:Counter", "--name=.."], "'..' is no name"),
        (["serve", "coterie.ready:Counter", "--replicas=0"], "has 1 to 26 replicas, not 0"),
        (["serve", "coterie.ready:Counter", "--stack=VSYNC"], "keeps no history; take SAFE"),
        (["serve", "coterie.ready:Counter", "--sync=daily"], "has no --sync 'daily'"),
        (["call", "shop", "--json", "--jsno"], "has no option '--jsno'; did you mean '--json'?"),
        (
            ["serve", "coterie.ready:Counter", "--detach", "--log=x"],
            "--detach has a log of its own",
        ),
        (["replica", "--id=a"], "the following arguments are required: --config"),
        (["replica", "--config=gone.toml", "--id=a"], "gone.toml cannot be read: No such file"),
        (["completion", "tcsh"], "has no  'tcsh' (choose from bash, fish, zsh)"),
    ],
)
def test_misuse_ends_in_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1
    assert sentence in err


# ---- Ctrl-C


@pytest.fixture
def heeded_interrupts() -> Iterator[None]:
    """Have what a test starts heed SIGINT, which processes of a job in the background do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow  # starts a real process
@pytest.mark.usefixtures("heeded_interrupts")
@pytest.mark.parametrize("loop", LOOPS)
def test_interrupted_before_it_was_made_a_call_is_not_done(loop: str) -> None:
    """With a real signal: it ended with nothing but status 130."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = ["call", "shop", "close", "--address", address, "--deadline=9999", "--json"]
        with subprocess.Popen(
            [sys.executable, "-m", "coterie.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COTERIE_LOOP": loop},
        ) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=PATIENCE)
    assert err == "coterie: not done: interrupted; the call surely had no effect\n"
    assert json.loads(out)["outcome"] == "not done"
    assert process.returncode == exits.INTERRUPTED


def call_counter(group: PortGroup, *words: str) -> asyncio.Task[int]:
    """Have `coterie call counter` run in the loop of the test."""
    args = cli.build_parser().parse_args(["call", "counter", *words, "--deadline=9999"])
    target = KnownGroup(group="counter", addresses=group.addresses)
    return asyncio.create_task(call._call(args, target))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["add", "3"],
            f"unknown: interrupted; {call._NOT_TWICE}",
        ),
        (["read"], "not done: interrupted; the call surely had no effect"),
    ],
)
def test_interrupted_without_an_answer_a_call_says_what_became_of_it(
    words: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept_back = asyncio.Event()
    answer_all = Caller.answer_all

    def keep_back(caller: Caller, given: list[Answer]) -> None:
        others = [each for each in given if not isinstance(each.outcome, Done)]
        if len(others) < len(given):
            kept_back.set()
        if others:
            answer_all(caller, others)

    monkeypatch.setattr(Caller, "answer_all", keep_back)

    async def story() -> None:
        async with PortGroup() as group:
            calling = call_counter(group, *words)
            await kept_back.wait()
            calling.cancel()  # as the loop does at SIGINT
            assert await calling == exits.INTERRUPTED

    idle_time.run(story())
    assert capsys.readouterr().err == f"coterie: {sentence}\n"


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        (["add", "3"], "3\n", "done: the answer came as it was interrupted"),
        (["add", "3000"], "", "failed: interrupted; Full: 3000 is too much"),
    ],
)
def test_interrupted_as_its_answer_comes_a_call_is_told(
    words: list[str],
    out: str,
    err: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answered = GroupClient.on_answers
    calling: list[asyncio.Task[int]] = []

    def interrupt(client: GroupClient, channel: Channel, answers: Sequence[Answer]) -> None:
        answered(client, channel, answers)
        if isinstance(answers[0].outcome, Done | Failed):
            calling[0].cancel()

    monkeypatch.setattr(GroupClient, "on_answers", interrupt)

    async def story() -> None:
        async with PortGroup() as group:
            calling.append(call_counter(group, *words))
            assert await calling[0] == exits.INTERRUPTED

    idle_time.run(story())
    assert capsys.readouterr() == (out, f"coterie: {err}\n")


def test_what_another_caller_has_put_there_does_not_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "bye\ncoterie: done\x1b[2J"

    async def fail(_args: argparse.Namespace, _target: object) -> int:
        raise MethodFailed("KeyError", forged)

    monkeypatch.setattr(call, "_call", fail)
    assert cli.main(["call", "shop", "get", "--address", "127.0.0.1:1"]) == exits.FAILED
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    result = Result(forged, Viewstamp(NO_VIEW, 1), 1, Standing.AUTHORITATIVE)
    for is_seen, shown in ((False, forged), (True, "bye\ncoterie: done\\x1b[2J")):
        monkeypatch.setattr(call, "_is_seen", lambda is_seen=is_seen: is_seen)
        call._print(result, as_json=False)
        assert capsys.readouterr().out == f"{shown}\n"
