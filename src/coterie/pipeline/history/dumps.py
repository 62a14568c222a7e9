"""The authoritative state from dumps alone, as **objects** 5.2 has it.

Replicas dump their states at the same positions. A state that a majority of the configuration
dumped for one position is authoritative; no journal is needed to say so. The newest such state is
what an application that works off line goes on from; and a replay whose history does not reach
back to the beginning starts with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa

from coterie.journal import DUMPS, FileDisk, JournalDamaged, SnapshotStore, list_journals
from coterie.objects import BadSnapshot
from coterie.objects.execution import snapshots as states
from coterie.objects.execution.machine_parts import machine_from_parts
from coterie.pipeline.spark.tasks import for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from coterie.journal import Finding
    from coterie.objects.execution.machine import StateMachine
    from coterie.pipeline.history.replay import Program
    from coterie.pipeline.history.witnesses import Testimony


@dataclass(frozen=True, slots=True)
class Dump:
    """One dumped state, by what it is a state of, and where it lies."""

    root: str
    group: str
    replica: str
    position: int
    path: str


@dataclass(frozen=True, slots=True)
class Agreed:
    """A state that a majority dumped."""

    group: str
    position: int
    digest: bytes
    replicas: tuple[str, ...]
    dump: Dump


def list_dumps(roots: Sequence[str | Path]) -> tuple[list[Dump], list[Finding]]:
    """Give all dumps below the folders of journals, and what is wrong with any."""
    found: list[Dump] = []
    findings: list[Finding] = []
    for root in roots:
        disk = FileDisk(root)
        for group, replica in list_journals(disk):
            snapshots, damaged = SnapshotStore(disk, group, replica, name=DUMPS).all()
            findings += damaged
            found += [
                Dump(str(root), group, replica, snapshot.position, snapshot.path)
                for snapshot in snapshots
            ]
    return found, findings


def digest_of(dump: Dump) -> bytes | None:
    """Give a digest of a dumped state; None if it has gone bad."""
    hashed = blake2b(digest_size=16)
    try:
        for chunk in _chunks(dump):
            hashed.update(chunk)
    except JournalDamaged:
        return None
    return hashed.digest()


def _chunks(dump: Dump) -> Iterator[bytes]:
    store = SnapshotStore(FileDisk(dump.root), dump.group, dump.replica, name=DUMPS)
    for snapshot in store.all()[0]:
        if snapshot.path == dump.path:
            yield from snapshot.chunks()


DIGESTS = pa.schema(
    [
        ("group_name", pa.string()),
        ("replica", pa.string()),
        ("position", pa.int64()),
        ("path", pa.string()),
        ("digest", pa.binary()),
    ]
)
"""One row for each dump that can be read."""


def digests(spark: SparkSession, roots: Sequence[str | Path]) -> DataFrame:
    """Give the digest of every dump."""

    def work(dump: Dump) -> Iterator[pa.RecordBatch]:
        digest = digest_of(dump)
        if digest is not None:
            row = {
                "group_name": dump.group,
                "replica": dump.replica,
                "position": dump.position,
                "path": dump.path,
                "digest": digest,
            }
            yield pa.RecordBatch.from_pylist([row], schema=DIGESTS)

    return for_each(spark, list_dumps(roots)[0], work, DIGESTS)


def agreed(
    spark: SparkSession,
    roots: Sequence[str | Path],
    configurations: Mapping[str, Callable[[int], Sequence[str]]] | None = None,
) -> list[Agreed]:
    """Give the states that a majority of each group's replicas dumped, newest first.

    *configurations* says which replicas a group has at a position; without it, they are those that
    have a journal folder, which is wrong if one has none.
    """
    dumps = {(dump.group, dump.path): dump for dump in list_dumps(roots)[0]}
    journals: dict[str, set[str]] = {}
    if configurations is None:
        for root in roots:
            for group, replica in list_journals(FileDisk(root)):
                journals.setdefault(group, set()).add(replica)

    def has_majority(group: str, position: int, replicas: Collection[str]) -> bool:
        if configurations is None:
            members: Collection[str] = journals.get(group, ())
        else:
            members = configurations[group](position) if group in configurations else ()
        return len({*replicas} & {*members}) > len(members) // 2

    holders: dict[tuple[str, int, bytes], dict[str, str]] = {}
    for row in digests(spark, roots).toArrow().to_pylist():
        key = (row["group_name"], row["position"], row["digest"])
        holders.setdefault(key, {})[row["replica"]] = row["path"]
    found = [
        Agreed(group, position, digest, tuple(sorted(paths)), dumps[group, min(paths.values())])
        for (group, position, digest), paths in holders.items()
        if has_majority(group, position, paths)
    ]
    return sorted(found, key=lambda each: (each.group, -each.position))


def beginnings(
    spark: SparkSession, roots: Sequence[str | Path], testimonies: Mapping[str, Testimony]
) -> dict[str, Agreed]:
    """Give, for groups whose first entries no journal has any more, the oldest state to begin with.

    That is one that a majority dumped, and behind which the entries are at hand.
    """
    removed = {
        group: min(witness.unseen for witness in testimony.witnesses)
        for group, testimony in testimonies.items()
    }
    if not any(removed.values()):
        return {}

    def members_of(testimony: Testimony) -> Callable[[int], Sequence[str]]:
        return lambda position: testimony.configuration_at(position).members

    members = {group: members_of(each) for group, each in testimonies.items()}
    # Newest first, so the oldest remains.
    return {
        each.group: each
        for each in agreed(spark, roots, members)
        if each.position >= removed[each.group] > 0
    }


def load(agreed_on: Agreed, program: Program, majority: int) -> StateMachine:
    """Make the object of a state that was agreed on; its viewstamp comes with it."""
    try:
        return machine_from_parts(
            program.load(),
            program.settings,
            states.read(_chunks(agreed_on.dump)),
            majority=majority,
        )
    except BadSnapshot as error:
        raise BadSnapshot(f"{agreed_on.dump.path}: {error}") from error
