"""Deadlocks over several groups, found by probes that follow who waits for whom.

A group sees only the waiting at its own objects. While a call waits it tells the coordinator of its
transaction whom it waits for. That coordinator sends a probe along: to the coordinator of each of
those, which sends it on to the coordinators of those they wait for. A probe that comes back to
where it began has gone round a circle. The one with the highest name in it is the victim, and only
its coordinator aborts it (design 10 g). So a probe is worth sending only to names that are lower
than the one it began with: the others would find the same circle, and abort nobody.

What is known of waiting may be out of date; then a transaction is aborted in vain, and nothing
worse happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import BadMessage
from coterie.vsr.calls.messages import Probe

if TYPE_CHECKING:
    from coterie.kernel.clock import Instant
    from coterie.vsr.calls.messages import WaitsFor
    from coterie.vsr.commit.psets import Aid
    from coterie.vsr.commit.server import Server

_STEPS_MAX = 16
"""A probe that has gone further is dropped; deadlines end longer circles."""


class Deadlocks:
    """What a coordinator knows of the waiting of its transactions."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waits: dict[Aid, dict[str, tuple[Instant, tuple[Aid, ...]]]] = {}

    def forget(self, aid: Aid) -> None:
        """Learn that a transaction has ended."""
        self._waits.pop(aid, None)

    def clear(self) -> None:
        """Forget everything."""
        self._waits.clear()

    def on_waits_for(self, message: WaitsFor) -> None:
        """Learn whom a transaction waits for, at one group."""
        aid = message.aid
        if not self._server.coordinator.is_active(aid):
            return
        now = self._server.context.now
        self._waits.setdefault(aid, {})[message.actor] = (now, message.holders)
        for holder in message.holders:
            if holder < aid:
                self._send((aid, holder))

    def on_probe(self, message: Probe) -> None:
        """Send a probe on, or see that it has come round."""
        path = message.path
        if len(path) < 2:  # noqa: PLR2004 -- somebody waits for somebody
            raise BadMessage("a probe goes from one to another")
        last = path[-1]
        if last == path[0]:
            circle = path[:-1]
            if last == max(circle) and self._server.coordinator.is_active(last):
                others = ", ".join(str(each) for each in circle if each != last)
                self._server.coordinator.abort(last, f"deadlock with {others}")
            return
        if len(path) >= _STEPS_MAX or last in path[:-1]:
            return
        for holder in self._waiting_for(last):
            if holder <= path[0]:
                self._send((*path, holder))

    def _waiting_for(self, aid: Aid) -> list[Aid]:
        fresh = self._server.context.now - 3 * self._server.settings.sweep
        return [
            holder
            for told_at, holders in self._waits.get(aid, {}).values()
            if told_at >= fresh
            for holder in holders
        ]

    def _send(self, path: tuple[Aid, ...]) -> None:
        self._server.requests.tell(path[-1].group, Probe(self._server.group, path))
