"""The parts of the determinizer that need no second process."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from coterie.program.command_words import BadCommand, refuse_interpreter, take_apart
from coterie.program.entries import BadEntries, EntryKind, ProgramEntry, describe, unpack
from coterie.program.refusals import sentence
from coterie.program.starting import BUSY_STOP, BUSY_WARN, BusyWatch
from coterie.program.wire import BadWire, WireKind, WireReader, frame

if TYPE_CHECKING:
    from pathlib import Path


def test_entries_are_what_they_were() -> None:
    entries = [
        ProgramEntry(kind, 7, number, -number, bytes(number))
        for number, kind in enumerate(EntryKind)
    ]
    packed = b"".join(each.pack() for each in entries)
    assert list(unpack(packed)) == entries
    assert all(describe(each) for each in entries)


@pytest.mark.parametrize("data", [b"\x01", bytes(40), ProgramEntry(4, 1, 0, 0, b"abc").pack()[:-1]])
def test_bytes_that_are_no_entries_are_one_error(data: bytes) -> None:
    with pytest.raises(BadEntries):
        list(unpack(data))


def test_frames_come_out_whole_however_they_are_cut() -> None:
    sent = frame(WireKind.DATA, 17, 0, b"abc") + frame(WireKind.END, 17, -1)
    reader = WireReader()
    found = [each for byte in sent for each in reader.feed(bytes([byte]))]
    assert found == [(WireKind.DATA, 17, 0, b"abc"), (WireKind.END, 17, -1, b"")]
    with pytest.raises(BadWire):
        reader.feed(bytes(64))


def test_a_command_is_taken_apart(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text("#!/usr/bin/env python3\n", encoding="utf-8")
    script.chmod(0o755)
    found = take_apart([sys.executable, "-X", "dev", "-u", str(script), "-v"])
    assert found == (sys.executable, ["-X", "dev", "-u"], [str(script), "-v"])
    assert take_apart([sys.executable, "-m", "http.server", "80"]).words == [
        "-m",
        "http.server",
        "80",
    ]
    assert take_apart([str(script), "x"]).words == [str(script), "x"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to run"),
        (["no-such-command"], "there is no command 'no-such-command'"),
        (["app.py"], "say python app.py"),
        (["sh", "-c", "x"], "'sh' is not run by Python"),
        ([sys.executable], "say what Python is to run"),
        ([sys.executable, "-c"], "say what Python is to run"),
        ([sys.executable, "no-such-file.py"], "there is no file 'no-such-file.py'"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(BadCommand, match=said):
        take_apart(words)


@pytest.mark.slow  # starts an interpreter
def test_an_interpreter_without_coterie_is_told_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    with pytest.raises(BadCommand, match=r"-m pip install 'coterie\[program\]'"):
        refuse_interpreter(str(bare))


def watched() -> tuple[BusyWatch, list[str], list[str]]:
    told: list[str] = []
    stopped: list[str] = []
    course = SimpleNamespace(tell=lambda _, text: told.append(text), is_cut=False)
    machine: Any = SimpleNamespace(operations=5, course=course, stop=stopped.append)
    return BusyWatch(machine), told, stopped


def test_a_program_that_makes_no_calls_is_warned_about_and_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: None})
    watch, told, stopped = watched()
    for _ in range(BUSY_WARN + 1):
        assert not told
        watch._look()
    assert sentence("busy", BUSY_WARN) in told[0]
    for _ in range(BUSY_STOP - BUSY_WARN):
        watch._look()
    assert stopped == [sentence("busy", BUSY_STOP)]
    assert "wait with time.sleep, a lock or a queue" in stopped[0]


def test_a_thread_that_is_not_the_programs_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: None, 2: None})
    watch, _, stopped = watched()
    watch._look()
    assert stopped == [sentence("threads", 1)]
    assert "has started a thread of its own" in stopped[0]
