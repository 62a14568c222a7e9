"""Connections at an edge: clients', and those between programs.

Bytes are known by (connection, offset). What comes in is given the group's next input number, put
on record and told to all replicas; what goes out waits until whoever is outside has taken it. A
connection between two programs goes from edge to edge (`CarryBytes`, `CarriedBytes`), so neither
side has to know who leads the other.

A connection is forgotten when the program has closed it, everything that it wrote is delivered,
and its end is behind a kept state of all replicas; one between programs, when the other edge knows
of the end, too. Its name stays gone (`coterie.llft.gone`): what comes late must not open it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from coterie.kernel.claims import Input
from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Layer
from coterie.kernel.records import ConnectionChanged, ConnectionForgotten, InputsHeld
from coterie.llft.gone import GoneConnections, count_of
from coterie.llft.messages import CarriedBytes, CarryBytes, Inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import msgspec

    from coterie.kernel.claims import Order
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member
    from coterie.llft.memory import EdgeMemory
    from coterie.llft.settings import LlftSettings

EDGE = "@edge"
"""What is added to a program's group to name its edge."""


class Outside(Protocol):
    """Who stands behind the edge: clients, and whoever the program calls."""

    def wrote(self, conn: str, data: bytes) -> int:
        """Take bytes of the program; say how many count as taken at once.

        Of the rest `Edge.took` is told later. The program may be `window` bytes ahead.
        """

    def closed(self, conn: str) -> None:
        """Learn that the program has closed a connection, behind all that it wrote."""

    def told(self, order: Order) -> None:
        """Learn what the program tells its edge, behind all output before it."""

    def broke(self, conn: str) -> None:
        """Learn that a connection is gone."""


class PeerEdge:
    """The edge of another program: its group, and where it is."""

    def __init__(self, group: str, id: str) -> None:
        self.group = group
        self.id = id


class EdgeLine:
    """One connection, seen from its edge."""

    __slots__ = (
        *("delivered", "end_number", "epoch", "freed", "is_client", "is_closed", "is_closing"),
        *("is_open", "peer", "pending", "received", "released", "says_end"),
    )

    def __init__(self, peer: PeerEdge | None) -> None:
        self.peer = peer
        """The other program's edge; nothing for a client."""
        self.epoch = 0
        """The epoch of that edge, if it has a standby."""
        self.is_client = False
        self.received = 0
        """Bytes that came from outside."""
        self.freed = 0
        """Bytes of these that all replicas have consumed."""
        self.released = 0
        """Bytes of the program that may leave."""
        self.delivered = 0
        """Bytes of these that were taken."""
        self.pending = bytearray()
        self.is_open = True
        self.end_number = 0
        """The number of the last input, which says that there is no more; 0 before it."""
        self.is_closing = False
        """Whether the program has closed it: it goes when everything is delivered."""
        self.is_closed = False
        """Whether everything was."""
        self.says_end = False
        """Whether the other program's edge has to be told that the connection is gone."""


class EdgeConnections(Layer):
    """The part of an edge that holds connections and inputs."""

    name = "EDGE"

    def __init__(  # noqa: PLR0913 -- built in one place
        self,
        context: Context,
        *,
        program: str,
        replicas: Sequence[str],
        memory: EdgeMemory,
        outside: Outside,
        calls: Mapping[str, PeerEdge],
        settings: LlftSettings,
    ) -> None:
        super().__init__(context)
        self.has_left = False
        self.highest = 0
        self.settings = settings
        self.program = program
        self.replicas = list(replicas)
        self.outside = outside
        self._calls = calls
        """Connections that the program opens, by name, and to whom."""
        self.lines: dict[str, EdgeLine] = {}
        self.inputs: dict[int, Input] = {}
        self.first_input, self.last_input = 1, 0
        """Inputs before the first are freed."""
        self.gone = GoneConnections()
        """Those between programs that are forgotten."""
        self._recall(memory)

    def _recall(self, memory: EdgeMemory) -> None:
        self.inputs, self.last_input = dict(memory.inputs), memory.last_input
        self.first_input = min(self.inputs, default=self.last_input + 1)
        self.gone = GoneConnections(memory.gone.ranges)
        for conn, stored in memory.lines.items():
            peer = PeerEdge(stored.peer, stored.peer_id) if stored.peer else None
            line = self.lines[conn] = EdgeLine(peer)
            line.is_open, line.is_client = stored.is_open, peer is None
            line.epoch = stored.peer_epoch
            line.says_end = peer is not None and not stored.is_open
            line.received, line.freed = stored.received, stored.freed
            line.released, line.pending = stored.released, bytearray(stored.pending)
            line.delivered = stored.released - len(line.pending)
            line.end_number = stored.end_number
            line.is_closing, line.is_closed = stored.is_closing, stored.is_closed

    # ---- what the driver calls for clients

    def open(self, conn: str) -> None:
        """Take a client's connection."""
        line = self.lines[conn] = EdgeLine(None)
        line.is_client = True
        self._changed(conn, line)

    def take(self, conn: str, data: bytes) -> int:
        """Take bytes of a client; say how many there was room for."""
        line = self.lines.get(conn)
        if line is None:
            return len(data)  # the program has closed it meanwhile
        data = data[: max(0, self.room(conn))]
        if data and line.is_open and not line.end_number:
            self._input(conn, data)
        return len(data)

    def room(self, conn: str) -> int:
        """Say how much input of a connection there is room for."""
        line = self.lines[conn]
        return self.settings.window - (line.received - line.freed)

    def took(self, conn: str, count: int) -> None:
        """Learn that more bytes of the program were taken outside."""
        line = self.lines.get(conn)
        if line is not None and line.is_open:
            line.delivered = min(line.delivered + count, line.released)
            self._maybe_close(conn, line)

    def finish(self, conn: str) -> None:
        """Learn that a client writes no more; it may still read."""
        line = self.lines.get(conn)
        if line is not None and line.is_open:
            self._input_end(conn)

    def end(self, conn: str, *, is_reset: bool = False) -> None:
        """Learn that a connection is gone: the program meets its end, in order."""
        line = self.lines.get(conn)
        if line is not None and line.is_open:
            line.is_open = False
            line.pending.clear()
            line.delivered = line.released
            line.says_end = line.peer is not None
            self._changed(conn, line)
            self._input_end(conn, is_reset=is_reset)
            self._carry(conn, line)

    def _input_end(self, conn: str, *, is_reset: bool = False) -> None:
        """Say, once, that no more input comes."""
        line = self.lines[conn]
        if not line.end_number:
            self._input(conn, b"", is_end=True, is_reset=is_reset)
            line.end_number = self.last_input

    def _close(self, conn: str) -> None:
        """Close a connection for the program, behind everything that it wrote."""
        line = self._line(conn)
        if line is None:
            return
        line.is_closing = True
        if line.is_open:
            self._input_end(conn)
            self._maybe_close(conn, line)

    def _maybe_close(self, conn: str, line: EdgeLine) -> None:
        if line.is_closing and line.is_open and line.delivered == line.released:
            line.is_open, line.is_closed = False, True
            line.says_end = line.peer is not None
            self._changed(conn, line)
            if line.peer is None:
                self.outside.closed(conn)
            self._carry(conn, line)

    def _forget(self, freed: int) -> None:
        """Forget connections that are over, whose inputs up to a number nobody needs any more."""
        over = [conn for conn, line in self.lines.items() if self._is_over(conn, line, freed)]
        for conn in over:
            line = self.lines.pop(conn)
            if line.peer is not None:
                self.gone.add(conn)
                self._report(ConnectionForgotten, conn=conn)

    @staticmethod
    def _is_over(conn: str, line: EdgeLine, freed: int) -> bool:
        if not line.is_closing or line.is_open or line.end_number > freed:
            return False
        if line.peer is None:
            return line.is_client
        return not line.says_end and count_of(conn) is not None

    def _input(
        self, conn: str, data: bytes, *, is_end: bool = False, is_reset: bool = False
    ) -> None:
        line = self.lines[conn]
        self.last_input += 1
        each = Input(self.last_input, conn, line.received, data, is_end, is_reset)
        line.received = each.end
        self.inputs[each.number] = each
        self._report(InputsHeld, inputs=[each])
        self._send(self.replicas, self._told_inputs([each]))

    def _told_inputs(self, inputs: list[Input]) -> Inputs:
        return Inputs(inputs, self.first_input, self.last_input)

    def _changed(self, conn: str, line: EdgeLine) -> None:
        group, id = ("", "") if line.peer is None else (line.peer.group, line.peer.id)
        self._report(
            ConnectionChanged,
            conn=conn,
            is_open=line.is_open,
            peer=group,
            peer_id=id,
            is_closed=line.is_closed,
            peer_epoch=line.epoch,
        )

    # ---- connections between programs

    def _line(self, conn: str) -> EdgeLine | None:
        """Give a connection, which the program opens if it may; nothing if it is long gone."""
        peer = self._calls.get(conn.partition("/")[0])
        if conn not in self.lines and peer is not None and conn not in self.gone:
            self._connect(conn, peer)
        return self.lines.get(conn)

    def _connect(self, conn: str, peer: PeerEdge) -> None:
        """Open a connection of the program's to another program."""
        line = self.lines[conn] = EdgeLine(peer)
        self._changed(conn, line)

    def _epochs_of(self, line: EdgeLine) -> tuple[int, int]:
        """Give this edge's own epoch, and that of the other; without standbys there is one."""
        del line
        return 0, 0

    def _carry(self, conn: str, line: EdgeLine) -> None:
        if line.peer is None or not (line.pending or line.says_end):
            return
        room = bytes(line.pending[: self.settings.window])
        is_reset = not line.is_closed
        epochs = self._epochs_of(line)
        message = CarryBytes(
            *(self.program, conn, line.delivered, room, line.says_end, is_reset), *epochs
        )
        self.context.send_to(line.peer.group, [line.peer.id], message)

    def _on_carry(self, sender: Member, message: CarryBytes) -> None:
        conn, group = message.conn, message.source + EDGE
        if conn in self.gone:
            answer = CarriedBytes(conn, 0, is_end=True)
            self.context.send_to(group, [sender.id], answer)
            return
        line = self.lines.get(conn)
        if line is None:
            line = self.lines[conn] = EdgeLine(PeerEdge(group, sender.id))
            self._changed(conn, line)
        elif not self._is_end_of(line, group, sender.id):
            raise BadMessage("bytes for the connection of another")
        if message.is_end and line.is_open:
            self.end(conn, is_reset=message.is_reset)
        if message.is_end:
            line.says_end = False
        skip = line.received - message.offset
        data = message.data[skip : skip + max(0, self.room(conn))] if skip >= 0 else b""
        if data and line.is_open:
            self._input(conn, data)
        self.context.send_to(group, [sender.id], self._carried(conn, line))

    def _is_end_of(self, line: EdgeLine, group: str, id: str) -> bool:
        """Say whether another program's edge is what is at the other end of a connection."""
        return line.peer is not None and (line.peer.group, line.peer.id) == (group, id)

    def _carried(self, conn: str, line: EdgeLine) -> CarriedBytes:
        return CarriedBytes(conn, line.received, is_end=not line.is_open)

    def _on_carried(self, sender: Member, message: CarriedBytes) -> None:
        line, offset = self.lines.get(message.conn), message.offset
        if message.conn in self.gone:
            return
        if line is None or offset > line.released:
            raise BadMessage("bytes that were never sent")
        if line.peer is None or line.peer.id != sender.id:
            raise BadMessage("bytes that were sent to another")
        if message.is_end:
            # It ended there; whoever ended it says so, unless it was here.
            line.says_end = False
            if line.is_open:
                self.end(message.conn, is_reset=True)
                line.says_end = False
        elif offset > line.delivered and line.is_open:
            del line.pending[: offset - line.delivered]
            line.delivered = offset
            self._maybe_close(message.conn, line)

    # ---- inside

    def _send(self, ids: Sequence[str], message: msgspec.Struct) -> None:
        self.context.send_to(self.program, ids, message)

    def _report(self, kind: Any, **fields: object) -> None:  # noqa: ANN401 -- a kind of record
        context = self.context
        context.report(kind(group=context.group, member=context.me, at=context.now, **fields))
