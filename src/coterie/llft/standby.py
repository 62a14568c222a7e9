"""An edge that has a standby, or is one.

Of two edges one is *active*: the one that began last. It began with the state behind the last
order that anybody had, by a claim for which all lives of the roster voted
(`coterie.llft.installing`), and holds that state as long as it is active: who comes later begins
with it, too. The number of that claim's view is the *epoch*; everything that a replica and an edge
say to each other names it.

- It begins once a claim, and never by one that it has refused. So those who voted for an install
  that came to nothing can find that out, and go back to the older edge.
- Whoever uses a newer edge makes an older one *retire*: it lets go of its clients, and keeps
  nothing.
- Only who is on the roster by name leads beside it. Whoever was removed has to join again first:
  otherwise output could be released that those who vote for the next edge know nothing of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.kernel.claims import NO_CLAIM
from coterie.kernel.errors import BadMessage
from coterie.kernel.records import EdgeActivated, EdgeRefused, EdgeRetired
from coterie.llft.connections import EDGE, EdgeLine, PeerEdge
from coterie.llft.edge import Edge
from coterie.llft.gone import GoneConnections
from coterie.llft.memory import connections_of
from coterie.llft.messages import (
    ActivateEdge,
    AskBegun,
    AskRefusal,
    AtEdge,
    CarriedBytes,
    CarryBytes,
    ClaimDeclined,
    EdgeBegun,
    EdgeDeclined,
    EdgeHello,
    NewPrimaryView,
    standby_decoder,
)
from coterie.llft.orders import OrderLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import msgspec

    from coterie.kernel.claims import PrimaryClaim, ProgramState
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member
    from coterie.llft.memory import EdgeMemory


class StandbyEdge(Edge):
    """One of two edges of one program."""

    def __init__(
        self,
        context: Context,
        *,
        memory: EdgeMemory,
        edges: Sequence[str],
        neighbours: Mapping[str, Sequence[str]],
        **parts: Any,  # noqa: ANN401 -- of an edge
    ) -> None:
        super().__init__(context, memory=memory, **parts)
        self.epoch: PrimaryClaim = memory.epoch
        """The claim with which it began; nothing for the first edge of the group."""
        self.beginning: ProgramState | None = memory.beginning
        self.refused: PrimaryClaim = memory.refused
        self._neighbours = neighbours
        """Of other programs that this one speaks with: their edges' group, and where they are."""
        self._active = {group: (0, ids[0]) for group, ids in neighbours.items()}
        """Which of these are active, as far as is known: epoch and place."""
        is_first = edges[0] == context.me.id
        self.is_active = not memory.is_retired and (is_first or self.epoch != NO_CLAIM)

    # ---- what the process calls

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message."""
        return standby_decoder.decode(message)

    def receive(  # noqa: C901 -- one line a kind
        self,
        sender: Member,
        message: Any,  # noqa: ANN401 -- as the kernel says
    ) -> None:
        """Take a message."""
        match message:
            case CarriedBytes():
                if self.is_active:
                    super().receive(sender, message)
            case CarryBytes():
                self._on_carried_here(sender, message)
            case EdgeHello(source=source, epoch=epoch):
                self._on_hello(sender, source, epoch)
            case _ if sender.id not in self.replicas:
                raise BadMessage("only replicas of the program speak of its orders")
            case AtEdge(epoch=epoch, message=inner):
                self._on_spoken(sender, epoch, inner)
            case ActivateEdge():
                self._on_activate(sender, message)
            case AskBegun():
                if self.is_active and self.beginning is not None:
                    self._tell_begun(sender)
            case AskRefusal(claim=claim):
                self._on_ask_refusal(sender, claim)
            case _:
                raise BadMessage("which epoch that is of is not said")

    def _on_spoken(self, sender: Member, epoch: int, message: Any) -> None:  # noqa: ANN401
        if epoch > self.epoch.view and self.is_active:
            self._retire()
        elif epoch == self.epoch.view and self.is_active:
            super().receive(sender, message)

    def _beat(self) -> None:
        if self.is_active:
            super()._beat()
            hello = EdgeHello(self.context.group, self.epoch.view)
            for group, ids in self._neighbours.items():
                self.context.send_to(group, ids, hello)

    def open(self, conn: str) -> None:
        """Take a client's connection, if this is the edge to come to."""
        if self.is_active:
            super().open(conn)
        else:
            self.outside.broke(conn)

    # ---- beginning, and making way

    def _on_activate(self, sender: Member, message: ActivateEdge) -> None:
        claim = message.claim
        if claim.view > self.epoch.view and claim > self.refused:
            self._begin(message)
        if claim == self.epoch and self.is_active:
            self._tell_begun(sender)

    def _tell_begun(self, sender: Member) -> None:
        assert self.beginning is not None
        message = EdgeBegun(self.epoch, self.beginning)
        self.context.send_to(self.program, [sender.id], message)

    def _begin(self, message: ActivateEdge) -> None:
        """Take the other edge's place: what it had from clients, and they from it, is over."""
        claim, state = message.claim, message.state
        self._let_go()
        self.epoch, self.beginning, self.fence = claim, state, claim
        self.is_active = True
        self._led_at = None
        self.log = OrderLog(state.number, state.claim)
        self._rosters = [(state.number, state.roster)]
        self.inputs, self.first_input, self.last_input = {}, state.back + 1, state.back
        self.gone = GoneConnections()  # they name the epoch of the edge that was
        self._beats = {}
        self._freed = (0, 0, {})
        self._report(EdgeActivated, claim=claim, state=state, runs=message.runs)
        for conn, received, released in connections_of(state):
            # The other ends of those between programs learn of it by our next greeting.
            peer = self._calls.get(conn.partition("/")[0])
            line = self.lines[conn] = EdgeLine(peer)
            line.is_client, line.is_open = peer is None, False
            line.received = line.freed = received
            line.released = line.delivered = released
            self._changed(conn, line)
            if conn not in state.ended:
                self._input_end(conn, is_reset=True)
        self._beat()

    def _let_go(self) -> None:
        """Break all connections of clients."""
        lines, self.lines = self.lines, {}
        for conn, line in lines.items():
            if line.is_open and line.peer is None:
                self.outside.broke(conn)

    def _retire(self) -> None:
        self.is_active = False
        self._let_go()
        self.inputs, self.first_input = {}, self.last_input + 1
        self._report(EdgeRetired)

    def _on_ask_refusal(self, sender: Member, claim: PrimaryClaim) -> None:
        """Promise never to begin by a claim; unless it has."""
        if claim == self.epoch and self.is_active:
            self._tell_begun(sender)
            return
        if claim > max(self.refused, self.epoch):
            self.refused = claim
            self._report(EdgeRefused, claim=claim)
        if claim != self.epoch:
            self.context.send_to(self.program, [sender.id], EdgeDeclined(claim))

    # ---- connections between programs

    def _connect(self, conn: str, peer: PeerEdge) -> None:
        line = EdgeLine(peer)
        line.epoch, id = self._active[peer.group]
        line.peer = PeerEdge(peer.group, id)
        self.lines[conn] = line
        self._changed(conn, line)

    def _epochs_of(self, line: EdgeLine) -> tuple[int, int]:
        return self.epoch.view, line.epoch

    def _on_hello(self, sender: Member, group: str, epoch: int) -> None:
        """End what went to an edge in whose place there is another."""
        if group not in self._neighbours or sender.id not in self._neighbours[group]:
            raise BadMessage("an edge that this program does not speak with")
        if not self.is_active or epoch <= self._active[group][0]:
            return
        self._active[group] = epoch, sender.id
        for conn, line in self.lines.items():
            if line.peer is not None and line.peer.group == group and line.epoch < epoch:
                self.end(conn, is_reset=True)
                line.says_end = False

    def _on_carried_here(self, sender: Member, message: CarryBytes) -> None:
        """Take bytes of a connection that began with this edge, from the active one there."""
        group = message.source + EDGE
        self._on_hello(sender, group, message.source_epoch)
        if not self.is_active or message.source_epoch < self._active[group][0]:
            return
        if message.epoch != self.epoch.view:
            answer = CarriedBytes(message.conn, 0, is_end=True)
            self.context.send_to(group, [sender.id], answer)
            return
        is_new = message.conn not in self.lines
        super().receive(sender, message)
        if is_new and message.conn in self.lines:
            self.lines[message.conn].epoch = message.source_epoch
            self._changed(message.conn, self.lines[message.conn])

    def _is_end_of(self, line: EdgeLine, group: str, id: str) -> bool:
        del id  # which of the two edges of a neighbour is active is looked at before
        return line.peer is not None and line.peer.group == group

    # ---- claims

    def _on_new_primary_view(self, sender: Member, message: NewPrimaryView) -> None:
        if self.roster.named(sender.id) is None:
            self._send([sender.id], ClaimDeclined(message.claim, by_edge=True))
        else:
            super()._on_new_primary_view(sender, message)

    # ---- inside

    def _send(self, ids: Sequence[str], message: Any) -> None:  # noqa: ANN401 -- of a message
        self.context.send_to(self.program, ids, AtEdge(self.epoch.view, message))
