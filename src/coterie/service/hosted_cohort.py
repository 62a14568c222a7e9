"""A cohort of viewstamped replication in a live process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.assembly import make_context
from coterie.kernel.engine import Role, Status, Version
from coterie.kernel.views import NO_VIEW
from coterie.service.hosted import wall_clock
from coterie.transactional import ObjectExecutor
from coterie.vsr import DEFAULT_VSR_SETTINGS, Cohort, VsrSettings, build_cohort, memory_of
from coterie.vsr.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coterie.journal.cohort_keeper import CohortKeeper
    from coterie.kernel.views import Configuration, Member, ViewId
    from coterie.objects import Definition
    from coterie.service.cohort_front import CohortFront
    from coterie.service.hosted import Seat


Standing = tuple[Role, "ViewId", tuple["Member", ...], bool]


class HostedCohort:
    """One cohort of one group, with the class that it runs.

    What *keeper* recovered is what it knows of its earlier lives, and *directory* says where all
    groups are that may take part in its transactions.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        live: Seat,
        *,
        group: str,
        definition: Definition,
        directory: Mapping[str, Configuration],
        front: CohortFront,
        keeper: CohortKeeper,
        settings: VsrSettings = DEFAULT_VSR_SETTINGS,
    ) -> None:
        self.group = group
        self.definition = definition
        self.configuration = directory[group]
        self.has_left = False
        self._driver = live.driver
        self._keeper = keeper
        self._front = front
        context = make_context(live.process, group, self.configuration)
        executor = ObjectExecutor(definition.cls, wall_clock)
        self.server = Server(context, executor, directory, settings)
        memory = memory_of(keeper.recovery)
        self.replica = build_cohort(context, self.server, memory=memory, settings=settings)
        bottom = self.replica.bottom
        assert isinstance(bottom, Cohort)
        self.cohort = bottom
        keeper.checkpoint = bottom.checkpoint
        self._earlier = (NO_VIEW, 0)
        self.standing: Standing = (Role.MINORITY, NO_VIEW, (), False)
        """Its role, view and members, and whether it has lost its state, as of the last turn."""
        live.host(self.replica)
        self._driver.turn_ended.append(self._turn_ended)

    def call(self, what: Callable[[], None]) -> None:
        """Have something done inside the next turn."""
        self._driver.call(what)

    @property
    def position(self) -> int:
        """How many events the state reflects: the views of a history follow each other."""
        history = self.cohort.log.history
        last = history[-1]
        if self._earlier[0] != last.view:
            self._earlier = (last.view, sum(known.number for known in history[:-1]))
        return self._earlier[1] + last.number

    @property
    def status(self) -> Status:
        """Where the cohort stands."""
        cohort = self.cohort
        position = self.position
        unforced = max(cohort.log.last.number - cohort.forced, 0) if cohort.is_active else 0
        role, view, members, is_zombie = self._stand()
        return Status(role, view, members, position, position - unforced, is_zombie)

    def _stand(self) -> Standing:
        cohort = self.cohort
        members = cohort.cur_view.members if cohort.is_active else (cohort.me,)
        return self._role, cohort.cur_viewid, members, not cohort.up_to_date

    @property
    def _role(self) -> Role:
        cohort = self.cohort
        if cohort.is_serving:
            return Role.PRIMARY
        if cohort.is_active and not cohort.is_primary:
            return Role.BACKUP
        if not cohort.reaches_majority:
            return Role.MINORITY
        return Role.LEARNER if cohort.is_behind else Role.FORMING

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return Version(self.cohort.log.last.view, self.position)

    @property
    def transactions(self) -> int:
        """How many transactions are in progress, as far as is known here."""
        return len(self.server.state.transactions)

    @property
    def trouble(self) -> str:
        """Why the cohort is not as it should be, in words for an operator; empty if it is."""
        if self.cohort.up_to_date:
            return self._keeper.trouble
        return f"{self._keeper.recovery.reason}; it needs a view with those who have it"

    def leave(self) -> None:
        """Stop: nobody has to be told, for a cohort that is gone is left out of the next view."""
        self.has_left = True

    def _turn_ended(self) -> None:
        """Tell clients when the cohort's part in its group has changed; keep the journal short."""
        standing = self._stand()
        if standing != self.standing:
            self.standing = standing
            self._front.tell_news()
        work = self._keeper.housekeeping()
        if work is not None:
            self._driver.beside(work)
