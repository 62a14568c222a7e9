"""Every deliberately broken variant must be caught by the check that guards what it breaks.

Variants of all engines are in this folder. Those of transactions are caught in stories that lead to
the one order of events that matters: `test_server_variants.py`.
"""

from typing import Protocol

import pytest
from tests.broken.bypass_variants import BYPASS_BROKEN
from tests.broken.cohort_member_variants import COHORT_MEMBERS_BROKEN
from tests.broken.cohort_variants import COHORT_BROKEN
from tests.broken.colours_variants import COLOURS_BROKEN
from tests.broken.common_case_variants import COMMON_CASE_BROKEN
from tests.broken.engine_variants import ENGINE_BROKEN
from tests.broken.journal_variants import JOURNAL_BROKEN
from tests.broken.llft_variants import PROGRAMS_BROKEN
from tests.broken.member_variants import MEMBERS_BROKEN
from tests.broken.reading_variants import READING_BROKEN
from tests.broken.rsp_variants import RSP_BROKEN
from tests.broken.standby_variants import STANDBYS_BROKEN
from tests.broken.union_variants import UNION_BROKEN
from tests.broken.variants import BROKEN

SEEDS_MAX = 200


class Variant(Protocol):
    """One thing that is left out, and what must notice."""

    @property
    def name(self) -> str: ...

    @property
    def caught_by(self) -> tuple[str, ...]: ...

    @property
    def first_seed(self) -> int: ...

    def fires(self, seed: int) -> set[str]: ...


VARIANTS: tuple[Variant, ...] = (
    *(*BROKEN, *COMMON_CASE_BROKEN, *BYPASS_BROKEN, *ENGINE_BROKEN, *UNION_BROKEN, *JOURNAL_BROKEN),
    *(*MEMBERS_BROKEN, *COHORT_BROKEN, *COLOURS_BROKEN, *PROGRAMS_BROKEN, *RSP_BROKEN),
    *(*READING_BROKEN, *STANDBYS_BROKEN, *COHORT_MEMBERS_BROKEN),
)


@pytest.mark.slow  # some four dozen variants, each over as many seeds as it survives
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_variant_is_caught(variant: Variant) -> None:
    for seed in range(variant.first_seed, variant.first_seed + SEEDS_MAX):
        if variant.fires(seed) & set(variant.caught_by):
            return
    pytest.fail(f"{variant.name} survived {SEEDS_MAX} seeds")
