"""Reliable multicast in one view: numbering, repair, acknowledgement, stability, window.

Each member numbers its packets in the view from 1. A receiver passes them up in that order and
tells all members, in vectors by rank, up to where it has everything; the minimum over all
members is *stable* and forgotten. Until then every receiver keeps every packet, because after a
partition any of them may be the only one left that can repair the others.

A gap is repaired on request: after a short delay (the packet may only be late) the origin is
asked, then others in turn. That a last packet is missing shows when its sender, which keeps
repeating its vector while anything of anyone is unstable, tells how much it has sent.

At the start of a view change the multicast is *frozen*: it still collects packets (repairs up to
the cut are among them) but passes nothing up and acknowledges nothing. An acknowledgement after
the flush would let someone outside call a packet stable that this member then leaves behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.clock import Duration
from coterie.kernel.layers import Batch
from coterie.membership.messages import Ack, Data, Nak, Repair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member, ViewId

_REPAIRS_A_TURN = 4
"""How many requests for repair are answered in full in one turn; others are made again."""


class Multicast:
    """The packets of one view at one member."""

    def __init__(
        self,
        context: Context,
        view: ViewId,
        members: tuple[Member, ...],
        *,
        repairs_itself: bool,
        give_up_on: Callable[[Member], None] = lambda _: None,
    ) -> None:
        size = len(members)
        self.view = view
        self.members = members
        self.rank = members.index(context.me)
        self.others = [member.id for member in members if member != context.me]
        self.is_frozen = False
        self.received = [0] * size
        """By sender: everything up to this number is here. Our own entry: what we have sent."""
        self.stable = [0] * size
        """By sender: everything up to this number is known to be at all members."""
        self.is_urgent = False
        """Whether someone waits for stability, so that this turn should acknowledge."""
        self.repairs_itself = repairs_itself
        """False when the layer above carries the repair requests (TOKEN)."""
        self._context = context
        self._give_up_on = give_up_on
        self._silent_since: dict[int, int] = {}
        self.ranks = {member: rank for rank, member in enumerate(members)}
        self._passed = [0] * size
        self._forgotten = [0] * size
        self._known = [0] * size
        self._acked = [[0] * size for _ in range(size)]
        self._packets: list[dict[int, Batch]] = [{} for _ in range(size)]
        self._ahead_max = 2 * context.settings.window_packets
        """How far ahead of us what anybody has sent can be."""
        self._bytes_in_flight = 0
        self._bytes_unacked = 0
        self._packets_unacked = 0
        self._is_unacked = False
        self._answer_to: list[str] = []
        self._repair_round = 0
        self._repaired = 0
        """How many packets were sent again in this turn."""

    # ---- sending

    @property
    def has_room(self) -> bool:
        """Whether the window admits another packet of ours."""
        settings = self._context.settings
        in_flight = self.received[self.rank] - self.stable[self.rank]
        return in_flight < settings.window_packets and self._bytes_in_flight < settings.window_bytes

    def send(
        self, first: int, header: bytes, parsed: object, payloads: list[bytes], *, urgent: bool
    ) -> Batch:
        """Multicast one packet; give it as a batch, to be passed up here as well."""
        rank = self.rank
        number = self.received[rank] + 1
        me = self.members[rank]
        batch = Batch(self.view, me, rank, number, first, header, parsed, payloads)
        self.received[rank] = self._passed[rank] = self._known[rank] = number
        self._acked[rank][rank] = number
        self._packets[rank][number] = batch
        self._bytes_in_flight += batch.size
        if self.others:
            message = Data(self.view, number, first, self.received, urgent, header, payloads)
            self._context.send(self.others, message)
            self._acked_now()
            self._watch()
        else:
            self._settle([rank])
        return batch

    # ---- receiving

    def is_next(self, rank: int, number: int) -> bool:
        """Say whether this is the common case, in which a packet is taken and passed up at once.

        It follows the last one of its sender, nothing is known to lie behind it, and no view
        change has begun.
        """
        received = self.received[rank]
        return (
            number == received + 1
            and self._known[rank] == received == self._passed[rank]
            and number + 1 not in self._packets[rank]
            and not self.is_frozen
        )

    def take_next(  # noqa: PLR0913, PLR0917 -- as `take`
        self,
        rank: int,
        number: int,
        first: int,
        header: bytes,
        parsed: object,
        payloads: list[bytes],
        vector: Sequence[int] | None = None,
    ) -> Batch:
        """Do what `take` and `pass_up` do, in the common case only (`is_next`); give the batch.

        With a *vector* also what `on_received_vector` does, which looks at stability once for both.
        """
        batch = Batch(self.view, self.members[rank], rank, number, first, header, parsed, payloads)
        self._packets[rank][number] = batch
        self._bytes_unacked += batch.size
        self._packets_unacked += 1
        self._is_unacked = True
        self._known[rank] = self.received[rank] = self._passed[rank] = number
        self._acked[self.rank][rank] = number
        news = None if vector is None else self._learn(rank, vector)
        if not news:
            self._settle((rank,))
        else:
            self._settle(news if rank in news else [*news, rank])
        return batch

    def take(  # noqa: PLR0913, PLR0917 -- the fields of a packet
        self,
        rank: int,
        number: int,
        first: int,
        header: bytes,
        parsed: object,
        payloads: list[bytes],
    ) -> None:
        """Keep a packet that is new and not absurdly far ahead."""
        packets = self._packets[rank]
        received = self.received[rank]
        if number <= received or number in packets:
            self._context.count("vsync.duplicates")
            # A repeated packet means that its sender misses our acknowledgement.
            self._is_unacked = True
            return
        if number > received + self._ahead_max:
            self._context.count("vsync.too_far_ahead")
            return
        sender = self.members[rank]
        batch = Batch(self.view, sender, rank, number, first, header, parsed, payloads)
        packets[number] = batch
        self._bytes_unacked += batch.size
        self._packets_unacked += 1
        self._known[rank] = max(self._known[rank], number)
        while received + 1 in packets:
            received += 1
        self.received[rank] = self._acked[self.rank][rank] = received
        self._is_unacked = True
        if self._known[rank] > received:
            self._want_repair()

    def pass_up(self, rank: int) -> list[Batch]:
        """Give what a packet of the sender of *rank* has completed, in order."""
        passed, received = self._passed[rank], self.received[rank]
        if received <= passed:
            return []
        packets = self._packets[rank]
        batches = [packets[number] for number in range(passed + 1, received + 1)]
        self._passed[rank] = received
        self._settle((rank,))
        return batches

    def pass_up_rest(self, limit: Sequence[int]) -> list[Batch]:
        """Give what is left at the end of a view, each sender's packets in order, up to *limit*."""
        batches: list[Batch] = []
        passed = self._passed
        for rank, received in enumerate(self.received):
            upto = min(received, limit[rank])
            if upto > passed[rank]:
                packets = self._packets[rank]
                batches.extend(packets[number] for number in range(passed[rank] + 1, upto + 1))
                passed[rank] = upto
        return batches

    def on_received_vector(self, rank: int, vector: Sequence[int]) -> bool:
        """Learn what the member of *rank* has; say whether stability rose."""
        news = self._learn(rank, vector)
        return bool(news) and not self.is_frozen and self._settle(news)

    def _learn(self, rank: int, vector: Sequence[int]) -> list[int]:
        """Learn what the member of *rank* has; give of which senders that is more than before."""
        if self._silent_since:
            self._silent_since.pop(rank, None)
        acked = self._acked[rank]
        if vector == acked:
            return []
        news = self._news_in(vector, acked)
        if news is None:
            self._context.count("vsync.bad_vectors")
            return []
        known = self._known
        for sender in news:
            number = acked[sender] = vector[sender]
            if number > known[sender]:
                known[sender] = number
                self._want_repair()
        return news

    def _news_in(self, vector: Sequence[int], acked: Sequence[int]) -> list[int] | None:
        """Give of which senders a member has more than it had; None if that cannot be.

        What it had was plausible (`is_plausible`), so what is looked at is what is new.
        """
        received = self.received
        if len(vector) != len(acked) or vector[self.rank] > received[self.rank]:
            return None
        news: list[int] = []
        for sender, number in enumerate(vector):
            if number > acked[sender]:
                if number > received[sender] + self._ahead_max:
                    return None
                news.append(sender)
            elif number < 0:
                return None
        return news

    def _settle(self, senders: Sequence[int]) -> bool:
        """Recompute the stability of these senders' packets; forget the stable ones passed up."""
        rose = False
        acked = self._acked
        for sender in senders:
            stable = self.stable[sender]
            for row in acked:
                if row[sender] <= stable:
                    break  # as nearly always: somebody has no more than all had before
            else:
                rose = True
                stable = self.stable[sender] = min([row[sender] for row in acked])
            if self._forgotten[sender] == stable:
                continue  # what is stable was passed up and forgotten
            forget_to = min(stable, self._passed[sender])
            if forget_to == self._forgotten[sender]:
                continue
            for number in range(self._forgotten[sender] + 1, forget_to + 1):
                batch = self._packets[sender].pop(number)
                if sender == self.rank:
                    self._bytes_in_flight -= batch.size
            self._forgotten[sender] = forget_to
        return rose

    # ---- acknowledging

    def send_acks(self) -> None:
        """At the end of a turn, acknowledge what someone is waiting for, in one message each."""
        self._repaired = 0
        if self.is_frozen or not self.others:
            return
        context = self._context
        if self._is_unacked:
            settings = context.settings
            much = (
                self._bytes_unacked * 4 > settings.window_bytes
                or self._packets_unacked * 4 > settings.window_packets
            )
            if self.is_urgent or much:
                self._acknowledge(self.others)
                self._acked_now()
                self._watch()
            elif not context.timer_is_set("ack"):
                context.set_timer("ack", settings.ack_delay, self._acknowledge_late)
        if self._answer_to:
            self._acknowledge(self._answer_to)
            self._answer_to = []
        self.is_urgent = False

    def answer(self, member: str) -> None:
        """Have our vector sent to a member that asked for it."""
        if member not in self._answer_to:
            self._answer_to.append(member)

    def _acked_now(self) -> None:
        self._is_unacked = False
        self._bytes_unacked = 0
        self._packets_unacked = 0
        self._answer_to = []

    def _acknowledge(self, members: Sequence[str], *, wants_answer: bool = False) -> None:
        self._context.send(members, Ack(self.view, self.received, wants_answer))

    def _acknowledge_late(self) -> None:
        if self._is_unacked and not self.is_frozen:
            self._acknowledge(self.others)
            self._acked_now()
            self._watch()

    def _watch(self) -> None:
        """While anything is unstable, keep asking the members that have not acknowledged it."""
        if not self._context.timer_is_set("advertise"):
            settings = self._context.settings
            self._context.set_timer("advertise", settings.advertise_interval, self._advertise)

    def _advertise(self) -> None:
        if self.is_frozen:
            return
        mine = self.received
        behind = [
            rank
            for rank, row in enumerate(self._acked)
            if any(has < have for has, have in zip(row, mine, strict=True))
        ]
        if not behind:
            self._silent_since.clear()
            return
        self._acknowledge([self.members[rank].id for rank in behind], wants_answer=True)
        now, patience = self._context.now, self._context.settings.suspect_after_max
        for rank in behind:
            # Its process may live while the replica in it is dead: then nobody else notices.
            if now - self._silent_since.setdefault(rank, now) > patience:
                self._context.count("vsync.given_up_silent")
                self._give_up_on(self.members[rank])
        self._watch()

    # ---- repairing

    def missing(self) -> list[tuple[int, int, int]]:
        """Give what is known to exist and is not here, as (rank, first, last)."""
        return list(self._missing_up_to(self._known))

    def _missing_up_to(self, known: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        budget = self._context.settings.repair_packets_max
        for rank, last in enumerate(known):
            packets = self._packets[rank]
            start = None
            for number in range(self.received[rank] + 1, last + 1):
                if number in packets:
                    if start is not None:
                        yield rank, start, number - 1
                        start = None
                elif start is None:
                    start = number
                    budget -= 1
                    if budget < 0:
                        return
            if start is not None:
                yield rank, start, last

    def is_plausible(self, vector: Sequence[int]) -> bool:
        """Say whether members of this view can have sent and received so much.

        A sender waits for everyone, us included, when its window is full; so nothing can be
        far ahead of what we have.
        """
        received = self.received
        if len(vector) != len(received):
            return False
        ahead = self._ahead_max
        for rank, number in enumerate(vector):  # noqa: SIM110 -- asked for every packet
            if not 0 <= number <= received[rank] + ahead:
                return False
        return True

    def learn_sent(self, sent: Sequence[int]) -> None:
        """Learn by another way than a vector how much each member has sent, and no more."""
        if not self.is_plausible(sent):
            self._context.count("vsync.bad_vectors")
            return
        for rank, number in enumerate(sent):
            # Not the higher of the two: a packet that never was would be asked for for ever.
            self._known[rank] = max(self.received[rank], number)

    def lacks(self, cut: Sequence[int]) -> list[tuple[int, int, int]]:
        """Give what is missing here up to *cut*."""
        return list(self._missing_up_to(cut))

    def _want_repair(self) -> None:
        if self.repairs_itself and not self._context.timer_is_set("repair"):
            self._repair_round = 0
            self._context.set_timer("repair", self._context.settings.repair_delay, self._ask)

    def _ask(self) -> None:
        """Ask for what is missing: its sender first, then any member in turn."""
        if self.is_frozen:
            return
        wanted = self.missing()
        if not wanted:
            return
        context = self._context
        by_holder: dict[str, list[tuple[int, int, int]]] = {}
        for rank, first, last in wanted:
            holder = self.members[rank].id
            if self._repair_round and (self._repair_round % 2 or not context.reaches(holder)):
                holder = context.random.choice(self.others)
            by_holder.setdefault(holder, []).append((rank, first, last))
        for holder, ranges in by_holder.items():
            context.send([holder], Nak(self.view, ranges))
            context.count("vsync.repairs_asked", len(ranges))
        self._repair_round += 1
        # The answer may only be late: ask less and less often, or repairs come in floods.
        wait = context.settings.repair_delay << min(self._repair_round, 4)
        context.set_timer("repair", Duration(wait), self._ask)

    def repair(self, destinations: Sequence[str], rank: int, first: int, last: int) -> bool:
        """Send packets of the sender of *rank* again; say if nobody else need be asked.

        What is forgotten here is stable: whoever asked for it has it by now.
        """
        if not 0 <= rank < len(self.members):
            self._context.count("vsync.bad_repair_requests")
            return True
        budget = self._context.settings.repair_packets_max
        packets = self._packets[rank]
        begin = max(first, self._forgotten[rank] + 1)
        end = min(last, first + budget - 1)
        # What nobody has heard of is not looked for, number by number.
        complete = begin > end or end <= self._known[rank]
        for number in range(begin, min(end, self._known[rank]) + 1):
            if self._repaired >= _REPAIRS_A_TURN * budget:
                return False
            batch = packets.get(number)
            if batch is None:
                complete = False
                continue
            self._context.send(
                destinations,
                Repair(self.view, rank, number, batch.first, batch.raw_header, batch.payloads),
            )
            self._repaired += 1
            self._context.count("vsync.repairs_sent")
        return complete
