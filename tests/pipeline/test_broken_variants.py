"""Broken variants of the engine: their journals alone must give them away."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shutil import rmtree

import pytest
from tests.broken.engine_variants import (
    ConfirmedByAnyone,
    LearnerAccepts,
    OwnSuffixKept,
    SettlesWithoutMajority,
)
from tests.pipeline.here import broken, seal_here
from tests.pipeline.journals import OPTIMISTIC, SAFE, copy_group, make_group, storm

from coterie.kernel.clock import seconds
from coterie.kernel.layers import Layer
from coterie.stacks import LAYERS

SEEDS_MAX = 20
LASTING = {"authoritative for ever", "one authoritative entry", "global ordering"}


@pytest.mark.slow  # as many simulated runs as each variant survives
@pytest.mark.parametrize(
    ("variant", "stack", "caught_by"),
    [
        (ConfirmedByAnyone, SAFE, {"confirmed chain"}),
        (LearnerAccepts, SAFE, {"counted rightly"}),
        (OwnSuffixKept, OPTIMISTIC, LASTING),
        (SettlesWithoutMajority, SAFE, {"authoritative majority", *LASTING}),
    ],
)
def test_variant_is_caught(
    variant: type[Layer], stack: str, caught_by: set[str], tmp_path: Path
) -> None:
    for seed in range(SEEDS_MAX):
        group = make_group(
            seed=seed, stack=stack, names="abcde", layers={**LAYERS, variant.name: variant}
        )
        # The run itself may notice; its journals are there all the same.
        with suppress(AssertionError):
            storm(group, duration=seconds(8), faults=("partition", "crash", "isolation"))
        copy_group(group, tmp_path / "journals")
        if broken(seal_here(tmp_path / "journals", tmp_path / "lake", width=1000)) & caught_by:
            return
        rmtree(tmp_path / "journals")
        rmtree(tmp_path / "lake")
    pytest.fail(f"{variant.__name__} survived {SEEDS_MAX} seeds")
