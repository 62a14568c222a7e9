"""The bar over work on Spark: on a terminal only, whichever kind of session it is."""

from __future__ import annotations

import io
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from coterie.cli.terminal import spark_bar
from coterie.cli.terminal.spark_bar import SparkBar

if TYPE_CHECKING:
    from collections.abc import Callable


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Classic:
    """A session that is asked, with one stage that is half done."""

    def __init__(self) -> None:
        self.stages = {7: (8, 4)}

    @property
    def sparkContext(self) -> SimpleNamespace:  # noqa: N802 -- Spark's name
        def info(stage: int) -> SimpleNamespace:
            total, done = self.stages[stage]
            return SimpleNamespace(numTasks=total, numCompletedTasks=done)

        tracker = SimpleNamespace(getActiveStageIds=lambda: list(self.stages), getStageInfo=info)
        return SimpleNamespace(statusTracker=lambda: tracker)


class Connected:
    """A session that tells by itself."""

    handlers: tuple[Callable[..., None], ...] = ()

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802
        self.handlers = (*self.handlers, handler)

    def removeProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802
        self.handlers = tuple(each for each in self.handlers if each != handler)


Connected.__module__ = "pyspark.sql.connect.session"


def bar_of(session: Any, stream: Terminal | None = None) -> SparkBar:  # noqa: ANN401 -- a fake
    return SparkBar(session, stream)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    # A test draws when it wants to, not by the clock.
    monkeypatch.setattr(spark_bar, "_INTERVAL_SECONDS", 3600)
    return Terminal()


def test_without_a_terminal_each_job_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bar_of(Classic()) as bar:
        bar.begin("seal")
        bar.begin("verify")
        bar.rest()
    assert capsys.readouterr() == ("", "  seal ...\n  verify ...\n")


def test_a_classic_session_is_asked(terminal: Terminal) -> None:
    session = Classic()
    with bar_of(session, terminal) as bar:
        bar.begin("seal")
        bar._draw()
        assert terminal.getvalue().endswith(f"  seal     {'█' * 12}{'·' * 12} 4/8 tasks, 0 s")
        session.stages |= {7: (8, 8), 8: (2, 1)}
        bar._draw()
        assert "9/10 tasks" in terminal.getvalue()
        bar.begin("verify")
        bar._draw()
        assert terminal.getvalue().endswith("  verify   " + "·" * 24 + " 0 s"), "others'"
        session.stages[9] = (3, 2)
        bar._draw()
        assert terminal.getvalue().endswith("2/3 tasks, 0 s")
    lines = [line.rpartition("\x1b[K")[2] for line in terminal.getvalue().split("\n")]
    assert lines == ["  seal     0.0 s", "  verify   0.0 s", ""], "what stays on the terminal"


def test_connect_tells_by_itself(terminal: Terminal) -> None:
    session = Connected()
    with bar_of(session, terminal) as bar:
        bar.begin("history")
        [handler] = session.handlers
        stage = SimpleNamespace(stage_id=1, num_tasks=4, num_completed_tasks=3)
        handler(stages=[stage], inflight_tasks=1, operation_id="x", done=False)
        handler(stages=None, inflight_tasks=0, operation_id="x", done=True)
        bar._draw()
        assert "3/4 tasks" in terminal.getvalue()
    assert session.handlers == ()


def test_what_fails_is_not_called_done(terminal: Terminal) -> None:
    with suppress(ValueError), bar_of(Classic(), terminal) as bar:
        bar.begin("seal")
        raise ValueError
    assert terminal.getvalue().endswith("  seal     stopped after 0.0 s\n")


def test_a_narrow_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with bar_of(Classic(), terminal) as bar:
        bar.begin("seal")
        bar._draw()
        assert terminal.getvalue() == "\r\x1b[K  seal     ████████"
