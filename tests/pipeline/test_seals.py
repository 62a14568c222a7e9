"""The pipeline with the seal key: tampering is one thing, damage another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.journal.test_tampering import KEY, blocks, files, forge, write

from coterie.cli import exits
from coterie.cli.commands.pipeline import STATUSES, summary
from coterie.journal.format import Kind
from coterie.pipeline.jobs import run_pipeline
from coterie.pipeline.read.seals import tampering_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_each_kind_is_told_once_for_each_journal(tmp_path: Path) -> None:
    write(tmp_path, key=None)
    write(tmp_path)
    for number in (0, 1):
        forge(tmp_path, files(tmp_path)[-1], number, lambda body: body.replace(b"pay ", b"PAY "))
    tampered, unproven = tampering_in([str(tmp_path)], KEY)
    assert len(tampered) == len(unproven) == 1
    assert "such findings in all" in unproven[0]
    assert Kind.UNSEALED.value in unproven[0]


@pytest.mark.slow
def test_a_run_with_the_key_tells_tampering_from_damage(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals = tmp_path / "journals"
    write(journals)
    file = files(journals)[1]
    whole = file.read_bytes()
    forge(journals, file, 0, lambda body: body.replace(b"pay ", b"PAY "))
    outcome = run_pipeline(spark, [journals], tmp_path / "1", jobs=("seal",), seal_key=KEY)
    assert not outcome.is_kept
    assert STATUSES[outcome.outcome] == exits.UNKNOWN, "no promise is broken by a forger"
    assert any(line.startswith("TAMPERED   group g: g/a/") for line in summary(outcome.told()))
    without = run_pipeline(spark, [journals], tmp_path / "2", jobs=("seal",))
    assert without.is_kept  # nobody could tell
    file.write_bytes(whole)
    head, _ = blocks(journals, file)
    at = len(head) + 50
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    outcome = run_pipeline(spark, [journals], tmp_path / "3", jobs=("seal",), seal_key=KEY)
    assert outcome.is_kept
    assert outcome.tampered == []
    assert any(Kind.DAMAGED.value in problem for problem in outcome.problems)
