"""How many actions were red where and when, and how long: from the rows of a group, as columns.

Every replica has a row for each action that it came to know, and one for each that it marked green;
so a minute of calls is half a million rows, and nothing here looks at one of them by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coterie.kernel.past_lives import ALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Row = dict[str, Any]
_NEVER = np.iinfo(np.int64).max
_COLUMNS = ["replica", "incarnation", "recorded_at", "creator", "index"]


class OverTime:
    """The actions of one group: known at *known*, and green at *marked*."""

    def __init__(self, known: pa.Table, marked: pa.Table) -> None:
        both = pa.concat_tables([known.select(_COLUMNS), marked.select(_COLUMNS)])
        self._is_green = np.arange(len(both)) >= len(known)
        self.replicas, self._who = _encoded(both["replica"])
        self._life = both["incarnation"].to_numpy()
        self._at = both["recorded_at"].to_numpy()
        creators = both["creator"].combine_chunks()
        self._ids, id = _encoded(creators.field("id"))
        life = creators.field("incarnation").to_numpy(zero_copy_only=False)
        # A name is a number from here on, the same for all rows of one action.
        names, name = np.unique(
            np.stack([id, life, both["index"].to_numpy()]), axis=1, return_inverse=True
        )
        self._names, self._name = names, name.reshape(-1)
        places = {each: place for place, each in enumerate(self._ids)}
        own = np.array([places.get(each, -1) for each in self.replicas], np.int64)
        is_own = (own[self._who] == id) & (self._life == life) if len(both) else self._is_green
        created = self._first(is_own & ~self._is_green)
        self._became = self._first(self._is_green)
        is_told = (created < _NEVER) & (self._became < _NEVER)
        self._waits = np.where(is_told, np.maximum(self._became - created, 0), 0)
        self.waits = np.sort(self._waits[is_told]).tolist()
        """How long what is green had not been, from creation on."""

    def _first(self, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Give for every action when the first of these rows was recorded."""
        found = np.full(self._names.shape[1], _NEVER, np.int64)
        np.minimum.at(found, self._name[rows], self._at[rows])
        return found

    @property
    def still_red(self) -> int:
        """How many actions are green nowhere."""
        return int(np.count_nonzero(self._became == _NEVER))

    def red_at(self, replica: str, adopted: Sequence[Row]) -> list[list[int]]:
        """Give how many actions were red at a replica, as (time, number), where that changed.

        *adopted* are the states that it took over: what is in them is green there.
        """
        mine = self._who == self.replicas.index(replica)
        known, green = self._first(mine & ~self._is_green), self._first(mine & self._is_green)
        for row in adopted:
            is_in = np.zeros(len(known), np.bool_)
            for each in row["greens"]:
                is_in |= self._is_within(each)
            is_in &= known <= row["recorded_at"]
            green[is_in] = np.minimum(green[is_in], row["recorded_at"])
        is_known = known < _NEVER
        begun = known[is_known]
        ended = np.maximum(green[is_known], begun)
        ended = ended[ended < _NEVER]
        times = np.concatenate([begun, ended])
        steps = np.concatenate([np.ones(len(begun), np.int64), -np.ones(len(ended), np.int64)])
        moments, place = np.unique(times, return_inverse=True)
        changes = np.zeros(len(moments), np.int64)
        np.add.at(changes, place.reshape(-1), steps)
        line: list[list[int]] = np.stack([moments, np.cumsum(changes)], axis=1).tolist()
        return line

    def _is_within(self, end: Row) -> NDArray[np.bool_]:
        """Say which actions are within one entry of a cut."""
        ids, lives, indices = self._names
        creator = end["creator"]
        if creator["id"] not in self._ids:
            return np.zeros(len(ids), np.bool_)
        is_of = ids == self._ids.index(creator["id"])
        if end["index"] == ALL:
            result: NDArray[np.bool_] = is_of & (lives <= creator["incarnation"])
        else:
            result = is_of & (lives == creator["incarnation"]) & (indices <= end["index"])
        return result

    def waits_of(self, installations: Sequence[Row]) -> Iterator[list[int]]:
        """Give for each installation of a component how long what it made green had waited.

        What an installation makes green is marked in the very turn.
        """
        order = np.flatnonzero(self._is_green)
        order = order[np.argsort(self._at[order], kind="stable")]
        times = self._at[order]
        for row in installations:
            at = row["recorded_at"]
            first, last = np.searchsorted(times, [at, at + 1])
            rows = order[first:last]
            who = self.replicas.index(row["replica"]) if row["replica"] in self.replicas else -1
            rows = rows[(self._who[rows] == who) & (self._life[rows] == row["incarnation"])]
            yield self._waits[self._name[rows]].tolist()


def _encoded(column: pa.ChunkedArray | pa.Array) -> tuple[list[str], NDArray[np.int64]]:
    """Give the different texts of a column, and which of them each row has."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    coded = array.dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)
