"""The engine's replica of a real program, whose states are frozen copies.

The engine keeps a state where the program has none to give at once: the app that leads orders a
copy (FREEZE), and each app makes its own behind the same order. What the agent hears of it is put
together with how far the engine is there (`freeze_here`), and kept once the edge has all orders up
to it. Then everything before goes, here and, when all have done so, at the edge: a log no longer
than between two copies, whatever the program has done since its founding.

Input that the copy has, and its program has not read, is part of the state: a client that is idle
for a day would else hold all input behind its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from coterie.agents.app import LISTENING, SIGNALS
from coterie.agents.frozen import FrozenState, HeldInput, decode_frozen, encode_frozen, is_there
from coterie.kernel.errors import BadMessage
from coterie.kernel.records import Diverged
from coterie.llft.execution import Execution, InputBuffer, Stream
from coterie.llft.replica import ProgramReplica

if TYPE_CHECKING:
    from coterie.agents.app import RemoteProgram
    from coterie.kernel.claims import Order, Output, PrimaryClaim, ProgramState
    from coterie.llft.memory import ReplicaMemory
    from coterie.llft.messages import StateSent


OUT_OF_REACH = (
    "the orders up to {} have gone from the log, and the copy of the program that has them is gone"
    " or on another machine: this replica cannot join"
)
LAG_OF_JOINERS = 5_000
"""Whoever joins and is so many orders behind slows the program down."""


class AppInputs(InputBuffer):
    """Input, of which a kept state has some that nobody has read yet."""

    def free(self, state: ProgramState) -> None:
        """Forget what a state has; begin with what it holds, if it is another replica's."""
        held = decode_frozen(state.program).held if state.program else {}
        if self.received < state.back:
            self.streams = {conn: _stream(each) for conn, each in held.items()}
        for conn, stream in list(self.streams.items()):
            at = held[conn].base if conn in held else stream.base
            if conn == SIGNALS or conn.startswith(LISTENING):
                at = stream.end  # nobody says that these are read
            if stream.base < at <= stream.end:
                del stream.data[: at - stream.base]
                stream.base = at
        for conn in state.ended:
            self.streams.pop(conn, None)
        self.finished = set(state.finished)
        self._held = [each for each in self._held if each.number > state.back]
        if self.received < state.back:
            self.skip(state.back)

    def held_at(self, number: int, execution: Execution) -> dict[str, HeldInput]:
        """Give what has come up to an input, and was not read."""
        later, ended_later = dict[str, int](), set[str]()
        for each in self.behind(number):
            later.setdefault(each.conn, each.offset)
            if each.is_end:
                ended_later.add(each.conn)
        found = {}
        for conn, stream in self.streams.items():
            if conn in execution.ended or conn == SIGNALS or conn.startswith(LISTENING):
                continue
            at = max(stream.base, execution.consumed.get(conn, 0))
            end = later.get(conn, stream.end)
            is_ended = stream.is_ended and conn not in ended_later
            data = bytes(stream.data[at - stream.base : end - stream.base])
            found[conn] = HeldInput(at, data, is_ended, is_ended and stream.is_reset)
        return found


def _stream(held: HeldInput) -> Stream:
    stream = Stream(held.base)
    stream.data += held.data
    stream.is_ended, stream.is_reset = held.is_ended, held.is_reset
    return stream


class AppReplica(ProgramReplica):
    """One replica of a real program."""

    _waiting: ProgramState | None = None
    """A state whose orders the edge may not have yet."""
    out_of_reach = ""
    """Why no state can be had here, in words."""
    divergence = ""
    """What the last one was, in words."""
    given_up: list[FrozenState]
    """Copies that nobody needs any more, once this turn is on record."""

    def _recall(self, memory: ReplicaMemory) -> None:
        self.given_up = []
        self.buffer = self.execution.inputs = AppInputs()
        super()._recall(memory)

    def start(self) -> None:
        """Begin; without the copy that it had it is as one that was never there."""
        super().start()
        state = self.frozen
        if state is not None and not is_there(state):
            self.lose_state()

    @property
    def frozen(self) -> FrozenState | None:
        """The copy of the kept state."""
        return decode_frozen(self.kept.program) if self.kept.program else None

    @property
    def _app(self) -> RemoteProgram:
        return cast("RemoteProgram", self.execution.program)

    def _look_at(self, state: ProgramState) -> None:
        try:
            if state.program:
                decode_frozen(state.program)
        except msgspec.DecodeError as error:
            raise BadMessage(f"a state of the program that is none: {error}") from None

    def _on_state(self, message: StateSent) -> None:
        sent = message.state.program
        try:
            is_elsewhere = bool(sent) and not is_there(decode_frozen(sent))
        except msgspec.DecodeError as error:
            raise BadMessage(f"a state of the program that is none: {error}") from None
        self.out_of_reach = OUT_OF_REACH.format(message.state.number) if is_elsewhere else ""
        if not is_elsewhere:
            super()._on_state(message)

    def report(self, kind: Any, **fields: object) -> None:  # noqa: ANN401 -- a kind of record
        if kind is Diverged:
            self.divergence = str(fields["reason"])
        super().report(kind, **fields)

    def perform(self, claim: PrimaryClaim, order: Order) -> list[Output] | None:
        outputs = super().perform(claim, order)
        said = self._app.take_frozen() if outputs is not None else None
        if said is not None:
            self.freeze_here(said[2], said[3].decode(errors="replace"))
        return outputs

    def freeze_here(self, inputs: int, name: str) -> None:
        """Learn that a copy stands behind the last order, with all inputs up to one."""
        execution, buffer = self.execution, self.buffer
        assert isinstance(buffer, AppInputs), "made above"
        if self._waiting is not None:
            self._give_up(self._waiting)
        names, there = self._app.describe(inputs)
        frozen = FrozenState(
            folder=self._app.folder,
            name=name,
            number=execution.number,
            inputs=inputs,
            names=names,
            there=there,
            held=buffer.held_at(inputs, execution),
        )
        self._waiting = msgspec.structs.replace(
            execution.state(),
            program=encode_frozen(frozen),
            back=inputs,
            finished=tuple(sorted(buffer.finished_at(inputs, execution.ended))),
        )

    def _maybe_keep(self) -> None:
        state = self._waiting
        if state is None:
            return
        if self.log.claim_at(state.number) != state.claim:
            self._waiting = None
            self._give_up(state)  # it stands behind orders that were given up
        elif state.number <= self.stored:
            before, self._waiting = self.kept, None
            self._keep(state, is_received=False)
            self._give_up(before)

    def _take_state(self, state: ProgramState) -> None:
        before = self.kept
        super()._take_state(state)
        self._give_up(before)

    def _give_up(self, state: ProgramState) -> None:
        if state.program:
            self.given_up.append(decode_frozen(state.program))

    @property
    def has_slow_joiner(self) -> bool:
        """Whether somebody who joins is far behind: at full speed he might never come close."""
        leading = self.leading
        if leading is None:
            return False
        joining = [line.member for line in self.execution.roster.lives if not line.is_whole]
        return any(leading.lag_of(member) > LAG_OF_JOINERS for member in joining)

    def lose_state(self) -> None:
        """Be as one that was never there: the copy of the kept state is gone."""
        if self.leading is not None:
            self._resign()
        self.say_executed()
        self._waiting = None
        self.stored, self.outputs = 0, {}
        last = self.buffer.last
        self.buffer = self.execution.inputs = AppInputs()
        self.buffer.last = last
        self.execution.restore(None)
        self._keep(self.execution.state(), is_received=True)
