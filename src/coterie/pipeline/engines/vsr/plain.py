"""Transactions that went as they should, by columns.

Nearly all transactions are *plain*: every group that ran calls of one installed just these, the
coordinator decided for just these (or all groups say that it has only read), nothing was given up,
aborted or lost, and all of it is authoritative. That is seen from sums and counts of columns
(`coterie.pipeline.engines.vsr.traces`), and then no check that looks at one transaction can find
anything. Only the others are decoded again and followed one by one, by
`coterie.pipeline.engines.vsr.transactions`.

Two transactions that are taken for one, because 64 bits of their names agree, are not plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coterie.pipeline.engines.vsr.event_ranges import read_handed_on
from coterie.pipeline.engines.vsr.events import Completed, Decided, Installed, JournalDone
from coterie.pipeline.engines.vsr.history import STANDINGS, EventStanding
from coterie.pipeline.engines.vsr.serial import HELD, READ, WRITTEN
from coterie.pipeline.engines.vsr.traces import CODES, TOUCHED
from coterie.pipeline.history.results import Results
from coterie.pipeline.read.schemas import TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_AUTHORITATIVE = STANDINGS.index(EventStanding.AUTHORITATIVE)
_CALL, _DECIDED, _DONE, _INSTALLED = (
    CODES[kind] for kind in (Completed, Decided, JournalDone, Installed)
)
_COLUMNS = [
    *("aid", "position", "standing", "at"),
    *("transaction", "kind", "sign", "calls", "reads", "writes", "parts", "is_odd"),
]


@dataclass(slots=True)
class PlainTransactions:
    """The plain transactions of a part, as parallel columns."""

    groups: Sequence[str]
    ids: Numbers
    """The bits that stand for each, in order."""
    names: pa.ChunkedArray
    is_decided: NDArray[np.bool_]
    calls: Numbers
    reads: Numbers
    writes: Numbers
    began: Numbers
    ended: Numbers
    counts: dict[str, dict[str, int]]
    """How many rows of each group the checks looked at."""
    installed: tuple[Numbers, Numbers, Numbers]
    """Which transaction was installed by which group at which position, in this order."""

    def rows(self) -> pa.Table:
        """Give them as rows of `transactions`."""
        whose, which, _ = self.installed
        offsets = np.searchsorted(whose, np.arange(len(self.ids) + 1)).astype(np.int32)
        took_part = pa.array(self.groups, pa.string()).take(pa.array(which))
        reasons = pa.array(["it has only read", ""]).take(pa.array(self.is_decided.astype(int)))
        began, ended = (pa.array(each) for each in (self.began, self.ended))
        columns = {
            "aid": self.names,
            "coordinator": _coordinators(self.names),
            "groups": pa.ListArray.from_arrays(pa.array(offsets), took_part),
            "outcome": pa.repeat(pa.scalar("committed"), len(self.ids)),
            "reason": reasons,
            "calls": pa.array(self.calls),
            "reads": pa.array(self.reads),
            "writes": pa.array(self.writes),
            "began_at": began.cast(TRANSACTIONS.field("began_at").type),
            "ended_at": ended.cast(TRANSACTIONS.field("ended_at").type),
        }
        arrays = [columns[field.name].cast(field.type) for field in TRANSACTIONS]
        return pa.table(arrays, schema=TRANSACTIONS)

    def results(self) -> list[Results]:
        """Give how many rows the checks of single transactions looked at."""
        found: list[Results] = []
        for group, counted in self.counts.items():
            results = Results(group)
            for check, rows in counted.items():
                results.checked(check, rows)
            found.append(results)
        return found

    def touches(self, folder: str, part: int, first: int) -> Numbers:
        """Give what they did to objects, as rows of `serial.TOUCHES`; *first* is the first id."""
        made: list[Numbers] = []
        for number, group in enumerate(self.groups):
            table = read_handed_on(folder, part, group, TOUCHED.names)
            columns = {name: table[name].to_numpy() for name in TOUCHED.names}
            index = _find(self.ids, columns.pop("transaction"))
            mine = index >= 0
            columns = {name: values[mine] for name, values in columns.items()}
            ends = np.zeros(len(self.ids), np.int64)
            whose, which, position = self.installed
            ends[whose[which == number]] = position[which == number]
            made += _touches(columns, index[mine], ends, self.ended, first)
        return np.concatenate(made) if made else np.zeros((0, 6), np.int64)


def _find(ids: Numbers, wanted: Numbers) -> Numbers:
    """Give the place of each among ordered ids; -1 where it is none of them."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    found: Numbers = np.where(ids[place] == wanted, place, -1)
    return found


def _coordinators(names: pa.ChunkedArray) -> pa.Array:
    """Give the group in each name: all but the view and the number at its end."""
    return pa.array([each.rsplit("/", 2)[0] for each in names.to_pylist()], pa.string())


def _touches(
    columns: dict[str, Numbers], index: Numbers, ends: Numbers, times: Numbers, first: int
) -> list[Numbers]:
    is_read = columns["kind"] == READ
    made = [_rows(READ, columns["key"], columns["version"], 0, index, times, first, is_read)]
    # Of several writes to one object the first one began to hold it, and one version came of them.
    order = np.lexsort((columns["position"], columns["key"], index, is_read))
    order = order[: int((~is_read).sum())]
    same = (np.diff(columns["key"][order], prepend=0) == 0) & (
        np.diff(index[order], prepend=-1) == 0
    )
    once = np.zeros(len(index), np.bool_)
    once[order[~same]] = True
    until = ends[index]
    made += [_rows(HELD, columns["key"], columns["position"], until, index, times, first, once)]
    made += [_rows(WRITTEN, columns["key"], until, 0, index, times, first, once)]
    return made


def _rows(  # noqa: PLR0913, PLR0917 -- the columns
    kind: int,
    keys: Numbers,
    start: Numbers,
    end: Numbers | int,
    index: Numbers,
    times: Numbers,
    first: int,
    wanted: NDArray[np.bool_],
) -> Numbers:
    columns = (kind, keys, start, end, times[index], index + first)
    made: Numbers = np.stack([np.broadcast_to(each, keys.shape) for each in columns], axis=1)
    return made[wanted]


def read_plain(groups: Sequence[str], folder: str, part: int) -> PlainTransactions:
    """Find the plain transactions of a part among all that was handed on."""
    rows = _gather(groups, folder, part)
    ids, first, which = np.unique(rows.transaction, return_index=True, return_inverse=True)
    seen = _Seen(rows, which, len(ids), len(groups))
    takings = _Takings(seen)
    is_plain = seen.is_usual()
    is_plain[takings.owner[takings.is_wrong()]] = False
    has_only_read = seen.has_only_read(takings)
    is_plain &= (takings.number > 0) & (seen.is_decided_as_run(takings) | has_only_read)
    began, ended = seen.times(has_only_read)
    chosen = np.flatnonzero(is_plain)
    return PlainTransactions(
        groups=groups,
        ids=ids[chosen],
        names=rows.names.take(pa.array(first[chosen])),
        is_decided=~has_only_read[chosen],
        calls=seen.count(rows.kind == _CALL)[chosen],
        reads=seen.sum(rows.reads)[chosen],
        writes=seen.sum(rows.writes)[chosen],
        began=began[chosen],
        ended=ended[chosen],
        counts=takings.counts(groups, is_plain),
        installed=takings.installed(is_plain),
    )


@dataclass(slots=True)
class _Rows:
    """All that was handed on of a part, as parallel columns."""

    names: pa.ChunkedArray
    group: Numbers
    transaction: Numbers
    position: Numbers
    standing: Numbers
    at: Numbers
    kind: Numbers
    sign: NDArray[np.uint64]
    calls: Numbers
    reads: Numbers
    writes: Numbers
    parts: Numbers
    is_odd: NDArray[np.bool_]


def _gather(groups: Sequence[str], folder: str, part: int) -> _Rows:
    tables = [read_handed_on(folder, part, group, _COLUMNS) for group in groups]
    number = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    joined = pa.concat_tables(tables)
    columns = {name: joined[name].to_numpy() for name in _COLUMNS if name != "aid"}
    return _Rows(names=joined["aid"], group=number, **columns)


@dataclass(slots=True)
class _Seen:
    """What is told of each transaction."""

    rows: _Rows
    which: Numbers
    """Of which transaction each row tells."""
    size: int
    groups: int

    def count(self, wanted: NDArray[np.bool_]) -> Numbers:
        """Count the rows that are *wanted*, by transactions."""
        return np.bincount(self.which[wanted], minlength=self.size)

    def sum(self, values: Any, wanted: NDArray[np.bool_] | None = None) -> Any:  # noqa: ANN401
        """Add up a column, by transactions, as its numbers overflow."""
        chosen = slice(None) if wanted is None else wanted
        return _sum(self.which[chosen], values[chosen], self.size)

    def is_usual(self) -> NDArray[np.bool_]:
        """Say of which nothing is told but calls, installations, decisions and that all is done."""
        rows = self.rows
        strange = ~np.isin(rows.kind, (_CALL, _INSTALLED, _DECIDED, _DONE)) | rows.is_odd
        strange |= rows.standing != _AUTHORITATIVE
        usual = np.ones(self.size, np.bool_)
        usual[self.which[strange]] = False
        return usual

    def is_decided_as_run(self, takings: _Takings) -> NDArray[np.bool_]:
        """Say of which there is one decision, for all groups and just the calls they ran."""
        rows = self.rows
        is_call, is_decision = rows.kind == _CALL, rows.kind == _DECIDED
        found: NDArray[np.bool_] = (self.count(is_decision) == 1) & (self._readers() == 0)
        found &= self.sum(rows.parts, is_decision) == takings.number
        for column in (rows.sign, rows.calls):
            found &= self.sum(column, is_decision) == self.sum(column, is_call)
        return found

    def has_only_read(self, takings: _Takings) -> NDArray[np.bool_]:
        """Say which wrote nothing, and are over as readers in all groups."""
        found: NDArray[np.bool_] = self.count(self.rows.kind == _DECIDED) == 0
        found &= (self.sum(self.rows.writes) == 0) & (self._readers() == takings.number)
        return found

    def _readers(self) -> Numbers:
        readers: Numbers = self.sum(self.rows.parts, self.rows.kind == _INSTALLED)
        return readers

    def times(self, has_only_read: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Say when each began, and when it ended: decided, or read for the last time."""
        kind, at = self.rows.kind, self.rows.at
        began = np.full(self.size, np.iinfo(np.int64).max)
        np.minimum.at(began, self.which, at)
        ended = np.zeros(self.size, np.int64)
        closing = (kind == _DECIDED) | ((kind == _INSTALLED) & has_only_read[self.which])
        np.maximum.at(ended, self.which[closing], at[closing])
        return began, ended


class _Takings:
    """What single groups did of single transactions."""

    def __init__(self, seen: _Seen) -> None:
        rows = seen.rows
        inside = np.flatnonzero((rows.kind == _CALL) | (rows.kind == _INSTALLED))
        places, self._which = np.unique(
            seen.which[inside] * seen.groups + rows.group[inside], return_inverse=True
        )
        self.owner, self.member = places // seen.groups, places % seen.groups
        self.number = np.bincount(self.owner, minlength=seen.size)
        """How many groups took part in each transaction."""
        is_call = rows.kind[inside] == _CALL
        self._calls, self._ends = inside[is_call], inside[~is_call]
        self._call, self._end = self._which[is_call], self._which[~is_call]
        self._rows = rows
        self._until = np.zeros(len(places), np.int64)
        np.maximum.at(self._until, self._end, rows.position[self._ends])

    def is_wrong(self) -> NDArray[np.bool_]:
        """Say where a group did not install, once and at last, just what it ran."""
        rows, size = self._rows, len(self.owner)
        wrong = np.bincount(self._end, minlength=size) != 1
        wrong |= np.bincount(self._call, minlength=size) == 0
        for column in (rows.sign, rows.calls):
            ran = _sum(self._call, column[self._calls], size)
            wrong |= ran != _sum(self._end, column[self._ends], size)
        latest = np.zeros(size, np.int64)
        np.maximum.at(latest, self._call, rows.position[self._calls])
        found: NDArray[np.bool_] = wrong | (latest >= self._until)
        return found

    def counts(
        self, groups: Sequence[str], is_plain: NDArray[np.bool_]
    ) -> dict[str, dict[str, int]]:
        """Count what the checks of single transactions look at, by groups."""
        size = len(self.owner)
        ran = np.bincount(self._call, minlength=size)
        wrote = _sum(self._call, self._rows.writes[self._calls], size)
        found: dict[str, dict[str, int]] = {}
        for number, name in enumerate(groups):
            mine = is_plain[self.owner] & (self.member == number)
            took_part = int(mine.sum())
            found[name] = {
                "locks kept": int(wrote[mine].sum()),
                "atomic": took_part,
                "lost calls abort": int(ran[mine].sum()),
                "serializable": took_part,
            }
        return found

    def installed(self, is_plain: NDArray[np.bool_]) -> tuple[Numbers, Numbers, Numbers]:
        """Say which plain transaction which group installed at which position."""
        mine = is_plain[self.owner]
        number = np.cumsum(is_plain) - 1
        return number[self.owner[mine]], self.member[mine], self._until[mine]


def _sum(index: Numbers, values: Any, size: int) -> Any:  # noqa: ANN401 -- of any kind of number
    """Add up values by places, as their numbers overflow."""
    found = np.zeros(size, np.uint64 if values.dtype == np.uint64 else np.int64)
    np.add.at(found, index, values)
    return found
