"""Turns and frames that grew without bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.papers.scenes import until_delivered, whole_group

from coterie.kernel.clock import milliseconds
from coterie.simulation import Simulation
from coterie.simulation.world.settings import SIMULATED_SETTINGS

if TYPE_CHECKING:
    from coterie.kernel.layers import Batch


def test_many_empty_messages_make_no_frame_that_nobody_takes() -> None:
    """Packets were measured by the bytes of their messages, of which empty ones have none.

    The frame was over the limit, was refused by every receiver, and was repeated for ever.
    """
    settings = replace(
        SIMULATED_SETTINGS,
        frame_bytes_max=64 << 10,
        payload_bytes_max=16 << 10,
        packet_bytes_max=32 << 10,
    )
    group = Simulation(seed=1, stack="DYNSEQ:VSYNC", settings=settings).group("a", "b")
    group.run_until_whole()
    group["a"].cast(*([b""] * 100_000))
    group["a"].cast(b"after")
    until_delivered(group, b"after", at="ab")
    assert len(group["b"].delivered) == 100_001
    group.check()


@pytest.mark.parametrize("stack", ["VSYNC", "DYNSEQ:VSYNC"])
def test_an_application_that_answers_every_message_does_not_hold_a_turn_for_ever(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a view of one all is stable at once, so the window never closed within a turn.

    A cast in answer to each delivery made a turn that never ended.
    """
    group = whole_group(stack, "a")
    replica = group["a"].replica
    assert replica is not None
    deliveries: dict[int, int] = {}

    def answer(_: list[Batch]) -> None:
        now = group.simulation.now
        deliveries[now] = deliveries.get(now, 0) + 1
        assert deliveries[now] < 1000, "this turn does not end"
        replica.cast([b"again"])

    monkeypatch.setattr(group["a"].inbox, "deliver", answer)
    group["a"].cast(b"x")
    group.run(milliseconds(0.5))
    assert len(deliveries) > 1, "the next turn goes on with it"
