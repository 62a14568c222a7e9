"""A single message lost, at the one moment at which nobody sent it again."""

from __future__ import annotations

import pytest
from tests.papers.scenes import ORDERED, until_delivered, until_views
from tests.simulation.scripted import scripted_group

from coterie.kernel.clock import milliseconds, seconds
from coterie.membership.messages import Ack, Leave


def test_a_lost_acknowledgement_does_not_hold_up_a_safe_message() -> None:
    """Who acknowledged in a hurry did not look later whether its acknowledgement had come through.

    One that was lost left a safe message undelivered for ever.
    """
    group, network = scripted_group("DYNSEQ:VSYNC", "abc")
    network.lose(
        lambda source, destination, message: (
            isinstance(message, Ack) and (source, destination) == ("c", "b")
        )
    )
    group["a"].cast(b"x", safe=True)
    group.run(milliseconds(10))
    assert network.lost
    network.lose_no_more()
    until_delivered(group, b"x", at="abc")
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_a_lost_farewell_does_not_hold_up_the_group(stack: str) -> None:
    """A farewell was sent once, and who had left answered nothing more though its process lived.

    Where it was lost the others waited for the acknowledgements of that member for ever.
    """
    group, network = scripted_group(stack, "abc")
    network.lose(lambda _source, _destination, message: isinstance(message, Leave))
    group["a"].leave()
    group.run(seconds(1))
    assert network.lost
    network.lose_no_more()
    group["b"].cast(b"x", safe=True)
    until_delivered(group, b"x", at="bc")
    until_views(group, "bc")
    group.check()
