"""Transactions that append to lists, and read them: whether there is one order of them.

Each value is appended to a key once, so a read tells the order of all versions before it, and who
comes before whom is known exactly (Kingsbury and Alvaro, "Elle: inferring isolation anomalies from
experimental observations", 2020): whoever appended a value comes before who read it and before who
appended the next; who read a list comes before who appended what it does not have. The history is
serializable if nobody has to come before itself, and reads are possible at all. With `strict`,
whoever returned before another was called comes before it as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from coterie.checking.recorded.errors import NoHistory
from coterie.checking.recorded.reading import MISSING, CallEnd
from coterie.checking.serializability import shortest_circle

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from coterie.checking.recorded.reading import RecordedCall

__all__ = ["Anomaly", "check_appends"]

Version = tuple["Hashable", ...]


class Anomaly(NamedTuple):
    """What cannot be, in words, and the calls it is about, in the order of the words."""

    name: str
    evidence: str
    calls: tuple[RecordedCall, ...]
    steps: tuple[str, ...] = ()
    """For a circle: why each of the calls comes before the next, and the last before the first."""


@dataclass(slots=True)
class _Transaction:
    """A transaction that happened, or may have."""

    call: RecordedCall
    appends: list[tuple[Hashable, Hashable]] = field(default_factory=list)
    reads: list[tuple[Hashable, Version]] = field(default_factory=list)
    """What it saw of others: without its own appends."""

    @property
    def name(self) -> str:
        return f"line {self.call.where}"


def check_appends(calls: Sequence[RecordedCall], *, strict: bool = False) -> list[Anomaly]:
    """Give what contradicts an order of all transactions; nothing if there is one.

    Raises `NoHistory` if lines are no such transactions, or one value is appended twice.
    """
    history = _History(calls)
    found = [*history.impossible(), *history.unlike()]
    if found:
        return found
    circle = _Graph(history, calls if strict else ()).circle()
    return [circle] if circle is not None else []


class _History:
    def __init__(self, calls: Sequence[RecordedCall]) -> None:
        self.writers: dict[tuple[Hashable, Hashable], _Transaction] = {}
        self.aborted: dict[tuple[Hashable, Hashable], RecordedCall] = {}
        self.transactions: list[_Transaction] = []
        self._strange: list[Anomaly] = []
        lost: list[_Transaction] = []
        for call in calls:
            transaction = self._read(call)
            self._enter(transaction)
            if call.outcome is CallEnd.RETURNED:
                self.transactions.append(transaction)
            elif call.outcome is CallEnd.LOST:
                lost.append(transaction)
        seen = {
            (key, value)
            for each in self.transactions
            for key, version in each.reads
            for value in version
        }
        # What somebody saw of a lost transaction has happened, and all of it.
        self.transactions += [each for each in lost if seen & set(each.appends)]
        self.orders: dict[Hashable, Version] = {}
        for each in self.transactions:
            for key, version in each.reads:
                if len(version) > len(self.orders.get(key, ())):
                    self.orders[key] = version

    def _read(self, call: RecordedCall) -> _Transaction:
        transaction = _Transaction(call)
        words = call.value
        if call.outcome is CallEnd.RETURNED:
            words = call.ended_with if call.result is MISSING else call.result
        expected: dict[Hashable, Version] = {}
        own: dict[Hashable, Version] = {}
        for verb, key, value in _micro_operations(call, words):
            if verb == "append":
                transaction.appends.append((key, value))
                own[key] = (*own.get(key, ()), value)
                if key in expected:
                    expected[key] = (*expected[key], value)
                continue
            if call.outcome is not CallEnd.RETURNED:
                continue
            version = () if value is None else value
            if not isinstance(version, tuple):
                raise NoHistory(f"a read answers a list, not {value!r}", call.lines[-1])
            mine = own.get(key, ())
            outside = version[: len(version) - len(mine)]
            if version[len(outside) :] != mine or expected.get(key, version) != version:
                self._strange.append(
                    Anomaly(
                        "internal",
                        f"its read of {key!r} answers {list(version)}, which does not agree with"
                        " what the transaction itself did and saw before",
                        (call,),
                    )
                )
            expected[key] = version
            transaction.reads.append((key, outside))
        return transaction

    def _enter(self, transaction: _Transaction) -> None:
        call = transaction.call
        for append in transaction.appends:
            other = self.writers.get(append)
            before = other.call if other is not None else self.aborted.get(append)
            if before is not None:
                raise NoHistory(
                    f"{append[1]!r} is appended to {append[0]!r} here and in line {before.where}:"
                    " only if each value is appended to a key once can it be said who read what",
                    call.lines[0],
                )
            if call.outcome is CallEnd.FAILED:
                self.aborted[append] = call
            else:
                self.writers[append] = transaction

    def impossible(self) -> Iterator[Anomaly]:
        """Reads that no order can explain."""
        yield from self._strange
        for each in self.transactions:
            for key, version in each.reads:
                yield from self._impossible_read(each.call, key, version)

    def _impossible_read(
        self, call: RecordedCall, key: Hashable, version: Version
    ) -> Iterator[Anomaly]:
        if len(set(version)) < len(version):
            text = f"its read of {key!r} answers {list(version)}, where something stands twice"
            yield Anomaly("appended twice", text, (call,))
        for value in version:
            writer = self.aborted.get((key, value))
            text = f"its read of {key!r} saw {value!r}, "
            if writer is not None:
                text += f"which line {writer.where} did not append: it failed"
                yield Anomaly("aborted read", text, (call, writer))
            elif (key, value) not in self.writers:
                yield Anomaly("read of nothing", f"{text}which nobody appended", (call,))
        last = self.writers.get((key, version[-1])) if version else None
        if last is not None and last.call is not call:
            theirs = [value for other, value in last.appends if other == key]
            if theirs[-1] != version[-1]:
                text = f"its read of {key!r} ends with {version[-1]!r}, but line "
                text += f"{last.call.where} went on to append {theirs[-1]!r}"
                yield Anomaly("intermediate read", text, (call, last.call))

    def unlike(self) -> Iterator[Anomaly]:
        """Reads of one key of which neither is the beginning of the other."""
        longest: dict[Hashable, tuple[Version, RecordedCall]] = {}
        for each in sorted(self.transactions, key=lambda each: each.call.called):
            for key, version in each.reads:
                if len(version) > len(longest.get(key, ((), each.call))[0]):
                    longest[key] = version, each.call
        for each in self.transactions:
            for key, version in each.reads:
                order, by = longest.get(key, (version, each.call))
                if order[: len(version)] != version:
                    text = f"its read of {key!r} answers {list(version)}, and that of line "
                    text += f"{by.where} {list(order)}: neither is the beginning of the other"
                    yield Anomaly("two orders", text, (each.call, by))


class _Graph:
    """Who comes before whom, and why."""

    def __init__(self, history: _History, strictly: Sequence[RecordedCall]) -> None:
        self._calls = {each.name: each.call for each in history.transactions}
        self._edges: dict[str, dict[str, str]] = {name: {} for name in self._calls}
        self._history = history
        placed = set()
        for key, order in history.orders.items():
            placed |= {(key, value) for value in order}
            for one, other in pairwise(order):
                text = f"appended {one!r} to {key!r}, before the other appended {other!r}"
                self._add(history.writers[key, one], history.writers[key, other], text)
        unseen: dict[Hashable, list[tuple[Hashable, _Transaction]]] = {}
        for each in history.transactions:
            for key, value in each.appends:
                if (key, value) not in placed:
                    unseen.setdefault(key, []).append((value, each))
        for each in history.transactions:
            for key, version in each.reads:
                self._add_read(each, key, version, unseen.get(key, []))
        self._add_times(strictly)

    def _add(self, one: _Transaction, other: _Transaction, why: str) -> None:
        if one is not other:
            self._edges[one.name].setdefault(other.name, why)

    def _add_read(
        self,
        reader: _Transaction,
        key: Hashable,
        version: Version,
        unseen: list[tuple[Hashable, _Transaction]],
    ) -> None:
        history = self._history
        if version:
            text = f"appended {version[-1]!r} to {key!r}, which the other read"
            self._add(history.writers[key, version[-1]], reader, text)
        order = history.orders.get(key, ())
        missed = (
            [(order[len(version)], history.writers[key, order[len(version)]])]
            if len(version) < len(order)
            else unseen
        )
        for value, writer in missed:
            self._add(reader, writer, f"read {key!r} without {value!r}, which the other appended")

    def _add_times(self, calls: Sequence[RecordedCall]) -> None:
        """Add who returned before whom was called; what follows from others is left out."""
        by_line = {call.where: name for name, call in self._calls.items()}
        known = [call for call in calls if call.where in by_line]
        ends = sorted((each for each in known if each.returned is not None), key=_returned)
        front: list[RecordedCall] = []
        for call in sorted(known, key=lambda each: each.called):
            while ends and _returned(ends[0]) < call.called:
                ended = ends.pop(0)
                front = [each for each in front if not _returned(each) < ended.called]
                front.append(ended)
            for each in front:
                text = "returned before the other was called"
                self._edges[by_line[each.where]].setdefault(by_line[call.where], text)

    def circle(self) -> Anomaly | None:
        """Give a shortest circle, if there is one."""
        names = shortest_circle(self._edges)
        if not names:
            return None
        steps = tuple(
            self._edges[one][other]
            for one, other in zip(names, [*names[1:], names[0]], strict=True)
        )
        text = f"{len(names)} transactions would each have to come before the next"
        return Anomaly("circle", text, tuple(self._calls[name] for name in names), steps)


def _returned(call: RecordedCall) -> float:
    return float("inf") if call.returned is None else call.returned


def _micro_operations(
    call: RecordedCall, words: Hashable
) -> Iterator[tuple[str, Hashable, Hashable]]:
    line = call.lines[0]
    if not isinstance(words, tuple):
        raise NoHistory(
            'a transaction is a list such as [["append", "x", 1], ["r", "y", null]]', line
        )
    for each in words:
        match each:
            case (str(verb), key, value) if verb.removeprefix(":") in ("append", "r"):
                yield verb.removeprefix(":"), key, value
            case _:
                raise NoHistory(f'{each!r} is neither ["append", key, value] nor ["r", key]', line)
