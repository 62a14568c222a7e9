"""All checks that a group-communication stack must pass, by what the stack promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking import extended_virtual_synchrony as evs
from coterie.checking import total_order, virtual_synchrony

if TYPE_CHECKING:
    from coterie.checking.history import GroupHistory, Violation


VIEW_CHECKS = (
    virtual_synchrony.validity,
    virtual_synchrony.self_inclusion,
    virtual_synchrony.view_causality,
    virtual_synchrony.agreement_on_view_ordering,
    virtual_synchrony.agreement_on_successors,
    virtual_synchrony.view_atomicity,
    virtual_synchrony.integrity,
    virtual_synchrony.self_delivery,
    virtual_synchrony.fifo,
    evs.transitional_set,
    evs.transitional_view,
    evs.transitional_agreement,
)
"""What VSYNC promises, and every stack above it."""

ORDER_CHECKS = (total_order.strong_prefix, total_order.agreed_delivery, evs.safe_delivery)
"""What a layer that gives total order adds."""


def check_views(history: GroupHistory) -> list[Violation]:
    """Run the checks that speak of views alone, for stacks that record no messages."""
    return [violation for check in VIEW_CHECKS for violation in check(history)]


def check_group_communication(history: GroupHistory, stack: str) -> list[Violation]:
    """Run every check that *stack* must pass."""
    checks = [*VIEW_CHECKS]
    if stack != "VSYNC":
        checks.extend(ORDER_CHECKS)
    return [violation for check in checks for violation in check(history)]
