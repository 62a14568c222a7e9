"""The results of a run as one version: all tables, or none of them.

    <out>/manifest.json             names the version that counts, and every file of it
    <out>/versions/<number>/        the tables of a version; its files never change
    <out>/tables                    a link to the version that counts, for plain readers

A run writes its tables into a draft, takes over those of the last version that it was not asked
for, and then replaces the manifest, which is one rename. So whoever reads what the manifest names
has history, verdicts, states and events of one run, whatever runs meanwhile; the version before it
is kept for those who have just begun to read it. What a killed run leaves is no version, and is
swept by the next one.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.journal.disk import sync_place
from coterie.kernel.decoding import JsonDecoder
from coterie.kernel.errors import CoterieError
from coterie.pipeline.lake.lake import DRAFT, codec_for, draft_of, link_file
from coterie.pipeline.read.schemas import GROUP, RANGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 1
NAME = "manifest.json"
TABLES = "tables"
_VERSIONS = "versions"
_EMPTY = "empty.parquet"


VERSION = "class_version"
"""The folders of tables that have other columns with each version of a class."""
_KINDS = {GROUP: "string", RANGE: "int64", VERSION: "int64"}


class NoResults(CoterieError):
    """There are no results where some were looked for, or they cannot be read."""


class TableFile(msgspec.Struct, frozen=True):
    """A file of a table."""

    path: str
    """Below the folder of results."""
    rows: int
    bytes: int


class PublishedTable(msgspec.Struct, frozen=True):
    """A table of a version."""

    columns: dict[str, str]
    """The types of its columns, as Arrow calls them; those that are folders come last."""
    files: list[TableFile]
    about: dict[str, str] = {}
    """What else its readers should know: the columns of each version of the class."""

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files)


class Manifest(msgspec.Struct, frozen=True):
    """A consistent version of all tables."""

    format: int
    version: int
    folder: str
    """Where the tables of this version lie, below the folder of results."""
    tables: dict[str, PublishedTable]


_decode = JsonDecoder(Manifest).decode


def read_manifest(out: Path) -> Manifest:
    """Give the version that counts; raises `NoResults` if there is none."""
    try:
        found = _decode((out / NAME).read_bytes())
    except OSError:
        raise NoResults(
            f"there are no results in {out}: run the pipeline with --out {out}"
        ) from None
    except msgspec.DecodeError as error:
        raise NoResults(
            f"{out / NAME} is damaged ({error}): run the pipeline again, which makes it anew"
        ) from None
    if found.format != FORMAT:
        raise NoResults(
            f"{out / NAME} is of format {found.format}, and this release knows {FORMAT}: run the "
            "pipeline again"
        )
    return found


def table_of(out: Path, table: str) -> Path:
    """Give the folder of a table of the version that counts, whether it is there or not."""
    try:
        return out / read_manifest(out).folder / table
    except NoResults:
        return out / TABLES / table


def read_rows(out: Path, table: str) -> list[dict[str, Any]]:
    """Give the rows of a small table that has no folders; nothing if there is none."""
    folder = table_of(out, table)
    if not folder.is_dir():
        return []
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return rows


def is_whole(out: Path, tables: Iterable[str]) -> bool:
    """Say whether tables are there, with all their files."""
    wanted = list(tables)
    if not wanted:
        return True
    try:
        manifest = read_manifest(out)
    except NoResults:
        return False
    return all(name in manifest.tables for name in wanted) and all(
        _has(out / file.path, file.bytes)
        for table in manifest.tables.values()
        for file in table.files
    )


def _has(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


class Draft:
    """A version that is being written."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._last = _last(out)
        (out / _VERSIONS).mkdir(parents=True, exist_ok=True)
        self._sweep(kept=1)
        self._number = max((int(path.name) for path in self._folders()), default=0) + 1
        self.folder = out / _VERSIONS / f"{DRAFT}{self._number:06}"
        self.folder.mkdir()

    @property
    def last(self) -> str:
        """The folder of the last version, absolute; nothing if there is none."""
        return "" if self._last is None else str((self._out / self._last.folder).absolute())

    def add(self, name: str, table: pa.Table) -> None:
        """Write a small table."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "part.parquet", compression=codec_for(table))

    def publish(self, schemas: dict[str, pa.Schema], *, ended: str = "") -> Manifest:
        """Make this the version that counts; tables in *schemas* are there, if only empty.

        Of earlier tables, those whose names begin with *ended* are not taken over.
        """
        for name, schema in schemas.items():
            folder = self.folder / name
            if not any(folder.rglob("*.parquet")):
                # An empty table is a table.
                folder.mkdir(parents=True, exist_ok=True)
                pq.write_table(schema.empty_table(), folder / _EMPTY)
        fresh = {path.name for path in self.folder.iterdir()}
        self._take_over(fresh, ended)
        place = f"{_VERSIONS}/{self._number:06}"
        tables = {path.name: self._describe(path, place) for path in sorted(self.folder.iterdir())}
        manifest = Manifest(FORMAT, self._number, place, tables)
        for path in self.folder.rglob("*"):
            sync_place(path)
        sync_place(self.folder)
        self.folder.rename(self._out / place)
        sync_place(self._out / _VERSIONS)
        self._replace(manifest)
        self._last = manifest
        self._sweep(kept=2)
        return manifest

    def abandon(self) -> None:
        """Remove what was not published."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take_over(self, fresh: set[str], ended: str) -> None:
        """Link the files of tables that this run was not asked for: they never change."""
        for name, table in (self._last.tables if self._last else {}).items():
            if name in fresh or (ended and name.startswith(ended)):
                continue
            for file in table.files:
                source = self._out / file.path
                target = self.folder / source.relative_to(self._out / self._last.folder)  # type: ignore[union-attr]
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # somebody removed it; the version is without it
                    link_file(source, target)

    def _describe(self, folder: Path, place: str) -> PublishedTable:
        files: list[TableFile] = []
        columns: dict[str, str] = {}
        versions: dict[str, str] = {}
        for path in sorted(folder.rglob("*.parquet")):
            read = pq.read_metadata(path)
            inner = path.relative_to(self.folder)
            files.append(TableFile(f"{place}/{inner}", read.num_rows, path.stat().st_size))
            keys = dict(part.split("=", 1) for part in inner.parts[1:-1] if "=" in part)
            version = keys.get(VERSION, "")
            if not columns or (version and version not in versions):
                schema = read.schema.to_arrow_schema()
                told = {field.name: str(field.type) for field in schema}
                told |= {name: _KINDS[name] for name in keys}
                columns = {**told, **columns}
                versions[version] = ", ".join(f"{name} {kind}" for name, kind in told.items())
        versions.pop("", None)
        about = {f"{VERSION}={number}": told for number, told in versions.items()}
        return PublishedTable(columns, files, about)

    def _replace(self, manifest: Manifest) -> None:
        """Let the manifest, and then the link, name another version."""
        path = self._out / NAME
        draft = draft_of(path)
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        draft.write_bytes(text + b"\n")
        sync_place(draft)
        draft.replace(path)
        sync_place(self._out)
        _link(self._out, manifest.folder)

    def _folders(self) -> Iterator[Path]:
        for path in (self._out / _VERSIONS).iterdir():
            if path.name.isdecimal():
                yield path

    def _sweep(self, *, kept: int) -> None:
        """Remove drafts of killed runs, and versions that nobody should be reading any more."""
        last = self._last
        if last is not None:
            _link(self._out, last.folder)  # a run may have been killed before it did
        for path in (self._out / _VERSIONS).glob(f"{DRAFT}*"):
            shutil.rmtree(path, ignore_errors=True)
        number = last.version if last is not None else 0
        for path in list(self._folders()):
            if not number - kept < int(path.name) <= number:
                shutil.rmtree(path, ignore_errors=True)


def _last(out: Path) -> Manifest | None:
    try:
        return read_manifest(out)
    except NoResults:
        return None


def _link(out: Path, folder: str) -> None:
    """Let `tables` be a version: another one at once, and never none."""
    link = out / TABLES
    if link.is_symlink() and str(link.readlink()) == folder:
        return
    draft = draft_of(link)
    draft.unlink(missing_ok=True)
    draft.symlink_to(folder)
    draft.replace(link)
