"""What replicas and edges remember through their deaths, built from their own records alone.

A driver stores a turn's records before anything of the turn leaves, and has them followed here. A
snapshot is a memory as it stands, so that what lies before it can go; the next life begins with the
last snapshot and the records behind it (`recall`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from coterie.kernel.claims import (
    NO_CLAIM,
    Input,
    OrderKind,
    OrderRun,
    PrimaryClaim,
    ProgramState,
    Roster,
)
from coterie.kernel.decoding import Decoder, Int64
from coterie.kernel.engine import Checkpoint, Version
from coterie.kernel.errors import BadMessage, CoterieError
from coterie.kernel.records import (
    ClaimPromised,
    ConnectionChanged,
    ConnectionForgotten,
    EdgeActivated,
    EdgeMoved,
    EdgeRefused,
    EdgeRetired,
    EdgeVoted,
    InputsHeld,
    OrdersFreed,
    OrdersKnown,
    OrdersStored,
    OutputReleased,
    ProgramStateTaken,
    RosterAccepted,
    SideBranchDiscarded,
    Started,
)
from coterie.kernel.views import NO_VIEW
from coterie.llft.gone import GoneConnections, count_of
from coterie.llft.orders import OrderLog, count_orders, decode_roster, each_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.records import Record

encode = msgspec.msgpack.Encoder().encode


class StoredLog(msgspec.Struct, frozen=True, array_like=True):
    """A log of orders, in a snapshot."""

    base: Int64
    claim: PrimaryClaim
    runs: list[OrderRun]


class StoredReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica's memory, in a snapshot."""

    promised: PrimaryClaim
    state: ProgramState | None
    log: StoredLog
    stored: Int64
    inputs: list[Input]
    edge: tuple[PrimaryClaim, str] | None = None
    voted: tuple[PrimaryClaim, str] | None = None


class StoredLine(msgspec.Struct, array_like=True):
    """What an edge remembers of a connection."""

    is_open: bool = True
    peer: str = ""
    """Group and place of the edge at its other end; nothing for a client."""
    peer_id: str = ""
    received: Int64 = 0
    freed: Int64 = 0
    released: Int64 = 0
    pending: bytes = b""
    """Between programs: output that the other edge is not known to have."""
    end_number: Int64 = 0
    is_closing: bool = False
    is_closed: bool = False
    peer_epoch: Int64 = 0


class StoredEdge(msgspec.Struct, frozen=True, array_like=True):
    """An edge's memory, in a snapshot."""

    fence: PrimaryClaim
    log: StoredLog
    roster: tuple[Int64, Roster] | None
    inputs: list[Input]
    last_input: Int64
    lines: dict[str, StoredLine]
    epoch: PrimaryClaim = NO_CLAIM
    refused: PrimaryClaim = NO_CLAIM
    beginning: ProgramState | None = None
    is_retired: bool = False
    gone: dict[str, list[tuple[Int64, Int64]]] = {}


_replica_decoder = Decoder(StoredReplica)
_edge_decoder = Decoder(StoredEdge)


def _stored_log(log: OrderLog) -> StoredLog:
    return StoredLog(log.base, log.base_claim, log.runs(log.base + 1, log.end - log.base))


def _log_of(stored: StoredLog) -> OrderLog:
    log = OrderLog(stored.base, stored.claim)
    if count_orders(log.extend(stored.runs)) != count_orders(stored.runs):
        raise BadMessage("it holds orders that do not follow each other")
    return log


def connections_of(state: ProgramState) -> list[tuple[str, int, int]]:
    """Give the connections that a program may still use: how much it has read, and written."""
    names = dict.fromkeys([*state.consumed, *state.produced])
    return [
        (conn, state.consumed.get(conn, 0), state.produced.get(conn, 0))
        for conn in names
        if conn not in state.closed
    ]


class WrongMemory(CoterieError):
    """A journal says what cannot be; the message says what to do."""


class _Memory:
    """What both have: following records, and being a snapshot."""

    log: OrderLog

    @classmethod
    def recall(cls, chunks: Iterable[bytes], records: Iterable[Record]) -> Self:
        """Build a memory from a snapshot, if there is one, and the records behind it.

        Raises `WrongMemory` if they say what cannot be.
        """
        memory = cls()
        body = b"".join(chunks)
        try:
            if body:
                memory.restore(body)
            for record in records:
                memory.add(record)
            memory.check()
        except (msgspec.DecodeError, BadMessage) as error:
            raise WrongMemory(
                f"what the journal says cannot be: {error}. Start the process with its own disk; a "
                "replica may also be started with an empty one, and joins"
            ) from None
        return memory

    def check(self) -> None:
        """Raise `BadMessage` if what is remembered does not fit together."""

    def checkpoint(self) -> Checkpoint:
        """Give all that is remembered, for a snapshot."""
        end = self.log.end
        return Checkpoint(end, Version(NO_VIEW, end), iter([self.encoded()]))

    def encoded(self) -> bytes:
        raise NotImplementedError

    def restore(self, body: bytes) -> None:
        raise NotImplementedError

    def add(self, record: Record) -> None:
        raise NotImplementedError


class ReplicaMemory(_Memory):
    """A replica's: promises, orders, inputs, and the last state that was kept."""

    def __init__(self) -> None:
        self.promised: PrimaryClaim = NO_CLAIM
        self.state: ProgramState | None = None
        self.log = OrderLog()
        self.stored = 0
        self.inputs: dict[int, Input] = {}
        self.edge: tuple[PrimaryClaim, str] | None = None
        """Which edge is used, and the claim with which it began; nothing for the first."""
        self.voted: tuple[PrimaryClaim, str] | None = None
        """Which edge was agreed to since."""
        self.is_new = True
        """Whether nothing was ever written: the replica begins with its group."""

    def add(self, record: Record) -> None:  # noqa: C901, PLR0912 -- one part a kind
        """Take a record that was stored."""
        if isinstance(record, Started):
            return
        self.is_new = False
        match record:
            case ClaimPromised(claim=claim):
                self.promised = max(self.promised, claim)
            case OrdersKnown(runs=runs):
                if count_orders(self.log.extend(runs)) != count_orders(runs):
                    raise BadMessage("orders that do not follow each other")
            case OrdersStored(number=number):
                self.stored = max(self.stored, number)
            case SideBranchDiscarded(number=number):
                if number < self.log.base:
                    raise BadMessage("orders were given up that everybody has executed")
                self.log.cut(number)
                self.stored = min(self.stored, number)
            case InputsHeld(inputs=inputs):
                self.inputs.update((each.number, each) for each in inputs)
            case ProgramStateTaken(state=state, is_received=is_received):
                self._keep(state, is_received=is_received)
            case EdgeVoted(claim=claim, edge=edge):
                self.voted = claim, edge
            case EdgeRefused():
                self.voted = None
            case EdgeMoved(claim=claim, edge=edge):
                self.edge, self.voted = (claim, edge), None
                self.inputs = {}  # the new edge numbers on behind the state
            case _:
                pass

    def check(self) -> None:
        state, log = self.state, self.log
        if state is not None and not log.base <= state.number <= log.end:
            raise BadMessage("the state that was kept is not within the orders")

    def _keep(self, state: ProgramState, *, is_received: bool) -> None:
        self.state = state
        if is_received and self.log.claim_at(state.number) != state.claim:
            self.log = OrderLog(state.number, state.claim)
            self.stored = state.number
        else:
            self.log.free(state.number)
        self.stored = max(self.stored, state.number)
        self.inputs = {n: each for n, each in self.inputs.items() if n > state.back}

    def encoded(self) -> bytes:
        """Give everything."""
        inputs = list(self.inputs.values())
        log = _stored_log(self.log)
        edge, voted = self.edge, self.voted
        stored = StoredReplica(self.promised, self.state, log, self.stored, inputs, edge, voted)
        return encode(stored)

    def restore(self, body: bytes) -> None:
        """Become what `encoded` gave."""
        found = _replica_decoder.decode(body)
        self.promised, self.state, self.stored = found.promised, found.state, found.stored
        self.edge, self.voted = found.edge, found.voted
        self.log = _log_of(found.log)
        self.inputs = {each.number: each for each in found.inputs}
        self.is_new = False


class EdgeMemory(_Memory):
    """An edge's: the fence, orders, inputs, and how far each connection is."""

    def __init__(self) -> None:
        self.fence: PrimaryClaim = NO_CLAIM
        self.log = OrderLog()
        self.roster: tuple[int, Roster] | None = None
        """Who belonged to the group where the log begins, if not those with whom it began."""
        self.inputs: dict[int, Input] = {}
        self.last_input = 0
        self.lines: dict[str, StoredLine] = {}
        self.gone = GoneConnections()
        """Those between programs that are forgotten."""
        self._closing: set[str] = set()
        self._closed: dict[str, None] = {}
        """Those of the lines that their program has closed."""
        self.epoch: PrimaryClaim = NO_CLAIM
        """The claim with which it took another edge's place."""
        self.refused: PrimaryClaim = NO_CLAIM
        """It never begins by this claim, or a lower one."""
        self.beginning: ProgramState | None = None
        self.is_retired = False

    def add(self, record: Record) -> None:  # noqa: C901, PLR0912 -- one part a kind
        """Take a record that was stored."""
        match record:
            case ClaimPromised(claim=claim):
                self.fence = max(self.fence, claim)
            case OrdersKnown(runs=runs):
                for _, _, _, order in each_order(self.log.extend(runs)):
                    if order.kind is OrderKind.CLOSED:
                        self._closing.add(order.conn)
                self._note_closing()
            case RosterAccepted(number=number, roster=roster, claim=claim):
                self.log, self.roster = OrderLog(number, claim), (number, roster)
            case SideBranchDiscarded(number=number):
                if number >= self.log.base:
                    self.log.cut(number)
            case OrdersFreed():
                self._free(record)
            case EdgeActivated(claim=claim, state=state):
                self.epoch, self.beginning = claim, state
                self._begin_anew(claim, state)
            case EdgeRefused(claim=claim):
                self.refused = claim
            case ConnectionForgotten(conn=conn):
                self.lines.pop(conn, None)
                if count_of(conn) is None:
                    raise BadMessage("a connection that nobody has counted was forgotten")
                self.gone.add(conn)
            case EdgeRetired():
                self.is_retired = True
                self.lines, self.inputs = {}, {}
            case InputsHeld() | OutputReleased() | ConnectionChanged():
                self._add_to_lines(record)
            case _:
                pass

    def _begin_anew(self, claim: PrimaryClaim, state: ProgramState) -> None:
        self.fence, self.is_retired = claim, False
        self.log, self.roster = OrderLog(state.number, state.claim), (state.number, state.roster)
        self.inputs, self.last_input = {}, state.back
        self._closing, self._closed, self.gone = set(), {}, GoneConnections()
        self.lines = {
            conn: StoredLine(is_open=False, received=received, freed=received, released=released)
            for conn, received, released in connections_of(state)
        }

    def _note_closing(self) -> None:
        """Have lines know what their program has closed; it may open and close one in one turn."""
        for conn in self._closing & self.lines.keys():
            self.lines[conn].is_closing = True
            self._closing.discard(conn)
            self._closed[conn] = None

    def _add_to_lines(self, record: InputsHeld | OutputReleased | ConnectionChanged) -> None:
        lines = self.lines
        match record:
            case InputsHeld(inputs=inputs):
                for each in inputs:
                    self.inputs[each.number] = each
                    self.last_input = each.number
                    line = lines.setdefault(each.conn, StoredLine())
                    line.received = each.end
                    if each.is_end:
                        line.end_number = each.number
            case OutputReleased(outputs=outputs):
                for output in outputs:
                    line = lines.setdefault(output.conn, StoredLine())
                    line.released = output.end
                    if line.peer and line.is_open:
                        line.pending += output.data
            case ConnectionChanged(conn=conn, is_open=is_open, peer=peer, peer_id=id):
                line = lines.setdefault(conn, StoredLine())
                line.is_open, line.peer, line.peer_id = is_open, peer, id
                line.peer_epoch = record.peer_epoch
                line.is_closed = record.is_closed
                self._note_closing()
                line.pending = line.pending if is_open else b""

    def _free(self, record: OrdersFreed) -> None:
        for number in range(self.log.base + 1, min(record.orders, self.log.end) + 1):
            order = self.log.order(number)
            if order.kind is OrderKind.ROSTER:
                self.roster = number, decode_roster(order.data)
        self.log.free(record.orders)
        for number in [number for number in self.inputs if number <= record.inputs]:
            each = self.inputs.pop(number)
            line = self.lines.setdefault(each.conn, StoredLine())
            line.freed = max(line.freed, each.end)
        for conn, offset in record.delivered.items():
            line = self.lines.setdefault(conn, StoredLine())
            taken = offset - (line.released - len(line.pending))
            line.pending = line.pending[max(0, taken) :]
        self._forget()

    def _forget(self) -> None:
        """Forget clients' connections that are over; those to programs are on record by name."""
        for conn in list(self._closed):
            line = self.lines.get(conn)
            if line is not None and (line.is_open or line.end_number in self.inputs):
                continue
            del self._closed[conn]
            if line is not None and not line.peer:
                del self.lines[conn]

    def encoded(self) -> bytes:
        """Give everything."""
        log, inputs = _stored_log(self.log), list(self.inputs.values())
        stored = StoredEdge(
            *(self.fence, log, self.roster, inputs, self.last_input, self.lines),
            *(self.epoch, self.refused, self.beginning, self.is_retired, self.gone.ranges),
        )
        return encode(stored)

    def restore(self, body: bytes) -> None:
        """Become what `encoded` gave."""
        found = _edge_decoder.decode(body)
        self.fence, self.roster, self.last_input = found.fence, found.roster, found.last_input
        self.log, self.lines = _log_of(found.log), found.lines
        self._closed = {conn: None for conn, each in self.lines.items() if each.is_closing}
        self.epoch, self.refused = found.epoch, found.refused
        self.beginning, self.is_retired = found.beginning, found.is_retired
        self.gone = GoneConnections(found.gone)
        self.inputs = {each.number: each for each in found.inputs}
