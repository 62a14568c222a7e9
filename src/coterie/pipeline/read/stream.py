"""The streaming side of the data source `coterie`: a table that is followed as journals grow.

    lives = spark.readStream.format("coterie").option("table", "lives").load("/var/lib/coterie")

Spark's offset is the place in all journals that `coterie.pipeline.read.growth` gives, so a batch
that is repeated after a fault has the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coterie.journal import Offset
from coterie.pipeline.read.growth import Slice, ended_now, place_now, read_slice, slices_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


_ENDED = "ended"
"""Not a journal, but how many of them have ended."""


class SlicePartition(InputPartition):
    """A part of one segment as Spark's unit of work."""

    def __init__(self, piece: Slice) -> None:
        super().__init__(piece.path)
        self.piece = piece


class JournalStreamReader(DataSourceStreamReader):
    """Follows one table. Spark keeps its place: an offset for each journal, by name."""

    def __init__(
        self, roots: list[str], table: str, *, strict: bool, quiet_seconds: float = 0.0
    ) -> None:
        self._roots = roots
        self._quiet_seconds = quiet_seconds
        self._table = table
        self._strict = strict
        self._place: dict[str, Offset] = {}

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 -- Spark's name
        """Begin before everything."""
        return {}

    # Spark 4.2 knows a second form of this method, 4.1 only this one.
    def latestOffset(self) -> dict[str, dict[str, int]]:  # type: ignore[override]  # noqa: N802
        """Say how far the journals can be read now."""
        self._place = place_now(self._roots, self._place)
        told = {key: offset._asdict() for key, offset in self._place.items()}
        if self._quiet_seconds:
            # That journals have ended is news as well, though it brings no rows.
            ended = ended_now(self._roots, self._quiet_seconds)
            told[_ENDED] = Offset(incarnation=ended)._asdict()
        return told

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[InputPartition]:
        """Give what lies between two places."""
        pieces = slices_between(_place(start), _place(end))
        return [SlicePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one slice."""
        assert isinstance(partition, SlicePartition)
        yield from read_slice(partition.piece, self._table, strict=self._strict)


def _place(stored: dict[str, dict[str, int]]) -> dict[str, Offset]:
    return {key: Offset(**offset) for key, offset in stored.items() if key != _ENDED}
