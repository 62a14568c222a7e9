"""The checks of transactions, on events that are made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coterie.kernel.clock import seconds
from coterie.kernel.views import Configuration, ViewId, Viewstamp
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.vsr.audit import Audit
from coterie.simulation.engines.vsr.trial import TransactionOptions
from coterie.vsr.commit.events import Aborted, CallsGivenUp, CompletedCall, ObjectWritten
from coterie.vsr.commit.psets import Aid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.vsr.commit.events import Event

VIEW = ViewId(1, "a", 1)
ONE, OTHER = Aid("eu", VIEW, 1), Aid("eu", VIEW, 2)


class Told:
    """A world of one group, in which these events happened."""

    def __init__(self, *events: Event) -> None:
        self.groups = {"us": Configuration(1, ("a", "b", "c"))}
        self.told: dict[Aid, object] = {}
        self._events = events

    def surviving(self, group: str) -> Iterator[tuple[Viewstamp, Event]]:
        assert group == "us"
        for number, event in enumerate(self._events, 1):
            yield Viewstamp(VIEW, number), event


def writes(aid: Aid, call: str, name: str = "bob") -> CompletedCall:
    return CompletedCall(aid, call, [], [ObjectWritten(name, b"1")], b"", False, ())  # noqa: FBT003


def broken(*events: Event) -> list[str]:
    return [each.check for each in Audit(Told(*events)).violations]  # type: ignore[arg-type]


def test_two_transactions_that_write_an_object_at_a_time_do_not_keep_locks() -> None:
    assert broken(writes(ONE, "1"), writes(OTHER, "1")) == ["locks kept"]
    assert broken(writes(ONE, "1"), writes(OTHER, "1", "carol")) == []
    assert broken(writes(ONE, "1"), Aborted(ONE, "over"), writes(OTHER, "1")) == []


def test_what_a_call_locked_that_was_given_up_is_free() -> None:
    """3.6: it is a subaction that was aborted, though its transaction goes on."""
    given_up = CallsGivenUp(ONE, ("3",))
    assert broken(writes(ONE, "3.1"), given_up, writes(OTHER, "1")) == []
    assert broken(writes(ONE, "3.1"), given_up, writes(OTHER, "1"), writes(ONE, "4")) == [
        "locks kept"
    ]


@pytest.mark.parametrize("other_call", ["2", "30.1"])
def test_what_another_call_locked_as_well_is_not(other_call: str) -> None:
    given_up = CallsGivenUp(ONE, ("3",))
    events = (writes(ONE, "3.1"), writes(ONE, other_call), given_up, writes(OTHER, "1"))
    assert broken(*events) == ["locks kept"]
    assert broken(writes(ONE, "1"), CallsGivenUp(OTHER, ("1",)), writes(OTHER, "2")) == [
        "locks kept"
    ]


@pytest.mark.long  # a minute of simulated time
def test_a_lock_of_an_aborted_subaction_may_be_taken_while_its_transaction_goes_on() -> None:
    """Seed 9900026: the check took a lock for broken that the engine had rightly released."""
    options = TransactionOptions(object="bank", groups=3, duration=seconds(60))
    assert run_seed(9900026, options).violations == []


@pytest.mark.slow  # twenty simulated seconds
def test_events_of_a_process_that_died_when_it_had_written_them_are_known() -> None:
    """Seed 37: the primary's disk failed after the turn was on it, and its next life had it."""
    assert run_seed(37, TransactionOptions(groups=3, duration=seconds(20))).violations == []
