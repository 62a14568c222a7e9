"""The failure detector: which processes hear each other, per pair of processes.

Every process sends every peer a heartbeat that names whom it hears. So a process knows not only
whether it hears a peer, but whether the peer hears it (a one-way link counts as none), and which
other pairs hear each other: VSYNC forms views only of processes that all hear each other, which
keeps non-transitive networks from making it flap.

How long a silence is tolerated adapts to the peer: the smoothed interval between its heartbeats
plus four times its smoothed deviation, as in TCP's retransmission timer, within fixed bounds.
A process that was itself paused (its own ticks came late) gives everyone that time back, or it
would suspect the world on waking up.

The detector may be wrong at any time; safety never depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.wire import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.clock import Instant
    from coterie.kernel.settings import Settings
    from coterie.kernel.views import ReplicaId


_UNCHANGED: tuple[bool, list[ReplicaId]] = (False, [])


class _Peer:
    """What is known of one peer."""

    __slots__ = (
        "beat_at",
        "deviation",
        "heard_at",
        "hears",
        "hears_us",
        "incarnation",
        "interval",
        "is_heard",
    )

    def __init__(self) -> None:
        self.incarnation = 0
        self.is_heard = False
        self.hears_us = False
        self.hears: frozenset[ReplicaId] = frozenset()
        self.heard_at = 0
        self.beat_at = 0
        self.interval = 0
        self.deviation = 0


class HeartbeatDetector:
    """Watches all peers of one process."""

    def __init__(
        self,
        id: ReplicaId,
        incarnation: int,
        peers: Sequence[ReplicaId],
        settings: Settings,
    ) -> None:
        self._id = id
        self._incarnation = incarnation
        self._settings = settings
        self._peers = {peer: _Peer() for peer in sorted(peers) if peer != id}
        self._ticked_at = 0
        self._changed = False
        self._restarted: list[ReplicaId] = []

    def start(self, now: Instant) -> None:
        """Begin to watch; nobody is heard yet."""
        self._ticked_at = now

    def heard(self, peer: ReplicaId, incarnation: int, now: Instant) -> bool:
        """Take any frame of a peer as a sign of life; False if it is from an earlier life."""
        known = self._peers[peer]
        if incarnation < known.incarnation:
            return False
        if incarnation > known.incarnation:
            if known.incarnation:
                self._restarted.append(peer)
            known.incarnation = incarnation
            known.is_heard = known.hears_us = False
            known.hears = frozenset()
            known.interval = known.beat_at = known.deviation = 0
            self._changed = True
        known.heard_at = now
        if not known.is_heard:
            known.is_heard = True
            self._changed = True
        return True

    def heartbeat(self, peer: ReplicaId, heartbeat: Heartbeat, now: Instant) -> None:
        """Take what a peer says about whom it hears."""
        known = self._peers[peer]
        if known.beat_at:
            # A peer that was cut off for long was not irregular: its silence is not learned whole.
            self._learn_interval(known, min(now - known.beat_at, 2 * self._patience(known)))
        known.beat_at = now
        lives = dict(heartbeat.hears)
        hears_us = lives.get(self._id) == self._incarnation
        hears = frozenset(
            other
            for other, incarnation in lives.items()
            if other in self._peers and self._peers[other].incarnation in (0, incarnation)
        )
        if hears_us != known.hears_us or hears != known.hears:
            known.hears_us = hears_us
            known.hears = hears
            self._changed = True

    def refused(self, peer: ReplicaId) -> None:
        """Learn that the peer's machine answers but the process is not there."""
        known = self._peers.get(peer)
        if known is not None and known.is_heard:
            self._lose(known)

    def watch(self, peers: Sequence[ReplicaId]) -> None:
        """Watch these peers from now on, and no others; what is known of them stays."""
        known = self._peers
        self._peers = {peer: known.get(peer) or _Peer() for peer in sorted(peers)}
        self._changed = True

    def tick(self, now: Instant) -> Heartbeat:
        """Look for silent peers, and give the heartbeat to send."""
        late = now - self._ticked_at - 2 * self._settings.heartbeat_interval
        self._ticked_at = now
        for known in self._peers.values():
            if late > 0:
                # We were paused: nobody could be heard meanwhile, so nobody was silent.
                known.heard_at = min(known.heard_at + late, now)
                known.beat_at = 0
            if known.is_heard and now - known.heard_at > self._patience(known):
                self._lose(known)
        return Heartbeat(
            tuple(
                (peer, known.incarnation) for peer, known in self._peers.items() if known.is_heard
            )
        )

    def changes(self) -> tuple[bool, list[ReplicaId]]:
        """Say whether anything changed since the last call, and who was seen to restart."""
        if not self._changed:
            return _UNCHANGED
        self._changed = False
        restarted, self._restarted = self._restarted, []
        return True, restarted

    def reaches(self, peer: ReplicaId) -> bool:
        """Say whether a peer is heard and hears us."""
        if peer == self._id:
            return True
        known = self._peers.get(peer)
        return known is not None and known.is_heard and known.hears_us

    def in_touch(self, one: ReplicaId, other: ReplicaId) -> bool:
        """Say whether two processes hear each other, as far as known."""
        if one == other:
            return True
        if one == self._id:
            return self.reaches(other)
        if other == self._id:
            return self.reaches(one)
        first, second = self._peers.get(one), self._peers.get(other)
        if first is None or second is None:
            return False
        return other in first.hears and one in second.hears

    def _lose(self, known: _Peer) -> None:
        known.is_heard = False
        self._changed = True

    def _learn_interval(self, known: _Peer, sample: int) -> None:
        if not known.interval:
            known.interval = sample
            known.deviation = sample // 2
            return
        error = sample - known.interval
        known.interval += error // 8
        known.deviation += (abs(error) - known.deviation) // 4

    def _patience(self, known: _Peer) -> int:
        settings = self._settings
        expected = known.interval + 4 * known.deviation + settings.heartbeat_interval
        return min(max(expected, settings.suspect_after_min), settings.suspect_after_max)
