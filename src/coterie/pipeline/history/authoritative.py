"""The authoritative entries of a range, by position, and the answers that speak of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from coterie.pipeline.lake.lake import writer_of
from coterie.pipeline.lake.ranges import read_replies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coterie.pipeline.history.results import Place
    from coterie.pipeline.lake.ranges import Range

    Numbers = NDArray[np.int64]

_REPLY_COLUMNS = (
    "position",
    "stamp",
    "standing",
    "session",
    "request",
    "recorded_at",
    "sequence",
    "digest",
)


@dataclass(slots=True)
class AnswerColumns:
    """Replies of one range as columns, and which replica gave each."""

    table: pa.Table
    replicas: list[tuple[str, int, int]]
    """Replica, life, and how many rows, in the order of the table."""

    def __getitem__(self, column: str) -> Numbers:
        values: Numbers = self.table[column].to_numpy()
        return values

    def place(self, row: int) -> Place:
        """Say which record of which replica a row is from."""
        sequence = self.table["sequence"][row].as_py()
        for replica, incarnation, size in self.replicas:
            if row < size:
                return replica, incarnation, sequence
            row -= size
        raise IndexError(row)


class AuthoritativeRange:
    """What checks need of a range, wherever its authoritative entries come from."""

    def __init__(self, task: Range, positions: Numbers) -> None:
        self.task = task
        self.positions = positions
        """The positions of the authoritative entries, in order."""
        self._answers: AnswerColumns | None = None
        self._matching: Numbers | None = None
        self._stamps: Numbers | None = None

    def load_stamps(self) -> Numbers:
        """Give the stamps of the entries; asked for once."""
        raise NotImplementedError

    def content(self, after: int) -> pa.Table:
        """Give the entries above a position."""
        raise NotImplementedError

    @property
    def stamps(self) -> Numbers:
        """The stamps of the authoritative entries."""
        if self._stamps is None:
            self._stamps = self.load_stamps()
        return self._stamps

    def dense(self, values: Numbers, missing: int) -> Numbers:
        """Lay out a value of each authoritative entry by position."""
        laid = np.full(self.task.width, missing, np.int64)
        laid[self.positions - self.task.start] = values
        return laid

    @property
    def answers(self) -> AnswerColumns:
        """The replies of this range."""
        if self._answers is None:
            tables = [read_replies([file], _REPLY_COLUMNS) for file in self.task.replies]
            replicas = [
                (*writer_of(file), len(table))
                for file, table in zip(self.task.replies, tables, strict=True)
            ]
            nothing = read_replies([], _REPLY_COLUMNS)
            self._answers = AnswerColumns(pa.concat_tables([nothing, *tables]), replicas)
        return self._answers

    @property
    def matching(self) -> Numbers:
        """Which answers speak of authoritative entries."""
        if self._matching is None:
            answers = self.answers
            offsets = np.maximum(answers["position"] - self.task.start, 0)
            is_right = self.dense(self.stamps, 0)[offsets] == answers["stamp"]
            self._matching = np.flatnonzero(is_right & self.is_known(answers["position"]))
        return self._matching

    def is_known(self, positions: Numbers) -> NDArray[np.bool_]:
        """Say of positions in this range whether an authoritative entry is known there."""
        known = np.zeros(self.task.width, np.bool_)
        known[self.positions - self.task.start] = True
        is_inside: NDArray[np.bool_] = known[np.maximum(positions - self.task.start, 0)]
        return is_inside
