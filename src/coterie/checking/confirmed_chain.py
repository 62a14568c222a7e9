"""Confirmed primary views form one chain (**objects** 4.1).

A majority accepted each, and each shares with the one before a member that accepted both. Where an
operator accepted the loss of a history, a new chain begins.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.records import PrimaryConfirmed
    from coterie.kernel.views import Configuration, Member, ViewId

CHECK = "confirmed chain"


class ConfirmedChain:
    """Follows who accepted which primary view."""

    def __init__(self, configuration: Configuration, fail: Callable[[str, str], None]) -> None:
        self._configuration = configuration
        self._fail = fail
        self._accepted: dict[ViewId, list[Member]] = {}
        self._confirmed: set[ViewId] = set()
        self._beginnings: set[ViewId] = set()

    def accepted(self, view: ViewId, member: Member) -> None:
        """Learn that a member accepted a view."""
        self._accepted.setdefault(view, []).append(member)

    def confirmed(
        self, record: PrimaryConfirmed, configuration: Configuration | None = None
    ) -> None:
        """Learn that a member takes a view for confirmed, under a configuration of its own."""
        self._confirmed.add(record.view)
        ids = {member.id for member in record.accepted_by}
        if not (configuration or self._configuration).is_quorum(ids):
            self._fail(CHECK, f"{record.view} confirmed by {sorted(ids)} only")
        for member in record.accepted_by:
            if member not in self._accepted.get(record.view, []):
                self._fail(CHECK, f"{record.view} counts {member}, which did not accept")

    def is_news(self, record: PrimaryConfirmed) -> bool:
        """Say whether nobody has taken the view for confirmed before."""
        return record.view not in self._confirmed

    def begin_anew(self, view: ViewId) -> None:
        """Learn that a view need not share anything with those before."""
        self._beginnings.add(view)

    def check(self) -> None:
        """Check the chain as a whole."""
        for earlier, later in pairwise(sorted(self._confirmed)):
            if later in self._beginnings:
                continue
            before = {member.id for member in self._accepted.get(earlier, [])}
            after = {member.id for member in self._accepted.get(later, [])}
            if not before & after:
                self._fail(CHECK, f"{earlier} and {later} share no member")
