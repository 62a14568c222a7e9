"""What is given as a deadline: seconds above 0, or a sentence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests import idle_time
from tests.service.groups import Counter

import coterie
from coterie.client import ClientSettings, NotDone

NO_NUMBER = r"deadline=.* is no number of seconds: give one such as 2\.5"


@pytest.mark.parametrize(
    ("deadline", "error", "sentence"),
    [
        ("x", TypeError, NO_NUMBER),
        (True, TypeError, NO_NUMBER),
        ([1], TypeError, NO_NUMBER),
        (float("nan"), ValueError, "deadline=nan never comes: give a number of seconds"),
        (float("inf"), ValueError, "deadline=inf never comes: give a number of seconds"),
        (-1, NotDone, "the deadline has passed already: -1 s are left for the call"),
        (0, NotDone, "the deadline has passed already: 0 s are left for the call"),
    ],
)
def test_a_deadline_that_is_none_gets_a_sentence(
    deadline: Any,  # noqa: ANN401 -- that is the point
    error: type[Exception],
    sentence: str,
) -> None:
    """A word was compared with 0; not-a-number was waited for without an end."""

    async def story() -> None:
        async with coterie.local(Counter) as counter:
            with pytest.raises(error, match=sentence):
                await counter.add.options(deadline=deadline)(1)
            with pytest.raises(error, match=sentence):
                await counter.read.options(deadline=deadline)()
            with pytest.raises(error, match=sentence):
                await counter.add.options(deadline=deadline).many([[1], [2]])
            assert await counter.read() == 0

    idle_time.run(story())
    with pytest.raises(error, match=sentence):
        coterie.transaction(object(), deadline=deadline)
    of_settings = "leaves no time for any call" if error is NotDone else sentence
    with pytest.raises(ValueError if error is NotDone else error, match=of_settings):
        ClientSettings(deadline=deadline)


def test_whole_seconds_are_a_deadline() -> None:
    async def story() -> None:
        async with coterie.local(Counter) as counter:
            assert await counter.add.options(deadline=60)(1) == 1
            await asyncio.gather(counter.add.options(deadline=60.5)(1))

    idle_time.run(story())
