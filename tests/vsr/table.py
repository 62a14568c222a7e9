"""Cohorts on a table: every message is delivered, lost or kept by hand."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
from tests.vsr.chain import Chain

from coterie.checking.viewstamped import ViewstampedTracker
from coterie.kernel.clock import Instant
from coterie.kernel.layers import Context
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration, Member
from coterie.vsr import Cohort, CohortPast, VsrSettings
from coterie.vsr.views.module import remember
from coterie.vsr.views.replica import build_cohort

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.clock import Duration
    from coterie.kernel.records import Record
    from coterie.kernel.views import ReplicaAddresses, ReplicaId, Viewstamp
    from coterie.vsr import Module


class Seat:
    """The surroundings of one cohort."""

    def __init__(self, table: Table, id: str) -> None:
        self._table = table
        self.id = id
        self.now = Instant(0)
        self.whereabouts: dict[str, ReplicaAddresses] = {}
        self.timers: dict[tuple[str, ...], Callable[[], None]] = {}

    def send(
        self,
        destinations: Sequence[ReplicaId],
        group: str,
        incarnation: int,
        message: msgspec.Struct,
    ) -> None:
        del group
        for each in destinations:
            self._table.mail.append((Member(self.id, incarnation), each, message))

    def meet(self, group: str, configuration: Configuration) -> None:
        pass

    def hear_of(self, group: str, configuration: Configuration) -> None:
        pass

    def reaches(self, replica: ReplicaId) -> bool:
        return replica not in self._table.gone

    def in_touch(self, one: ReplicaId, other: ReplicaId) -> bool:
        return self.reaches(one) and self.reaches(other)

    def set_timer(self, name: tuple[str, ...], wait: Duration, fire: Callable[[], None]) -> None:
        del wait
        self.timers[name] = fire

    def timer_is_set(self, name: tuple[str, ...]) -> bool:
        return name in self.timers

    def cancel_timer(self, name: tuple[str, ...]) -> None:
        self.timers.pop(name, None)

    def report(self, record: Record) -> None:
        self._table.memories[self.id] = self._table.remember(self._table.memories[self.id], record)
        self._table.tracker.add(record)


class Table:
    """Some cohorts of one group, and the messages between them that nobody has delivered yet."""

    def __init__(
        self,
        names: str = "abc",
        *,
        kind: type[Cohort] = Cohort,
        settings: VsrSettings | None = None,
        start: bool = True,
    ) -> None:
        self.names = names
        self.kind = kind
        self.settings = settings or VsrSettings()
        self.configuration = Configuration(1, tuple(names))
        self.tracker = ViewstampedTracker(self.configuration)
        self.mail: list[tuple[Member, str, msgspec.Struct]] = []
        self.remember = remember
        self.gone: set[str] = set()
        """Whom the failure detectors do not believe in."""
        self.memories = {name: CohortPast() for name in names}
        self.seats: dict[str, Seat] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.lives = dict.fromkeys(names, 0)
        self.module: Callable[[Context], Module] = Chain
        if start:
            self.start_all()

    def start_all(self) -> None:
        """Begin the first lives of all."""
        for name in self.names:
            self.start(name)

    def __getitem__(self, name: str) -> Cohort:
        return self.cohorts[name]

    def start(self, name: str) -> None:
        """Begin a life; the state of an earlier one is lost."""
        self.lives[name] += 1
        seat = self.seats[name] = Seat(self, name)
        context = Context(
            group="table",
            me=Member(name, self.lives[name]),
            configuration=self.configuration,
            settings=DEFAULT_SETTINGS,
            random=Random(name),  # noqa: S311 -- reproducible on purpose
            surroundings=seat,
        )
        replica = build_cohort(
            context,
            self.module(context),
            memory=self.memories[name],
            settings=self.settings,
            kind=self.kind,
        )
        cohort = replica.bottom
        assert isinstance(cohort, Cohort)
        self.cohorts[name] = cohort
        cohort.start()

    def deliver(self, *, among: str = "", kinds: tuple[type, ...] = (), losing: bool = True) -> int:
        """Deliver what is on the table, and what follows from it, until nothing more comes.

        Only messages among the cohorts named, of the kinds named; the others are lost, or stay.
        """
        delivered = 0
        kept = []
        while True:
            while self.mail:
                sender, to, message = self.mail.pop(0)
                here = sender.id in (among or self.names) and to in (among or self.names)
                if here and (not kinds or isinstance(message, kinds)):
                    delivered += 1
                    self[to].receive(sender, message)
                elif not losing:
                    kept.append((sender, to, message))
            for cohort in self.cohorts.values():
                cohort.finish_turn()
            if not self.mail:
                self.mail = kept
                return delivered

    def fire(self, name: str, timer: str) -> None:
        """Let a timer of a cohort go off."""
        self.seats[name].timers.pop(("table", timer))()

    def force(self, name: str, event: bytes) -> list[Viewstamp]:
        """Have a primary add and force an event; give a list that will hold it when it is."""
        told: list[Viewstamp] = []
        cohort = self[name]
        known = cohort.add(event)
        cohort.force_to(known, lambda: told.append(known))
        cohort.finish_turn()
        return told

    def knows(self, name: str) -> int:
        """How many events the state of a cohort reflects."""
        module = self[name].module
        assert isinstance(module, Chain)
        return module.count

    def problems(self) -> set[str]:
        """The checks that failed."""
        return {violation.check for violation in self.tracker.violations}
