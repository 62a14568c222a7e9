"""What is shown on a terminal."""

import time

import pytest

from coterie.cli.terminal.paint import as_one_line
from coterie.cli.terminal.progress import Progress


def test_text_from_elsewhere_forges_no_lines_and_no_colours() -> None:
    forged = "bye\ncoterie: r1 stopped\x1b[31m\r\x00é"
    assert as_one_line(forged) == r"bye\ncoterie: r1 stopped\x1b[31m\r\x00é"
    assert as_one_line("as it is: é 'x'") == "as it is: é 'x'"


def test_long_work_shows_where_it_is_when_nobody_sees_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Progress(40, "seeds") as progress:
        for _ in range(25):
            now += 1.0
            progress.step("2 failed")
    assert capsys.readouterr().err.splitlines() == [
        "11/40 seeds, 1.0/s, 2 failed",
        "22/40 seeds, 1.0/s, 2 failed",
    ]
