"""Each check of **transis** fires on a history that breaks its promise, and on that alone."""

from __future__ import annotations

import pytest

from coterie.checking.colours import ColoursTracker
from coterie.colours.states import GREEN
from coterie.kernel.components import (
    Action,
    ActionId,
    Component,
    Promises,
    ServerMemory,
    Vulnerable,
    Yellow,
    no_component,
)
from coterie.kernel.engine import Past
from coterie.kernel.records import (
    ActionsGreen,
    ActionsKnown,
    ComponentAttempted,
    ComponentInstalled,
    ComponentState,
    GreenLines,
    Replied,
    Reply,
    StateAdopted,
    StateDigest,
    StateEntered,
    TransitionalInstalled,
    ViewInstalled,
    WordGiven,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId

A, B, C = (Member(id, 1) for id in "abc")
ABC = (A, B, C)
IDS = ("a", "b", "c")
V1, V2, V3 = (ViewId(number, "a", 1) for number in (1, 2, 3))
START = no_component(IDS)


class Telling:
    """A history that is told record by record."""

    def __init__(self) -> None:
        self.tracker = ColoursTracker(Configuration(1, IDS))

    def says(self, member: Member, kind: type, **fields: object) -> None:
        self.tracker.add(kind(group="g", member=member, at=0, **fields))

    def fired(self) -> set[str]:
        self.tracker.finish()
        return {violation.check for violation in self.tracker.violations}

    # ---- what a right history consists of

    def enters(self, state: str, *members: Member, view: ViewId = V1) -> None:
        for member in members:
            self.says(member, StateEntered, view=view, state=state)

    def installs_view(self, view: ViewId, *members: Member) -> None:
        for member in members:
            self.says(
                member,
                ViewInstalled,
                view=view,
                members=members,
                previous=NO_VIEW,
                transitional=(member,),
            )

    def exchanges(
        self, member: Member, promises: Promises, view: ViewId = V1, position: int = 0
    ) -> None:
        self.enters("ExchangeStates", member, view=view)
        self.says(member, ComponentState, view=view, promises=promises, position=position)

    def attempts(self, member: Member, index: int = 0, view: ViewId = V1) -> None:
        prim = START if index == 0 else Component(index, V1, IDS)
        record = Vulnerable(index, view, IDS)
        self.says(member, ComponentAttempted, view=view, promises=Promises(prim, record))

    def installs(
        self, member: Member, index: int = 1, view: ViewId = V1, ids: tuple[str, ...] = IDS
    ) -> None:
        promises = Promises(Component(index, view, ids), Vulnerable(index - 1, view, ids))
        self.says(member, ComponentInstalled, view=view, promises=promises, position=0)

    def forms(self) -> None:
        """All three become the first primary component."""
        self.installs_view(V1, *ABC)
        for member in ABC:
            self.exchanges(member, Promises(START))
            self.enters("ExchangeActions", member)
        for member in ABC:
            self.attempts(member)
            self.enters("Construct", member)
        for member in ABC:
            self.installs(member)
            self.enters("RegPrim", member)

    def knows(self, member: Member, *ids: ActionId) -> None:
        actions = [Action(id.creator, id.index, id.index, b"") for id in ids]
        self.says(member, ActionsKnown, actions=actions)

    def greens(self, member: Member, position: int, *ids: ActionId, view: ViewId = V1) -> None:
        self.says(
            member,
            ActionsGreen,
            view=view,
            number=position,
            position=position,
            actions=list(ids),
            digests=[0] * len(ids),
        )

    def leaves(self, member: Member, position: int, *yellow: ActionId) -> None:
        """A member goes from the first primary component on, alive."""
        self.says(member, TransitionalInstalled, view=V1, members=(member,))
        self.enters("TransPrim", member)
        self.installs_view(V2, member)
        promises = Promises(Component(1, V1, IDS), None, Yellow(position, yellow))
        self.exchanges(member, promises, V2, position)


X, Y = ActionId(A, 1), ActionId(B, 1)


def test_a_right_history_breaks_nothing() -> None:
    told = Telling()
    told.forms()
    for member in ABC:
        told.knows(member, X, Y)
    told.greens(A, 1, X, Y)
    told.greens(B, 1, X)
    told.leaves(B, 1, Y)
    told.leaves(C, 0, X, Y)
    assert told.fired() == set()


def test_global_total_order() -> None:
    told = Telling()
    told.greens(A, 1, X)
    told.greens(B, 1, Y)
    assert "global total order" in told.fired()


def test_global_fifo_order() -> None:
    told = Telling()
    told.greens(A, 1, ActionId(A, 2))
    assert told.fired() == {"global FIFO order"}


def test_green_prefix() -> None:
    told = Telling()
    told.greens(A, 1, X)
    told.greens(B, 2, Y)
    assert "green prefix" in told.fired()


def test_green_prefix_through_lives() -> None:
    told = Telling()
    told.forms()
    told.greens(A, 1, X)
    told.tracker.inherit(Member("a", 2), Past(more=ServerMemory(Promises(START))))
    assert "green prefix" in told.fired()


def test_memory() -> None:
    told = Telling()
    told.forms()
    told.knows(A, X)
    told.tracker.inherit(Member("a", 2), Past(more=ServerMemory(Promises(START))))
    assert "memory" in told.fired()


def test_red_cut() -> None:
    told = Telling()
    told.knows(A, ActionId(B, 2))
    assert told.fired() == {"red cut"}


def test_one_primary_component_by_number() -> None:
    told = Telling()
    told.forms()
    told.attempts(C, view=V2)
    told.installs(C, view=V2)
    assert "one primary component" in told.fired()


def test_one_primary_component_by_quorum() -> None:
    told = Telling()
    told.forms()
    told.attempts(C, 1, V2)
    told.installs(C, 2, V2, ("c",))
    assert told.fired() == {"one primary component"}


def test_one_primary_component_that_only_a_disk_tells_of() -> None:
    """A process died as its installation was written: the component was installed all the same."""
    told = Telling()
    told.installs_view(V1, *ABC)
    for member in ABC:
        told.attempts(member)
    first = Component(1, V1, IDS)
    memory = ServerMemory(Promises(first, Vulnerable(0, V1, IDS)))
    told.tracker.inherit(Member("a", 2), Past(more=memory))
    for member in (A, B, C):
        told.attempts(member, 1, V2)
    told.installs(B, 2, V2)
    assert told.fired() == set()
    assert told.tracker.components == 2


def test_one_primary_component_that_only_a_disk_tells_of_has_a_quorum_too() -> None:
    told = Telling()
    told.forms()
    other = Component(2, V2, ("c",))
    told.attempts(C, 1, V2)
    memory = ServerMemory(Promises(other, Vulnerable(1, V2, ("c",))))
    told.tracker.inherit(Member("c", 2), Past(more=memory))
    assert told.fired() == {"one primary component"}


def test_a_component_that_nobody_remembers_is_given_up_with_an_operator_s_word() -> None:
    """Its number is given again: the only one who had installed it has lost its disk."""
    told = Telling()
    for member in ABC:
        told.attempts(member)
    told.installs(A)
    told.tracker.inherit(Member("a", 2), Past(is_zombie=True))
    told.says(B, WordGiven, prim=START, position=0)
    for member in (Member("a", 2), B, C):
        told.attempts(member, view=V2)
    told.installs(B, view=V2)
    assert told.fired() == set()


def test_least_size() -> None:
    told = Telling()
    told.tracker = ColoursTracker(Configuration(1, IDS), primary_min=2)
    told.forms()
    pair = ("a", "b")
    told.says(A, ComponentAttempted, view=V2, promises=Promises(Component(1, V1, IDS)))
    told.says(B, ComponentAttempted, view=V2, promises=Promises(Component(1, V1, IDS)))
    told.installs(A, 2, V2, pair)
    assert told.fired() == set()
    told.attempts(A, 2, V3)
    told.installs(A, 3, V3, ("a",))
    assert told.fired() == {"least size"}


def test_ready_on_record() -> None:
    told = Telling()
    told.attempts(A)
    told.installs(A)
    assert told.fired() == {"ready on record"}


def test_attempt_excluded() -> None:
    told = Telling()
    told.forms()
    told.enters("Construct", C)
    told.enters("No", C)
    told.enters("ExchangeStates", C, view=V2)
    assert told.fired() == {"attempt excluded"}


@pytest.mark.parametrize("protects", [True, False])
def test_attempt_protected_in_case_unknown(protects: bool) -> None:  # noqa: FBT001 -- both ways
    told = Telling()
    told.attempts(A)
    told.enters("Construct", A)
    told.enters("No", A)
    told.enters("Un", A)
    record = Vulnerable(0, V1, IDS) if protects else None
    told.exchanges(A, Promises(START, record), V2)
    assert told.fired() == (set() if protects else {"attempt protected"})


def test_attempt_protected_after_a_crash() -> None:
    told = Telling()
    told.attempts(A)
    again = Member("a", 2)
    promises = Promises(START, Vulnerable(0, V1, IDS))
    told.tracker.inherit(again, Past(more=ServerMemory(promises)))
    told.exchanges(again, Promises(START), V2)
    assert told.fired() == {"attempt protected"}


def test_yellow_rule() -> None:
    """One made it green, and another left without it."""
    told = Telling()
    told.forms()
    told.greens(A, 1, X)
    told.leaves(B, 0)
    assert told.fired() == {"yellow rule"}


def test_yellow_rule_at_the_same_place() -> None:
    told = Telling()
    told.forms()
    told.greens(A, 1, X, Y)
    told.leaves(B, 0, Y, X)
    assert told.fired() == {"yellow rule"}


def test_green_for_ever_is_asked_of_the_order() -> None:
    told = Telling()
    told.greens(A, 1, X)
    assert not told.tracker.is_known_to_all
    told.greens(B, 1, X)
    told.greens(C, 1, X)
    assert told.tracker.is_known_to_all


def test_white_means_all() -> None:
    told = Telling()
    told.greens(A, 1, X)
    told.says(A, GreenLines, lines=(("a", 1), ("b", 1), ("c", 0)), white=0)
    assert told.fired() == {"white means all"}


def test_white_is_the_lowest_line() -> None:
    told = Telling()
    told.greens(A, 1, X)
    told.says(A, GreenLines, lines=(("a", 1), ("b", 0), ("c", 0)), white=1)
    assert told.fired() == {"white means all"}


def test_eventual_path_of_actions() -> None:
    told = Telling()
    told.installs_view(V1, A, B)
    told.knows(A, ActionId(C, 1))
    for member in (A, B):
        told.exchanges(member, Promises(START))
        told.enters("ExchangeActions", member)
    told.enters("Construct", B)
    assert told.fired() == {"eventual path"}


def test_eventual_path_of_lines() -> None:
    told = Telling()
    told.greens(C, 1, X)
    told.installs_view(V1, A, B)
    told.says(A, GreenLines, lines=(("c", 1),), white=0)
    for member in (A, B):
        told.exchanges(member, Promises(START))
        told.enters("ExchangeActions", member)
    told.enters("Construct", B)
    assert told.fired() == {"eventual path"}


def test_availability() -> None:
    told = Telling()
    told.installs_view(V1, A, B)
    for member in (A, B):
        told.exchanges(member, Promises(START))
        told.enters("ExchangeActions", member)
    told.enters("NonPrim", A)
    assert told.fired() == {"availability"}


def test_availability_is_not_asked_of_who_is_in_doubt() -> None:
    told = Telling()
    told.attempts(C, view=V3)
    told.installs_view(V1, *ABC)
    for member in ABC:
        told.exchanges(member, Promises(START))
        told.enters("ExchangeActions", member)
    told.enters("NonPrim", A)
    assert told.fired() == set()


def test_told_right() -> None:
    told = Telling()
    reply = Reply(1, 1, 1, V1, 1, GREEN, 0, 0)
    told.says(A, Replied, replies=[reply])
    assert told.fired() == {"told right"}


def test_active_replication() -> None:
    told = Telling()
    told.says(A, StateDigest, position=5, digest=b"one")
    told.says(B, StateDigest, position=5, digest=b"other")
    assert told.fired() == {"active replication"}


def test_a_state_taken_over_is_that_of_the_order() -> None:
    told = Telling()
    told.greens(A, 1, X)
    told.says(B, StateAdopted, source=A, position=1, greens=((B, 1),))
    assert told.fired() == {"global total order"}


def test_what_an_operator_gave_up_is_no_longer_asked_for() -> None:
    told = Telling()
    told.greens(A, 1, X)
    told.tracker.inherit(Member("a", 2), Past(is_zombie=True))
    told.says(B, WordGiven, prim=START, position=0)
    told.greens(B, 1, Y)
    assert told.fired() == set()
