"""A replicated object in a live process, on a stack of layers that orders its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coterie.assembly import engine_of, make_context, make_object
from coterie.kernel.engine import Role
from coterie.kernel.errors import Refused
from coterie.objects import DEFAULT_HOST_SETTINGS, HostSettings
from coterie.replication.layer import EngineLayer
from coterie.runtime.forked import ForkedChunks
from coterie.service.engines.hosted import HostedReplica, wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coterie.journal.engines.colours import ColoursKeeper
    from coterie.journal.engines.stack_keeper import JournalKeeper
    from coterie.kernel.engine import Past, Status
    from coterie.kernel.layers import Context
    from coterie.kernel.replica import Replica
    from coterie.kernel.transfer import TakeSnapshot
    from coterie.kernel.views import Configuration, ReplicaAddresses
    from coterie.objects import Definition, ObjectHost
    from coterie.objects.fronts import Front
    from coterie.service.engines.hosted import Seat


ORDERED_BY_ONE = "DYNSEQ"
"""The layer by which the first member of a view puts all entries into order."""


class MakeObject(Protocol):
    """Puts a replica together with the host that executes its object (`make_object` does)."""

    def __call__(  # noqa: PLR0913 -- all by name
        self,
        definition: Definition,
        stack: str,
        context: Context,
        front: Front,
        *,
        settings: HostSettings,
        clock: Callable[[], int],
        take_snapshot: TakeSnapshot,
    ) -> tuple[Replica, ObjectHost]:
        """Make the replica, and the host of its object."""


class HostedObject(HostedReplica):
    """One replica of one replicated object.

    What *keeper* recovered is what the replica knows of its earlier lives; without a keeper it
    keeps nothing, and knows what *past* says. The front is called inside turns: it must not let an
    answer out before the turn has ended (`Driver.turn_ended`). *make* puts replica and host
    together, for an engine that orders entries and is no stack.
    """

    figures_help = {  # noqa: RUF012 -- as the base says
        "primary_position": "The position of the last entry in this replica's history.",
        "primary_settled_position": "Everything up to this position is authoritative.",
        "vsync_view_number": "The number of the view this replica is in.",
        "vsync_view_members": "How many members that view has.",
        "host_sessions": "Client sessions in the replicated state.",
    }

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        live: Seat,
        *,
        group: str,
        definition: Definition,
        stack: str,
        configuration: Configuration,
        front: Front,
        keeper: JournalKeeper | ColoursKeeper | None = None,
        past: Past | None = None,
        settings: HostSettings = DEFAULT_HOST_SETTINGS,
        take_snapshot: TakeSnapshot = ForkedChunks,
        make: MakeObject = make_object,
    ) -> None:
        self.stack = stack
        context = make_context(
            live.process,
            group,
            configuration,
            past=past if keeper is None else keeper.past(),
        )
        replica, self.host = make(
            definition,
            stack,
            context,
            front,
            settings=settings,
            clock=wall_clock,
            take_snapshot=take_snapshot,
        )
        super().__init__(
            live,
            replica,
            configuration=configuration,
            keeper=keeper,
            lost="" if keeper is None else keeper.recovery.reason,
        )
        if keeper is not None:
            keeper.checkpoint = self.history.checkpoint
            self.host.copies.dump = keeper.dump

    @property
    def configuration(self) -> Configuration:
        """Who belongs to the group: as far as is settled here, where members change."""
        return self.replica.context.configuration

    @property
    def definition(self) -> Definition:
        """The class, in the version that the group executes at present."""
        return self.host.definition

    @property
    def status(self) -> Status | None:
        """Where the replica stands; None before its first turn."""
        return self.host.status

    @property
    def orderer(self) -> str:
        """The replica that puts the entries of the present view into order; empty if none does."""
        status = self.status
        if status is None or status.role is not Role.PRIMARY or ORDERED_BY_ONE not in self.stack:
            return ""
        return status.members[0].id

    @property
    def position(self) -> int:
        """The position of the last entry that was executed."""
        return self.host.position

    @property
    def settled(self) -> int:
        """Up to which position the history is authoritative."""
        return self.host.settled_position

    @property
    def faults(self) -> Sequence[str]:
        """What went wrong in the class, in words."""
        return self.host.faults

    def ask(self, request: Callable[[ObjectHost], None]) -> None:
        """Have a request made of the host inside the next turn."""
        host = self.host
        self.call(lambda: request(host))

    def figures(self) -> dict[str, float]:
        """Give the figures of the history and the sessions."""
        status = self.status
        of_view: dict[str, float] = {}
        if status is not None:
            of_view["vsync_view_number"] = status.view.number
            of_view["vsync_view_members"] = len(status.members)
        return {
            **of_view,
            "primary_position": self.history.position,
            "primary_settled_position": self.history.settled,
            "host_sessions": self.host.session_count,
        }

    def details(self) -> dict[str, str | int]:
        """Say how much has come of a state that is being taken over."""
        fetched = sum(each.fetched for each in self._engine_layers())
        return {"fetched": f"{fetched / 1e6:.1f} MB"} if fetched else {}

    def _engine_layers(self) -> Iterator[EngineLayer]:
        return (each for each in self.replica.layers if isinstance(each, EngineLayer))

    @property
    def members_stay(self) -> str:
        """Members change by entries of one history."""
        if any(each.members_change for each in self._engine_layers()):
            return ""
        return f"the members of {self.stack} cannot change while it serves"

    def admit(self, id: str, at: ReplicaAddresses | None = None) -> None:
        if self.members_stay:
            super().admit(id, at)
        engine_of(self.replica).admit(id, at)

    def dismiss(self, id: str) -> None:
        if self.members_stay:
            super().dismiss(id)
        engine_of(self.replica).dismiss(id)

    def _check_recovery(self) -> None:
        """Refuse where nothing is lost, or too few would take part.

        The way out is for a view with a majority of the replicas of which too few remember.
        """
        super()._check_recovery()
        status = self.status
        if status is None or status.role in {Role.FORMING, Role.LEARNER}:
            raise Refused("a primary view is being formed: wait for it")
        if status.role is Role.PRIMARY:
            raise Refused("the replica is in a primary view: nothing has to be recovered")
        members = frozenset(member.id for member in status.members)
        if not self.configuration.is_quorum(members):
            together = ", ".join(sorted(members))
            raise Refused(
                f"the replica is in touch with too few to go on ({together}): "
                "start more of the others"
            )
