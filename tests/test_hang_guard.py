"""A test that hangs fails; it does not take the whole check with it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests import hang_guard


def wait_for_ever() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # never comes
        finally:
            process.kill()


def test_a_test_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_guard, "LIMIT_SECONDS", 1)
    guarded = hang_guard.pytest_runtest_call(None)  # type: ignore[arg-type]
    next(guarded)
    with pytest.raises(hang_guard.HungTest, match="waited for 1 s"):
        wait_for_ever()
    with pytest.raises(StopIteration):
        guarded.send(None)
