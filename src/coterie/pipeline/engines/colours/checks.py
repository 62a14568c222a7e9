"""Every promise to groups over a partitioned network, by name.

The names are those under which the simulator reports violations. It checks more than journals can
tell: *availability* and *liveness* need to know who could have reached whom, *dirty is green plus
red* needs the copies of the object, *least size* needs the settings.
"""

from __future__ import annotations

from coterie.pipeline.engines.family import Check
from coterie.pipeline.engines.stack.checks import CHECKS as OF_STACKS
from coterie.pipeline.engines.stack.checks import VIEW_CHECK_NAMES

_OF_ORDER = (
    Check("global total order", "transis 29", "no position of the order has two actions"),
    Check(
        "global FIFO order",
        "transis 29",
        "each creator's actions are in the order without gaps, none twice",
    ),
    Check("green prefix", "transis 29", "each replica marks green without gaps, through its lives"),
    Check(
        "green for ever",
        "transis 29",
        "a later primary component orders nothing below what an earlier one ordered",
    ),
    Check("red cut", "transis 25", "each replica takes a creator's actions without gaps"),
    Check(
        "white means all",
        "transis 29",
        "an action is believed to be green elsewhere only if it is",
    ),
)
_OF_COMPONENTS = (
    Check(
        "one primary component",
        "transis 24",
        "no number has two components, and each shares a quorum with the one before",
    ),
    Check(
        "ready on record",
        "transis 30",
        "all members of a component had its attempt on record before it was installed",
    ),
    Check(
        "attempt protected",
        "transis 32",
        "who does not know what came of an attempt holds a record of it",
    ),
    Check(
        "attempt excluded",
        "transis 32",
        "where a component was installed, nobody went through case 0",
    ),
    Check(
        "yellow rule",
        "transis 31",
        "what one member made green, no other that left the component alive missed",
    ),
    Check(
        "eventual path",
        "transis 25-28",
        "after an exchange each member holds all that any member held",
    ),
)
_OF_ANSWERS = (
    Check("active replication", "transis 13", "replicas with equal green ends have equal states"),
    Check("told right", "transis 29", "a final answer speaks of what is green at that place"),
    Check(
        "exactly once",
        "transis 11",
        "a request is executed at one place only, and its answers are of that place",
    ),
    Check(
        "replicated state machine",
        "transis 13",
        "running the order on a single object gives the states that the replicas had",
    ),
    Check(
        "linearizability",
        "transis 11",
        "running the order gives the final answers that were given",
    ),
)

CHECKS = {
    check.name: check
    for check in (
        *(OF_STACKS[name] for name in VIEW_CHECK_NAMES),
        *_OF_ORDER,
        *_OF_COMPONENTS,
        *_OF_ANSWERS,
    )
}
"""All checks of colours, in the order in which they are reported."""
