"""An agent: a replica's live process, with the engine, the journal, and the app as its child.

It does what the simulator does for simulated programs. What the app that leads did comes as frames
and is made into orders (`Leading.make`); what the edge has is fed to the app that follows, and
performed when it has executed it. The engine decides who leads; the app that is to lead is told
so behind everything it had to follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.agents.app import HUNG_SECONDS, AppProcess, DialledName, RemoteProgram, number_of
from coterie.agents.frozen import FOLDER, Leash, NoCopy, decode_frozen, end_copy, is_there
from coterie.agents.keeping import AppReplica
from coterie.agents.living import LlftLife
from coterie.journal.disk import make_private_folder
from coterie.kernel.claims import Order, OrderKind
from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.llft.memory import ReplicaMemory
from coterie.program.wire import WireKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.agents.deployment import ProgramDeployment
    from coterie.kernel.layers import Context
    from coterie.llft.leading import Leading
    from coterie.program.wire import WireFrame

ORDER_BYTES = 200
"""What an order takes in memory beside its data, about."""
PACE = 0.04
"""Seconds: while somebody cannot catch up, the program goes on for a quarter of each such time."""
RESTARTS_MAX = 5
"""So many lives of the app may end one after the other before it has executed anything new."""
_TOLD = {
    *(WireKind.LISTEN, WireKind.SHUT, WireKind.CLOSED, WireKind.EXITED),
    *(WireKind.SAID, WireKind.REFUSED),
}


class Agent(LlftLife):
    """One replica of a program in the real world; *say* is told what happens."""

    memory_kind = ReplicaMemory

    def __init__(
        self, deployment: ProgramDeployment, id: str, say: Callable[[str, dict[str, object]], None]
    ) -> None:
        super().__init__(deployment, id, deployment.name)
        self._say = say
        self.engine: AppReplica
        self._folder = ""
        self._folder_fd: int | None = None
        self._leash: Leash | None = None
        self._freeze_at = 0
        """After so many bytes of orders a copy of the program is made."""
        self._ordered = 0
        self._is_resting = False
        self._program: RemoteProgram | None = None
        self._said: tuple[object, ...] = ()
        self._said_of_state = ""
        self._asked = (0, 0)
        self._useless, self._best = 0, 0

    def build(self, context: Context, memory: ReplicaMemory) -> Replica:
        """Build the replica."""
        deployment = self.deployment
        self._open_frozen(memory)
        self.engine = AppReplica(
            context,
            edge="edge",
            roster=deployment.roster,
            make_program=self._make_program,
            memory=memory,
            settings=deployment.settings,
        )
        return Replica(context, Layer(context), [self.engine], self.engine)

    def close(self) -> None:
        """End the app, and its copy."""
        self._end_app()
        if self._leash is not None:
            self._leash.let_go()
        if self._folder_fd is not None:
            os.close(self._folder_fd)
            self._folder_fd = None

    # ---- copies of the app

    def _open_frozen(self, memory: ReplicaMemory) -> None:
        """Find the copies of earlier lives: the kept one is taken over, all others end."""
        deployment = self.deployment
        if not deployment.makes_copies:
            return
        folder = Path(deployment.place(self.id).dir, FOLDER).absolute()
        make_private_folder(folder)
        self._folder = str(folder)
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._freeze_at = deployment.copy_bytes
        state = memory.state
        kept = decode_frozen(state.program).name if state is not None and state.program else ""
        for each in folder.iterdir():
            if each.name != kept:
                end_copy(self._folder, each.name)

    def _hold_copies(self) -> None:
        """Keep the copy of the kept state, and let others go."""
        engine = self.engine
        given_up, engine.given_up = engine.given_up, []
        for each in given_up:
            if each.folder == self._folder:
                end_copy(each.folder, each.name)
        frozen = engine.frozen
        name = frozen.name if frozen is not None and frozen.folder == self._folder else ""
        if name != (self._leash.name if self._leash is not None else ""):
            if self._leash is not None:
                self._leash.let_go()
            self._leash = None
            self._ordered = 0
            with contextlib.suppress(NoCopy):
                self._leash = Leash(self._folder, name) if name else None

    def _maybe_freeze(self) -> None:
        """Have copies made, here and at all others, when the log has become long."""
        if self._freeze_at and self._ordered > self._freeze_at:
            self._ordered = 0
            self.program.app.send(WireKind.FREEZE)

    # ---- the app

    def _end_app(self) -> None:
        if self._program is not None:
            self._program.retire()

    def _make_program(self) -> RemoteProgram:
        self._end_app()
        self._program = RemoteProgram(
            lambda frozen: AppProcess(
                self.deployment, self._app_said, self._app_ended, self._folder_fd, frozen
            ),
            self._folder,
        )
        return self._program

    @property
    def program(self) -> RemoteProgram:
        """The program's present life."""
        assert self._program is not None, "made with the engine"
        return self._program

    def _app_said(self, app: AppProcess, frames: list[WireFrame]) -> None:
        self.driver.call(lambda: self._take(app, frames))

    def _take(self, app: AppProcess, frames: list[WireFrame]) -> None:
        program, engine = self.program, self.engine
        if not program.is_from(app):
            return
        if program.effects and program.is_leading and engine.leading is not None:
            self._order_rest(engine.leading)  # it came before
        if not program.is_leading:
            for each in frames:
                program.took(each)
            engine.went_on()
            return
        leading = engine.leading
        if leading is not None:
            for each in frames:
                self._lead(leading, each)
            leading.flush()

    def _lead(self, leading: Leading, each: WireFrame) -> None:
        """Make an order of what the app did."""
        kind, number, value, payload = each
        program, now = self.program, leading.now
        self._ordered += len(payload) + ORDER_BYTES
        match kind:
            case WireKind.FROZEN:
                self.engine.freeze_here(value, payload.decode(errors="replace"))
                return
            case WireKind.ENTRIES:
                made = Order(OrderKind.RAN, 0, program.fed_inputs, "", payload, now)
            case WireKind.OUTPUT:
                conn = program.name(number)
                program.made = payload
                crc = crc32(payload).to_bytes(4)
                made = Order(OrderKind.SENT, 0, len(payload), conn, crc, now)
            case WireKind.CONSUMED:
                made = Order(OrderKind.TOOK, 0, value, program.name(number), b"", now)
            case WireKind.CLOSED if program.knows(number):
                made = Order(OrderKind.CLOSED, 0, 0, program.name(number), b"", now)
            case WireKind.CONNECT:
                conn = str(DialledName(number, payload.decode(errors="replace"), value))
                made = Order(OrderKind.TOLD, 0, kind, conn, _words(value, payload), now)
            case _ if kind in _TOLD:
                conn = program.name(number)
                made = Order(OrderKind.TOLD, 0, kind, conn, _words(value, payload), now)
            case _:
                return
        leading.make(made)
        program.fed = self.engine.log.end

    def _app_ended(self, app: AppProcess, how: str) -> None:
        def told() -> None:
            if not self.program.is_from(app):
                return
            if self.program.has_exited:
                return  # as the orders said
            engine = self.engine
            self._say("app ended", {"reason": how, "was leading": engine.leading is not None})
            self._useless = 0 if engine.execution.number > self._best else self._useless + 1
            self._best = max(self._best, engine.execution.number)
            if self._useless >= RESTARTS_MAX:
                self._say("app given up", {"reason": how, "order": engine.execution.number})
                engine.has_diverged = engine.is_hopeless = True
            if engine.frozen is not None and not is_there(engine.frozen):
                self._say("state lost", {"reason": "the copy of the program is gone, too"})
                engine.lose_state()
                return
            engine.program_ended()

        self.driver.call(told)

    # ---- after each turn

    def turn_ended(self) -> None:
        """Feed the app, have it lead, and say what has changed."""
        engine, program = self.engine, self.program
        if engine.has_diverged:
            self._diverged()
        elif program.is_leading and engine.leading is None:
            self.driver.call(engine.program_ended)  # what it did last has never happened
        elif not program.is_leading:
            self._feed()
            if engine.leading is not None and program.fed == engine.execution.number:
                self._have_it_lead(engine.leading)
        if program.is_leading:
            self._feed_inputs(engine.buffer.received)
            self._give_credit()
            if engine.leading is not None:
                program.app.hold(is_held=engine.leading.must_wait or self._must_rest())
                self._maybe_freeze()
        self._hold_copies()
        self._ask_on()
        self._say_standing()

    def _must_rest(self) -> bool:
        """Have the program rest most of the time while somebody cannot catch up."""
        if not self.engine.has_slow_joiner:
            return False
        loop = asyncio.get_running_loop()
        if loop.time() % PACE < PACE / 4:
            return False
        if not self._is_resting:
            self._is_resting = True
            loop.call_later(PACE, self._end_rest)
        return True

    def _end_rest(self) -> None:
        self._is_resting = False
        if self._program is not None and not self._program.is_retired:
            self.driver.call(lambda: None)

    def _feed(self) -> None:
        engine, program = self.engine, self.program
        for number, order in engine.sure_orders(program.fed):
            if program.is_running and program.app.waits:
                break
            if order.kind is OrderKind.RAN:
                if engine.execution.lacks_input(order):
                    break
                self._feed_inputs(order.value)
            program.feed(number, order)

    def _feed_inputs(self, last: int) -> None:
        program = self.program
        if program.fed_inputs < last:
            for each in self.engine.buffer.behind(program.fed_inputs):
                if each.number > last:
                    break
                program.feed_input(each)

    def _have_it_lead(self, leading: Leading) -> None:
        engine, program = self.engine, self.program
        self._feed_inputs(engine.buffer.received)
        program.is_leading = True
        program.app.send(WireKind.LEAD)
        if program.effects:
            self.driver.call(lambda: self._order_rest(leading))

    def _order_rest(self, leading: Leading) -> None:
        """Order what the app has done outside and whoever led could not order before it died."""
        program = self.program
        if self.engine.leading is leading and program.is_leading:
            while program.effects:
                self._lead(leading, program.effects.popleft())
            leading.flush()

    def _give_credit(self) -> None:
        program = self.program
        for conn, at in self.engine.delivered.items():
            if at > program.credit.get(conn, 0):
                program.credit[conn] = at
                number = number_of(conn)
                if number is not None:
                    program.app.send(WireKind.DELIVERED, number, at)

    def _ask_on(self) -> None:
        """Ask for the next orders and inputs at once, as long as asking brings some."""
        engine = self.engine
        here = engine.log.end, engine.buffer.received
        if here != self._asked:
            self._asked = here
            if engine.edge_end > engine.log.end or engine.buffer.last > engine.buffer.received:
                self.driver.call(engine.ask_again)

    def _diverged(self) -> None:
        """Say it, and run the program anew once; if it diverges there again, it is out."""
        engine, program = self.engine, self.program
        if program.is_retired:
            return
        reason = program.diverged or engine.divergence
        program.retire()
        number = engine.execution.number + 1
        self._say("diverged", {"order": number, "reason": reason, "again": engine.is_hopeless})
        if not engine.is_hopeless:
            self.driver.call(engine.run_anew)

    def _say_standing(self) -> None:
        engine = self.engine
        line = engine.execution.roster.find(engine.me)
        standing = engine.standing.value, line is not None and line.is_whole, engine.is_hopeless
        if standing != self._said:
            self._said = standing
            self._say("role", {"role": standing[0], "is whole": standing[1]})
        if engine.out_of_reach != self._said_of_state:
            self._said_of_state = engine.out_of_reach
            if engine.out_of_reach:
                self._say("no state", {"reason": engine.out_of_reach})

    def look_after(self) -> None:
        """Find out whether the app is hung: a healthy agent must not keep its primary alive."""
        program = self.program
        if self._leash is not None and self._leash.is_cut:
            self._leash = None
        if self.engine.frozen is not None and self._leash is None:
            # It is gone, or another agent's: who leads must have one for whoever joins.
            self._ordered = self._freeze_at + 1
            self.driver.call(lambda: None)
        if program.is_running and not program.has_exited and program.app.is_hung():
            program.app.end()
            self._app_ended(program.app, f"hung: it did nothing for {HUNG_SECONDS:.0f} s")

    def seen(self) -> dict[str, object]:
        """Say how this replica is, for `status`."""
        engine = self.engine
        line = engine.execution.roster.find(engine.me)
        return {
            "standing": engine.standing.value,
            "whole": line is not None and line.is_whole,
            "executed": engine.execution.number,
            "orders": max(engine.log.end, engine.edge_end),
            "claim": str(engine.current),
            "diverged": engine.has_diverged,
            "kept": engine.kept.number,
            "held": engine.log.end - engine.log.base,
            "app": self.program.app.process.pid if self.program.is_running else 0,
            "clock": time.time(),
        }


def _words(value: int, payload: bytes) -> bytes:
    return f"{value} ".encode() + payload
