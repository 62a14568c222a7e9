"""Layers: how the parts of a group-communication stack call each other.

A stack is written top first (`DYNSEQ:VSYNC`). Inside a turn a layer calls the one above or the
one below directly, with batches, never once per message. Towards the application every stack
looks the same: `cast` goes down; `deliver`, `transitional` and `view` come up.

Layers declare the services they need from below and the services they give above; a stack in
which something is missing is refused when it is built (`coterie.stacks`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar, Protocol
from zlib import crc32

from coterie.kernel.records import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    import msgspec

    from coterie.kernel.clock import Duration, Instant
    from coterie.kernel.engine import Past
    from coterie.kernel.records import Record
    from coterie.kernel.settings import Settings
    from coterie.kernel.views import (
        Configuration,
        Member,
        ReplicaAddresses,
        ReplicaId,
        View,
        ViewId,
    )


class Service(enum.Enum):
    """What a layer can promise to the layer above it."""

    VIEWS = "views"
    RELIABLE_FIFO = "reliable multicast, first in first out per sender"
    STABILITY = "stability (who has received what)"
    TOTAL_ORDER = "total order"
    SAFE_DELIVERY = "safe delivery"
    PRIMARY_VIEWS = "primary views"
    GLOBAL_SAFETY = "global safety"
    HISTORY = "one history, kept through views and lives"


class Batch:
    """Consecutive messages of one sender that travel, are ordered and are delivered together.

    `first` numbers the first message along the sender's life, so (sender, first + i) is the
    identity of each for ever. `packet` is the batch's number among its sender's in the view.
    `number`, `delivery`, `safe` and `mark` are set by the layer that delivers it.
    """

    __slots__ = (
        "delivery",
        "first",
        "header",
        "mark",
        "number",
        "packet",
        "payloads",
        "rank",
        "raw_header",
        "safe",
        "sender",
        "size",
        "view",
    )

    def __init__(  # noqa: PLR0913, PLR0917 -- one flat record on the hot path
        self,
        view: ViewId,
        sender: Member,
        rank: int,
        packet: int,
        first: int,
        raw_header: bytes,
        header: object,
        payloads: list[bytes],
    ) -> None:
        self.view = view
        self.sender = sender
        self.rank = rank
        self.packet = packet
        self.first = first
        self.raw_header = raw_header
        self.header = header
        self.payloads = payloads
        self.size = len(payloads[0]) if len(payloads) == 1 else sum(map(len, payloads))
        self.mark = 0
        self.number = 0
        self.safe = False
        self.delivery = Delivery.REGULAR

    @property
    def digest(self) -> int:
        """A checksum over the payloads, so that histories can compare contents."""
        return crc32(b"".join(self.payloads))


class Ending:
    """What the members that go on together agree on when a view ends.

    `stable` gives, by rank in the ending view, how many packets of that sender some of them
    knew all members of the view to have; `values` is what their upper layers said.
    """

    __slots__ = ("stable", "transitional", "values", "view")

    def __init__(
        self,
        view: ViewId,
        transitional: tuple[Member, ...],
        stable: Sequence[int],
        values: dict[Member, bytes],
    ) -> None:
        self.view = view
        self.transitional = transitional
        self.stable = stable
        self.values = values


class Application(Protocol):
    """What stands on top of a stack."""

    def deliver(self, batches: list[Batch]) -> None:
        """Take messages in the order the stack promises."""

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        """Learn that until the next view, only *members* are sure to deliver what follows."""

    def view(self, view: View) -> None:
        """Learn that a regular view is installed; casts now go to its members."""


class Context:
    """What the driver hands to every layer of one replica: identity, time, chance, effects."""

    def __init__(  # noqa: PLR0913 -- built in one place
        self,
        *,
        group: str,
        me: Member,
        configuration: Configuration,
        settings: Settings,
        random: Random,
        surroundings: Surroundings,
        recording: bool = True,
        past: Past | None = None,
    ) -> None:
        self.past = past
        self.stack = ""
        """What the replica is built of, as it is written; set when it is built."""
        self.group = group
        self.me = me
        self.configuration = configuration
        """Who belongs to the group, as far as is settled here: whom to look for. Quorums are
        counted against what the engine's history says."""
        self.is_removed = False
        """Whether the group has gone on without this replica for good."""
        self.settings = settings
        self.random = random
        self.recording = recording
        self.counters: dict[str, int] = {}
        self.report: Callable[[Record], None] = surroundings.report
        """Adds a record to the history of this replica."""
        self._surroundings = surroundings
        self._sent_count = 0

    @property
    def now(self) -> Instant:
        """The time of the running turn."""
        return self._surroundings.now

    def send(self, destinations: Sequence[ReplicaId], message: msgspec.Struct) -> None:
        """Send one message of the bottom layer to the replicas of this group there."""
        self._surroundings.send(destinations, self.group, self.me.incarnation, message)

    def send_to(
        self, group: str, destinations: Sequence[ReplicaId], message: msgspec.Struct
    ) -> None:
        """Send one message to replicas of another group; they may be in this very process."""
        self._surroundings.send(destinations, group, self.me.incarnation, message)

    def acquaint(self, configuration: Configuration) -> None:
        """Learn of a later configuration, which is settled: have its replicas spoken with."""
        if configuration.number > self.configuration.number:
            self.configuration = configuration
            self._surroundings.meet(self.group, configuration)

    def look_for(self, configuration: Configuration) -> None:
        """Have the replicas of a configuration spoken with, settled or not, and no others."""
        if configuration != self.configuration:
            self.configuration = configuration
            self._surroundings.meet(self.group, configuration)

    def hear_of(self, group: str, configuration: Configuration) -> None:
        """Learn who belongs to another group by now: have its replicas spoken with."""
        self._surroundings.hear_of(group, configuration)

    @property
    def whereabouts(self) -> Mapping[ReplicaId, ReplicaAddresses]:
        """Where replicas are found, as far as is known in this process."""
        return self._surroundings.whereabouts

    def found_at(
        self, now: Configuration, newcomer: ReplicaAddresses | None
    ) -> list[ReplicaAddresses]:
        """Give where all of a group are found, and a newcomer, as far as is known.

        Of those who founded the group the history does not say it yet.
        """
        known = self.whereabouts
        found = [known[each] for each in now.everyone if each in known]
        return found if newcomer is None else [*found, newcomer]

    def reaches(self, replica: ReplicaId) -> bool:
        """Say whether this process and the one of *replica* hear each other, as far as known."""
        return self._surroundings.reaches(replica)

    def in_touch(self, one: ReplicaId, other: ReplicaId) -> bool:
        """Say whether two processes hear each other, as far as is known here."""
        return self._surroundings.in_touch(one, other)

    def set_timer(self, name: str, wait: Duration, fire: Callable[[], None]) -> None:
        """Have *fire* called *wait* from now, replacing an earlier timer of that name."""
        self._surroundings.set_timer((self.group, name), wait, fire)

    def timer_is_set(self, name: str) -> bool:
        """Say whether a timer of that name is waiting."""
        return self._surroundings.timer_is_set((self.group, name))

    def cancel_timer(self, name: str) -> None:
        """Forget a timer."""
        self._surroundings.cancel_timer((self.group, name))

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter; names start with the layer's own prefix."""
        self.counters[name] = self.counters.get(name, 0) + amount

    def number_messages(self, count: int) -> int:
        """Take *count* identity numbers and give the first."""
        first = self._sent_count + 1
        self._sent_count += count
        return first


class Surroundings(Protocol):
    """The process around a replica, as its context sees it."""

    @property
    def now(self) -> Instant:
        """The time of the running turn."""

    def send(
        self,
        destinations: Sequence[ReplicaId],
        group: str,
        incarnation: int,
        message: msgspec.Struct,
    ) -> None:
        """Put a message into the outbox of the turn."""

    @property
    def whereabouts(self) -> Mapping[ReplicaId, ReplicaAddresses]:
        """Where replicas are found, as far as is known."""

    def hear_of(self, group: str, configuration: Configuration) -> None:
        """Learn who belongs to a group that may not be here."""

    def meet(self, group: str, configuration: Configuration) -> None:
        """Speak with all who belong to a group; those who did are answered, not watched."""

    def reaches(self, replica: ReplicaId) -> bool:
        """Say whether a process is heard and hears us."""

    def in_touch(self, one: ReplicaId, other: ReplicaId) -> bool:
        """Say whether two processes hear each other."""

    def set_timer(self, name: tuple[str, ...], wait: Duration, fire: Callable[[], None]) -> None:
        """Set a timer of this process."""

    def timer_is_set(self, name: tuple[str, ...]) -> bool:
        """Say whether a timer of this process is waiting."""

    def cancel_timer(self, name: tuple[str, ...]) -> None:
        """Forget a timer of this process."""

    def report(self, record: Record) -> None:
        """Add a record to the effects of the turn."""


class Layer:
    """One layer of a stack; a subclass overrides what it cares about.

    The defaults pass everything through, so a layer that only drops, delays or counts (as in
    tests) is a few lines.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[Service]] = frozenset()
    gives: ClassVar[frozenset[Service]] = frozenset()

    above: Layer
    below: Layer

    @classmethod
    def services(cls, below: frozenset[Service]) -> frozenset[Service]:
        """Give the services there are above this layer, when these are there below it."""
        del below
        return cls.gives

    def __init__(self, context: Context) -> None:
        self.context = context

    def assembled(self) -> None:
        """Learn that the stack is complete: `above` and `below` are there."""

    # ---- downwards

    def cast(self, payloads: Sequence[bytes], *, safe: bool = False, mark: int = 0) -> int:
        """Multicast messages to the view; give the identity number of the first.

        A layer tells its own messages from those of the layers above it by *mark*, which the
        receivers find in the batch.

        They may wait (for the window, the token, the end of a view change), in order. Raises
        `Refused`, with no effect, when a message is too large or too much is waiting.
        """
        return self.below.cast(payloads, safe=safe, mark=mark)

    def cast_packet(  # noqa: PLR0913 -- the parts of a packet
        self,
        header: bytes,
        first: int,
        payloads: list[bytes],
        *,
        safe: bool,
        urgent: bool,
        parsed: object = None,
    ) -> None:
        """Multicast one packet now with a header for the same layer at the receivers.

        The sender gets it by `deliver` like everyone else, before the call returns, with *parsed*
        as its header, if that is given. An *urgent* packet is acknowledged at once, for those who
        wait for its stability.
        """
        self.below.cast_packet(header, first, payloads, safe=safe, urgent=urgent, parsed=parsed)

    @property
    def can_cast(self) -> bool:
        """Whether `cast_packet` may be called now: no view change, and room in the window."""
        return self.below.can_cast

    @property
    def has_waiting_casts(self) -> bool:
        """Whether casts wait in the layers from here up."""
        return self.above.has_waiting_casts

    @property
    def is_stopped(self) -> bool:
        """Whether the current view is over here and only waits for its successor."""
        return self.below.is_stopped

    def send_direct(self, members: Sequence[Member], body: bytes) -> None:
        """Send to some members of the view, perhaps in vain: for a layer's own messages."""
        self.below.send_direct(members, body)

    def leave(self) -> None:
        """Leave the group in good order."""
        self.below.leave()

    def renew(self) -> None:
        """Have the same members install another view; the first member of this one sees to it."""
        self.below.renew()

    def end_alone(self) -> None:
        """End the current view here, as if nobody went on with us; for `leaving` only."""
        self.below.end_alone()

    # ---- what a layer may ask of the multicast below it; vectors are in rank order

    @property
    def stable(self) -> Sequence[int]:
        """By sender: all packets up to this number are known to be at all members."""
        return self.below.stable

    @property
    def received(self) -> Sequence[int]:
        """By sender: all packets up to this number are here; our own entry is what we sent."""
        return self.below.received

    def missing(self) -> list[tuple[int, int, int]]:
        """Give the packets known to exist and not here, as (rank, first, last)."""
        return self.below.missing()

    def learn_sent(self, sent: Sequence[int]) -> None:
        """Tell the multicast how many packets each member has sent."""
        self.below.learn_sent(sent)

    def repair(self, rank: int, first: int, last: int) -> bool:
        """Multicast packets again, those that are here; say whether all were."""
        return self.below.repair(rank, first, last)

    def carry_repairs(self) -> None:
        """Have the multicast leave asking for missing packets to the layer above."""
        self.below.carry_repairs()

    # ---- upwards

    def parse(self, header: bytes) -> object:
        """Read a header of this layer; raise `BadMessage` and the packet is dropped unacked."""
        return self.above.parse(header)

    def deliver(self, batches: list[Batch]) -> None:
        """Take batches from below."""
        self.above.deliver(batches)

    def received_batches(self, batches: list[Batch]) -> None:
        """Learn what came from below, before it has its place, and before it is acknowledged.

        An order layer tells it to the layer right above it, with the marks that batches will have.
        """

    def stability_rose(self) -> None:
        """Learn that more is known about who has received what."""
        self.above.stability_rose()

    def receive_direct(self, sender: Member, body: bytes) -> None:
        """Take what a fellow layer sent by `send_direct`."""
        self.above.receive_direct(sender, body)

    def flush_value(self) -> bytes:
        """Say what the layers from here up contribute to the next view (`View.values`)."""
        return self.above.flush_value()

    def end_view(self, ending: Ending) -> None:
        """Deliver what is left of the current view: nothing more will come from below."""
        self.above.end_view(ending)

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        """Pass the end of the regular part of a view."""
        self.above.transitional(view, members)

    def view(self, view: View) -> None:
        """Take a new regular view from below."""
        self.above.view(view)

    def leaving(self) -> None:
        """Learn that this replica leaves in good order, with this turn."""
        self.above.leaving()

    # ---- merging, asked by VSYNC of the layers above it

    def alive_heard(self, value: bytes) -> None:
        """Take what another side says of itself (`alive_value`)."""
        self.above.alive_heard(value)

    def alive_value(self) -> bytes:
        """Say what merge partners should know of this side before they merge."""
        return self.above.alive_value()

    def proposes_merge(self, ours: Side, theirs: Side) -> bool | None:
        """Choose who proposes the joint view: True for us, False for them, None for no merge.

        Both sides ask with the roles swapped and must come to opposite answers.
        """
        return self.above.proposes_merge(ours, theirs)

    # ---- the turn

    def finish_turn(self) -> None:
        """Send what gathered up during the turn; called once at its end, top layer first."""

    def end_turn(self) -> None:
        """Speak of what lower layers delivered while they finished; called after all have."""


class Side:
    """One of two views that may merge, as far as its contact has told."""

    __slots__ = ("contact", "members", "value", "view")

    def __init__(
        self, contact: Member, view: ViewId, members: tuple[Member, ...], value: bytes
    ) -> None:
        self.contact = contact
        self.view = view
        self.members = members
        self.value = value
