"""Deliberately broken variants that only age reveals: they are caught in runs that begin old.

Each is run with the same seeds from the beginning of its life, too, and nothing is found there:
that is what such runs are for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from coterie.kernel.clock import seconds
from coterie.objects.execution.sessions import Sessions
from coterie.simulation import RunOptions
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.stack.trial import StackTrial
from coterie.simulation.engines.vsr.trial import TransactionOptions, TransactionTrial
from coterie.vsr.objects.group_state import GroupState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coterie.vsr.commit.psets import Aid
    from coterie.vsr.objects.group_state import Ended


def _evict_first(self: Sessions, spare: int) -> None:
    """Evict whoever stands first: after a restart that is another one than before."""
    self.close(next(id for id in self.table if id != spare))


@contextmanager
def evicts_first_of_the_table() -> Iterator[None]:
    """Have sessions evicted in the order of a table, which replicas do not share."""
    kept = Sessions._evict_least_recently_used
    Sessions._evict_least_recently_used = _evict_first  # type: ignore[method-assign]
    try:
        yield
    finally:
        Sessions._evict_least_recently_used = kept  # type: ignore[method-assign]


def _forget_last_but_one(self: GroupState, aid: Aid, ended: Ended) -> None:
    """Forget the latest ends, not the oldest ones: of these somebody may still ask."""
    if self.decision(aid) is None:
        self.ended[aid] = ended
    if len(self.ended) > self._ended_max:
        latest = next(each for each in reversed(self.ended) if each != aid)
        del self.ended[latest]
        self.committing.pop(latest, None)
        self.forgotten[latest.group] = max(self.forgotten.get(latest.group, latest), latest)


@contextmanager
def forgets_how_the_last_transactions_ended() -> Iterator[None]:
    """Have cohorts that remember as much as they can forget what they have just learned."""
    kept = GroupState._end
    GroupState._end = _forget_last_but_one  # type: ignore[method-assign]
    try:
        yield
    finally:
        GroupState._end = kept  # type: ignore[method-assign]


@dataclass(frozen=True)
class OldBroken:
    """A variant, what it runs in, and the check that must name it."""

    name: str
    caught_by: tuple[str, ...]
    options: RunOptions | TransactionOptions
    patch: Callable[[], AbstractContextManager[None]] = nullcontext
    first_seed: int = 0

    def fires(self, seed: int, *, old: bool = True) -> set[str]:
        """Run a seed with the variant; give the checks that fired."""
        options = self.options
        with self.patch():
            run = run_trial(
                TransactionTrial(seed, replace(options, old=old))
                if isinstance(options, TransactionOptions)
                else StackTrial(seed, replace(options, old=old))
            )
        return {violation.partition(":")[0] for violation in run.violations}


STACK = "SAFE:DYNSEQ:PVSYNC"

OLD_BROKEN = (
    OldBroken(
        "EvictsFirstOfTheTable",
        ("active replication",),
        RunOptions(stack=STACK, object="dictionary", duration=seconds(15)),
        patch=evicts_first_of_the_table,
    ),
    OldBroken(
        "ForgetsHowTheLastTransactionsEnded",
        ("atomic",),
        TransactionOptions(groups=2, duration=seconds(8)),
        patch=forgets_how_the_last_transactions_ended,
        first_seed=2,
    ),
)
