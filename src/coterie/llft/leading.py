"""Leading: choosing what the program does next, and getting it stored at the edge.

The same code chooses in the simulator and in a real program's process. It does no input and
output, and knows no simulator. Everything that waits is bounded: orders for the edge
(`unstored_max`), output for whoever reads it (`window`), and backups that are behind (`lag_max`)
first slow the primary down, then are removed.

What a driver uses:

- *The program* is an `OrderedProgram` (`coterie.llft.programs`): `wants()` says what its threads
  would do next, `perform(order, taken)` does one operation. `step()` chooses among the wants until
  nothing can go on, or a turn's batch is full. A program that chooses for itself calls
  `make(order)` for each operation as it happens, then `flush()` once a turn.
- *make* appends the order to the log, performs it, and keeps what it wrote in `replica.outputs`.
  Nothing leaves before *flush*, which puts the orders on record (`OrdersKnown`) and sends them to
  the edge together with the output that rests on them (`OrdersMade`).
- *stored()* is called when the edge has more (`replica.stored`), *heard()* with each `Beat` of a
  backup, *propose_backup()* with a joiner's request, *tick()* at every beat.
- *is_stalled* says that the program could go on and does not; whoever watches a real program sets
  `is_hung`, so that it is not taken to be at work.
- Of its *replica* it uses `context` (clock, chance, timers, sending), `settings`, `log`,
  `execution`, `outputs`, `delivered` (credits), `stored`, `freed`, `kept`, `perform`, `report`,
  `say_executed`, `send_edge`, `others`, `me`, `step`: no more than `coterie.llft.following` has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from coterie.kernel.claims import Order, OrderKind, OrderRun, Output, PrimaryClaim
from coterie.kernel.clock import milliseconds
from coterie.kernel.decoding import COUNT_MAX
from coterie.kernel.records import OrdersKnown
from coterie.llft.execution import encode
from coterie.llft.messages import (
    AcceptBackup,
    Beat,
    OrdersMade,
    ProposeBackup,
    Reflected,
    StateSent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.kernel.claims import Roster
    from coterie.kernel.views import Member
    from coterie.llft.programs import Want
    from coterie.llft.replica import ProgramReplica

GO_ON = milliseconds(1)
"""How soon a program goes on that could have gone on."""


class Leading:
    """What a primary has beside what every replica has."""

    def __init__(self, replica: ProgramReplica, claim: PrimaryClaim, *, with_edge: bool) -> None:
        self.replica = replica
        self.claim = claim
        self.with_edge = with_edge
        self.is_hung = False
        """Set by whoever watches the program: it makes no step though it could."""
        context = replica.context
        self._context = context
        self._settings = replica.settings
        self._execution = replica.execution
        self._offset = max(0, self._execution.clock - context.now)
        """The group's clock never goes back, whoever leads."""
        self._first = replica.log.end + 1
        self._made: list[Order] = []
        """Not on record yet."""
        self._unsent: list[OrderRun] = []
        """On record, and not sent yet."""
        self._beats: dict[Member, tuple[int, Beat]] = {}
        self._begun = self._moved_at = context.now
        self._lagging_since: int | None = None
        self._resent = 0
        self._joined_at: dict[Member, int] = {}
        self._sent_state_at: dict[Member, int] = {}

    # ---- making orders

    def begin(self) -> None:
        """Order the virtual synchrony point; who leads from its journal joins right behind it."""
        replica = self.replica
        self.make(Order(OrderKind.VIEW, clock=self.now))
        roster = self._execution.roster
        line = roster.find(replica.me)
        if line is None:
            roster = roster.joined(replica.me)
        if line is None or not line.is_whole:
            self._order_roster(roster.completed(replica.me))
        self.flush()
        self.step()

    @property
    def now(self) -> int:
        """The group's clock."""
        return min(COUNT_MAX, max(self._execution.clock, self._context.now + self._offset))

    def make(self, order: Order) -> None:
        """Make an order, and perform it."""
        self.replica.log.append(self.claim, order)
        self._made.append(order)
        if order.kind <= OrderKind.ROSTER:
            self._put_on_record()  # what follows from it is put on record at once
        outputs = self.replica.perform(self.claim, order)
        assert outputs is not None, "a primary does what it has just chosen"
        self._moved_at = self._context.now

    def flush(self) -> None:
        """Put what was made on record, and send it to the edge."""
        self._put_on_record()
        self.replica.say_executed()
        runs, self._unsent = self._unsent, []
        if runs:
            self._send(runs)

    def _put_on_record(self) -> None:
        if self._made:
            after = self.replica.log.claim_at(self._first - 1)
            assert after is not None, "a leader has the order before its own"
            run = OrderRun(self.claim, self._first, self._made, after)
            self._first += len(self._made)
            self._made = []
            self._unsent.append(run)
            self.replica.report(OrdersKnown, runs=[run])

    def _send(self, runs: list[OrderRun]) -> None:
        replica = self.replica
        first, last = runs[0].first, runs[-1].last
        made = replica.outputs
        outputs = [each for n in made if first <= n <= last for each in made[n]]
        replica.send_edge(OrdersMade(self.claim, runs, outputs))
        if not self.with_edge:
            # Nobody else reflects: followers get them from here.
            log = replica.log
            end, at = log.end, log.last_claim
            message = Reflected(self.claim, end, replica.stored, log.base, runs, {}, at)
            self._context.send(replica.others, message)

    def step(self) -> None:
        """Let the program go on as far as it can, within a turn's batch."""
        for _ in range(self._settings.batch):
            order = None if self.must_wait or self.is_hung else self._choose()
            if order is None:
                break
            self.make(order)
        else:
            self._context.set_timer("llft step", GO_ON, self.replica.step)
        self.flush()

    @property
    def must_wait(self) -> bool:
        """Whether the edge or a backup is too far behind for the program to go on."""
        log = self.replica.log
        is_far = log.end - self.replica.stored >= self._settings.unstored_max
        return is_far or self._lagging_since is not None

    def _choose(self) -> Order | None:
        """Choose among all that threads could do: this is where chance comes in."""
        now = self.now
        found = [
            each for want in self._execution.program.wants() for each in self._chances(want, now)
        ]
        return self._context.random.choice(found) if found else None

    def _chances(self, want: Want, now: int) -> Iterator[Order]:
        thread = want.thread
        match want.kind:
            case OrderKind.TOOK:
                found = list(self._readings(want, now))
                yield from found
                if not found and not want.waits:
                    yield Order(OrderKind.AGAIN, thread, 0, want.conn, clock=now)
            case OrderKind.CLOSED:
                yield Order(want.kind, thread, 0, want.conn, clock=now)
            case OrderKind.SENT:
                waiting = self._execution.produced.get(want.conn, 0)
                waiting -= self.replica.delivered.get(want.conn, 0)
                data = want.data[: max(0, self._settings.window - waiting)]
                if data:
                    crc = crc32(data).to_bytes(4)
                    yield Order(want.kind, thread, len(data), want.conn, crc, clock=now)
                elif not want.waits:
                    yield Order(OrderKind.AGAIN, thread, 0, want.conn, clock=now)
            case OrderKind.TIMEOUT if now < want.deadline:
                return
            case OrderKind.CHANCE:
                value = self._context.random.getrandbits(32)
                yield Order(want.kind, thread, value, clock=now)
            case _:
                yield Order(want.kind, thread, now, clock=now)

    def _readings(self, want: Want, now: int) -> Iterator[Order]:
        execution = self._execution
        streams, ended = execution.inputs.streams, execution.ended
        conns = [want.conn] if want.conn else list(streams)
        for conn in conns:
            if conn in ended:
                continue
            if not want.conn and not execution.program.may_take(want.thread, conn):
                continue
            stream = streams.get(conn)
            is_void = stream is not None and stream.is_reset
            size = 0 if is_void else execution.available(conn, want.size)
            if size:
                yield Order(want.kind, want.thread, size, conn, clock=now)
            elif execution.is_at_end(conn):
                yield Order(OrderKind.ENDED, want.thread, 0, conn, clock=now)

    # ---- the edge

    def stored(self) -> None:
        """Learn that the edge has more."""
        self.step()

    def found_edge(self, common: int) -> None:
        """Learn that the edge, which was silent, has fenced the others for this claim."""
        self.with_edge = True
        self.replica.stored = min(common, self.replica.log.end)

    def tick(self) -> None:
        """Send again what is not stored; look after backups and the program."""
        replica = self.replica
        if replica.log.end > replica.stored:
            if self._resent == replica.stored + 1:
                self._send(replica.log.runs(replica.stored + 1, self._settings.batch))
            self._resent = replica.stored + 1
        self._look_after_backups()
        self._report_lost()
        self.step()

    def _report_lost(self) -> None:
        """Without a guard: name connections that another branch has ended, if output waits."""
        replica, execution = self.replica, self._execution
        if replica.is_guarded or not self.with_edge:
            return
        delivered = replica.delivered
        lost = [
            Output(conn, at, b"", 0)
            for conn, at in execution.produced.items()
            if delivered.get(conn, -1) < at and conn not in execution.ended
        ]
        if lost:
            replica.send_edge(OrdersMade(self.claim, [], lost))

    @property
    def is_stalled(self) -> bool:
        """Whether input waits, nothing hinders the program, and it makes no step."""
        if self.must_wait or self._context.now - self._moved_at < self._settings.stall_max:
            return False
        return self._choose() is not None

    # ---- backups

    def heard(self, member: Member, beat: Beat) -> None:
        """Take a second acknowledgement."""
        self._beats[member] = self._context.now, beat
        line = self._execution.roster.find(member)
        if line is not None and not line.is_whole:
            joined = self._joined_at.get(member, self.replica.log.end)
            if beat.executed >= joined and beat.claim == self.claim:
                self._order_roster(self._execution.roster.completed(member))
                self.flush()
        if self.replica.is_logged and beat.kept < self.replica.kept.number:
            self._send_checkpoint(member)

    def _send_checkpoint(self, member: Member) -> None:
        """Send a logged backup the state, which it does not come to itself."""
        now = self._context.now
        if now - self._sent_state_at.get(member, -now - 1) > self._settings.suspect_after:
            self._sent_state_at[member] = now
            self._context.send([member.id], StateSent(self.claim, self.replica.kept))

    def _look_after_backups(self) -> None:
        now, settings = self._context.now, self._settings
        roster, behind = self._execution.roster, []
        for life in roster.lives:
            member = life.member
            if member == self.replica.me:
                continue
            at, beat = self._beats.get(member, (self._begun, None))
            if now - at > settings.remove_after:
                roster = roster.without(member)
            elif beat is not None and life.is_whole and self._lag(beat) > settings.lag_max:
                behind.append(member)
        if behind:
            since = self._lagging_since = self._lagging_since or now
            if now - since > settings.lag_patience:
                for member in behind:
                    roster = roster.without(member)
                self._lagging_since = None
        else:
            self._lagging_since = None
        if roster != self._execution.roster and not self._is_full:
            self._order_roster(roster)

    def lag_of(self, member: Member) -> int:
        """Say how many orders a member is behind; nothing is known of who was never heard."""
        _, beat = self._beats.get(member, (0, None))
        return 0 if beat is None else self._lag(beat)

    def _lag(self, beat: Beat) -> int:
        return self.replica.log.end - beat.executed

    @property
    def _is_full(self) -> bool:
        replica = self.replica
        return replica.log.end - replica.stored >= self._settings.unstored_max

    def _order_roster(self, roster: Roster) -> None:
        self.make(Order(OrderKind.ROSTER, data=encode(roster), clock=self.now))

    def propose_backup(self, member: Member, message: ProposeBackup) -> None:
        """Have a life join: on the roster first; then it is told where it stands, or the state."""
        replica = self.replica
        if self._execution.roster.find(member) is None:
            if not self._is_full:
                self._beats[member] = (
                    self._context.now,
                    Beat(self.claim, is_leading=False, executed=0, kept=0, back=0),
                )
                self._order_roster(self._execution.roster.joined(member))
                self._joined_at[member] = replica.log.end
                self.flush()
            return
        if replica.stored < self._joined_at.get(member, 0) and self.with_edge:
            return
        common = replica.log.common(message.last, message.spans)
        if common >= max(replica.freed, replica.log.base):
            self._context.send([member.id], AcceptBackup(self.claim, common))
        else:
            self._context.send([member.id], StateSent(self.claim, replica.kept))
