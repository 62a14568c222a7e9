"""Every deliberately broken cohort must be caught by the check that guards what it breaks."""

import pytest
from tests.vsr.broken_cohorts import BROKEN, Broken
from tests.vsr.chain import run_chain

SEEDS_MAX = 200


@pytest.mark.slow  # as many seeds as each variant survives
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_variant_is_caught(broken: Broken) -> None:
    for seed in range(broken.first_seed, broken.first_seed + SEEDS_MAX):
        world = run_chain(seed, kind=broken.kind, prepare=broken.prepare)
        if {violation.check for violation in world.tracker.violations} & set(broken.caught_by):
            return
    pytest.fail(f"{broken.name} survived {SEEDS_MAX} seeds")
