"""Every deliberately broken variant must be caught by the check that guards what it breaks."""

import pytest
from tests.broken.engine_variants import ENGINE_BROKEN
from tests.broken.journal_variants import JOURNAL_BROKEN
from tests.broken.union_variants import UNION_BROKEN
from tests.broken.variants import BROKEN, Broken

from coterie.simulation import RunOptions, run_seed, seconds

SEEDS_MAX = 200


@pytest.mark.slow  # two dozen variants, each over as many seeds as it survives
@pytest.mark.parametrize(
    "broken",
    [*BROKEN, *ENGINE_BROKEN, *UNION_BROKEN, *JOURNAL_BROKEN],
    ids=lambda broken: broken.kind.__name__,
)
def test_variant_is_caught(broken: Broken) -> None:
    options = RunOptions(
        stack=broken.stack, duration=seconds(15), sync=broken.sync, faults=broken.faults
    )
    for seed in range(broken.first_seed, broken.first_seed + SEEDS_MAX):
        run = run_seed(seed, options, layers=broken.layers, keeper=broken.keeper)
        caught = {violation.partition(":")[0] for violation in run.violations}
        if caught & set(broken.caught_by):
            return
    pytest.fail(f"{broken.kind.__name__} survived {SEEDS_MAX} seeds")
