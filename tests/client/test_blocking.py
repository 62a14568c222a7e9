"""The blocking face: what a thread that waits for a call is told, and when it stops waiting."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from coterie.client.blocking import LoopThread
from coterie.client.errors import NotDone
from coterie.client.pending import PendingCall

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop()


class _Interrupted(BaseException):
    """What a signal raises in whoever waits."""


def test_a_call_gives_what_its_future_has(thread: LoopThread) -> None:
    def add(one: int, *, other: int) -> PendingCall[int]:
        future = thread.loop.create_future()
        thread.loop.call_soon(future.set_result, one + other)
        return PendingCall(future)

    assert thread.call(add, [3], {"other": 4}) == 7


def test_a_call_raises_what_its_future_has(thread: LoopThread) -> None:
    def late() -> PendingCall[int]:
        future = thread.loop.create_future()
        future.set_exception(NotDone("too late"))
        return PendingCall(future)

    with pytest.raises(NotDone, match="too late"):
        thread.call(late, [], {})


def test_what_cannot_be_called_is_told_to_the_caller(thread: LoopThread) -> None:
    def refuse() -> PendingCall[int]:
        raise ValueError("a negative amount")

    with pytest.raises(ValueError, match="a negative amount"):
        thread.call(refuse, [], {})


def test_a_call_that_is_given_up_elsewhere_ends(thread: LoopThread) -> None:
    def given_up() -> PendingCall[int]:
        future = thread.loop.create_future()
        future.cancel()
        return PendingCall(future)

    with pytest.raises(asyncio.CancelledError):
        thread.call(given_up, [], {})


def test_who_is_interrupted_gives_the_call_up(thread: LoopThread) -> None:
    began, ended = threading.Event(), threading.Event()

    def never() -> PendingCall[int]:
        future: asyncio.Future[int] = thread.loop.create_future()
        future.add_done_callback(lambda _: ended.set())
        began.set()
        return PendingCall(future)

    def interrupt() -> None:
        began.wait()
        os.kill(os.getpid(), signal.SIGUSR2)

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise _Interrupted

    before = signal.signal(signal.SIGUSR2, on_signal)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(_Interrupted):
            thread.call(never, [], {})
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR2, before)
    assert ended.wait(60)
