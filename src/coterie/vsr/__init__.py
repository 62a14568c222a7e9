"""Viewstamped replication (**vsr**): a primary executes, its backups are told, views change.

Unlike the other engines it needs no group communication below it: a *cohort* stands straight on
the kernel. `docs/vsr.md` tells the story and lists the limits.
"""

from coterie.vsr.cohort import Cohort, Status
from coterie.vsr.module import Memory, Module, remember
from coterie.vsr.recovery import memory_of
from coterie.vsr.replica import build_cohort
from coterie.vsr.settings import DEFAULT_VSR_SETTINGS, VsrSettings

__all__ = [
    "DEFAULT_VSR_SETTINGS",
    "Cohort",
    "Memory",
    "Module",
    "Status",
    "VsrSettings",
    "build_cohort",
    "memory_of",
    "remember",
]
