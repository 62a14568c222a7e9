"""The Spark data source `coterie`: journals as tables.

    entries = spark.read.format("coterie").option("table", "entries").load("/var/lib/coterie")

Options: `path`, a folder with journals in it or a little below it, as for the command line
(several with a newline between them); `table`, a name of
`coterie.pipeline.read.tables.journal_tables` (default: `entries`); `growing`, whether these are
copies of journals whose replicas are still at work (default: false); `strict`, whether damage stops
the job (default: false).

The path may also be a lake (`coterie.pipeline.lake.lake`): the same tables, from the sealed files.

One partition is one segment, or one file of the lake. Filters on `group` and `replica` choose
among them. So does a bound of `position`: in a lake by ranges, in journals an upper one by what the
replica had settled when it began the segment, as entries are accepted above that. All bounds are
applied to the rows as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from coterie.journal import FileDisk, JournalError, VersionUnknown
from coterie.journal.format import read_segment_head
from coterie.pipeline.lake.lake import Lake, is_lake, read_stored, writer_of
from coterie.pipeline.read.growth import streamed
from coterie.pipeline.read.places import NoJournals, find_journals
from coterie.pipeline.read.planning import SegmentTask, plan
from coterie.pipeline.read.reading import read_segment
from coterie.pipeline.read.schemas import spark_schema
from coterie.pipeline.read.stream import JournalStreamReader
from coterie.pipeline.read.tables import journal_tables, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

_LARGEST = (1 << 63) - 1


class SegmentPartition(InputPartition):
    """One segment as Spark's unit of work."""

    def __init__(self, task: SegmentTask) -> None:
        super().__init__(task.path)
        self.task = task


class SealedPartition(InputPartition):
    """One file of a lake as Spark's unit of work."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class JournalSource(DataSource):
    """Makes readers for what `spark.read.format("coterie")` asks for."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "coterie"

    @property
    def table(self) -> str:
        """The table that is asked for."""
        table = self.options.get("table", "entries")
        known = journal_tables()
        if table not in known:
            raise JournalError(f"journals have no table {table!r}; there are {', '.join(known)}")
        return table

    def schema(self) -> StructType:
        """Give the schema of the table."""
        return spark_schema(schema_of(self.table))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make a reader of everything that is there."""
        del schema
        return JournalBatchReader(
            self._roots(), self.table, growing=self._is("growing"), strict=self._is("strict")
        )

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802 -- Spark's
        """Make a reader of everything that is there and will come."""
        del schema
        if self.table not in streamed():
            raise JournalError(
                f"{self.table} is about whole journals and cannot be followed: read it as a batch"
            )
        if any(is_lake(root) for root in self._roots()):
            raise JournalError("a lake cannot be followed: name the folder of the journals")
        return JournalStreamReader(
            self._roots(),
            self.table,
            strict=self._is("strict"),
            quiet_seconds=float(self.options.get("quiet", "0")),
        )

    def _roots(self) -> list[str]:
        """Give the folders with journals, at or a little below those that are named."""
        path = self.options.get("path", "")
        if not path:
            raise JournalError("say where the journals are: load('folder')")
        found: list[str] = []
        for folder in path.split("\n"):
            try:
                found += [folder] if is_lake(folder) else find_journals([folder])
            except NoJournals:
                found.append(folder)  # there may be some later; reading says so if there are none
        return found

    def _is(self, option: str) -> bool:
        return self.options.get(option, "false").lower() == "true"


class JournalBatchReader(DataSourceReader):
    """Reads one table of all segments that are there now."""

    def __init__(self, roots: list[str], table: str, *, growing: bool, strict: bool) -> None:
        self._roots = roots
        self._table = table
        self._growing = growing
        self._strict = strict
        self._groups: set[str] | None = None
        self._replicas: set[str] | None = None
        self._lowest = -_LARGEST
        self._highest = _LARGEST

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        """Take the filters that help; give back those that are for Spark."""
        for each in filters:
            if not self._take(each):
                yield each

    def partitions(self) -> list[InputPartition]:
        """Give the segments that may hold rows that are wanted."""
        if len(self._roots) == 1 and is_lake(self._roots[0]):
            return [SealedPartition(str(path)) for path in self._sealed(self._roots[0])]
        tasks = plan(
            self._roots, growing=self._growing, groups=self._groups, replicas=self._replicas
        )
        return [SegmentPartition(task) for task in tasks if self._may_hold(task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one segment, or one file of a lake."""
        if isinstance(partition, SealedPartition):
            table = read_stored(Path(partition.path), schema_of(self._table))
            yield from (self._within(batch) for batch in table.to_batches())
            return
        assert isinstance(partition, SegmentPartition)
        for _, batch in read_segment(partition.task, (self._table,), strict=self._strict):
            yield self._within(batch)

    # ---- inside

    def _take(self, wanted: Filter) -> bool:
        """Remember a filter, if it is one that can be applied here in full."""
        match wanted:
            case EqualTo(("group_name",), str() as group):
                self._groups = _meet(self._groups, {group})
            case In(("group_name",), values):
                self._groups = _meet(self._groups, set(values))
            case EqualTo(("replica",), str() as replica):
                self._replicas = _meet(self._replicas, {replica})
            case In(("replica",), values):
                self._replicas = _meet(self._replicas, set(values))
            case EqualTo(("position",), int() as position):
                self._bound(position, position)
            case GreaterThan(("position",), int() as position):
                self._bound(position + 1, _LARGEST)
            case GreaterThanOrEqual(("position",), int() as position):
                self._bound(position, _LARGEST)
            case LessThan(("position",), int() as position):
                self._bound(-_LARGEST, position - 1)
            case LessThanOrEqual(("position",), int() as position):
                self._bound(-_LARGEST, position)
            case _:
                return False
        return True

    def _bound(self, lowest: int, highest: int) -> None:
        self._lowest = max(self._lowest, lowest)
        self._highest = min(self._highest, highest)

    def _sealed(self, root: str) -> Iterator[Path]:
        """Give the files of a lake that may hold rows that are wanted."""
        lake = Lake.open(root)
        for group in lake.groups():
            if self._groups is not None and group not in self._groups:
                continue
            for path, number in lake.files_of(self._table, group):
                start = (number or 0) * lake.width
                is_outside = number is not None and (
                    start > self._highest or start + lake.width <= self._lowest
                )
                is_other = self._replicas is not None and writer_of(path)[0] not in self._replicas
                if not (is_outside or is_other):
                    yield path

    def _may_hold(self, task: SegmentTask) -> bool:
        if self._table != "entries" or self._highest == _LARGEST:
            return True
        try:
            head = read_segment_head(FileDisk(task.root), task.path).head
        except (ValueError, VersionUnknown):
            return True  # reading it will say so
        return head.facts.settled < self._highest

    def _within(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out rows outside of the bounds."""
        if self._lowest == -_LARGEST and self._highest == _LARGEST:
            return batch
        positions = batch.column("position")
        inside = pc.and_(
            pc.greater_equal(positions, self._lowest), pc.less_equal(positions, self._highest)
        )
        return batch.filter(inside)


def _meet(known: set[str] | None, values: set[str]) -> set[str]:
    return values if known is None else known & values
