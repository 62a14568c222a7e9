"""Every promise to programs, by name, with where it comes from and what it says."""

from __future__ import annotations

from coterie.pipeline.engines.family import Check

_CHECKS = (
    Check(
        "one chain of primary views",
        "llft theorem 1",
        "primary views follow each other, each begun by its VIEW order, and entered from the last",
    ),
    Check(
        "one sequence of operations",
        "llft theorem 2",
        "whoever executes an order meets what all others met there",
    ),
    Check(
        "consecutive subsequence",
        "llft theorem 3",
        "what a replica executed has no gap, and is on the branch that survives",
    ),
    Check(
        "consecutive states",
        "llft theorem 4",
        "a state that is kept or sent is the one after its order",
    ),
    Check(
        "released is ordered", "llft III-C", "output left after the order it rests on was stored"
    ),
    Check("released once", "llft III-B", "every byte of output left once, and in order"),
    Check("same output", "llft V", "what left is what its order says"),
    Check("inputs consumed once", "llft III-B", "no more input was consumed than had arrived"),
    Check("group clock monotone", "llft V-D", "the group's clock never went back"),
    Check(
        "quorum held",
        "llft II-F",
        "with the guard, nothing that the edge stored was given up, whoever leads",
    ),
)

CHECKS = {check.name: check for check in _CHECKS}
"""All checks of programs, in the order in which they are reported."""
