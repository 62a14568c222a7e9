"""A process: the replicas it hosts, its failure detector, and the turn.

Everything happens in turns. The driver hands in what has arrived, the process answers with
`Effects`, and the driver carries them out in the written order. A process hosts replicas of many
groups; connections, failure detection and frames are shared by all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from coterie.kernel.clock import Duration, Instant
from coterie.kernel.configuration import addresses_of
from coterie.kernel.errors import BadMessage
from coterie.kernel.timers import Timers
from coterie.kernel.views import Member
from coterie.kernel.wire import Envelope, Frame, Heartbeat, Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.settings import Settings
    from coterie.kernel.views import Configuration, ReplicaAddresses, ReplicaId


class Effects:
    """What the driver must do after a turn, in this order.

    Store the records first: no frame may leave before what it promises is written down.
    """

    __slots__ = ("frames", "records")

    def __init__(self, records: list[Record], frames: list[tuple[ReplicaId, bytes]]) -> None:
        self.records = records
        self.frames = frames


class Detector(Protocol):
    """What a process needs of a failure detector (`coterie.membership.detector`)."""

    def start(self, now: Instant) -> None:
        """Begin to watch."""

    def heard(self, peer: ReplicaId, incarnation: int, now: Instant) -> bool:
        """Take any frame of a peer as a sign of life; False if it is from an earlier life."""

    def heartbeat(self, peer: ReplicaId, heartbeat: Heartbeat, now: Instant) -> None:
        """Take what a peer says about whom it hears."""

    def refused(self, peer: ReplicaId) -> None:
        """Learn that the peer's machine answers but the process is not there."""

    def watch(self, peers: Sequence[ReplicaId]) -> None:
        """Watch these peers from now on, and no others."""

    def tick(self, now: Instant) -> Heartbeat:
        """Look for silent peers, and give the heartbeat to send."""

    def changes(self) -> tuple[bool, list[ReplicaId]]:
        """Say whether anything changed since the last call, and who was seen to restart."""

    def reaches(self, peer: ReplicaId) -> bool:
        """Say whether a peer is heard and hears us."""

    def in_touch(self, one: ReplicaId, other: ReplicaId) -> bool:
        """Say whether two processes hear each other, as far as known."""


_encoder = msgspec.msgpack.Encoder()


class Process:
    """The turn, around all replicas of one process."""

    def __init__(
        self,
        *,
        id: ReplicaId,
        incarnation: int,
        peers: Sequence[ReplicaId],
        detector: Detector,
        settings: Settings,
    ) -> None:
        self.id = id
        self.incarnation = incarnation
        self.peers = tuple(sorted(peer for peer in peers if peer != id))
        self._known_peers = frozenset(self.peers)
        self._guests: set[ReplicaId] = set()
        """Processes that are spoken with and not watched."""
        self.guest_hears: Callable[[str, Configuration], None] | None = None
        """For a process that is a guest of others: what it does when it hears who they are."""
        self._seeds = self._known_peers
        """Whom this process was told of when it began."""
        self._configurations: dict[str, Configuration] = {}
        """The configurations that its groups have learned of."""
        self._former: set[ReplicaId] = set()
        """Former peers: they are answered, so that they find out, and not watched."""
        self.meetings = 0
        """How many times the peers have become others."""
        self.whereabouts: dict[ReplicaId, ReplicaAddresses] = {}
        """Where replicas are found: put here by the driver, and learned with configurations."""
        self._reachable = set(self.peers)
        """The peers and the guests."""
        self.settings = settings
        self.detector = detector
        self.counters: dict[str, int] = {}
        self.replicas: dict[str, Replica] = {}
        self._timers = Timers()
        self._outbox = Outbox()
        self._loopback: list[Envelope] = []
        self._records: list[Record] = []
        self.now = Instant(0)
        """The time of the running turn."""
        self._driver_now = 0
        self._set_back = 0
        self._heartbeat: Heartbeat | None = None
        self._started = False
        self._waiting_to_start: list[Replica] = []

    # ---- what drivers call

    def host(self, replica: Replica) -> None:
        """Host a replica from the next turn on."""
        context = replica.context
        self.replicas[context.group] = replica
        self._configurations.setdefault(context.group, context.configuration)
        self._waiting_to_start.append(replica)

    def turn(
        self,
        now: int,
        frames: Sequence[Frame] = (),
        calls: Sequence[Callable[[], None]] = (),
        refused: Sequence[ReplicaId] = (),
    ) -> Effects:
        """Take what has arrived, fire due timers, run *calls*, and give the effects.

        *calls* are requests to replicas (casts, leaves) made by the driver's users.
        """
        if now < self._driver_now:
            # The driver's clock was set back. Time goes on from here all the same, or every
            # time-out of this process would wait until the clock has caught up.
            self._set_back += self._driver_now - now
        self._driver_now = now
        self.now = now_here = Instant(now + self._set_back)
        if self._waiting_to_start or not self._started:
            self._start()
        if self._loopback:
            self._receive_loopback()
        for frame in frames:
            self._receive(frame)
        for peer in refused:
            self.detector.refused(peer)
        self._timers.fire_due(now_here)
        for call in calls:
            call()
        changed, restarted = self.detector.changes()
        if changed:
            for replica in self.replicas.values():
                replica.bottom.reachability_changed(restarted)
        for replica in self.replicas.values():
            replica.finish_turn()
        return self._take_effects()

    def admit(self, guest: ReplicaId) -> None:
        """Have a process spoken with that is no peer, such as a client's; nobody watches it.

        What it gets are bodies of frames: whoever carries them to it puts a head before them.
        """
        if guest not in self._known_peers:
            self._guests.add(guest)
            self._reachable.add(guest)

    def dismiss(self, guest: ReplicaId) -> None:
        """Send nothing more to a guest."""
        if guest not in self._known_peers:
            self._guests.discard(guest)
            self._reachable.discard(guest)

    def guest_said(self, frame: Frame) -> None:
        """Take what a guest says; inside a turn."""
        for envelope in frame.envelopes:
            self._hand_over(frame.process, envelope)

    def hear_of(self, group: str, configuration: Configuration) -> None:
        """Learn who belongs to a group that may not be here; its own replica knows best."""
        known = self._configurations.get(group)
        is_news = known is None or known.number < configuration.number
        if group in self.replicas or not is_news:
            return
        if self.guest_hears is None:
            self.meet(group, configuration)
        else:
            self._configurations[group] = configuration
            self.guest_hears(group, configuration)

    def meet(self, group: str, configuration: Configuration) -> None:
        """Speak with all who belong to a group, too; inside a turn, or before the first.

        Who belongs to no group here any more is only answered, so that it finds out.
        """
        self._configurations[group] = configuration
        self.whereabouts.update({found.id: found for found in addresses_of(configuration)})
        known = {*self._seeds}
        former: set[ReplicaId] = set()
        for each in self._configurations.values():
            known.update(each.everyone)
            former.update(each.gone)
        for each in self._configurations.values():
            former.difference_update(each.everyone)
        known -= {self.id, *former}
        former.discard(self.id)
        if known == self._known_peers and former == self._former:
            return
        self.meetings += 1
        self._former = former
        self.peers = tuple(sorted(known))
        self._known_peers = frozenset(known)
        self._guests -= self._known_peers
        self._reachable = known | self._guests | former
        self.detector.watch(self.peers)

    @property
    def former(self) -> frozenset[ReplicaId]:
        """Those who belonged to a group here, and belong to none any more."""
        return frozenset(self._former)

    def next_deadline(self) -> int | None:
        """Give the moment, on the driver's clock, at which a turn is due if nothing arrives."""
        if self._waiting_to_start or self._loopback or not self._started:
            return self._driver_now
        deadline = self._timers.next_deadline()
        return None if deadline is None else deadline - self._set_back

    # ---- what replicas call through their context

    def send(
        self,
        destinations: Sequence[ReplicaId],
        group: str,
        incarnation: int,
        message: msgspec.Struct,
    ) -> None:
        """Put a message into the outbox, encoded once for all destinations.

        What is for a replica in this very process comes back in the next turn.
        """
        encoded = _encoder.encode(message)
        for destination in destinations:
            if destination not in self._reachable:
                if self.id in destinations:
                    self._loopback.append(Envelope(group, incarnation, [msgspec.Raw(encoded)]))
                strangers = {*destinations} - self._reachable - {self.id}
                if strangers:
                    self.count("process.messages_to_strangers", len(strangers))
                destinations = [each for each in destinations if each in self._reachable]
                break
        self._outbox.add(destinations, group, incarnation, encoded)

    def reaches(self, replica: ReplicaId) -> bool:
        """Say whether a process is heard and hears us."""
        return self.detector.reaches(replica)

    def in_touch(self, one: ReplicaId, other: ReplicaId) -> bool:
        """Say whether two processes hear each other."""
        return self.detector.in_touch(one, other)

    def set_timer(self, name: tuple[str, ...], wait: Duration, fire: Callable[[], None]) -> None:
        """Set a timer of this process."""
        self._timers.set(name, Instant(self.now + wait), fire)

    def timer_is_set(self, name: tuple[str, ...]) -> bool:
        """Say whether a timer is waiting."""
        return name in self._timers.current

    def cancel_timer(self, name: tuple[str, ...]) -> None:
        """Forget a timer."""
        self._timers.cancel(name)

    def report(self, record: Record) -> None:
        """Add a record to the effects of the turn."""
        self._records.append(record)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of this process."""
        self.counters[name] = self.counters.get(name, 0) + amount

    # ---- inside

    def _start(self) -> None:
        """Begin to watch, in the first turn, and begin the lives of new replicas."""
        if not self._started:
            self._started = True
            self.detector.start(self.now)
            self._beat()
        for replica in self._waiting_to_start:
            replica.bottom.start()
        self._waiting_to_start.clear()

    def _receive(self, frame: Frame) -> None:
        """Hand the envelopes of a frame to their groups; drop what makes no sense."""
        sender = frame.process
        if sender not in self._known_peers:
            self._receive_from_stranger(frame)
            return
        detector, incarnation = self.detector, frame.incarnation
        if not detector.heard(sender, incarnation, self.now):
            self.count("process.frames_from_earlier_lives")
            return
        if frame.heartbeat is not None:
            detector.heartbeat(sender, frame.heartbeat, self.now)
        for envelope in frame.envelopes:
            if envelope.incarnation == incarnation:
                self._hand_over(sender, envelope)
            else:
                self.count("process.messages_malformed", len(envelope.messages))

    def _receive_from_stranger(self, frame: Frame) -> None:
        """Hear whether a stranger has news of the members of a group; nothing else is taken."""
        self.count("process.frames_from_strangers")
        for envelope in frame.envelopes:
            replica = self.replicas.get(envelope.group)
            if replica is None or envelope.incarnation != frame.incarnation:
                continue
            try:
                replica.hear_stranger(Member(frame.process, frame.incarnation), envelope.messages)
            except (msgspec.DecodeError, BadMessage):
                self.count("process.messages_malformed")

    def _receive_loopback(self) -> None:
        loopback, self._loopback = self._loopback, []
        for envelope in loopback:
            self._hand_over(self.id, envelope)

    def _hand_over(self, sender: ReplicaId, envelope: Envelope) -> None:
        replica = self.replicas.get(envelope.group)
        if replica is None:
            self.count("process.messages_for_unknown_group", len(envelope.messages))
            return
        try:
            replica.receive(Member(sender, envelope.incarnation), envelope.messages)
        except (msgspec.DecodeError, BadMessage):
            self.count("process.messages_malformed")

    def _beat(self) -> None:
        self._heartbeat = self.detector.tick(self.now)
        self.set_timer(("process", "beat"), self.settings.heartbeat_interval, self._beat)

    def _take_effects(self) -> Effects:
        records, self._records = self._records, []
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is None and not self._outbox:
            return Effects(records, [])
        frames = self._outbox.frames(
            self.id,
            self.incarnation,
            heartbeat,
            self.peers if heartbeat is not None else (),
            frame_bytes_max=self.settings.frame_bytes_max,
            guests=self._guests,
        )
        return Effects(records, frames)
