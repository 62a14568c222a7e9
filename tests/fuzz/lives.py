"""Lives of replicas on a disk, without anything around them: what journals are made by, and start.

Each is alone in its group, so that it leads; what it says to its client it says within a turn.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, ClassVar

from tests.fuzz.memory_disk import MemoryDisk

from coterie.assembly import make_context, make_object, make_process
from coterie.journal.engines.colours import COLOURS, ColoursKeeper
from coterie.journal.engines.stack import STACK
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.engines.vsr import VSR
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import Instant, milliseconds
from coterie.kernel.engine import Role
from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.kernel.transfer import encode_now
from coterie.kernel.views import Configuration
from coterie.kernel.wire import decode_frame
from coterie.objects import HostSettings, define, query, update
from coterie.objects.execution.outcomes import Done, Opened
from coterie.simulation.world.settings import SIMULATED_SETTINGS
from coterie.transactional import ObjectExecutor
from coterie.vsr import DEFAULT_VSR_SETTINGS, Cohort, build_cohort, memory_of
from coterie.vsr.calls.executor import Completion
from coterie.vsr.commit.client import Fate, TransactionClient
from coterie.vsr.commit.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coterie.journal.family import JournalFamily
    from coterie.journal.keeper import Keeper
    from coterie.kernel.engine import Status
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.wire import Frame
    from coterie.objects import Answer, ObjectHost
    from coterie.vsr.calls.remote import NotRun
    from coterie.vsr.commit.client import ClientTransaction, TransactionOutcome

GROUP, ID, CLIENT = "books", "a", "c"
ALONE = Configuration(1, (ID,))
DIRECTORY = {GROUP: ALONE}
STACK_NAME = "SAFE:DYNSEQ:PVSYNC"
SETTINGS = HostSettings(digest_interval=4, dump_interval=4)
KEPT = KeeperSettings(
    journal=JournalSettings(segment_bytes=1500),
    retention=Retention(journal_bytes_max=1 << 20),
    snapshot_bytes=1200,
)


class Books:
    """Has fields of several kinds."""

    total: int = 0
    notes: list[str] = []  # noqa: RUF012 -- copied for each object
    owners: dict[str, int] = {}  # noqa: RUF012 -- copied for each object

    @update
    def enter(self, owner: str, amount: int) -> int:
        self.total += amount
        self.notes = [*self.notes[-3:], owner]
        self.owners[owner] = self.owners.get(owner, 0) + amount
        return self.total

    @query
    def read(self) -> int:
        return self.total


DEFINITION = define(Books)
ENTER = DEFINITION.method("enter")
EXECUTOR = ObjectExecutor(Books, lambda: 1)


def _chance(at: int) -> Random:
    return Random(at)  # noqa: S311 -- reproducible on purpose


class Living:
    """One life of a replica on a disk, without anything around it."""

    def __init__(self, disk: MemoryDisk, at: int) -> None:
        self.disk = disk
        self.now = at
        self.process: Process
        self.keeper: Keeper

    def turns(self, count: int, *calls: Callable[[], None]) -> None:
        """Take turns; the calls are made in the first."""
        for number in range(count):
            self.now += milliseconds(60)
            effects = self.process.turn(self.now, [], calls if number == 0 else [])
            self.write(effects.records)
            if not effects.records and number and not self.process.next_deadline():
                return

    @property
    def leads(self) -> bool:
        """Whether it takes what clients ask."""
        raise NotImplementedError

    def use(self, calls: int) -> None:
        """Be a polite client of it, who makes so many calls."""
        raise NotImplementedError

    def write(self, records: Iterable[Record]) -> None:
        """Write a turn down, and do what has to be done besides."""
        written = list(records)
        if written:
            self.keeper.write(written)
        if self.keeper.needs_sync(Instant(self.now)):
            self.keeper.sync()
        work = self.keeper.housekeeping()
        if work is not None:
            work()


class LivingObject(Living):
    """A replica of a stack, and the front of its host."""

    family: ClassVar[JournalFamily] = STACK
    stack: ClassVar[str] = STACK_NAME

    def __init__(self, disk: MemoryDisk, at: int) -> None:
        super().__init__(disk, at)
        found = self.family.recover(disk, GROUP, ID)
        self.keeper = keeper = self.family.open(disk, found, KEPT, at=at)
        assert isinstance(keeper, JournalKeeper | ColoursKeeper)
        self.process = make_process(ID, keeper.incarnation, (ID,), SIMULATED_SETTINGS)
        context = make_context(self.process, GROUP, ALONE, random=_chance(at), past=keeper.past())
        self.status: Status | None = None
        self.answers: list[Answer] = []
        replica, self.host = make_object(
            DEFINITION, self.stack, context, self, settings=SETTINGS, clock=lambda: self.now
        )
        self.process.host(replica)
        assert replica.history is not None, "an engine keeps a history"
        keeper.checkpoint = replica.history.checkpoint
        self.host.copies.dump = keeper.dump

    # ---- the front

    def answer(self, answers: list[Answer]) -> None:
        self.answers += answers

    def settled(self, position: int) -> None:
        pass

    def rolled_back(self, position: int) -> None:
        pass

    def restored(self, position: int) -> None:
        pass

    def status_changed(self, status: Status) -> None:
        self.status = status

    # ---- use

    @property
    def leads(self) -> bool:
        return self.status is not None and self.status.role is Role.PRIMARY

    def ask(self, request: Callable[[ObjectHost], None]) -> Answer:
        """Have something done by the host, and give the answer."""
        self.answers.clear()
        host = self.host
        self.turns(1, lambda: request(host))
        for _ in range(20):
            if self.answers:
                return self.answers[0]
            self.turns(1)
        raise AssertionError("a replica that takes updates does not answer one")

    def use(self, calls: int) -> None:
        """Be a polite client of it."""
        opened = self.ask(lambda host: host.open_session(1)).outcome
        assert isinstance(opened, Opened), opened
        for number in range(1, calls + 1):
            arguments = ENTER.encode((f"owner {number % 3}", number), {})
            call = partial(_call, opened.session, number, arguments)
            answer = self.ask(call)
            assert isinstance(answer.outcome, Done), answer


def _call(session: int, number: int, arguments: bytes, host: ObjectHost) -> None:
    host.call(session, number, "enter", arguments, number)


class LivingColours(LivingObject):
    """The same over a partitioned network, of which it is the only member."""

    family = COLOURS
    stack = "COLOURS:DYNSEQ:VSYNC"


class LivingCohort(Living):
    """A cohort, alone in its group, and a process of a client."""

    def __init__(self, disk: MemoryDisk, at: int) -> None:
        super().__init__(disk, at)
        found = VSR.recover(disk, GROUP, ID, ALONE)
        self.keeper = keeper = VSR.open(disk, found, KEPT)
        assert isinstance(keeper, CohortKeeper)
        self.process = make_process(ID, keeper.incarnation, (ID, CLIENT), SIMULATED_SETTINGS)
        context = make_context(self.process, GROUP, ALONE, random=_chance(at))
        server = Server(context, EXECUTOR, DIRECTORY, DEFAULT_VSR_SETTINGS, encode_now)
        replica = build_cohort(context, server, memory=memory_of(keeper.recovery))
        self.process.host(replica)
        assert isinstance(replica.bottom, Cohort)
        self.cohort = replica.bottom
        keeper.checkpoint = self.cohort.checkpoint
        self.client_process = make_process(CLIENT, at, (ID, CLIENT), SIMULATED_SETTINGS)
        context = make_context(
            self.client_process, CLIENT, Configuration(1, (CLIENT,)), recording=False
        )
        self.client = TransactionClient(context, DIRECTORY, DEFAULT_VSR_SETTINGS)
        self.client_process.host(Replica(context, Layer(context), [self.client], self.client))
        self._for_client: list[Frame] = []
        self._for_cohort: list[Frame] = []

    def turns(self, count: int, *calls: Callable[[], None]) -> None:
        """Take turns, and have the client take some."""
        for number in range(count):
            self.now += milliseconds(20)
            heard, self._for_client = self._for_client, []
            effects = self.client_process.turn(self.now, heard, calls if number == 0 else [])
            said = [frame for where, frame in effects.frames if where == ID]
            self._for_cohort += map(_decoded, said)
            heard, self._for_cohort = self._for_cohort, []
            effects = self.process.turn(self.now, heard, [])
            self.write(effects.records)
            said = [frame for where, frame in effects.frames if where == CLIENT]
            self._for_client += map(_decoded, said)

    @property
    def leads(self) -> bool:
        """Whether it takes calls."""
        return self.cohort.is_serving

    def use(self, calls: int) -> None:
        """Be a polite client of it: each call is a transaction."""
        for number in range(1, calls + 1):
            self._transact(ENTER.encode((f"owner {number % 3}", number), {}))

    def _transact(self, arguments: bytes) -> None:
        ended: list[TransactionOutcome] = []
        begun: list[ClientTransaction] = []

        def called(outcome: Completion | NotRun) -> None:
            assert isinstance(outcome, Completion), outcome
            begun[0].commit(ended.append)

        def begin() -> None:
            begun.append(self.client.begin(GROUP))
            begun[0].call(GROUP, "enter", arguments, called)

        self.turns(1, begin)
        for _ in range(150):
            if ended:
                # What the journal has may hold the locks of transactions that nobody ends.
                assert ended[0].fate is Fate.COMMITTED, ended
                return
            self.turns(1)
        raise AssertionError("a cohort that serves does not answer")


def _decoded(frame: bytes) -> Frame:
    return decode_frame(frame, frame_bytes_max=SIMULATED_SETTINGS.frame_bytes_max)
