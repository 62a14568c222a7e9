"""A world with one group whose state chains all events, and random campaigns over it."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, cast

import msgspec

from coterie.checking.viewstamped import ViewstampedTracker
from coterie.journal.format import Sync
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.errors import BadMessage
from coterie.kernel.records import StateAt
from coterie.kernel.views import NO_VIEW, Viewstamp
from coterie.simulation.engines.vsr.world import MACHINE_FAULTS, CohortWorld, keeping
from coterie.simulation.faults import Nemesis
from coterie.vsr import Cohort, VsrSettings, build_cohort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coterie.kernel.layers import Context
    from coterie.kernel.records import Record, VsrRecord
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import Configuration, Member
    from coterie.vsr import CohortPast
    from coterie.vsr.views.messages import CohortView

CHUNK = 8


class Chain:
    """A module whose state is a digest over all its events, in order."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.count = 0
        self.digest = b""
        self.leads = False

    def attach(self, cohort: Cohort) -> None:
        pass

    def read(self, events: Sequence[bytes]) -> Sequence[bytes]:
        return events

    def perform(self, known: Viewstamp, events: Sequence[bytes]) -> None:
        for number, event in enumerate(events, known.number - len(events) + 1):
            self.count += 1
            self.digest = blake2b(self.digest + event, digest_size=16).digest()
            if number % 3 == 0:
                self._tell(Viewstamp(known.view, number))

    def _tell(self, known: Viewstamp) -> None:
        context = self._context
        record = StateAt(
            group=context.group, member=context.me, at=context.now, known=known, digest=self.digest
        )
        context.report(cast("Record", record))

    def snapshot(self) -> Iterator[bytes]:
        data = msgspec.msgpack.encode((self.count, self.digest))
        return iter([data[at : at + CHUNK] for at in range(0, len(data), CHUNK)])

    def restore(self, chunks: Sequence[bytes]) -> None:
        self.count, self.digest = msgspec.msgpack.decode(b"".join(chunks), type=tuple[int, bytes])

    def lead(self, view: CohortView) -> None:
        del view
        self.leads = True

    def follow(self) -> None:
        self.leads = False

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        raise BadMessage(f"nobody sends a chain anything: {bytes(message)!r}")

    def receive(self, sender: Member, message: object) -> None:
        raise BadMessage(f"{sender} sent {message}")

    def hear_stranger(self, sender: Member, message: object) -> None:
        raise BadMessage(f"{sender} sent {message}")

    def finish_turn(self) -> None:
        pass


class ChainWorld(CohortWorld):
    """One group of chains on machines of its own, with its tracker."""

    def __init__(  # noqa: PLR0913 -- what a run is made of
        self,
        names: str = "abc",
        *,
        seed: int = 7,
        settings: VsrSettings | None = None,
        kind: type[Cohort] = Cohort,
        is_durable: bool = False,
        may_lose_majority: bool = False,
    ) -> None:
        super().__init__(
            seed=seed,
            groups={"chain": tuple(names)},
            journal=keeping(Sync.TURN if is_durable else Sync.NONE),
            may_lose_majority=may_lose_majority,
        )
        self.vsr_settings = settings or VsrSettings()
        self.kind = kind
        self.tracker = ViewstampedTracker(self.groups["chain"])
        self.records: list[Record | VsrRecord] = []
        self.forced: list[Viewstamp] = []
        """What the primaries were told is forced."""
        self.put_cohorts("chain", self._build)
        self.start()

    def _build(self, context: Context, memory: CohortPast) -> Replica:
        return build_cohort(
            context, Chain(context), memory=memory, settings=self.vsr_settings, kind=self.kind
        )

    def __getitem__(self, id: str) -> Cohort:
        cohort = self.cohort(id, "chain")
        assert cohort is not None, f"{id} is down"
        return cohort

    def record(self, record: Record | VsrRecord) -> None:
        self.records.append(record)
        self.tracker.add(record)
        if self.simulation.trace is not None:
            self.simulation.note(f"{record.member} {type(record).__name__} {record}")

    def revived(self, group: str, member: Member, memory: CohortPast) -> None:
        del group
        if memory.history:
            self.tracker.inherit(member, memory.history)
        for span in memory.spans:
            self.tracker.look_at(span.view, span.first, span.events)

    def configurations(self, group: str) -> list[Configuration]:
        del group
        return self.tracker.configurations()

    def tell(self, *events: bytes, at: str = "") -> None:
        """Have the primary, or the cohort named, add events and force them, if it can."""
        cohort = self[at] if at else self.primary("chain")
        if cohort is None:
            return

        def add() -> None:
            if cohort.is_primary:
                older = cohort.log.history[-2 if cohort.log.last.number == 0 else -1]
                known = [cohort.add(event) for event in events]
                for each in (older, known[-1]):
                    if each.view != NO_VIEW:
                        cohort.force_to(each, partial(self._told, cohort, each))

        self.machines[cohort.me.id].call(add)

    def _told(self, cohort: Cohort, known: Viewstamp) -> None:
        self.forced.append(known)
        self.tracker.claim(cohort.cur_viewid, known)

    def check(self) -> None:
        assert not self.tracker.violations, "\n".join(map(str, self.tracker.violations[:10]))


def run_chain(  # noqa: PLR0913 -- what a run is made of
    seed: int,
    *,
    names: str = "abc",
    duration: Duration = seconds(15),
    kind: type[Cohort] = Cohort,
    is_durable: bool = False,
    prepare: Callable[[ChainWorld], None] | None = None,
    trace: Callable[[str], None] | None = None,
    kinds: Sequence[str] = MACHINE_FAULTS,
) -> ChainWorld:
    """Run one seed: faults and events, then healing; violations are in the tracker."""
    random = Random(f"{seed}/chain")  # noqa: S311 -- reproducible on purpose
    log_bytes = random.choice([100, 1 << 20])
    world = ChainWorld(
        names,
        seed=seed,
        settings=VsrSettings(log_bytes=log_bytes),
        kind=kind,
        is_durable=is_durable,
    )
    world.simulation.trace = trace
    if prepare is not None:
        prepare(world)
    nemesis = Nemesis(world, random, kinds)
    interval = random.choice([10_000, 50_000, 250_000])
    active = True
    serial = 0

    def work() -> None:
        nonlocal serial
        if not active:
            return
        # Every cohort that believes it leads works, also one that was replaced long ago.
        for id in world.machines:
            cohort = world.cohort(id, "chain")
            if cohort is not None and cohort.is_primary and random.random() < 0.7:
                serial += 1
                count = 1 if random.random() < 0.8 else random.randrange(2, 20)
                world.tell(*(b"%d/%d" % (serial, each) for each in range(count)), at=id)
        world.simulation.at(int(random.expovariate(1 / interval)), work)

    try:
        world.simulation.at(0, work)
        nemesis.start()
        world.run(duration)
        active = False
        nemesis.stop()
        world.heal()
        if not world.run_until(world.are_whole, within=seconds(30)):
            world.tracker._fail("convergence", world.describe())
        else:
            before = len(world.forced)
            world.tell(b"the last word")
            done = world.run_until(lambda: len(world.forced) > before, within=milliseconds(5000))
            if not done:
                world.tracker._fail("liveness", f"the last word is not forced: {world.describe()}")
    except AssertionError as error:
        world.tracker._fail("assertion", str(error))
    return world
