"""The tables of a run as Delta Lake: snapshots that are replaced at once, and can be gone back to.

Each table of the version that counts becomes a Delta table of the same name; a commit replaces all
its rows, and says from which version of which results they are. A commit is one file that is there
or not, so who reads a table sees one version whatever happens meanwhile, and earlier ones stay
readable until they are vacuumed. Writing again what is there already does nothing.

It needs the extra `delta` (`deltalake`, which needs neither Spark nor Java).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from coterie.kernel.errors import CoterieError
from coterie.pipeline.publish.manifest import VERSION, read_manifest
from coterie.pipeline.read.schemas import GROUP, RANGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coterie.pipeline.publish.manifest import Manifest, PublishedTable

SOURCE = "coterie.version"
"""In the history of a Delta table: the version of the results that a commit is made from."""
_FOLDERS = pa.schema([(VERSION, pa.int64()), (GROUP, pa.string()), (RANGE, pa.int64())])


class NoDelta(CoterieError):
    """Delta tables cannot be written here."""


def write_delta(out: Path, target: str) -> dict[str, int]:
    """Bring the Delta tables below *target* up to the results in *out*.

    Gives the version that each table has now. Raises `NoDelta` if it cannot be done, `NoResults`
    if there is nothing to write.
    """
    try:
        import deltalake  # noqa: PLC0415 -- an extra of its own
    except ImportError:
        raise NoDelta(
            'Delta tables need the package deltalake: pip install "coterie[delta]"'
        ) from None
    manifest = read_manifest(out)
    versions: dict[str, int] = {}
    try:
        for name, table in manifest.tables.items():
            versions[name] = _write(deltalake, out, manifest, name, table, target)
    except (OSError, deltalake.exceptions.DeltaError) as error:
        raise NoDelta(f"the tables in {target} cannot be written: {error}") from None
    return versions


def _write(  # noqa: PLR0913, PLR0917 -- what a table is made of
    deltalake: Any,  # noqa: ANN401 -- a module that may not be there
    out: Path,
    manifest: Manifest,
    name: str,
    table: PublishedTable,
    target: str,
) -> int:
    place = f"{target.rstrip('/')}/{name}"
    source = f"{out.absolute()} {manifest.version}"
    is_there = deltalake.DeltaTable.is_deltatable(place)
    if is_there:
        known = deltalake.DeltaTable(place)
        [last, *_] = known.history(1)
        if last.get(SOURCE) == source:
            return int(known.version())
    keys = [key for key in _FOLDERS.names if key in table.columns and key != RANGE]
    deltalake.write_deltalake(
        place,
        _read(out, manifest, name, table),
        mode="overwrite",
        schema_mode="overwrite" if is_there else None,
        partition_by=keys or None,
        commit_properties=deltalake.CommitProperties(custom_metadata={SOURCE: source}),
    )
    return int(deltalake.DeltaTable(place).version())


def _read(out: Path, manifest: Manifest, name: str, table: PublishedTable) -> pa.RecordBatchReader:
    """Give the rows of a table, a batch at a time, with the columns that are folders."""
    root = out / manifest.folder / name
    keys = [field for field in _FOLDERS if field.name in table.columns]
    parts = ds.partitioning(pa.schema(keys), flavor="hive")
    files = [str(out / file.path) for file in table.files]
    schemas = [
        ds.dataset(file, partitioning=parts, partition_base_dir=str(root)).schema
        for file in dict(_one_of_each_version(files))
    ]
    schema = pa.unify_schemas(schemas)
    found = ds.dataset(files, schema=schema, partitioning=parts, partition_base_dir=str(root))
    return found.scanner().to_reader()


def _one_of_each_version(files: list[str]) -> Iterator[tuple[str, str]]:
    """Give a file of each version of the class, or of the table if it knows none."""
    seen: set[str] = set()
    for file in files:
        version = next((part for part in file.split("/") if part.startswith(VERSION)), "")
        if version not in seen:
            seen.add(version)
            yield file, version
