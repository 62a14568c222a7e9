"""Deliberately broken variants of the cohort: each leaves out one thing that matters."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tests.vsr.chain import ChainWorld, run_chain

from coterie.journal.engines.vsr import NOTHING
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.kernel.cohorts import CohortViews
from coterie.kernel.records import InvitationAccepted, InvitationsMade
from coterie.simulation.engines.vsr.world import MACHINE_FAULTS
from coterie.vsr.views.buffer import Buffer
from coterie.vsr.views.cohort import Cohort, CohortStatus
from coterie.vsr.views.manager import Manager
from coterie.vsr.views.members import CohortMembers
from coterie.vsr.views.messages import AckEvents, Invite, NewEvents, NewView
from coterie.vsr.views.module import remember

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.records import Record
    from coterie.kernel.views import Member, Viewstamp
    from coterie.vsr import CohortPast
    from coterie.vsr.views.formation import Response


# ---- forming views


class NoCrashedAcceptance(Cohort):
    """Does not say that it has lost its state; it accepts as if it had never known anything."""

    def response(self) -> Response:
        self.up_to_date = True
        return super().response()


class _AnyMajority(Manager):
    def can_form(self, responses: list[Response]) -> bool:
        ids = {response.member.id for response in responses}
        return self._context.configuration.is_quorum(ids) and any(
            not response.crashed for response in responses
        )


class CrashedCounted(Cohort):
    """Forms views without the three conditions: any majority will do."""

    manager_kind = _AnyMajority


class _WithoutCondition3(Manager):
    def can_form(self, responses: list[Response]) -> bool:
        return super().can_form([replace(each, was_primary=True) for each in responses])


class Condition3Dropped(Cohort):
    """Does not ask for the primary of the last view where a backup of it has crashed."""

    manager_kind = _WithoutCondition3


class _FirstLeads(Manager):
    def choose_primary(self, responses: list[Response]) -> Member:
        return min(response.member for response in responses if not response.crashed)


class FirstOneLeads(Cohort):
    """Chooses the primary by preference, whatever it knows."""

    manager_kind = _FirstLeads


class PromisesNothing(Cohort):
    """Goes on in its old view after it has accepted an invitation to a new one."""

    def _on_events(self, sender: Member, message: NewEvents) -> None:
        if message.view == self.cur_viewid and self.status is CohortStatus.UNDERLING:
            if self._catch_up is None and self.up_to_date and self.learn(message):
                self.context.send([sender.id], AckEvents(self.cur_viewid, self.log.last.number))
            return
        super()._on_events(sender, message)


class AcceptsAnything(Cohort):
    """Accepts invitations to lower views than it has promised."""

    def _on_invite(self, sender: Member, message: Invite) -> None:
        if self.cur_viewid < message.view < self.max_viewid:
            self.max_viewid = self.cur_viewid
        super()._on_invite(sender, message)


class FollowsEveryone(Cohort):
    """Accepts every invitation to a higher view, as in figure 5, however well its primary is."""

    def _on_invite(self, sender: Member, message: Invite) -> None:
        super()._on_invite(sender, replace(message, insists=True))


class ComesBackIntoTheSameView(Cohort):
    """Comes back, without its state, into the very view in which it had lost it."""

    def _on_new_view(self, sender: Member, message: NewView) -> None:
        if not self.up_to_date and message.view.id == self.max_viewid == self.cur_viewid:
            self.cur_viewid = replace(self.cur_viewid, number=0)
        super()._on_new_view(sender, message)


# ---- the buffer


class _AgreesEarly(CohortMembers):
    def agreed(self, numbers: dict[str, int], last: int) -> int:
        known = sorted(numbers.values(), reverse=True)
        fewer = self.now.majority - 2
        if len(known) < fewer:
            return -1
        return known[fewer - 1] if fewer > 0 else last


class ForcedTooEarly(Cohort):
    """Calls forced what one backup fewer than a sub-majority knows."""

    members_kind = _AgreesEarly


class _OldAtOnce(Buffer):
    def force_to(self, viewstamp: Viewstamp, then: Callable[[], None]) -> None:
        if viewstamp.view != self.view.id:
            then()
            return
        super().force_to(viewstamp, then)


class OldViewstampsAtOnce(Cohort):
    """Forces viewstamps of earlier views without waiting, as in the paper."""

    buffer_kind = _OldAtOnce


class AcknowledgesUnseen(Cohort):
    """Acknowledges what it has heard of, although something before it is missing."""

    def _on_events(self, sender: Member, message: NewEvents) -> None:
        if message.view == self.cur_viewid and self.status is CohortStatus.ACTIVE:
            number = message.first + len(message.events) - 1
            self.context.send([sender.id], AckEvents(self.cur_viewid, number))
        super()._on_events(sender, message)


# ---- stable storage


def _paper_remember(memory: CohortPast, record: Record) -> CohortPast:
    if isinstance(record, InvitationAccepted | InvitationsMade):
        return memory
    return remember(memory, record)


class _OnlyTheViewItWasActiveIn(CohortKeeper):
    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        views = self.recovery.views
        views = CohortViews(views.cur_viewid, views.cur_viewid, views.led)
        self.recovery = dataclasses.replace(self.recovery, views=views)


def paper_storage(world: ChainWorld) -> None:
    """Keep only `cur_viewid`, as in the paper (design 10 f)."""
    world.keeper = _OnlyTheViewItWasActiveIn


class _Nothing(CohortKeeper):
    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self.recovery = dataclasses.replace(
            self.recovery,
            views=CohortViews(),
            has_state=True,
            base=NOTHING,
            history=NOTHING,
            snapshot=None,
            spans=[],
        )


def no_storage(world: ChainWorld) -> None:
    """Keep nothing: who comes back believes it was never there."""
    world.keeper = _Nothing


@dataclass(frozen=True, slots=True)
class BrokenCohort:
    """A variant, what must catch it, and where."""

    name: str
    caught_by: tuple[str, ...]
    kind: type[Cohort] = Cohort
    prepare: Callable[[ChainWorld], None] | None = None
    kinds: Sequence[str] = MACHINE_FAULTS
    first_seed: int = 0
    """A little before where it is caught at present; it may move when the engine changes."""

    def fires(self, seed: int) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        world = run_chain(seed, kind=self.kind, prepare=self.prepare, kinds=self.kinds)
        return {violation.check for violation in world.tracker.violations}


SURVIVE = "forced events survive"

COHORT_BROKEN = (
    BrokenCohort("no crashed acceptance", (SURVIVE,), NoCrashedAcceptance),
    BrokenCohort("crashed counted", (SURVIVE,), CrashedCounted, first_seed=40),
    BrokenCohort("condition 3 dropped", (SURVIVE,), Condition3Dropped, first_seed=40),
    BrokenCohort("first one leads", (SURVIVE,), FirstOneLeads),
    BrokenCohort("accepts anything", ("viewids ordered",), AcceptsAnything),
    BrokenCohort("forced too early", ("forced majority",), ForcedTooEarly),
    BrokenCohort("acknowledges unseen", ("forced majority",), AcknowledgesUnseen),
    BrokenCohort("the paper's stable storage", ("viewids ordered",), prepare=paper_storage),
    BrokenCohort("no stable storage", (SURVIVE,), prepare=no_storage),
)
