"""The pipeline's page says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.pipeline.engines.stack.checks import CHECKS
from coterie.pipeline.read.schemas import HISTORY, VERDICTS, VIOLATIONS
from coterie.pipeline.read.tables import journal_tables, schema_of

PAGE = (Path(__file__).parents[2] / "docs" / "operate" / "pipeline.md").read_text(encoding="utf-8")


def test_every_check_is_documented() -> None:
    for check in CHECKS.values():
        assert f"| {check.name} | {check.paper} | {check.promise} |" in PAGE


@pytest.mark.parametrize("table", journal_tables())
def test_every_column_of_the_lake_is_documented(table: str) -> None:
    start = PAGE.index(f"**{table}**")
    section = PAGE[start:]
    general = PAGE[PAGE.index("## Tables of the lake") : PAGE.index("**entries**")]
    for name in schema_of(table).names:
        assert name.removeprefix("follows_") in section or name in general, name


@pytest.mark.parametrize("schema", [HISTORY, VERDICTS, VIOLATIONS])
def test_every_column_of_the_results_is_documented(schema: object) -> None:
    for name in schema.names:  # type: ignore[attr-defined]
        assert name in PAGE
