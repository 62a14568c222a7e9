"""A cohort of viewstamped replication in a live process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.assembly import make_context
from coterie.kernel.engine import Role, Status
from coterie.kernel.transfer import encode_now
from coterie.runtime.forked import ForkedChunks
from coterie.service.engines.hosted import HostedReplica, wall_clock
from coterie.transactional import ObjectExecutor
from coterie.vsr import (
    DEFAULT_VSR_SETTINGS,
    Cohort,
    CohortPast,
    VsrSettings,
    build_cohort,
    memory_of,
)
from coterie.vsr.commit.server import Server
from coterie.vsr.views.history import CANNOT_RECOVER
from coterie.vsr.views.replica import FIRST_LIFE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.journal.engines.vsr_keeper import CohortKeeper
    from coterie.kernel.views import Configuration, Member, ReplicaAddresses, ViewId
    from coterie.objects import Definition
    from coterie.service.engines.hosted import Seat
    from coterie.service.engines.vsr_front import CohortFront


class HostedCohort(HostedReplica):
    """One cohort of one group, with the class that it runs.

    What *keeper* recovered is what it knows of its earlier lives; without a keeper it keeps
    nothing, and knows what *memory* says. *directory* says where all groups are that may take part
    in its transactions.
    """

    cannot_recover = CANNOT_RECOVER
    figures_help = {  # noqa: RUF012 -- as the base says
        "vsr_events": "How many events this cohort's state reflects.",
        "vsr_forced_events": "Up to which of them a majority is known here to know all.",
        "vsr_objects": "Objects in this cohort's state, each with its own lock.",
        "vsr_transactions": "Transactions in progress, as far as is known here.",
        "vsr_committing": "Committed transactions of which not all participants have confirmed it.",
        "vsr_view_number": "The number of the view this cohort is in.",
        "vsr_view_members": "How many members that view has.",
    }

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        live: Seat,
        *,
        group: str,
        definition: Definition,
        directory: Mapping[str, Configuration],
        front: CohortFront,
        keeper: CohortKeeper | None = None,
        memory: CohortPast = FIRST_LIFE,
        settings: VsrSettings = DEFAULT_VSR_SETTINGS,
    ) -> None:
        self._definition = definition
        self._front = front
        self._has_left = False
        # With whom it was founded, or whom it joined; who belongs to it is in the group's history.
        first = directory[group] if keeper is None else keeper.recovery.configuration
        context = make_context(live.process, group, first)
        executor = ObjectExecutor(definition.cls, wall_clock)
        take_snapshot = encode_now if keeper is None else ForkedChunks
        self.server = Server(context, executor, directory, settings, take_snapshot)
        if keeper is not None:
            memory = memory_of(keeper.recovery)
        replica = build_cohort(context, self.server, memory=memory, settings=settings)
        assert isinstance(replica.bottom, Cohort)
        self.cohort = replica.bottom
        lost = "what it knew was in memory only"
        if keeper is not None:
            keeper.checkpoint = self.cohort.checkpoint
            lost = keeper.recovery.reason
        self._told: tuple[Role, ViewId, tuple[Member, ...], bool, int] | None = None
        super().__init__(
            live,
            replica,
            configuration=first,
            keeper=keeper,
            lost=f"{lost}; it needs a view with those who have it",
        )

    @property
    def configuration(self) -> Configuration:
        """Who belongs to the group, as far as it is known here to be forced."""
        members = self.cohort.members
        return members.told() or members.settled

    @property
    def members_stay(self) -> str:
        """Members change by events of the history."""
        return ""

    def admit(self, id: str, at: ReplicaAddresses | None = None) -> None:
        self.cohort.admit(id, at)

    def dismiss(self, id: str) -> None:
        self.cohort.dismiss(id)

    @property
    def definition(self) -> Definition:
        """The class it executes."""
        return self._definition

    @property
    def status(self) -> Status:
        """Where the cohort stands."""
        cohort = self.cohort
        is_active = cohort.is_active
        return Status(
            role=self._role,
            view=cohort.cur_viewid,
            members=cohort.cur_view.members if is_active else (cohort.me,),
            position=cohort.position,
            settled=cohort.settled,
            is_zombie=cohort.is_zombie,
            leader=cohort.cur_view.primary if is_active else None,
        )

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
    def transactions(self) -> int:
        """How many transactions are in progress, as far as is known here."""
        return len(self.server.state.transactions)

    def details(self) -> dict[str, str | int]:
        """Give the last event it knows, and how many transactions are in progress."""
        return {"viewstamp": str(self.cohort.log.last), "transactions": self.transactions}

    def figures(self) -> dict[str, float]:
        """Give the figures of the cohort's state and view."""
        state, status = self.server.state, self.status
        return {
            "vsr_view_number": status.view.number,
            "vsr_view_members": len(status.members),
            "vsr_events": status.position,
            "vsr_forced_events": status.settled,
            "vsr_objects": len(state.objects),
            "vsr_transactions": len(state.transactions),
            "vsr_committing": len(state.committing),
        }

    def leave(self) -> None:
        """Stop: nobody has to be told, for a cohort that is gone is left out of the next view."""
        self._has_left = True

    @property
    def has_left(self) -> bool:
        """Whether it was told to stop, or was removed."""
        return self._has_left or self.cohort.has_left

    def _turn_ended(self) -> None:
        """Tell clients when the cohort's part in its group has changed; keep the journal short."""
        status = self.status
        number = self.configuration.number
        told = (status.role, status.view, status.members, status.is_zombie, number)
        if told != self._told:
            self._told = told
            self._front.tell_news()
        super()._turn_ended()
