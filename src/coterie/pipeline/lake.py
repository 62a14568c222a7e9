"""The lake: the tables of all journals as Parquet files, laid out for checks without a shuffle.

    <lake>/lake.json                                   format and width of the ranges
    <lake>/<table>/<group>/<segment>.parquet           tables that stay small
    <lake>/<table>/<group>/<range>/<segment>.parquet   entries and replies, cut by position
    <lake>/segments/<group>/<segment>.parquet          written last: says that the others are whole

A *range* is a fixed number of consecutive positions, the same in every replica, so everything that
concerns a position lies in one folder, and one task can compare all replicas over it without
asking anybody else. A segment's files have names of their own: sealing a segment again replaces
exactly them. A file counts only if a row of `segments` lists it.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from coterie.journal import JournalError
from coterie.pipeline.schemas import JOURNAL_TABLES, POSITIONED, SEGMENTS, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
RANGE_WIDTH = 1 << 18
"""Positions in a range: enough to make a file worth opening, few enough for a task's memory."""
DRAFT = "_draft-"
"""How names of unfinished files begin; Spark passes over them."""
_ABOUT = "lake.json"


class LakeError(JournalError):
    """A folder is not the lake it should be."""


def is_lake(root: str | Path) -> bool:
    """Say whether a folder is a lake."""
    return (Path(root) / _ABOUT).is_file()


def writer_of(file: str | PurePath) -> tuple[str, int]:
    """Give the replica and the life whose rows a file of the lake holds."""
    replica, incarnation, _ = PurePath(file).stem.rsplit("-", 2)
    return unquote(replica), int(incarnation)


class Lake:
    """Where the tables lie. A plain value, so that tasks can have it."""

    def __init__(self, root: str, width: int) -> None:
        self.root = root
        self.width = width

    @classmethod
    def make(cls, root: str | Path, *, width: int = RANGE_WIDTH) -> Lake:
        """Open a lake, or begin one in a folder that is empty or not there."""
        if is_lake(root):
            return cls.open(root)
        folder = Path(root)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise LakeError(f"{root} is neither empty nor a lake: name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{DRAFT}{_ABOUT}"
        draft.write_text(json.dumps({"format": FORMAT, "width": width}) + "\n", encoding="utf-8")
        draft.rename(folder / _ABOUT)
        return cls(str(root), width)

    @classmethod
    def open(cls, root: str | Path) -> Lake:
        """Open a lake that is there."""
        try:
            about = json.loads((Path(root) / _ABOUT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise LakeError(f"{root} is no lake: seal journals into it first") from None
        if about["format"] != FORMAT:
            raise LakeError(
                f"{root} is a lake of format {about['format']}, and this release knows {FORMAT}: "
                "seal the journals into a new folder"
            )
        return cls(str(root), int(about["width"]))

    # ---- names

    def file(self, table: str, group: str, segment: str, number: int | None = None) -> str:
        """Give the place of a segment's file, relative to the lake."""
        place = f"{table}/{quote(group, safe='')}"
        if number is not None:
            place += f"/{number:09}"
        return f"{place}/{segment}.parquet"

    def path(self, relative: str) -> Path:
        """Give the whole path of a file."""
        return Path(self.root) / relative

    # ---- what is there

    def segments(self) -> pa.Table:
        """Give all rows of `segments`: what the lake holds."""
        parts = [self.table("segments", group) for group in self.groups()]
        return pa.concat_tables(parts) if parts else SEGMENTS.empty_table()

    def groups(self) -> list[str]:
        """Give the groups whose journals the lake holds."""
        folders = self.path("segments").glob("*")
        return sorted(unquote(folder.name) for folder in folders if folder.is_dir())

    def files_of(self, table: str, group: str) -> Iterator[tuple[Path, int | None]]:
        """Give the files of a table of one group, each with the number of its range, if any."""
        folder = self.path(f"{table}/{quote(group, safe='')}")
        is_cut = table in POSITIONED
        for path in sorted(folder.glob("*/*.parquet" if is_cut else "*.parquet")):
            if not path.name.startswith(DRAFT):
                yield path, int(path.parent.name) if is_cut else None

    def ranges(self, group: str) -> dict[int, dict[str, list[str]]]:
        """Give the files of each range of a group, by table."""
        found: dict[int, dict[str, list[str]]] = {}
        for table in POSITIONED:
            for path, number in self.files_of(table, group):
                assert number is not None
                found.setdefault(number, {}).setdefault(table, []).append(str(path))
        return dict(sorted(found.items()))

    def table(self, table: str, group: str) -> pa.Table:
        """Give all rows of a table of one group, in the order of each life."""
        schema = JOURNAL_TABLES[table]
        parts = [pq.read_table(path, schema=schema) for path, _ in self.files_of(table, group)]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def files(self) -> Iterator[Path]:
        """Give all files that sealing made, finished or not."""
        for table in JOURNAL_TABLES:
            yield from self.path(table).rglob("*.parquet")

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Give a table as Spark reads it."""
        schema = spark_schema(JOURNAL_TABLES[table])
        folder = self.path(table)
        if not folder.is_dir():
            return spark.createDataFrame([], schema)
        reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
        return reader.parquet(str(folder))
