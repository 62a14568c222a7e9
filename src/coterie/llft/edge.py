"""The edge of a program: the paper's gateway, and the remote group that holds order information.

It stores orders, *then* lets the output go that rests on them, then reflects them to the replicas.
So what clients have seen, an edge can tell a new primary. It takes orders of one claim only, the
highest it has heard: everything lower is fenced. With the guard that makes it a quorum with any one
replica. Connections are in `coterie.llft.connections`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.kernel.claims import OrderKind, Output
from coterie.kernel.errors import BadMessage
from coterie.kernel.records import (
    ClaimPromised,
    OrdersFreed,
    OrdersKnown,
    OutputReleased,
    RosterAccepted,
    SideBranchDiscarded,
    Started,
)
from coterie.llft.connections import EdgeConnections, EdgeLine
from coterie.llft.messages import (
    Beat,
    CarriedBytes,
    CarryBytes,
    ClaimDeclined,
    ClaimSuperseded,
    Nack,
    NewPrimaryView,
    OrdersMade,
    Reflected,
    Resigned,
    ViewAnswer,
    decoder,
)
from coterie.llft.orders import OrderLog, decode_roster, each_order
from coterie.llft.settings import Guard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import msgspec

    from coterie.kernel.claims import Order, OrderRun, PrimaryClaim, Roster
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member
    from coterie.llft.connections import Outside, PeerEdge
    from coterie.llft.memory import EdgeMemory
    from coterie.llft.settings import LlftSettings

STACK = "LLFT@EDGE"
"""What edges call their stack in journals, before a colon and their guard."""


class Edge(EdgeConnections):
    """One edge of one program."""

    def __init__(  # noqa: PLR0913 -- built in one place
        self,
        context: Context,
        *,
        program: str,
        replicas: Sequence[str],
        roster: Roster,
        memory: EdgeMemory,
        outside: Outside,
        calls: Mapping[str, PeerEdge],
        settings: LlftSettings,
    ) -> None:
        super().__init__(
            context,
            program=program,
            replicas=replicas,
            memory=memory,
            outside=outside,
            calls=calls,
            settings=settings,
        )
        self.fence: PrimaryClaim = memory.fence
        self.log: OrderLog = memory.log.copy()
        self._rosters: list[tuple[int, Roster]] = [memory.roster or (0, roster)]
        for number, _, _, order in each_order(self.log.runs(1, self.log.end)):
            self._note_roster(number, order)
        self._beats: dict[Member, Beat] = {}
        self._led_at: int | None = None
        """When the holder of the fence was last heard to lead."""
        self._freed: tuple[int, int, dict[str, int]] = (0, 0, {})
        """What was last put on record as freed."""

    @property
    def roster(self) -> Roster:
        """Who belongs to the group, by the orders that are stored."""
        return self._rosters[-1][1]

    # ---- what the process calls

    def start(self) -> None:
        """Begin; connections of clients did not outlive the last life."""
        stack = f"{STACK}:{self.settings.guard}"
        self._report(Started, stack=stack, configuration=self.context.configuration)
        for conn, line in self.lines.items():
            if line.is_open and line.is_client:
                self.end(conn)
        self._beat()

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message."""
        return decoder.decode(message)

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """Nothing rests on the failure detector here."""

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- as the kernel says
        """Take a message."""
        match message:
            case CarryBytes():
                self._on_carry(sender, message)
            case CarriedBytes():
                self._on_carried(sender, message)
            case _ if sender.id not in self.replicas:
                raise BadMessage("only replicas of the program speak of its orders")
            case OrdersMade():
                self._on_orders(sender, message)
            case Beat():
                self._on_beat(sender, message)
            case Nack():
                self._on_nack(sender, message)
            case Resigned(claim=claim):
                self._led_at = None if claim == self.fence else self._led_at
            case NewPrimaryView():
                self._on_new_primary_view(sender, message)
            case _:
                raise BadMessage("a message for a replica")

    def _beat(self) -> None:
        """Say how far everything is, so that whoever lacks something finds out; and send again."""
        self._send(self.replicas, self._reflected([]))
        self._send(self.replicas, self._told_inputs([]))
        for conn, line in self.lines.items():
            self._maybe_close(conn, line)
            self._carry(conn, line)
        self._say_freed()
        self._forget(self._freed[1])
        self.context.set_timer("llft beat", self.settings.beat, self._beat)

    # ---- orders

    def _on_orders(self, sender: Member, message: OrdersMade) -> None:
        if message.claim != self.fence:
            if message.claim < self.fence:
                self._send([sender.id], ClaimSuperseded(self.fence, by_edge=True))
            return
        # Without a guard a leader may have begun before it knew what is stored here: its orders fit
        # once one branch has given way.
        new = self.log.extend(message.runs)
        if new:
            self._report(OrdersKnown, runs=new)
        for number, _, _, order in each_order(new):
            self._note_roster(number, order)
            self._stored(order)
        self._release(message)
        for _, _, _, order in each_order(new):
            if order.kind is OrderKind.CLOSED:
                self._close(order.conn)
            elif order.kind is OrderKind.TOLD:
                self.outside.told(order)
        if new or message.runs:
            self._send(self.replicas, self._reflected(new))

    def _stored(self, order: Order) -> None:
        """Learn of an order that is stored now."""
        if order.kind is OrderKind.ENDED:
            line = self._line(order.conn)
            if line is not None and line.is_open and not line.end_number:
                # It could not read on: without a guard, input is gone with a branch.
                self.end(order.conn, is_reset=True)

    def _release(self, message: OrdersMade) -> None:
        """Let output go that rests on stored orders, each byte once."""
        released: list[Output] = []
        made = {number: claim for number, _, claim, _ in each_order(message.runs)}
        for output in message.outputs:
            line, claim = self._line(output.conn), made.get(output.rests_on)
            is_ordered = claim is not None and self.log.claim_at(output.rests_on) == claim
            if self.settings.guard is Guard.NONE and (line is None or not line.is_open):
                self._swallow(output, line)
                continue
            if line is None or not is_ordered or not self._is_next(line, output):
                continue
            line.released = output.end
            released.append(output)
            if not line.is_open:
                line.delivered = line.released
            elif line.peer is not None:
                line.pending += output.data
                self._carry(output.conn, line)
            else:
                line.delivered += self.outside.wrote(output.conn, output.data)
        if released:
            self._report(OutputReleased, outputs=released, claim=message.claim)

    def _is_next(self, line: EdgeLine, output: Output) -> bool:
        return output.offset == line.released

    def _note_roster(self, number: int, order: Order) -> None:
        if order.kind is OrderKind.ROSTER:
            self._rosters.append((number, decode_roster(order.data)))

    def _reflected(self, runs: list[OrderRun]) -> Reflected:
        end, last = self.log.end, self.log.last_claim
        return Reflected(self.fence, end, end, self.log.base, runs, self._credits(), last)

    def _credits(self) -> dict[str, int]:
        """Say how much of each connection's output was taken."""
        return {conn: line.delivered for conn, line in self.lines.items()}

    # ---- claims

    def _on_new_primary_view(self, sender: Member, message: NewPrimaryView) -> None:
        """Fence lower claims, and say what is held (phase two)."""
        claim = message.claim
        if claim < self.fence:
            self._send([sender.id], ClaimSuperseded(self.fence, by_edge=True))
            return
        wins = self.settings.guard is Guard.NONE and message.is_leading
        if claim > self.fence and not wins and not self._is_later(claim):
            self._send([sender.id], ClaimSuperseded(self.fence, by_edge=True))
            return
        if claim > self.fence:
            if self._vouches() and self.fence.life != sender and not wins:
                self._send([sender.id], ClaimDeclined(claim, by_edge=True))
                return
            self.fence = claim
            self._led_at = None
            self._report(ClaimPromised, claim=claim)
        if wins:
            # Perhaps fenced for it before, when it only proposed: our answer came too late for it.
            self._give_way(message)
        answer = ViewAnswer(
            claim=claim,
            common=self.log.common(message.last, message.spans),
            stored=self.log.end,
            freed=self.log.base,
            inputs=self.last_input,
            delivered={conn: line.delivered for conn, line in self.lines.items()},
            is_leading=message.is_leading,
        )
        self._send([sender.id], answer)

    def _is_later(self, claim: PrimaryClaim) -> bool:
        """Say whether a claim's view comes after that of the last order.

        Precedence decides between claims to one view, and not who comes after it: two views of one
        number would stand behind each other otherwise.
        """
        return claim.view > self.log.last_claim.view

    def _vouches(self) -> bool:
        at = self._led_at
        if self.settings.guard is Guard.QUORUM and not self.context.reaches(self.fence.life.id):
            return False
        return at is not None and self.context.now - at < self.settings.vouch

    def _give_way(self, message: NewPrimaryView) -> None:
        """Without a guard: take a branch for the group's that led without this edge.

        What clients saw of the other is void: their connections break.
        """
        if not message.spans:
            raise BadMessage("a log begins somewhere")
        common = self.log.common(message.last, message.spans)
        if self.log.claim_at(common + 1) == message.claim:
            return  # asked long ago: the rest is its own
        count = self.log.end - max(common, self.log.base)
        lost = self.log.last_claim
        base, claim = message.spans[0]
        is_behind = common < max(base, self.log.base)
        if is_behind:
            # The branch begins behind what is known of it here: with a state that its leader keeps.
            self.log = OrderLog(base, claim)
            self._rosters = [(base, message.roster)]
        if count or is_behind:
            self.log.cut(max(common, self.log.base))
            self._rosters = [each for each in self._rosters if each[0] <= self.log.end]
            if is_behind:
                self._report(RosterAccepted, roster=message.roster, number=base, claim=claim)
            self._report(
                SideBranchDiscarded,
                number=self.log.end,
                count=count,
                was_stored=True,
                claim=lost,
            )
            for conn, line in list(self.lines.items()):
                if line.is_open:
                    self.end(conn, is_reset=True)
                    if line.peer is None:
                        self.outside.broke(conn)

    # ---- freeing

    def _on_beat(self, sender: Member, message: Beat) -> None:
        if message.is_leading and message.claim == self.fence:
            self._led_at = self.context.now
        self._beats[sender] = message
        lives = [life.member for life in self.roster.lives]
        if any(life not in self._beats for life in lives):
            return
        kept = min(self._beats[life].kept for life in lives)
        self.log.free(kept - self.settings.keep_orders)
        back = min(self.last_input, *(self._beats[life].back for life in lives))
        for number in range(self.first_input, back + 1):
            each = self.inputs.pop(number)
            self.lines[each.conn].freed = each.end
        self.first_input = max(self.first_input, back + 1)

    def _say_freed(self) -> None:
        """Put on record what is needed no more, so that memory and snapshots stay small."""
        delivered = {
            conn: line.delivered
            for conn, line in self.lines.items()
            if line.peer is not None and line.delivered
        }
        freed = self.log.base, self.first_input - 1, delivered
        if freed != self._freed:
            new = {c: at for c, at in delivered.items() if at != self._freed[2].get(c)}
            self._freed = freed
            self._report(OrdersFreed, orders=freed[0], inputs=freed[1], delivered=new)

    def _on_nack(self, sender: Member, message: Nack) -> None:
        batch = self.settings.batch
        if message.orders:
            self._send([sender.id], self._reflected(self.log.runs(message.orders, batch)))
        if message.inputs:
            found = range(message.inputs, min(message.inputs + batch, self.last_input + 1))
            inputs = [self.inputs[number] for number in found if number in self.inputs]
            self._send([sender.id], self._told_inputs(inputs))

    # ---- inside

    def _swallow(self, output: Output, line: EdgeLine | None) -> None:
        """Without a guard: take output of a connection that is gone, perhaps with another branch.

        It may have been closed there, and forgotten; then its end is said here, too.
        """
        if line is None:
            line = self.lines[output.conn] = EdgeLine(None)
            line.is_client, line.is_open = True, False
            self._changed(output.conn, line)
            self._input_end(output.conn, is_reset=True)
        line.released = line.delivered = max(line.released, output.end)
