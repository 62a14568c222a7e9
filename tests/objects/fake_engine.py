"""A total order over hosts in memory, with settling, roll-back and transfer on demand.

Nothing here fails by itself and nothing is decided: a test says what is ordered when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kernel.surroundings import Bare
from tests.seeded import seeded

from coterie.kernel.clock import Instant
from coterie.kernel.engine import Role, Run, Standing, Status
from coterie.kernel.errors import BacklogFull
from coterie.kernel.layers import Context
from coterie.kernel.records import Replied, Reply, StateDigest
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration, Member, ViewId
from coterie.objects import (
    DEFAULT_HOST_SETTINGS,
    Answer,
    Done,
    Failed,
    HostSettings,
    Level,
    ObjectHost,
    Opened,
    Outcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.objects import Definition

START = 1_700_000_000_000_000


def context_for(id: str, ids: Sequence[str], incarnation: int = 1) -> tuple[Context, Bare]:
    surroundings = Bare()
    surroundings.now = Instant(START)
    context = Context(
        group="test",
        me=Member(id, incarnation),
        configuration=Configuration(1, tuple(ids)),
        settings=DEFAULT_SETTINGS,
        random=seeded(id),
        surroundings=surroundings,
    )
    return context, surroundings


class Desk:
    """A front that remembers everything."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.settled_to = 0
        self.rolled_back_to: list[int] = []
        self.restored_at: list[int] = []
        self.statuses: list[Status] = []

    def answer(self, answers: list[Answer]) -> None:
        self.answers += answers

    def settled(self, position: int) -> None:
        self.settled_to = position

    def rolled_back(self, position: int) -> None:
        self.rolled_back_to.append(position)

    def restored(self, position: int) -> None:
        self.restored_at.append(position)

    def status_changed(self, status: Status) -> None:
        self.statuses.append(status)

    def of(self, session: int, request: int) -> list[Outcome]:
        return [
            answer.outcome
            for answer in self.answers
            if (answer.session, answer.request) == (session, request)
        ]


class FakeReplica:
    """One host and the desk before it."""

    def __init__(self, group: FakeGroup, id: str, incarnation: int = 1) -> None:
        self.id = id
        self.me = Member(id, incarnation)
        self.context, self.surroundings = context_for(id, group.ids, incarnation)
        self.desk = Desk()
        self.waiting: list[bytes] = []
        self.is_full = False
        self.number = 0
        self.to_confirm: list[tuple[int, Callable[[int], None]]] = []
        self.host = ObjectHost(
            group.definitions.get(id, group.definition),
            self.context,
            front=self.desk,
            settings=group.settings,
            is_ordered=group.is_ordered,
            confirms_reads=group.confirms_reads,
        )
        self.host.engine = self

    def propose(self, payloads: Sequence[bytes]) -> int:
        if self.is_full:
            raise BacklogFull("the backlog of the test is full")
        self.waiting += payloads
        return 0

    def confirm(self, serial: int, confirmed: Callable[[int], None]) -> None:
        self.to_confirm.append((serial, confirmed))

    def take_run(self, view: ViewId, number: int, position: int) -> Run | None:
        """Everything that waits here, as one run."""
        self.host.finish_turn()
        if not self.waiting:
            return None
        payloads, self.waiting = self.waiting, []
        first = self.number + 1
        self.number += len(payloads)
        return Run(view, number, position, self.me, first, payloads)

    @property
    def digests(self) -> dict[int, bytes]:
        """The last digest reported for each position."""
        return {
            record.position: record.digest
            for record in self.surroundings.records
            if isinstance(record, StateDigest)
        }

    @property
    def replies(self) -> list[Reply]:
        return [
            reply
            for each in self.surroundings.records
            if isinstance(each, Replied)
            for reply in each.replies
        ]


class FakeGroup:
    """Replicas a, b, c … that execute one order."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        definition: Definition,
        count: int = 3,
        *,
        optimistic: bool = False,
        settings: HostSettings = DEFAULT_HOST_SETTINGS,
        is_ordered: bool = True,
        confirms_reads: bool = False,
    ) -> None:
        self.definition = definition
        self.definitions: dict[str, Definition] = {}
        """Where replicas have different releases of the class."""
        self.settings = settings
        self.is_ordered = is_ordered
        self.confirms_reads = confirms_reads
        self.optimistic = optimistic
        self.ids = [chr(ord("a") + index) for index in range(count)]
        self.history: list[Run] = []
        self.settled = 0
        self._view = 1
        self._number = 0
        self._token = 0
        self.replicas = {id: FakeReplica(self, id) for id in self.ids}

    def __getitem__(self, id: str) -> FakeReplica:
        return self.replicas[id]

    @property
    def view(self) -> ViewId:
        return ViewId(self._view, "a", 1)

    @property
    def position(self) -> int:
        return self.history[-1].last_position if self.history else 0

    def advance_clocks(self, microseconds: int) -> None:
        for replica in self.replicas.values():
            replica.surroundings.now = Instant(replica.surroundings.now + microseconds)

    def turn(self, *, settle: bool = True) -> None:
        """Order all that waits anywhere, deliver it everywhere."""
        runs: list[Run] = []
        for replica in self.replicas.values():
            position = runs[-1].last_position if runs else self.position
            run = replica.take_run(self.view, self._number + 1, position + 1)
            if run is not None:
                self._number += len(run.payloads)
                runs.append(run)
        if not runs:
            return
        self.history += runs
        standing = Standing.OPTIMISTIC if self.optimistic else Standing.AUTHORITATIVE
        for replica in self.replicas.values():
            replica.host.deliver(list(runs), standing)
        if settle or not self.optimistic:
            self.settle(self.position)

    def settle(self, position: int) -> None:
        self.settled = position
        for replica in self.replicas.values():
            replica.host.settle(position)

    def roll_back(self, position: int) -> None:
        """Void everything above *position*, in a new view."""
        self.history = [run.up_to(position) for run in self.history if run.position <= position]
        self._view += 1
        self._number = 0
        for replica in self.replicas.values():
            replica.host.roll_back(position)

    def replace(self, id: str, donor: str, *, incarnation: int = 2) -> FakeReplica:
        """Start a replica anew and give it the state of another, and what came after."""
        chunks = list(self[donor].host.snapshot())
        replica = self.replicas[id] = FakeReplica(self, id, incarnation)
        replica.surroundings.now = self[donor].surroundings.now
        replica.host.restore(iter(chunks), self.settled)
        later = [
            run.after(self.settled) for run in self.history if run.last_position > self.settled
        ]
        if later:
            replica.host.deliver(later, Standing.OPTIMISTIC)
        return replica

    def tell_role(self, id: str, role: Role) -> None:
        members = tuple(replica.me for replica in self.replicas.values())
        self[id].host.status_changed(
            Status(
                role=role,
                view=self.view,
                members=members,
                position=self.position,
                settled=self.settled,
                is_zombie=False,
            )
        )

    # ---- what clients do, in one line each

    def open(self, id: str = "a") -> int:
        """Open a session through a replica."""
        self._token += 1
        self[id].host.open_session(self._token)
        self.turn()
        (outcome,) = self[id].desk.of(0, self._token)
        assert isinstance(outcome, Opened)
        return outcome.session

    def ask(
        self, id: str, session: int, request: int, method: str, *args: object, lowest: int = 1
    ) -> None:
        """Hand a call in."""
        arguments = self.definition.encode_call(method, args, {})
        self[id].host.call(session, request, method, arguments, lowest)

    def call(
        self, id: str, session: int, request: int, method: str, *args: object, lowest: int = 1
    ) -> Outcome:
        """Call and give the outcome."""
        self.ask(id, session, request, method, *args, lowest=lowest)
        self.turn()
        return self[id].desk.of(session, request)[-1]

    def result(self, id: str, session: int, request: int, method: str, *args: object) -> object:
        """Call and give what the method answered."""
        outcome = self.call(id, session, request, method, *args)
        assert isinstance(outcome, Done), outcome
        return self.definition.method(method).decode_result(outcome.result)

    def failure(self, id: str, session: int, request: int, method: str, *args: object) -> Failed:
        """Call and give how it failed."""
        outcome = self.call(id, session, request, method, *args)
        assert isinstance(outcome, Failed), outcome
        return outcome

    def look(self, method: str, *args: object, level: Level = Level.DIRTY) -> object:
        """Ask all replicas; they must agree."""
        answers = [replica.host.query(level, method, *args) for replica in self.replicas.values()]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    def digests_agree(self) -> bool:
        """Take a digest of every replica now and compare."""
        digests = {replica.host.digest() for replica in self.replicas.values()}
        return len(digests) == 1
