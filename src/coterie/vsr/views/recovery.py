"""What a cohort brings from its earlier lives, as its journal tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.vsr.views.module import CohortPast

if TYPE_CHECKING:
    from coterie.journal.engines.vsr import CohortRecovery


def memory_of(recovery: CohortRecovery) -> CohortPast:
    """Give the memory with which `build_cohort` builds; reads the snapshot into memory."""
    views = recovery.views
    return CohortPast(
        max_viewid=views.max_viewid,
        cur_viewid=views.cur_viewid,
        led=views.led,
        history=recovery.history,
        chunks=recovery.chunks() if recovery.has_state else (),
        base=recovery.base,
        spans=tuple(recovery.spans),
    )
