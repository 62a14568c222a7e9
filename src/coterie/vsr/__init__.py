"""Viewstamped replication (**vsr**): a primary executes, its backups are told, views change.

Unlike the other engines it needs no group communication below it: a *cohort* stands straight on
the kernel. `docs/internals/vsr.md` tells the story and lists the limits.
"""

from coterie.vsr.settings import DEFAULT_VSR_SETTINGS, VsrSettings
from coterie.vsr.views.cohort import Cohort, CohortStatus
from coterie.vsr.views.module import CohortPast, Module, remember
from coterie.vsr.views.recovery import memory_of
from coterie.vsr.views.replica import build_cohort

__all__ = [
    "DEFAULT_VSR_SETTINGS",
    "Cohort",
    "CohortPast",
    "CohortStatus",
    "Module",
    "VsrSettings",
    "build_cohort",
    "memory_of",
    "remember",
]
