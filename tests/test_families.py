"""Every side of the product knows the same engine families, by the same names."""

from __future__ import annotations

import importlib

import pytest
from tests.extending.toy_family.engine import NAME
from tests.extending.toy_family.registry import registered

from coterie.service.engines import DEFAULT_FAMILY, FAMILIES, find_family
from coterie.simulation.engines import SIMULATED_ONLY

SIDES = (
    "coterie.client.sessions",
    "coterie.journal.engines",
    "coterie.pipeline.engines",
    "coterie.service.engines",
    "coterie.simulation.engines",
)
"""The packages with a registry, `FAMILIES`."""


NOT_SERVED = {"coterie.journal.engines", "coterie.pipeline.engines"}
"""Sides that also know the families that are only simulated yet: they keep journals."""


@pytest.mark.parametrize("side", SIDES)
def test_a_side_knows_the_same_families_as_all_others(side: str) -> None:
    known = FAMILIES.keys() | (SIMULATED_ONLY.keys() if side in NOT_SERVED else set())
    assert importlib.import_module(side).FAMILIES.keys() == known


def test_a_family_of_ones_own_is_known_to_all_sides() -> None:
    with registered():
        assert NAME in FAMILIES
        for side in SIDES:
            test_a_side_knows_the_same_families_as_all_others(side)
    assert NAME not in FAMILIES


def test_a_family_has_the_name_it_is_known_by() -> None:
    assert {name: find_family(name).name for name in FAMILIES} == {
        "colours": "colours",
        "stack": "stack",
        "vsr": "vsr",
    }
    assert DEFAULT_FAMILY in FAMILIES


def test_a_stack_belongs_to_its_top_layer_where_that_has_a_family() -> None:
    assert find_family(DEFAULT_FAMILY, "COLOURS:TOKEN:VSYNC").name == "colours"
    assert find_family(DEFAULT_FAMILY, "SAFE:TOKEN:PVSYNC").name == "stack"
    assert find_family("colours").name == "colours"
