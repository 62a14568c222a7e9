"""What an engine family has to say to the pipeline.

*Tables* are what its records become when journals are read. A *case* is all its groups in one lake
with what is to be found out about them: it names the tasks, does them, and gives the verdicts.

Tasks come in rounds, because some need what others have found: all tasks of one round, of all
families, are one job of Spark, and share nothing. What a round hands on to the next are files in a
folder of the run (`Wanted.scratch`), so that no round's result has to fit into one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from coterie.pipeline.history.replay import Program
    from coterie.pipeline.history.results import Results
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.publish.figures import Figures

Row = dict[str, Any]
ToRow = Callable[[Any], Row]
"""Gives the columns of a record, but for those that say where it stands."""


class Check(NamedTuple):
    """A promise of the engine that a check looks after."""

    name: str
    paper: str
    promise: str


class Maker(Protocol):
    """Gathers records of one life, and gives them as rows of one table."""

    def __len__(self) -> int: ...

    def add(self, record: Any, sequence: int) -> None:  # noqa: ANN401 -- any record of the table
        """Take a record."""

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""


@dataclass(frozen=True)
class Table:
    """A table that is read from journals."""

    schema: pa.Schema
    rows: Mapping[type, ToRow] = field(default_factory=dict)
    """Which records it tells of, and how each becomes a row."""
    maker: Callable[[str, str, int], Maker] | None = None
    """Makes rows of many records at once, for group, replica and incarnation; takes `kinds`."""
    kinds: tuple[type, ...] = ()
    is_positioned: bool = False
    """Whether it grows with the history, and is cut by ranges of positions."""


@dataclass(frozen=True)
class Wanted:
    """What a run is to find out. A plain value, so that tasks can have it."""

    scratch: str
    """A folder for what rounds hand on; it is empty at the beginning, and removed at the end."""
    tables: str = ""
    """The folder that gets the tables of histories, one folder each; nothing if none is wanted."""
    events: str = ""
    """The folder that gets the tables of events and states; nothing if none are wanted."""
    last: str = ""
    """The folder of the same tables of the last run, whose decided ranges may be taken over."""
    code: str = ""
    """A digest of the code that judges: what other code came to is not taken over."""
    has_checks: bool = True
    programs: Mapping[str, Program] = field(default_factory=dict)
    """Which class each group runs."""
    roots: Sequence[str | Path] = ()
    """The folders of the journals: dumped states lie there."""
    clock_bound: int = 0
    """How far apart the clocks of clients and replicas may be."""


class Case(Protocol):
    """All groups of one family in one lake, and what is to be found out about them.

    It travels to every task, so it is made of plain values.
    """

    rounds: int

    @property
    def groups(self) -> Iterable[str]:
        """The names of the groups."""

    def items(self, number: int) -> Sequence[Any]:
        """Give the tasks of a round; what takes longest comes first."""

    def work(self, item: Any) -> Iterable[Results]:  # noqa: ANN401 -- what `items` gave
        """Do a task; give what it found."""

    def conclude(self, found: dict[str, Results], spark: SparkSession | None) -> None:
        """Do what needs the results of all tasks."""

    def verdicts(self, results: Results) -> Iterator[Row]:
        """Give a verdict on every promise to one group."""


class Family(Protocol):
    """What the pipeline must know of an engine family."""

    name: str
    tables: Mapping[str, Table]
    """The tables that the family's records become, by name."""
    histories: Mapping[str, pa.Schema]
    """The tables in which a case gives the history."""
    checks: Mapping[str, Check]
    """The promises, in the order in which they are reported."""

    def owns(self, stack: str) -> bool:
        """Say whether replicas with this stack are of this family."""

    def open(
        self, lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
    ) -> Case:
        """Begin with what is wanted of some groups."""

    def views(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give what happened to views, as rows of `views`, for the report."""

    def settlements(self, lake: Lake, group: str) -> Iterable[Row]:
        """Give when answers became final, as rows of `standings`, for the report."""

    def outcomes(self, tables: Path) -> dict[str, dict[str, int]]:
        """Count how transactions ended, by coordinating group, from the tables of a run."""

    def figures(self, lake: Lake, group: str) -> dict[str, Any]:
        """Give figures of the engine's own for the report, as plain values."""

    def chapter(self, figures: Figures) -> str:
        """Show these figures as a part of the page, in HTML."""
