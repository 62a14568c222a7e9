"""A cohort as a replica of the kernel: hosted by a process like every other engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.vsr.settings import DEFAULT_VSR_SETTINGS, VsrSettings
from coterie.vsr.views.cohort import Cohort
from coterie.vsr.views.module import CohortPast

if TYPE_CHECKING:
    from coterie.kernel.layers import Context
    from coterie.vsr.views.module import Module

FIRST_LIFE = CohortPast()


class _Top(Layer):
    """The end of the stack: lets the module finish its turn before the cohort sends."""

    name = "MODULE"

    def __init__(self, context: Context, module: Module) -> None:
        super().__init__(context)
        self._module = module

    def finish_turn(self) -> None:
        self._module.finish_turn()


def build_cohort(
    context: Context,
    module: Module,
    *,
    memory: CohortPast = FIRST_LIFE,
    settings: VsrSettings = DEFAULT_VSR_SETTINGS,
    kind: type[Cohort] = Cohort,
) -> Replica:
    """Build a replica of viewstamped replication. *kind* lets tests put in variants."""
    cohort = kind(context, module, memory=memory, settings=settings)
    return Replica(context, _Top(context, module), [cohort], cohort, history=cohort)
