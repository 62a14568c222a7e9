"""The tables that journals are read into: those of all journals, and those of the families."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.records import (
    CallsAsked,
    ConfigurationForced,
    ConfigurationSettled,
    Started,
    Stopped,
)
from coterie.pipeline.engines import FAMILIES, family_named
from coterie.pipeline.engines.family import Table
from coterie.pipeline.read.columns import RowsMaker
from coterie.pipeline.read.rows import viewstamp_row
from coterie.pipeline.read.schemas import AUDIT, CONFIGURATIONS, FINDINGS, LIVES, SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from coterie.kernel.views import Configuration
    from coterie.pipeline.engines.family import Maker, ToRow

_LIVES: dict[type, ToRow] = {
    Started: lambda record: {
        "event": "started",
        "stack": record.stack,
        "configuration": record.configuration.number,
        "replicas": list(record.configuration.members),
        "is_zombie": record.is_zombie,
    },
    Stopped: lambda _: {"event": "stopped"},
}


_CONFIGURATIONS: dict[type, ToRow] = {
    ConfigurationSettled: lambda record: {
        "position": record.position,
        **_configuration_row(record.configuration),
    },
    ConfigurationForced: lambda record: {
        "position": record.known.number,
        "known": viewstamp_row(record.known),
        **_configuration_row(record.configuration),
    },
}


def _configuration_row(configuration: Configuration) -> dict[str, object]:
    return {
        "configuration": configuration.number,
        "members": list(configuration.members),
        "before": list(configuration.before),
        "learners": list(configuration.learners),
        "removed": list(configuration.gone),
    }


class AuditMaker:
    """Makes rows of `audit`: one for each call of a record."""

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._rows = RowsMaker(AUDIT, {}, (group, replica, incarnation))

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: CallsAsked, sequence: int) -> None:
        """Take a record."""
        for call in record.calls:
            self._rows.add_row(
                {
                    "sequence": sequence,
                    "recorded_at": record.at,
                    "client": record.client,
                    "address": record.address,
                    **msgspec.structs.asdict(call),
                }
            )

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        return self._rows.take()


COMMON = {
    "lives": Table(LIVES, _LIVES),
    "configurations": Table(CONFIGURATIONS, _CONFIGURATIONS),
    "audit": Table(AUDIT, maker=AuditMaker, kinds=(CallsAsked,)),
    "segments": Table(SEGMENTS),
    "findings": Table(FINDINGS),
}
"""What every journal has, whatever the engine."""


def journal_tables() -> Mapping[str, Table]:
    """Give what can be read from journals, by name."""
    return _tables_of(tuple(FAMILIES.items()))


@cache
def _tables_of(known: tuple[tuple[str, str], ...]) -> Mapping[str, Table]:
    """Give the tables of all families, where these are *known*."""
    found = dict(COMMON)
    for name, _ in known:
        found |= family_named(name).tables
    return MappingProxyType(found)


def schema_of(table: str) -> pa.Schema:
    """Give the schema of a table that is read from journals."""
    return journal_tables()[table].schema


def is_positioned(table: str) -> bool:
    """Say whether a table grows with the history, and is cut by ranges of positions."""
    return journal_tables()[table].is_positioned


def tables_of_records() -> Mapping[type, str]:
    """Say which table tells of each kind of record."""
    return _tables_of_records(tuple(FAMILIES.items()))


@cache
def _tables_of_records(known: tuple[tuple[str, str], ...]) -> Mapping[type, str]:
    return MappingProxyType(
        {
            kind: name
            for name, table in _tables_of(known).items()
            for kind in (*table.kinds, *table.rows)
        }
    )


def make_maker(table: str, group: str, replica: str, incarnation: int) -> Maker:
    """Make what makes the rows of *table* for one life of one replica."""
    wanted = journal_tables()[table]
    if wanted.maker is not None:
        return wanted.maker(group, replica, incarnation)
    return RowsMaker(wanted.schema, wanted.rows, (group, replica, incarnation))
