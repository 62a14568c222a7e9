"""What clients are told by a cohort that does not know yet who belongs to its group by now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from coterie.kernel.views import Configuration, Member
from coterie.protocol.messages import Peer
from coterie.service.engines.vsr_front import CohortFront

ADDRESSES = {"h": "10.0.0.1:7", "i": "10.0.0.2:7", "c": ""}


def front(*members: str) -> CohortFront:
    port: Any = SimpleNamespace(fronts={}, addresses=ADDRESSES, audited=(), limits=None)
    made = CohortFront.__new__(CohortFront)
    made._port = port
    status = SimpleNamespace(members=tuple(Member(each, 1) for each in members))
    founded = Configuration(1, ("c", "d"))
    made._hosted = cast("Any", SimpleNamespace(status=status, configuration=founded))
    return made


def test_who_has_just_started_names_itself_beside_those_it_knew() -> None:
    """All it knew had been replaced: its client asked them, and nobody else, for ever."""
    mine = Peer("h", "10.0.0.1:7", is_in_view=True)
    assert front("h").peers() == [Peer("c", "", False), Peer("d", "", False), mine]  # noqa: FBT003


def test_those_of_a_view_are_named_also_where_nobody_said_that_they_belong() -> None:
    assert [peer.id for peer in front("h", "i", "c").peers()] == ["c", "d", "h", "i"]
