"""What the tests of the papers ask of a simulated group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.clock import seconds
from coterie.kernel.records import Delivered, Delivery
from coterie.kernel.views import Member
from coterie.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.checking.history import Era, MemberLife
    from coterie.simulation import Group

ORDERED = ("DYNSEQ:VSYNC", "TOKEN:VSYNC")
"""The stacks that promise total order and safe delivery."""


def whole_group(stack: str, names: str = "abcde", *, seed: int = 1) -> Group:
    """A group in which all are in one view."""
    group = Simulation(seed=seed, stack=stack).group(*names)
    group.run_until_whole()
    return group


def until(group: Group, condition: Callable[[], bool], what: str) -> None:
    """Let time pass until something is so."""
    assert group.simulation.run_until(condition, within=seconds(10)), (
        f"it never came about that {what}: {group.describe_views()}"
    )


def until_views(group: Group, *views: str) -> None:
    """Let time pass until the members of each of these views are in it, and not in an older one."""

    def settled() -> bool:
        return all(
            group[id].view == "".join(sorted(view)) and _view_id(group, id) == _view_id(group, view)
            for view in views
            for id in view
        )

    until(group, settled, f"the views are {', '.join(views)}")


def _view_id(group: Group, view: str) -> object:
    current = group[view[0]].inbox.current
    return None if current is None else current.id


def until_delivered(group: Group, payload: bytes, *, at: str) -> None:
    """Let time pass until all of these have delivered a message."""
    until(group, lambda: all(payload in group[id].delivered for id in at), f"{at} have {payload!r}")


def life_of(group: Group, id: str) -> MemberLife:
    """All that a replica did in its present life."""
    return group.history.lives[Member(id, group[id].incarnation)]


def era_of_view(group: Group, id: str, view: str) -> Era:
    """The last time that a replica was in a view of exactly these members."""
    return [
        era
        for era in life_of(group, id).eras
        if "".join(sorted(member.id for member in era.installed.members)) == "".join(sorted(view))
    ][-1]


def part_of(era: Era, sender: str, number: int) -> Delivery | None:
    """In which part of a view a message was delivered, or None if it was not."""
    return next((record.delivery for record in era.delivered if _has(record, sender, number)), None)


def _has(record: Delivered, sender: str, number: int) -> bool:
    return record.sender.id == sender and record.first <= number < record.first + record.count


def is_prefix(one: list[bytes], other: list[bytes]) -> bool:
    """Say whether one of two sequences begins with the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
