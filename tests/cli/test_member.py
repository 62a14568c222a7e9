from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE
from tests.runtime.cluster import read_journals

from coterie.cli import main as cli
from coterie.kernel.records import Started, Stopped
from coterie.kernel.wire import Frame, encode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = ["member", "--group=g", "--id=a", "--listen=127.0.0.1:0"]
START = "import sys; from coterie.cli.main import main; sys.exit(main())"

slow = pytest.mark.slow  # starts a real process


# ---- misuse


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--stack=DYNSEK:VSYNC"], "'DYNSEK:VSYNC' names no layer 'DYNSEK'; the layers are"),
        (["--stack=VSYNC:DYNSEQ"], "'VSYNC:DYNSEQ' "),
        (["--stak=VSYNC"], "'coterie member' has no option '--stak'; did you mean '--stack'?"),
        (["--peer=b"], "--peer 'b' should read ID=HOST:PORT"),
        (["--peer=b=localhost"], "'localhost' is no address: write host:port, for example"),
        (["--peer=b=::1:7000"], "'::1:7000' is no address: write host:port, for example"),
        (["--peer=b=localhost:0"], "'localhost:0' has no usable port: it is a number from 1"),
        (["--peer=b=localhost:http"], "'localhost:http' has no usable port"),
        (["--peer=a=localhost:1"], "names this member itself; give only the others"),
        (["--peer=b=h:1", "--peer=b=h:2"], "--peer 'b' is given twice; every member has one id"),
        (["--id=../a"], "--id '../a' is no name: use up to 64 letters, digits"),
        (["--group="], "--group '' is no name"),
        (["--wait-for=2"], "--wait-for 2 cannot be: the group has 1 members in all"),
        (["--wait-for=many"], "invalid int value: 'many'"),
        (["--history=/dev/null"], "--history /dev/null is a file; name a folder"),
        (["--history=/proc/x"], "--history /proc/x cannot be used: No such file or directory"),
        (["--listen=nowhere"], "'nowhere' is no address"),
        (["--listen=127.0.0.1:99999"], "has no usable port: it is a number from 0 to 65535"),
        (
            ["--listen=203.0.113.1:0"],
            "cannot listen at 203.0.113.1:0: the host is not this machine",
        ),
    ],
)
def test_misuse_ends_in_one_sentence(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*COMMAND, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("coterie: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_an_occupied_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert cli.main([*COMMAND, f"--listen={address}"]) == 2
    assert capsys.readouterr().err == (
        f"coterie: cannot listen at {address}: the port is taken by another program\n"
    )


def test_a_wrong_choice_of_loop_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COTERIE_LOOP", "trio")
    assert cli.main(COMMAND) == 2
    assert capsys.readouterr().err == (
        "coterie: COTERIE_LOOP is 'trio'; it may be uvloop or asyncio, or unset\n"
    )


# ---- real processes


class Running:
    """A member in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._seen = b""

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def until_printed(self, text: str) -> str:
        """Give the line that has *text* in it, once it is printed."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while True:
            *lines, _ = self._seen.decode().split("\n")
            for line in lines:
                if text in line:
                    return line
            left = deadline - time.monotonic()
            ready = select.select([self.process.stdout], [], [], max(left, 0))[0]
            assert ready, f"never printed {text!r}; printed {self._seen.decode()}"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"ended without {text!r}; printed {self._seen.decode()}"
            self._seen += data

    def end(self, signal_number: int) -> tuple[int, str, str]:
        """Send a signal; give the exit status, all that was printed, and the errors."""
        self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (self._seen + out).decode(), err.decode()


@contextmanager
def member(*options: str, script: str = START) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *COMMAND, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield Running(process)
        finally:
            process.kill()


@slow
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_makes_it_leave_in_good_order(signal_number: int, tmp_path: Path) -> None:
    with member(f"--history={tmp_path}") as running:
        assert running.until_printed("listening").endswith(" as a, life 1")
        running.tell("hello\n!and\tsafe\n")
        assert running.until_printed("hello") == "deliver 1.a:1 from a: hello"
        assert running.until_printed("safe") == "deliver 1.a:2 from a: and\tsafe"
        status, out, err = running.end(signal_number)
    assert (status, err) == (0, "")
    assert out.endswith("\nleft\n")
    records, findings = read_journals(tmp_path)
    assert isinstance(records[-1], Stopped)
    assert findings == []


@slow
def test_lines_can_be_read_as_json(tmp_path: Path) -> None:
    with member("--json", f"--history={tmp_path}") as running:
        running.tell("gr\u00fc\u00df dich\n")
        running.until_printed("deliver")
        status, out, err = running.end(signal.SIGTERM)
    assert (status, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == ["listening", "view", "deliver", "left"]
    assert events[1] == {"event": "view", "view": [1, "a", 1], "members": [["a", 1]]}
    assert events[2] == {
        "event": "deliver",
        "view": [1, "a", 1],
        "number": 1,
        "sender": ["a", 1],
        "message": 1,
        "safe": False,
        "part": "regular",
        "text": "gr\u00fc\u00df dich",
    }
    assert events[3]["counters"]["driver.turns"] >= 3


@slow
def test_the_end_of_the_input_is_the_end_only_if_asked_for(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"one\r\n\ntwo\nthe last has no end")
    for source in (text, None):
        with text.open("rb") as file:
            done = subprocess.run(
                [sys.executable, "-c", START, *COMMAND, "--until-eof", "--json"],
                stdin=file if source else subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=True,
            )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        texts = [event["text"] for event in events if event["event"] == "deliver"]
        assert texts == (["one", "", "two", "the last has no end"] if source else [])
    with member() as running:
        assert running.process.stdin is not None
        running.process.stdin.close()
        running.process.stdin = None
        running.until_printed("view")
        assert running.end(signal.SIGTERM)[0] == 0


@slow
def test_an_oversized_line_is_refused_and_the_rest_goes_on() -> None:
    with member("--until-eof") as running:
        running.tell("before\n" + "x" * (1 << 20) + "y\nafter\n")
        running.until_printed("after")
        out, err = running.process.communicate(timeout=PATIENCE)
    assert running.process.returncode == 1
    assert err == b"coterie: a line is over the limit of 1048576 bytes: send it in parts\n"
    assert b"xxx" not in out


@slow
@pytest.mark.parametrize(
    ("data", "reason", "counter"),
    [
        (
            b"CO\x09\x00" + bytes(8),
            "the other end speaks version 9 of the protocol between replicas and this one 1: run",
            "transport.frames_dropped_version",
        ),
        (
            b"CO\x01\x00\x7f\xff\xff\xff" + bytes(4),
            "a frame of 2147483647 bytes is over the limit 4096",
            "transport.frames_dropped_size",
        ),
        (
            b"\x16\x03\x01 a browser that wants TLS",
            "the bytes are not a Coterie frame",
            "transport.frames_dropped_magic",
        ),
        (
            encode_frame(Frame("b", 1, None, [])),
            "the peer did not begin with a hello",
            "transport.frames_dropped_hello",
        ),
    ],
)
def test_a_stranger_gets_one_event_and_one_count(data: bytes, reason: str, counter: str) -> None:
    with member("--json", "--peer=b=127.0.0.1:1") as running:
        address = json.loads(running.until_printed("listening"))["address"]
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as stranger:
            stranger.sendall(data)
            with suppress(ConnectionResetError):
                assert stranger.recv(100) == b""  # sent away
        status, out, err = running.end(signal.SIGTERM)
    assert status == 0
    [event] = [json.loads(line) for line in err.splitlines()]
    address = event.pop("address")
    assert address.startswith("127.0.0.1:")
    assert event.pop("reason").startswith(reason)
    assert event.pop("at") > 0
    assert event == {"log": "bad frame", "level": "warning", "process": "a"}
    assert json.loads(out.splitlines()[-1])["counters"][counter] == 1


@slow
def test_a_bug_in_the_protocol_ends_the_process_loudly() -> None:
    script = (
        "from coterie.membership.vsync import Vsync\n"
        "def cast(*_, **__): raise ZeroDivisionError('a bug')\n"
        f"Vsync.cast = cast; {START}"
    )
    with member("--stack=VSYNC", script=script) as running:
        running.tell("anything\n")
        _, err = running.process.communicate(timeout=PATIENCE)
    assert running.process.returncode == 70
    assert b"turn failed process='a'" in err
    assert b"in cast\nZeroDivisionError: a bug\n" in err
    assert err.rstrip().splitlines()[-1].startswith(b"coterie: process 'a' stopped in turn ")


@slow
def test_a_full_disk_ends_the_process_with_a_sentence(tmp_path: Path) -> None:
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300)); {START}"
    )
    with member(f"--history={tmp_path}", script=script) as running:
        running.tell("\n".join(map(str, range(1000))) + "\n")
        _, err = running.process.communicate(timeout=PATIENCE)
    assert running.process.returncode == 70
    last = err.decode().splitlines()[-1]
    assert "File too large" in last
    assert "Traceback" not in err.decode()
    records, findings = read_journals(tmp_path)
    assert isinstance(records[0], Started)
    assert findings == []  # what could not be written whole was taken back


@slow
def test_a_reader_that_goes_away_ends_it_in_good_order(tmp_path: Path) -> None:
    with member(f"--history={tmp_path}") as running:
        running.until_printed("view")
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.tell("into the void\n")
        assert running.process.wait(PATIENCE) == 141
    records, _ = read_journals(tmp_path)
    assert isinstance(records[-1], Stopped)
