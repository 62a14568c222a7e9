"""`views.sql`: every table of a run as a view, for DuckDB and whoever reads its language.

It lies beside the manifest and names files by the link `tables`, so it stays right when another
version counts. Views of its own answer what people ask first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.pipeline.lake.lake import draft_of

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.pipeline.publish.manifest import Manifest

NAME = "views.sql"
_HEAD = """\
-- The tables of this run as views. In this folder: duckdb -init views.sql
-- Made anew by each run; all names are explained in docs/operate/tables.md.
"""
_TABLE = """
create or replace view {name} as
select * from read_parquet(
    'tables/{name}/**/*.parquet', hive_partitioning = true, union_by_name = true{types});
"""
_TYPES = ",\n    hive_types = {'group_name': varchar}"
"""Group names that look like numbers are words all the same."""

_ASKED = {
    "verdicts": """
-- Promises that were not simply kept.
create or replace view open_promises as
select group_name, check_name, verdict, remark from verdicts where verdict <> 'kept';
""",
    "history": """
-- How many entries of each group have which standing.
create or replace view standings as
select group_name, standing, count(*) as entries, max(position) as last_position
from history group by group_name, standing;
""",
    "events": """
-- Updates by method: how many, how many raised an error, and when the last one was.
create or replace view updates as
select group_name, method, count(*) as calls, count(error) as errors,
    max(executed_at) as last_call
from events group by group_name, method;
""",
    "states": """
-- The state of each object at the end of its history, as JSON.
create or replace view latest_states as
select * from states
qualify row_number() over (partition by group_name order by position desc) = 1;
""",
    "transactions": """
-- How transactions ended, by the group that coordinated them.
create or replace view outcomes as
select coordinator, outcome, count(*) as transactions
from transactions group by coordinator, outcome;
""",
}


def write_views(out: Path, manifest: Manifest) -> None:
    """Write the views of all tables that there are."""
    parts = [_HEAD]
    for name, table in sorted(manifest.tables.items()):
        types = _TYPES if any("group_name=" in file.path for file in table.files) else ""
        parts.append(_TABLE.format(name=name, types=types))
    parts += [text for name, text in _ASKED.items() if name in manifest.tables]
    draft = draft_of(out / NAME)
    draft.write_text("".join(parts), encoding="utf-8")
    draft.replace(out / NAME)
