"""Every promise to groups of cohorts, by name, with where it comes from and what it says."""

from __future__ import annotations

from coterie.pipeline.engines.family import Check

_CHECKS = (
    Check("viewids ordered", "vsr 4", "the views that a cohort promises and enters only rise"),
    Check("one primary", "vsr 4", "a view has one primary"),
    Check("forced majority", "vsr 3", "what is called forced was known to a majority"),
    Check(
        "forced events survive",
        "vsr 4",
        "what was forced is part of the initial state of every later view",
    ),
    Check("one event", "vsr 2", "cohorts that know the event at a viewstamp know the same one"),
    Check("known in order", "vsr 3", "the events a cohort knows of a view have no gaps"),
    Check(
        "crashed cohorts count for nothing",
        "vsr 4",
        "who is active in a view knows all that its history says",
    ),
    Check("equal states", "vsr 3", "states at equal viewstamps are equal"),
    Check(
        "locks kept",
        "vsr 3.3",
        "no two transactions in progress have written the same object, through view changes",
    ),
    Check(
        "atomic",
        "vsr 3.4",
        "what a coordinator committed is installed by all groups concerned, and aborted by none",
    ),
    Check(
        "lost calls abort",
        "vsr 3.2",
        "a committed transaction has no call that was lost in a view change",
    ),
    Check("serializable", "vsr 3", "committed transactions could have run one after the other"),
)

CHECKS = {check.name: check for check in _CHECKS}
"""All checks of cohorts and transactions, in the order in which they are reported."""
