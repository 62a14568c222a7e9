"""No test may take for ever: what waits for something that never comes fails, and says where.

Once a test waited for the name of a step that had been renamed, and a whole check with it. The
limit is far above what any test takes on a busy machine, so that only a hang meets it.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

LIMIT_SECONDS = 1200


class HungTest(Exception):
    """A test took longer than any does."""


def _give_up(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise HungTest(f"the test has waited for {LIMIT_SECONDS} s: see where, above")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Have a test end with an exception where it waits, once it has taken too long."""
    del item
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(LIMIT_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
