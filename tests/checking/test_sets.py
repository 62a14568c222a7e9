"""Every check of histories that are sets fires, on records written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.checking.sets import SetTracker
from coterie.kernel.engine import Past, Run, Standing, Version
from coterie.kernel.records import (
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Replied,
    Reply,
    RolledBack,
    Settled,
    StateDigest,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId

A, B, C = (Member(id, 1) for id in "abc")
V1, V2 = ViewId(1, "a", 1), ViewId(2, "a", 1)


class Tale:
    """A tracker that is told what happens, in short words."""

    def __init__(self) -> None:
        self.tracker = SetTracker(Configuration(1, ("a", "b", "c")), len)

    def tell(self, kind: type, member: Member, **fields: Any) -> None:  # noqa: ANN401
        self.tracker.add(kind(group="g", member=member, at=0, **fields))

    def takes(self, member: Member, origin: Member, number: int, position: int) -> None:
        run = Run(V1, number, position, origin, number, [b"%d" % number])
        self.tell(EntriesAccepted, member, run=run)

    def accepts(self, member: Member, view: ViewId) -> None:
        version = Version(NO_VIEW, 0)
        self.tell(PrimaryAccepted, member, view=view, members=(A, B, C), version=version)

    def confirms(self, member: Member, view: ViewId, by: tuple[Member, ...]) -> None:
        self.tell(PrimaryConfirmed, member, view=view, position=0, accepted_by=by)

    def begin(self) -> None:
        """All accept a view, and a and b take an entry of a and settle it."""
        for member in (A, B, C):
            self.accepts(member, V1)
        for member in (A, B):
            self.confirms(member, V1, (A, B, C))
            self.takes(member, A, 5, 1)
        for member in (A, B):
            self.tell(Settled, member, position=1)

    @property
    def checks(self) -> set[str]:
        self.tracker.finish(object())
        return {violation.check for violation in self.tracker.violations}


@pytest.fixture
def tale() -> Tale:
    tale = Tale()
    tale.begin()
    return tale


def test_what_is_right_passes(tale: Tale) -> None:
    tale.takes(A, A, 7, 2)
    tale.takes(B, A, 7, 2)
    tale.tell(StateDigest, B, position=2, digest=b"\2")
    tale.accepts(A, V2)
    tale.confirms(A, V2, (A,))
    tale.tracker.violations.clear()  # of that confirmation
    assert tale.checks == set()


def test_an_entry_left_out(tale: Tale) -> None:
    tale.takes(A, A, 7, 2)
    tale.takes(A, A, 9, 3)
    tale.takes(B, A, 9, 2)
    assert tale.checks == {"beginning"}


def test_an_entry_taken_twice(tale: Tale) -> None:
    tale.takes(B, A, 5, 2)
    assert tale.checks == {"once"}


def test_a_payload_proposed_twice(tale: Tale) -> None:
    tale.takes(B, B, 5, 2)
    assert tale.checks == {"once"}


def test_an_entry_settled_by_one(tale: Tale) -> None:
    tale.takes(A, A, 7, 2)
    tale.tell(Settled, A, position=2)
    assert tale.checks == {"authoritative majority"}


def test_a_later_view_accepted_without_what_was_settled(tale: Tale) -> None:
    tale.accepts(C, V2)
    assert tale.checks == {"authoritative for ever"}


def test_a_set_that_is_rolled_back_or_not_kept(tale: Tale) -> None:
    tale.tell(RolledBack, A, position=0)
    version = Version(V1, 1)
    tale.tell(HistoryAdopted, B, view=V2, source=A, version=version, kept=0, restored=0)
    assert [each.check for each in tale.tracker.violations] == ["authoritative for ever"] * 2


def test_a_state_that_is_not_of_the_set(tale: Tale) -> None:
    tale.tell(StateDigest, A, position=1, digest=b"\7")
    assert tale.checks == {"state of a set"}


def test_a_view_confirmed_by_too_few(tale: Tale) -> None:
    tale.confirms(A, V2, (A,))
    assert tale.checks == {"confirmed chain"}


def test_an_answer_before_it_is_settled(tale: Tale) -> None:
    tale.takes(A, A, 7, 2)
    reply = Reply(1, 1, 2, V1, 7, Standing.AUTHORITATIVE, 0, 0)
    tale.tell(Replied, A, replies=[reply])
    assert tale.checks == {"acknowledged means authoritative"}


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        (Past(version=Version(V1, 1), settled=1, position=1, origins=((A, 5),)), set()),
        (Past(version=Version(V1, 0)), {"memory"}),
        (Past(version=Version(V1, 0), is_zombie=True), set()),
        (Past(version=Version(V1, 2), settled=2, position=2, origins=((A, 5),)), {"memory"}),
    ],
    ids=["whole", "nothing", "zombie", "more than there was"],
)
def test_a_life_that_does_not_know_what_the_last_one_knew(past: Past, expected: set[str]) -> None:
    tale = Tale()
    tale.tracker.inherit(A, Past())
    tale.begin()
    tale.tracker.inherit(Member("a", 2), past)
    assert tale.checks == expected
