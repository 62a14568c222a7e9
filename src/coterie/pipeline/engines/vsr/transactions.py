"""Transactions over several groups, told from the events of all of them.

The events of a group are taken in the one order of its history, as far as that is authoritative.
What a transaction did is then in few places: its calls and their end in each group that took part,
and the decision in the group that coordinated it.

A transaction is *committed* if its coordinator decided so, or if it has only read and all groups
where it did are done with it: there is nothing to decide then, and nobody writes down that it was.
It is *aborted* if a group says that it is void there, and else *undecided*: it was still in
progress when the journals ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.kernel.views import Viewstamp
from coterie.pipeline.engines.vsr.event_ranges import happened
from coterie.pipeline.engines.vsr.events import (
    Completed,
    Decided,
    GivenUp,
    Installed,
    JournalAborted,
    JournalAid,
    JournalDone,
    is_within,
)
from coterie.pipeline.engines.vsr.history import EventStanding
from coterie.pipeline.engines.vsr.serial import (
    FOREVER,
    HELD,
    READ,
    UNKNOWN,
    WRITTEN,
    Keys,
    Touch,
)
from coterie.pipeline.read.schemas import TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from coterie.pipeline.engines.vsr.event_ranges import Happened
    from coterie.pipeline.engines.vsr.events import Event
    from coterie.pipeline.engines.vsr.history import CohortGroup, Place

Row = dict[str, Any]
PART_SHIFT = 32
"""The numbers of one part's transactions, for those who look at all parts, have so many bits."""


@dataclass(slots=True)
class Taking:
    """What one group did of a transaction."""

    calls: dict[Viewstamp, tuple[Completed, Place]] = field(default_factory=dict)
    """Calls of the transaction that survived."""
    lost: dict[Viewstamp, Place] = field(default_factory=dict)
    """Calls of the transaction that did not survive."""
    given_up: list[str] = field(default_factory=list)
    installed: Installed | None = None
    installed_as: str = ""
    """The name of the versions that were installed."""
    aborted: str | None = None
    place: Place = ("", 0, 0)
    """Where its end, or else its last call, is on record."""
    installed_at: int = 0
    written: list[tuple[int, Completed]] = field(default_factory=list)
    """Calls that wrote, and at which positions."""
    ends: list[int] = field(default_factory=list)
    """The positions at which it let go of its objects."""
    versions: list[tuple[int, str]] = field(default_factory=list)
    """The objects of which it installed versions, and at which positions."""

    def counting(self) -> list[Completed]:
        """Give the calls that count: those that were installed, or that a reader was done with."""
        if self.installed is None:
            return []
        stamps = self.installed.calls
        return [call for stamp, (call, _) in self.calls.items() if stamp in stamps]


@dataclass(slots=True)
class Transaction:
    """What all groups did of a transaction."""

    aid: JournalAid
    groups: dict[str, Taking] = field(default_factory=dict)
    decision: Decided | None = None
    is_decision_on_record: bool = False
    """Whether a decision is known of which no journal says that it was forced."""
    decided_at: Place = ("", 0, 0)
    is_done: bool = False
    abort: str | None = None
    """Why its coordinator aborted it, if that is on record there."""
    began_at: int = 0
    ended_at: int | None = None

    def part(self, group: str) -> Taking:
        """Give what a group did of it."""
        found = self.groups.get(group)
        if found is None:
            found = self.groups[group] = Taking()
        return found

    @property
    def reason(self) -> str:
        """Why it was aborted, in the words of the groups that say so."""
        said = [taking.aborted for taking in self.groups.values() if taking.aborted]
        return self.abort or next(iter(said), "")

    @property
    def is_aborted(self) -> bool:
        """Whether some group says that it is void."""
        return self.abort is not None or any(
            taking.aborted is not None for taking in self.groups.values()
        )

    @property
    def is_committed(self) -> bool:
        """Whether it counts as committed: it was decided, or has only read and is over."""
        if self.decision is not None:
            return True
        has_ended = any(taking.installed is not None for taking in self.groups.values())
        return has_ended and not self.is_aborted

    @property
    def has_only_read(self) -> bool:
        """Whether it wrote nothing and is over wherever it was: nobody has to decide on it."""
        takings = self.groups.values()
        return (
            not self.is_aborted
            and all(
                taking.installed is not None
                and taking.installed.is_read_only
                and not any(call.writes for call, _ in taking.calls.values())
                for taking in takings
            )
            and bool(takings)
        )

    @property
    def time(self) -> int:
        """When it ended, by the clock of who decided it or, if it has only read, of a reader."""
        if self.decision is not None and self.ended_at is not None:
            return self.ended_at
        return max((taking.installed_at for taking in self.groups.values()), default=0)

    @property
    def outcome(self) -> str:
        """How it ended, as far as that is known."""
        if self.decision is not None or self.has_only_read:
            return "committed"
        return "aborted" if self.is_aborted else "undecided"


class TransactionLedger:
    """Gathers transactions: all of them, or a part, with all that is told of each."""

    def __init__(
        self,
        groups: Iterable[CohortGroup],
        folder: str,
        parts: range,
        *,
        has_locks: bool = False,
        without: NDArray[np.int64] | None = None,
    ) -> None:
        """Read parts of the events that were handed on below *folder*, but for some transactions.

        *has_locks* follows who holds which object, and in which order versions were installed: it
        needs all parts.
        """
        self.transactions: dict[JournalAid, Transaction] = {}
        self.orders: dict[str, list[str]] = {}
        """The versions of each object, in the order in which they were installed."""
        self.locks: list[tuple[str, str, list[Place]]] = []
        """Objects that two transactions wrote at the same time: the group, and the evidence."""
        self.incomplete: set[str] = set()
        """Groups of which something is missing."""
        self.groups: dict[str, CohortGroup] = {}
        perhaps: set[JournalAid] = set()
        for found in groups:
            self.groups[found.group] = found
            if found.incomplete or found.is_open:
                self.incomplete.add(found.group)
            locks = _WriteLocks() if has_locks else None
            for each in happened(found, folder, parts, without):
                self._read(found.group, each, locks, perhaps)
        for aid in perhaps & self.transactions.keys():
            self.transactions[aid].is_decision_on_record = True

    def _read(
        self, group: str, each: Happened, locks: _WriteLocks | None, perhaps: set[JournalAid]
    ) -> None:
        if each.standing is EventStanding.AUTHORITATIVE:
            self._take(group, each, each.event)
            if locks is not None:
                self._follow(group, each, each.event, locks)
        elif isinstance(each.event, Decided) and each.standing is EventStanding.OPTIMISTIC:
            perhaps.add(each.event.aid)
        elif isinstance(each.event, Completed):
            self._of(each.event.aid, each).part(group).lost[_stamp(each)] = each.place

    def _of(self, aid: JournalAid, each: Happened) -> Transaction:
        found = self.transactions.get(aid)
        if found is None:
            found = self.transactions[aid] = Transaction(aid, began_at=each.at)
        found.began_at = min(found.began_at, each.at)
        return found

    def _take(self, group: str, each: Happened, event: Event) -> None:
        transaction = self._of(event.aid, each)
        match event:
            case Completed():
                part = transaction.part(group)
                part.calls[_stamp(each)] = (event, each.place)
                part.place = each.place
                if event.writes:
                    part.written.append((each.position, event))
            case GivenUp(calls=calls):
                transaction.part(group).given_up += calls
            case Decided():
                transaction.decision, transaction.decided_at = event, each.place
                transaction.ended_at = each.at
            case JournalDone():
                transaction.is_done = True
            case Installed():
                part = transaction.part(group)
                part.installed, part.installed_as = event, str(_stamp(each))
                part.place, part.installed_at = each.place, each.at
                part.ends.append(each.position)
                part.versions += [
                    (each.position, write.name)
                    for stamp in event.calls
                    if stamp in part.calls
                    for write in part.calls[stamp][0].writes
                ]
            case JournalAborted(reason=reason):
                if group in transaction.groups:
                    part = transaction.part(group)
                    part.aborted, part.place = reason, each.place
                    part.ends.append(each.position)
                else:
                    transaction.abort = reason
                transaction.ended_at = transaction.ended_at or each.at

    def _follow(self, group: str, each: Happened, event: Event, locks: _WriteLocks) -> None:
        """Follow who holds which object, and which version came after which."""
        match event:
            case Completed():
                self.locks += [
                    (group, f"{event.aid} wrote {group}/{name}, which {aid} had locked", places)
                    for name, aid, places in locks.take(event, each.place)
                ]
            case GivenUp(calls=calls):
                locks.give_up(event.aid, calls)
            case Installed():
                part = self.transactions[event.aid].part(group)
                for position, name in part.versions:
                    order = self.orders.setdefault(f"{group}/{name}", [])
                    is_new = position == each.position
                    if is_new and (not order or order[-1] != part.installed_as):
                        order.append(part.installed_as)
                locks.release(event.aid)
            case JournalAborted():
                locks.release(event.aid)
            case _:
                pass

    def touches(self, first: int) -> Iterator[Touch]:
        """Give what transactions did to objects, each known by a number, from *first* on."""
        keys = Keys()
        for index, transaction in enumerate(self.transactions.values(), first):
            for group, taking in transaction.groups.items():
                yield from self._touches(keys, index, transaction, group, taking)

    def _touches(
        self, keys: Keys, index: int, transaction: Transaction, group: str, taking: Taking
    ) -> Iterator[Touch]:
        time = transaction.time
        held: dict[tuple[int, int], int] = {}
        for position, call in taking.written:
            last = next((end for end in taking.ends if end > position), FOREVER)
            for write in call.writes:
                held.setdefault((keys.of(group, write.name), last), position)
        for (key, last), first in held.items():
            yield Touch(HELD, key, first, last, time, index)
        if not transaction.is_committed:
            # A version of one that is not committed must not be there: nobody can have read it.
            for _, name in taking.versions:
                yield Touch(READ, keys.of(group, name), UNKNOWN, 0, time, index)
            return
        for position, name in dict.fromkeys(taking.versions):
            yield Touch(WRITTEN, keys.of(group, name), position, 0, time, index)
        known = self.groups[group]
        for call in taking.counting():
            for read in call.reads:
                version = known.position_of(read.version)
                yield Touch(READ, keys.of(group, read.name), version, 0, time, index)

    def rows(self) -> pa.Table:
        """Give the transactions as rows."""
        named = [(each.began_at, str(each.aid), each) for each in self.transactions.values()]
        named.sort(key=lambda each: each[:2])
        rows = [_row(name, each) for _, name, each in named]
        return pa.Table.from_pylist(rows, schema=TRANSACTIONS)


def _stamp(each: Happened) -> Viewstamp:
    return Viewstamp(each.view, each.number)


class _WriteLocks:
    """Who has written what in one group and has not ended: transactions, by their calls."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[JournalAid, dict[str, Place]]] = {}
        self._held: dict[JournalAid, set[str]] = {}

    def take(self, event: Completed, place: Place) -> Iterator[tuple[str, JournalAid, list[Place]]]:
        """Take the locks of a call; give the objects that others hold, and who."""
        for write in event.writes:
            holders = self._holders.setdefault(write.name, {})
            for aid, calls in holders.items():
                if aid != event.aid and calls:
                    yield write.name, aid, [*calls.values(), place]
            holders.setdefault(event.aid, {})[event.call] = place
            self._held.setdefault(event.aid, set()).add(write.name)

    def give_up(self, aid: JournalAid, given_up: tuple[str, ...]) -> None:
        """End the locks of calls that a transaction gave up."""
        for name in self._held.get(aid, ()):
            calls = self._holders[name][aid]
            for call in [each for each in calls if any(is_within(each, one) for one in given_up)]:
                del calls[call]

    def release(self, aid: JournalAid) -> None:
        """End all locks of a transaction."""
        for name in self._held.pop(aid, ()):
            del self._holders[name][aid]


def _row(name: str, transaction: Transaction) -> Row:
    calls = [call for taking in transaction.groups.values() for call, _ in taking.calls.values()]
    outcome = transaction.outcome
    reason = transaction.reason if outcome == "aborted" else ""
    if outcome == "undecided":
        reason = "it was in progress"
    elif transaction.decision is None and outcome == "committed":
        reason = "it has only read"
    return {
        "aid": name,
        "coordinator": transaction.aid.group,
        "groups": sorted(transaction.groups),
        "outcome": outcome,
        "reason": reason,
        "calls": len(calls),
        "reads": sum(len(call.reads) for call in calls),
        "writes": sum(len(call.writes) for call in calls),
        "began_at": transaction.began_at,
        "ended_at": transaction.time if outcome == "committed" else transaction.ended_at,
    }
