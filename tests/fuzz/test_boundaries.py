"""Whatever bytes arrive, the outcome is a counted refusal or a sentence, at every boundary."""

from __future__ import annotations

import pytest
from tests.fuzz.boundaries import BOUNDARIES

EACH = pytest.mark.parametrize(
    ("boundary", "engine"),
    [each for each in BOUNDARIES if each[0] != "peers"],  # they have tests of their own
    ids=lambda word: word,
)


@EACH
def test_wrong_inputs(boundary: str, engine: str) -> None:
    assert BOUNDARIES[boundary, engine].run(1, 120).inputs >= 120


@pytest.mark.long
@EACH
def test_many_wrong_inputs(boundary: str, engine: str) -> None:
    found = BOUNDARIES[boundary, engine]
    assert found.run(2, found.inputs_in_check).inputs >= found.inputs_in_check
