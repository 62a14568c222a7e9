"""A simulated machine with one replica: it crashes, restarts, pauses, slows down, loses power.

A replica of an engine keeps a journal on a simulated disk, as a real one does: each life begins
with what recovery finds there, and no frame of a turn leaves, and no client is answered, before
the turn is written. `crash` is the death of the process, which loses nothing that was written;
`lose_power` is the death of the machine, which loses what was not synced. A replica whose disk
fails crashes, and can come back when the disk has been put right.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from coterie.assembly import make_context, make_process
from coterie.journal.recovery import recover
from coterie.journal.stable import found_group
from coterie.journal.writer import StorageFailed
from coterie.kernel.errors import Refused
from coterie.kernel.views import Member
from coterie.replication.forming import FormingViews
from coterie.replication.layer import EngineLayer
from coterie.simulation.computer import Computer
from coterie.simulation.disk import Died
from coterie.simulation.ledger import Ledger
from coterie.simulation.objects import SimulatedObject
from coterie.stacks import build, build_engine, is_ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.journal.keeper import JournalKeeper
    from coterie.kernel.engine import Past, Version
    from coterie.kernel.layers import Batch, Context
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import View, ViewId
    from coterie.objects import ObjectHost
    from coterie.simulation.disk import SimulatedDisk
    from coterie.simulation.group import Group

Place = tuple["ViewId", tuple[Member, ...]]


class Inbox:
    """The application on a simulated replica: remembers what it was given."""

    def __init__(self) -> None:
        self.delivered: list[bytes] = []
        self.current: View | None = None

    @property
    def place(self) -> Place | None:
        """The view this replica works in, and its members."""
        return None if self.current is None else (self.current.id, self.current.members)

    def deliver(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.delivered.extend(batch.payloads)

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        pass

    def view(self, view: View) -> None:
        self.current = view


class Host(Computer):
    """One machine with one replica: what can fail in a process."""

    def __init__(self, group: Group, id: str) -> None:
        super().__init__(group.simulation, id)
        self.group = group
        self.lives = 0
        """The highest incarnation so far, which its operator knows whatever happens to the disk."""
        self.inbox = Inbox()
        self.ledger: Ledger | SimulatedObject | None = None
        """The object, where the stack has an engine."""
        self.keeper: JournalKeeper | None = None
        """The journal of the present life, where the stack has an engine."""
        self.has_old_disk = False
        """Whether an old copy was ever put in the place of the disk."""
        self._incarnation_min = 1
        self.replica: Replica | None = None
        if self.simulation.has_engine:
            found_group(self.disk, group.name, id)

    # ---- life and death

    def start(self) -> None:
        """Begin a new life, with what the journal knows of earlier ones."""
        if self.is_up:
            return
        simulation = self.simulation
        self.set_clock()
        try:
            past = self._begin_life()
        except (StorageFailed, Died) as error:
            simulation.note(f"{self.id} cannot start: {error}")
            return
        self.lives = max(self.lives, self.incarnation)
        settings = simulation.settings
        configuration = self.group.configuration
        process = make_process(self.id, self.incarnation, configuration.members, settings)
        context = make_context(
            process,
            self.group.name,
            configuration,
            random=Random(f"{simulation.seed}/{self.id}/{self.incarnation}"),  # noqa: S311
            past=past,
        )
        self.inbox = Inbox()
        self.replica = self._build(context)
        process.host(self.replica)
        self.begin(process)

    def _begin_life(self) -> Past | None:
        """Count this life and give what it knows of the earlier ones."""
        simulation, name = self.simulation, self.group.name
        if not simulation.has_engine:
            self.incarnation += 1
            return None
        self.keeper = simulation.keeper(
            self.disk,
            name,
            self.id,
            simulation.journal,
            incarnation_min=self._incarnation_min,
            at=self.clock(),
        )
        self.incarnation = self.keeper.incarnation
        past = self.keeper.past()
        self.group.tracker.inherit(Member(self.id, self.incarnation), past)
        return past

    def _build(self, context: Context) -> Replica:
        simulation, keeper = self.simulation, self.keeper
        if keeper is None:
            return build(simulation.stack, context, self.inbox, simulation.layers)
        if simulation.has_object:
            self.ledger = SimulatedObject(self.group, context)
            self.ledger.engine_host.dump = keeper.dump
            replica = self.ledger.replica
        else:
            self.ledger = Ledger(context, is_ordered=is_ordered(simulation.stack))
            replica = build_engine(simulation.stack, context, self.ledger, simulation.layers)
        keeper.checkpoint = _primary(replica).checkpoint
        return replica

    @property
    def lacks_memory(self) -> bool:
        """Whether this replica is a zombie, or would be one if its process began anew now."""
        if self.replica is not None and _primary(self.replica).is_zombie:
            return True
        return recover(self.disk, self.group.name, self.id).is_zombie

    @property
    def version(self) -> Version:
        """How advanced the history is that this running replica knows."""
        assert self.replica is not None, "it does not run"
        return _primary(self.replica).log.version

    def lose_power(self) -> None:
        """Stop at once, with the machine: what was not synced is gone."""
        self.simulation.note(f"{self.id} loses power")
        self.crash()
        self.disk.lose_power()

    def replace_machine(self) -> None:
        """Put a new machine in the place of this one: its disk is empty."""
        self.simulation.note(f"{self.id} is replaced")
        self.crash()
        self.disk.replace_by_empty()
        # The operator tells the new machine how many lives its replica has had.
        self._incarnation_min = self.lives + 1

    def put_back(self, old: SimulatedDisk) -> None:
        """Put an old copy in the place of the disk, which nobody notices: no promise covers it."""
        self.simulation.note(f"{self.id} gets an old disk")
        self.has_old_disk = True
        self.crash()
        self.disk.replace_by(old)
        self.group.tracker.disk_was_changed(self.id)

    def count_anew(self) -> None:
        """Start again with a number that nobody has seen yet: lower ones are refused."""
        self._incarnation_min = self.lives + 1
        self.restart()

    def accept_loss(self) -> None:
        """Have the operator say that the history known here is to count: `recover --from`."""
        replica = self.replica
        if replica is not None:
            self.simulation.note(f"{self.id}'s history is to count, whatever was lost")
            self.call(_primary(replica).recover)

    def crash(self) -> None:
        """Stop at once; memory is gone, and what was written stays."""
        if self.is_up:
            self.simulation.note(f"{self.id} crashes")
            self.group.history.crashed(Member(self.id, self.incarnation))
            self.replica = self.keeper = None
            self.end()

    def leave(self) -> None:
        """Leave the group in good order; the process stays."""
        replica = self.replica
        if replica is not None:
            self.simulation.note(f"{self.id} leaves")
            self.is_leaving = True
            self.call(replica.leave)

    # ---- use

    def cast(self, *payloads: bytes, safe: bool = False) -> None:
        """Multicast messages from this replica, if it is up; a full backlog refuses them."""
        replica = self.replica
        if replica is not None:
            self.call(lambda: _cast(replica, payloads, safe=safe))

    def ask(self, request: Callable[[ObjectHost], None]) -> None:
        """Have a client's request made of the object here, unless the replica is down or gone."""
        found, replica = self.ledger, self.replica
        if replica is None or replica.bottom.has_left:
            return
        if isinstance(found, SimulatedObject):
            host = found.engine_host
            self.call(lambda: request(host))

    def propose(self, *payloads: bytes) -> None:
        """Propose commands to the engine at this replica, if it is up."""
        replica = self.replica
        if replica is not None:
            self.call(lambda: _propose(replica, payloads))

    @property
    def place(self) -> Place | None:
        """The view this replica is in, with its members; with an engine, once it is primary."""
        if not self.is_up:
            return None
        if self.ledger is None:
            return self.inbox.place
        standing = self.ledger.standing
        if standing is None or not self.ledger.is_primary:
            return None
        return (standing.view, standing.members)

    @property
    def view(self) -> str:
        """The names in the current view, in alphabetical order: "abc"."""
        place = self.place
        return "" if place is None else "".join(sorted(member.id for member in place[1]))

    @property
    def delivered(self) -> list[bytes]:
        """All messages delivered in this life."""
        return self.inbox.delivered

    # ---- turns

    def arrive(self, source: str, destination: str, frame: bytes, delay: int) -> None:
        """Have a frame arrive at another replica."""
        self.group.arrive(source, destination, frame, delay)

    def store(self, records: Sequence[Record], now: int) -> bool:
        """Write a turn down before anything of it leaves; say whether we are still alive."""
        keeper = self.keeper
        if keeper is not None and not self.survives(
            lambda: self.write_down(self.group.name, keeper, records, now)
        ):
            return False
        for record in records:
            self.group.record(record)
        return True

    def end_turn(self) -> bool:
        """Answer clients; take snapshots and make room when it is time."""
        if isinstance(self.ledger, SimulatedObject):
            self.ledger.release_answers()
        return self.keeper is None or self.keep_house(self.keeper)


def _primary(replica: Replica) -> FormingViews[Any]:
    return next(layer for layer in replica.layers if isinstance(layer, FormingViews))


def _cast(replica: Replica, payloads: Sequence[bytes], *, safe: bool) -> None:
    try:
        replica.cast(payloads, safe=safe)
    except Refused:
        replica.context.count("casts_refused")


def _propose(replica: Replica, payloads: Sequence[bytes]) -> None:
    engine = replica.layers[0]
    assert isinstance(engine, EngineLayer)
    try:
        engine.propose(payloads)
    except Refused:
        replica.context.count("proposals_refused")
