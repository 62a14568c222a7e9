"""Every check of programs fires where its promise is broken, and nowhere else.

`pipeline/test_llft.py` shows the same of the checks that read columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from coterie.checking.llft import ProgramTracker
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.records import (
    ExecutedUpTo,
    InputsHeld,
    LeadingBegun,
    OrdersKnown,
    OutputReleased,
    PrimaryViewStarted,
    ProgramStateTaken,
    Record,
)
from coterie.llft.edge import Edge
from coterie.llft.settings import Guard
from coterie.simulation.campaign import SeedRun
from coterie.simulation.engines.llft.clients import ProgramClients
from coterie.simulation.engines.llft.trial import ProgramOptions, ProgramTrial
from coterie.simulation.engines.llft.world import ProgramWorld

if TYPE_CHECKING:
    from coterie.llft.messages import OrdersMade


class Remembering(ProgramTracker):
    """Keeps the records, too."""

    def __init__(self) -> None:
        super().__init__("counter", is_guarded=True)
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        self.records.append(record)
        super().add(record)


@cache
def recorded() -> tuple[Record, ...]:
    """The records of a run with a takeover."""
    world = ProgramWorld(seed=1, program="counter", replicas=3, guard=Guard.QUORUM)
    tracker = world.trackers["counter"] = Remembering()
    clients = ProgramClients(world, world.simulation.random)
    world.start()
    clients.start()
    assert world.run_until(lambda: clients.answered > 30, within=seconds(20))
    [first] = [each for each in world.replicas_of("counter") if each.leading is not None]
    world.machines[first.me.id].crash()
    answered = clients.answered
    assert world.run_until(lambda: clients.answered > answered + 30, within=seconds(20))
    assert not tracker.finish()
    return tuple(tracker.records)


def fired(records: list[Record]) -> set[str]:
    tracker = ProgramTracker("counter", is_guarded=True)
    for record in records:
        tracker.add(record)
    return {each.check for each in tracker.finish()}


def other_output(record: Any, **changes: Any) -> Record:  # noqa: ANN401 -- of its own kind
    changed: Record = replace(record, outputs=[replace(record.outputs[0], **changes)])
    return changed


def clock_back(record: Any) -> Record:  # noqa: ANN401 -- of its own kind
    run = record.runs[-1]
    orders = [*run.orders[:-1], replace(run.orders[-1], clock=0)]
    changed: Record = replace(record, runs=[*record.runs[:-1], replace(run, orders=orders)])
    return changed


BREAKS: list[tuple[str, type[Record], Callable[[Any], Record]]] = [
    (
        "one chain of primary views",
        PrimaryViewStarted,
        lambda each: replace(each, after=replace(each.after, view=each.after.view + 7)),
    ),
    (
        "one sequence of operations",
        ExecutedUpTo,
        lambda each: replace(each, digests=[digest ^ 1 for digest in each.digests]),
    ),
    (
        "consecutive subsequence",
        ExecutedUpTo,
        lambda each: replace(each, first=each.first + 5),
    ),
    (
        "consecutive states",
        ProgramStateTaken,
        lambda each: replace(each, state=replace(each.state, digest=each.state.digest ^ 1)),
    ),
    (
        "released is ordered",
        OutputReleased,
        lambda each: other_output(each, rests_on=each.outputs[0].rests_on + 10_000),
    ),
    (
        "released once",
        OutputReleased,
        lambda each: other_output(each, offset=each.outputs[0].offset - 1),
    ),
    (
        "same output",
        OutputReleased,
        lambda each: other_output(each, data=bytes(len(each.outputs[0].data))),
    ),
    ("group clock monotone", OrdersKnown, clock_back),
    ("quorum held", LeadingBegun, lambda each: replace(each, base=each.base + 1)),
]


@pytest.mark.parametrize(("check", "kind", "change"), BREAKS, ids=[each[0] for each in BREAKS])
def test_it_fires(check: str, kind: type[Record], change: Callable[[Any], Record]) -> None:
    records = list(recorded())
    assert fired(records) == set()
    who = "counter@edge" if kind in {OutputReleased, OrdersKnown} else "counter"
    place = max(n for n, each in enumerate(records) if isinstance(each, kind) and each.group == who)
    records[place] = change(records[place])
    assert check in fired(records)


def test_more_consumed_than_came() -> None:
    records = [
        each
        for each in recorded()
        if not (isinstance(each, InputsHeld) and each.group == "counter@edge")
    ]
    assert fired(records) == {"inputs consumed once"}


def test_clients_notice_an_answer_to_another_question() -> None:
    trial = ProgramTrial(1, ProgramOptions(program="counter", faults=()))
    clients = trial.clients
    client = clients.everybody[0]
    client.conn, client.waits_for = "c0.1", 5
    trial.world.wrote_to("c0.1", (4).to_bytes(4) + bytes(12), b"")
    assert [each.check for each in clients.violations] == ["clients saw one program"]


OPTIONS = ProgramOptions(program="counter", faults=(), converge_within=seconds(3))


def test_a_replica_that_never_comes_back_is_missed() -> None:
    """Theorem 5, in the liveness phase."""
    trial = ProgramTrial(1, OPTIONS)
    trial.world.machines["b"].crash()
    assert [each.check for each in trial.converge(SeedRun(seed=1))] == ["a primary view of all"]


class HoldsBack(Edge):
    """Lets nothing go."""

    def _release(self, message: OrdersMade) -> None:
        pass


def test_a_group_that_serves_nobody_is_noticed() -> None:
    """Theorem 6, in the liveness phase."""
    trial = ProgramTrial(1, OPTIONS, edge_kind=HoldsBack)
    trial.world.run(milliseconds(500))
    assert [each.check for each in trial.converge(SeedRun(seed=1))] == ["operations go on"]
