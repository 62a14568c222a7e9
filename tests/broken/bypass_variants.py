"""Bypasses that forget a case: each is the product's own without one condition of its predicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from coterie.bypass import Bypass
from coterie.ordering.dynseq import ITSELF_HEADER
from coterie.simulation import RunOptions, seconds
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.stack.trial import StackTrial

if TYPE_CHECKING:
    from coterie.membership.messages import Data
    from coterie.membership.multicast import Multicast

RAISED = "a turn raised"


class BypassForgetsTheGap(Bypass):
    """Takes a packet as the next one although others before it are missing."""

    __slots__ = ()

    def _is_next(self, multicast: Multicast, rank: int, packet: Data) -> bool:  # noqa: ARG002 -- not asked
        return (
            not rank
            and packet.header == ITSELF_HEADER
            and bool(packet.payloads)
            and self._order.is_clear()
            and self._primary.takes_next()
        )


class BypassForgetsTheOrder(Bypass):
    """Delivers a packet of who orders although what was ordered before it is not here yet."""

    __slots__ = ()

    def _is_next(self, multicast: Multicast, rank: int, packet: Data) -> bool:
        return (
            not rank
            and packet.header == ITSELF_HEADER
            and bool(packet.payloads)
            and multicast.is_next(rank, packet.number)
            and self._primary.takes_next()
        )


class BypassForgetsTheHistory(Bypass):
    """Takes entries although the view is not confirmed here, or its initial history not whole."""

    __slots__ = ()

    def _is_next(self, multicast: Multicast, rank: int, packet: Data) -> bool:
        return (
            not rank
            and packet.header == ITSELF_HEADER
            and bool(packet.payloads)
            and multicast.is_next(rank, packet.number)
            and self._order.is_clear()
        )


@dataclass(frozen=True)
class BrokenBypass:
    """A variant, the stack it runs in, and the checks one of which must name it."""

    kind: type[Bypass]
    stack: str
    caught_by: tuple[str, ...]
    first_seed: int = 0

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.kind.__name__

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = RunOptions(stack=self.stack, duration=seconds(15))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coterie.bypass.Bypass", self.kind)
            try:
                run = run_trial(StackTrial(seed, options))
            except KeyError:  # what it has passed over is looked for later
                return {RAISED}
        return {violation.partition(":")[0] for violation in run.violations}


_STACK = "SAFE:DYNSEQ:PVSYNC"

BYPASS_BROKEN = (
    BrokenBypass(BypassForgetsTheGap, _STACK, (RAISED, "assertion")),
    BrokenBypass(BypassForgetsTheOrder, _STACK, ("one authoritative entry", "active replication")),
    BrokenBypass(
        BypassForgetsTheHistory,
        _STACK,
        ("one authoritative entry", "active replication"),
        first_seed=6,
    ),
)
