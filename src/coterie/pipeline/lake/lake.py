"""The lake: the tables of all journals as Parquet files, laid out for checks without a shuffle.

    <lake>/lake.json                          format and width of the ranges
    <lake>/<table>/group_name=<group>/        tables that stay small, a file for each segment
    <lake>/<table>/group_name=<group>/range_number=<range>/   entries and replies, cut by position
    <lake>/segments/group_name=<group>/       written last: says that the others are whole

A *range* is a fixed number of consecutive positions, the same in every replica, so everything that
concerns a position lies in one folder, and one task can compare all replicas over it without
asking anybody else. A segment's files have names of their own: sealing a segment again replaces
exactly them. A file counts only if a row of `segments` lists it.

Folders are named as Hive names partitions, so whatever reads Parquet reads the tables; the columns
that are folders are not in the files. `docs/operate/tables.md` shows it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.journal import JournalError
from coterie.journal.disk import sync_place
from coterie.kernel.decoding import JsonDecoder
from coterie.pipeline.read.schemas import (
    GROUP,
    RANGE,
    SEGMENTS,
    as_numbers,
    spark_schema,
    stored,
)
from coterie.pipeline.read.tables import is_positioned, journal_tables, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

FORMAT = 2
RANGE_WIDTH = 1 << 18
"""Positions in a range: enough to make a file worth opening, few enough for a task's memory."""
DRAFT = "_draft-"
"""How names of unfinished files begin; Spark passes over them."""
_UNFINISHED = ".part"
"""How they end, so that a glob over `*.parquet` passes over them, too."""
_ABOUT = "lake.json"
SMALL_BYTES = 1 << 16
"""What is less is not compressed: to begin with every column takes longer than all the rest."""


class _About(msgspec.Struct):
    format: int
    width: Annotated[int, msgspec.Meta(ge=1)]


_decode_about = JsonDecoder(_About).decode


class LakeError(JournalError):
    """A folder is not the lake it should be."""


class LakeDamaged(LakeError):
    """Something that the lake had is missing, cut off or changed; the message says what to do."""


def is_lake(root: str | Path) -> bool:
    """Say whether a folder is a lake."""
    return (Path(root) / _ABOUT).is_file()


def writer_of(file: str | PurePath) -> tuple[str, int]:
    """Give the replica and the life whose rows a file of the lake holds."""
    replica, incarnation, _ = PurePath(file).stem.rsplit("-", 2)
    return unquote(replica), int(incarnation)


def draft_of(path: Path) -> Path:
    """Give the name under which a file is written until it is whole."""
    return path.with_name(f"{DRAFT}{path.name}{_UNFINISHED}")


def link_file(source: Path, target: Path) -> None:
    """Let a file that never changes stand in a second place; where links cannot be, copy it."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def codec_for(rows: pa.Table | pa.RecordBatch) -> str:
    """Say how a file that begins with these rows is compressed."""
    return "zstd" if rows.nbytes >= SMALL_BYTES else "none"


def folder_of(group: str, number: int | None = None) -> str:
    """Give the folder of a group in a table, or of one of its ranges."""
    place = f"{GROUP}={quote(group, safe='')}"
    return place if number is None else f"{place}/{RANGE}={number:09}"


def value_of(folder: PurePath) -> str:
    """Give the value that the name of a folder says."""
    return unquote(folder.name.partition("=")[2])


def damaged(path: str | Path, error: Exception) -> LakeDamaged:
    """Say that a file of a lake cannot be read."""
    reason = str(error).partition("\n")[0] or type(error).__name__
    return LakeDamaged(
        f"{path} is damaged ({reason}): run again with --verify-sources, which makes it anew from "
        "the journals"
    )


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
        draft = draft_of(folder / _ABOUT)
        draft.write_text(json.dumps({"format": FORMAT, "width": width}) + "\n", encoding="utf-8")
        sync_place(draft)
        draft.rename(folder / _ABOUT)
        sync_place(folder)
        return cls(str(root), width)

    @classmethod
    def open(cls, root: str | Path) -> Lake:
        """Open a lake that is there."""
        try:
            about = _decode_about((Path(root) / _ABOUT).read_bytes())
        except FileNotFoundError:
            raise LakeError(f"{root} is no lake: seal journals into it first") from None
        except msgspec.DecodeError as error:
            raise LakeDamaged(
                f"{root}/{_ABOUT} is damaged ({error}): remove {root}, and run again"
            ) from None
        if about.format != FORMAT:
            raise LakeError(
                f"{root} is a lake of format {about.format}, and this release knows {FORMAT}: "
                "seal the journals into a new folder"
            )
        return cls(str(root), about.width)

    # ---- names

    def file(self, table: str, group: str, segment: str, number: int | None = None) -> str:
        """Give the place of a segment's file, relative to the lake."""
        return f"{table}/{folder_of(group, number)}/{segment}.parquet"

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
        folders = self.path("segments").glob(f"{GROUP}=*")
        return sorted(value_of(folder) for folder in folders if folder.is_dir())

    def files_of(self, table: str, group: str) -> Iterator[tuple[Path, int | None]]:
        """Give the files of a table of one group, each with the number of its range, if any."""
        folder = self.path(f"{table}/{folder_of(group)}")
        is_cut = is_positioned(table)
        for path in sorted(folder.glob("*/*.parquet" if is_cut else "*.parquet")):
            yield path, int(value_of(path.parent)) if is_cut else None

    def ranges(self, group: str) -> dict[int, dict[str, list[str]]]:
        """Give the files of each range of a group, by table."""
        found: dict[int, dict[str, list[str]]] = {}
        for table in journal_tables():
            for path, number in self.files_of(table, group):
                if number is None:
                    break
                found.setdefault(number, {}).setdefault(table, []).append(str(path))
        return dict(sorted(found.items()))

    def digests(self, group: str) -> dict[str, bytes]:
        """Give digests of the files of a group, by their whole paths."""
        marks = self.table("segments", group).select(["files", "digests"]).to_pylist()
        return {
            str(self.path(name)): digest
            for mark in marks
            for name, digest in zip(mark["files"], mark["digests"], strict=True)
        }

    def table(self, table: str, group: str) -> pa.Table:
        """Give all rows of a table of one group, in the order of each life; times are numbers."""
        parts = list(self.parts(table, group))
        return pa.concat_tables(parts) if parts else as_numbers(schema_of(table).empty_table())

    def parts(self, table: str, group: str) -> Iterator[pa.Table]:
        """Give the rows of a table of one group, file by file."""
        schema = schema_of(table)
        for path, _ in self.files_of(table, group):
            yield self.read_file(path, schema)

    def read_file(self, path: Path, schema: pa.Schema) -> pa.Table:
        """Give all rows of a file; raises `LakeDamaged` with its name if it cannot be read."""
        return as_numbers(read_stored(path, schema))

    def write_whole(self, relative: str, table: pa.Table) -> None:
        """Write a small file: whatever happens, it is the old one or the new one."""
        path = self.path(relative)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_of(path)
        columns = table.select(stored(table.schema).names)
        pq.write_table(columns, draft, compression=codec_for(table))
        sync_place(draft)
        draft.rename(path)
        sync_place(path.parent)

    def schema(self, table: str) -> pa.Schema:
        """Give the schema of a table."""
        return schema_of(table)

    def files(self) -> Iterator[Path]:
        """Give all files that sealing made, finished or not."""
        for table in journal_tables():
            yield from (path for path in self.path(table).rglob("*") if path.is_file())

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Give a table as Spark reads it."""
        schema = spark_schema(schema_of(table))
        folder = self.path(table)
        if not folder.is_dir():
            return spark.createDataFrame([], schema)
        # Partitions are found by the names of folders; the schema says that a group is a word,
        # also where all groups have numbers for names.
        return spark.read.schema(schema).parquet(str(folder)).select(schema.names)


def read_stored(path: Path, schema: pa.Schema) -> pa.Table:
    """Give all rows of a file of a lake as *schema* has them, with the group that its path says."""
    try:
        # Arrow's datasets cost several times as much to open.
        with pq.ParquetFile(path) as opened:
            table = opened.read(use_threads=False)
        if not table.schema.equals(stored(schema)):
            table = pq.read_table(path, schema=stored(schema))
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error
    if GROUP not in schema.names:
        return table
    folder = next((each for each in path.parents if each.name.startswith(f"{GROUP}=")), None)
    if folder is None:
        raise damaged(path, ValueError("it lies in the folder of no group"))
    column = pa.repeat(pa.scalar(value_of(folder), pa.string()), len(table))
    return table.add_column(schema.get_field_index(GROUP), GROUP, column)
