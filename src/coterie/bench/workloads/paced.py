"""Casting at an even pace, and how long each message takes to each member (**transis** slide 19).

A message says when it was handed over, by the clock that all processes of one machine share, so
every member can say how long it took. What is counted is every delivery at this member, of the
messages of all members.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from coterie.bench.workloads.measuring import summarize

if TYPE_CHECKING:
    from coterie.bench.harness.protocol import Latencies, Pace
    from coterie.kernel.layers import Batch
    from coterie.runtime.member import LiveMember

_STAMP_BYTES = 8


class Paced:
    """One member at its pace."""

    def __init__(self, member: LiveMember, pace: Pace) -> None:
        self._member = member
        self._pace = pace
        self._times: list[float] = []
        self._counts_from = 0

    def delivered(self, batch: Batch) -> None:
        """Look at how long the messages of a batch took."""
        now = time.monotonic_ns()
        for payload in batch.payloads:
            cast_at = int.from_bytes(payload[:_STAMP_BYTES])
            if cast_at >= self._counts_from:
                self._times.append((now - cast_at) / 1e9)

    async def run(self) -> Latencies:
        """Cast for so long, then wait for what is under way."""
        pace = self._pace
        began = time.monotonic()
        self._counts_from = int((began + pace.warm_up) * 1e9)
        ends = began + pace.warm_up + pace.seconds
        due = began
        filling = bytes(max(pace.message_bytes - _STAMP_BYTES, 0))
        cpu_began = time.process_time()
        while due < ends:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            stamp = time.monotonic_ns().to_bytes(_STAMP_BYTES)
            await self._member.cast([stamp + filling], safe=pace.is_safe)
            # Never in a hurry to catch up: a burst would be another measurement.
            due = max(due + 1 / pace.rate, time.monotonic() - 1 / pace.rate)
        await asyncio.sleep(pace.warm_up)
        times, self._times = self._times, []
        return summarize(times or [0.0], time.process_time() - cpu_began)
