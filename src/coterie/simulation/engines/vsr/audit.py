"""What transactions promise, checked from the events of all groups that survived.

The promises that are checked, beside those of `coterie.checking.viewstamped` for each group:

- *atomic*: what a coordinator committed is committed by every group that had to install something,
  with the same calls, and aborted by none;
- *lost calls abort*: a committed transaction has no call that was lost in a view change;
- *told right*: what a client was told is what happened;
- *locks kept*: no two transactions in progress have written the same object, through view changes.
  A call that its transaction has given up is a subaction that was aborted (3.6): what it wrote is
  void, and its locks are free while the transaction goes on;
- *serializable*: committed transactions could have run one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import Violation
from coterie.checking.serializability import CommittedTransaction, check_serializable
from coterie.vsr.commit.client import Fate
from coterie.vsr.commit.events import (
    Aborted,
    CallsGivenUp,
    Committed,
    Committing,
    CompletedCall,
    decode_event,
)
from coterie.vsr.commit.psets import is_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.views import Viewstamp
    from coterie.simulation.engines.vsr.transactions import TransactionWorld
    from coterie.vsr.commit.psets import Aid, CallId, Pair


class Audit:
    """What all groups did together, read from their surviving events."""

    def __init__(self, world: TransactionWorld) -> None:
        self._world = world
        self.violations: list[Violation] = []
        self.committed: dict[Aid, CommittedTransaction] = {}
        self._orders: dict[str, list[str]] = {}
        self._decided: dict[Aid, Committing] = {}
        self._installed: dict[tuple[Aid, str], tuple[Viewstamp, ...]] = {}
        self._aborted: dict[Aid, str] = {}
        self._survived: set[tuple[str, Viewstamp]] = set()
        for group in world.groups:
            self._read(group)
        self._check_atomic()
        self._check_told()
        self.violations += check_serializable(self.committed.values(), self._orders)

    def _fail(self, check: str, evidence: str) -> None:
        self.violations.append(Violation(check, evidence))

    def _read(self, group: str) -> None:
        calls: dict[Viewstamp, CompletedCall] = {}
        writing: dict[str, tuple[Aid, set[CallId]]] = {}
        """Which transaction has written each object, and in which of its calls."""
        for vs, event in self._world.surviving(group):
            match event:
                case CompletedCall(aid=aid):
                    calls[vs] = event
                    self._survived.add((group, vs))
                    for write in event.writes:
                        holder, its_calls = writing.setdefault(write.name, (aid, set()))
                        if holder == aid:
                            its_calls.add(event.call)
                        else:
                            self._fail(
                                "locks kept",
                                f"{aid} wrote {group}/{write.name}, which {holder} had locked",
                            )
                case CallsGivenUp(aid=aid, calls=given_up):
                    _release(writing, aid, given_up)
                case Committed(aid=aid, calls=parts):
                    self._install(group, vs, event, [calls.get(part) for part in parts])
                    writing = {name: each for name, each in writing.items() if each[0] != aid}
                case Aborted(aid=aid, reason=reason):
                    self._aborted[aid] = f"{group}: {reason}"
                    writing = {name: each for name, each in writing.items() if each[0] != aid}
                case Committing(aid=aid):
                    self._decided[aid] = event
                case _:
                    pass

    def _install(
        self, group: str, vs: Viewstamp, event: Committed, calls: list[CompletedCall | None]
    ) -> None:
        aid = event.aid
        self._installed[aid, group] = event.calls
        transaction = self.committed.setdefault(aid, CommittedTransaction(str(aid)))
        for place, call in zip(event.calls, calls, strict=True):
            if call is None or call.aid != aid:
                self._fail("lost calls abort", f"{aid} committed without {group}:{place}")
                continue
            self._add_reads(transaction, group, call)
            for write in call.writes:
                name = f"{group}/{write.name}"
                transaction.writes.append((name, str(vs)))
                order = self._orders.setdefault(name, [])
                if not order or order[-1] != str(vs):
                    order.append(str(vs))

    def _check_atomic(self) -> None:
        for aid, decision in self._decided.items():
            if aid in self._aborted:
                self._fail("atomic", f"{aid} is committed, and aborted by {self._aborted[aid]}")
            for part in decision.parts:
                if self._installed.get((aid, part.group)) != part.calls:
                    self._fail("atomic", f"{aid} is committed, and not by {part.group}")
        for (aid, group), calls in self._installed.items():
            written = self.committed[aid].writes
            is_part = any(name.startswith(f"{group}/") for name, _ in written)
            if is_part and aid not in self._decided:
                self._fail("atomic", f"{group} committed {aid} with {calls}, without a decision")

    def _count_lost(self, aid: Aid, pair: Pair) -> None:
        """What a lost call had read still counts: its client was told that all is well."""
        self._fail("lost calls abort", f"{aid} committed; its call {pair.group}:{pair.vs} is lost")
        event = decode_event(self._world.events[pair.group, pair.vs.view, pair.vs.number])
        if isinstance(event, CompletedCall):
            transaction = self.committed.setdefault(aid, CommittedTransaction(str(aid)))
            self._add_reads(transaction, pair.group, event)

    def _add_reads(
        self, transaction: CommittedTransaction, group: str, call: CompletedCall
    ) -> None:
        beginning = self._world.beginning(group)
        for read in call.reads:
            # What was there when the run began is the first version, whoever installed it.
            is_first = read.version is None or read.version.view <= beginning
            version = None if is_first else str(read.version)
            transaction.reads.append((f"{group}/{read.name}", version))

    def _check_told(self) -> None:
        for aid, outcome in self._world.told.items():
            fate = outcome.fate
            for pair in outcome.pset:
                if (pair.group, pair.vs) not in self._survived:
                    self._count_lost(aid, pair)
            has_written = aid in self.committed and bool(self.committed[aid].writes)
            if fate is Fate.ABORTED and (aid in self._decided or has_written):
                self._fail("told right", f"{aid} is committed; its client was told it is aborted")
            has_trace = aid in self._decided or aid in self.committed or not outcome.pset
            if fate is Fate.COMMITTED and not has_trace:
                self._fail("told right", f"{aid} left no trace; its client was told committed")


def _release(
    writing: dict[str, tuple[Aid, set[CallId]]], aid: Aid, given_up: Sequence[CallId]
) -> None:
    """Forget what calls wrote that their transaction has given up."""
    for name, (holder, calls) in list(writing.items()):
        if holder == aid:
            calls -= {call for call in calls if any(is_within(call, each) for each in given_up)}
            if not calls:
                del writing[name]
