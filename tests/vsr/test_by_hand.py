"""Orders of messages in which something would be lost, played by hand."""

from __future__ import annotations

import pytest
from tests.broken.cohort_variants import (
    ComesBackIntoTheSameView,
    OldViewstampsAtOnce,
    PromisesNothing,
    _paper_remember,
)
from tests.vsr.table import Table

from coterie.kernel.views import ViewId, Viewstamp
from coterie.vsr import Cohort, CohortStatus, VsrSettings
from coterie.vsr.views.messages import (
    AcceptInvitation,
    CohortStateChunk,
    CohortStateOffer,
    FetchChunks,
    FetchEvents,
    InitView,
    Invite,
    NewView,
    Superseded,
)


def in_first_view(table: Table) -> Table:
    """The first cohort forms a view with all others."""
    first = table.names[0]
    table[first].manage()
    table.deliver()
    assert all(table[name].is_active for name in table.names)
    assert table[first].is_primary
    return table


def test_a_view_is_formed_and_events_are_forced() -> None:
    table = in_first_view(Table())
    told = table.force("a", b"one")
    assert told == []  # a sub-majority has to answer first
    table.deliver(among="ab")
    assert told == [Viewstamp(ViewId(1, "a", 1), 1)]
    assert [table.knows(name) for name in "abc"] == [1, 1, 0]
    assert not table.problems()


def test_the_invitation_round_is_one_round_when_the_manager_leads() -> None:
    """One round of messages is all that is needed when the manager is also the primary."""
    table = Table()
    table["a"].manage()
    assert table.deliver(kinds=(Invite,), losing=False) == 2
    assert table.deliver(kinds=(AcceptInvitation,), losing=False) == 2
    assert table["a"].is_primary
    assert table.deliver(kinds=(NewView,), losing=False) == 2
    assert all(table[name].is_active for name in "abc")


def test_otherwise_one_more_message_is_needed() -> None:
    table = in_first_view(Table())
    table.gone = {"a"}  # so the others believe
    table["c"].manage()
    table.deliver(kinds=(Invite, AcceptInvitation), losing=False)
    assert table["c"].status is CohortStatus.UNDERLING
    table.gone = set()
    assert table.deliver(kinds=(InitView,), losing=False) == 1
    assert table["a"].is_primary  # the old primary is preferred
    table.deliver()
    assert table["c"].is_active
    assert not table.problems()


def forget_a_promise(table: Table) -> None:
    """Design 10 f: a view accepted and forgotten in a crash, and a lower one accepted after."""
    in_first_view(table)
    table.gone = {"a"}
    table["b"].manage()
    table.deliver(among="bc", kinds=(Invite, AcceptInvitation))
    assert table["b"].is_primary  # of (2, b), alone
    table.mail.clear()
    table.start("c")
    table.gone = {"b"}
    table["a"].manage()  # of (2, a), which is lower
    table.deliver(among="ac")


def test_a_promise_survives_a_crash() -> None:
    table = Table()
    forget_a_promise(table)
    assert not table.problems()
    # It was told of the higher view, and went above it.
    assert table["a"].cur_viewid == ViewId(3, "a", 1)
    assert table["c"].is_active
    table.force("a", b"committed")
    table.deliver(among="ac")
    table.gone = {"a"}
    table["b"].manage()
    table.deliver(among="bc")
    table["c"].manage()
    table.deliver(among="bc")
    assert table["c"].is_primary
    assert table.knows("b") == 1
    assert not table.problems()


def test_with_the_papers_stable_storage_a_committed_event_is_lost() -> None:
    table = Table()
    table.remember = _paper_remember
    forget_a_promise(table)
    assert table["a"].cur_viewid == ViewId(2, "a", 1)
    told = table.force("a", b"committed")
    table.deliver(among="ac")
    assert told
    table.gone = set()
    table["b"].manage()
    table.deliver()
    assert table["b"].is_primary
    assert table.knows("b") == 0
    assert {"forced events survive", "viewids ordered"} <= table.problems()


def force_an_old_viewstamp(table: Table) -> bool:
    """Say whether a new primary vouches for an event that only it and a lost cohort know."""
    in_first_view(table)
    old = table["a"].add(b"called in view 1")
    table["a"].finish_turn()
    table.deliver(among="ac")
    table.gone = {"a", "b"}
    table["c"].manage()
    table.deliver(among="cde", kinds=(Invite, AcceptInvitation))
    assert table["c"].is_primary
    told: list[bool] = []
    table["c"].force_to(old, lambda: told.append(True))
    if told:
        table.tracker.claim(table["c"].cur_viewid, old)
    table.mail.clear()  # the new view reaches nobody
    table.gone = {"a", "c"}
    table["b"].manage()
    table.deliver(among="bde")
    table["b"].manage()  # above what d and e have promised
    table.deliver(among="bde")
    assert table["b"].is_primary
    assert table.knows("b") == 0
    return bool(told)


def test_an_event_of_an_earlier_view_is_not_forced_before_the_new_view_is() -> None:
    table = Table("abcde")
    assert not force_an_old_viewstamp(table)
    assert not table.problems()


def test_the_papers_force_to_vouches_for_what_can_be_lost() -> None:
    table = Table("abcde", kind=OldViewstampsAtOnce)
    assert force_an_old_viewstamp(table)
    assert table.problems() == {"forced events survive"}


@pytest.mark.parametrize(
    ("kind", "problems"), [(Cohort, set()), (PromisesNothing, {"forced events survive"})]
)
def test_who_has_accepted_a_new_view_knows_nothing_more_of_the_old_one(
    kind: type[Cohort], problems: set[str]
) -> None:
    table = in_first_view(Table("acb", kind=kind))
    table.gone = {"a"}
    table["c"].manage()
    table.deliver(among="bc", kinds=(Invite,), losing=False)
    accepted = table.mail
    table.mail = []
    told = table.force("a", b"too late")
    table.deliver(among="ab")
    assert bool(told) is bool(problems)
    table.mail = accepted
    table.deliver(among="bc")
    assert table["c"].is_primary
    assert table.problems() == problems


def test_a_force_of_an_old_viewstamp_ends_with_the_new_view_known() -> None:
    table = in_first_view(Table())
    old = table["a"].add(b"one")
    table["a"].finish_turn()
    table.deliver()
    table["a"].manage()
    table.deliver(kinds=(Invite, AcceptInvitation), losing=False)
    told: list[bool] = []
    table["a"].force_to(old, lambda: told.append(True))
    assert not told
    table.deliver()
    assert told


@pytest.mark.parametrize(
    ("kind", "problems"),
    [(Cohort, set()), (ComesBackIntoTheSameView, {"forced events survive"})],
)
def test_a_backup_without_its_state_needs_a_new_view(
    kind: type[Cohort], problems: set[str]
) -> None:
    """A state offered before it crashed is older than what its earlier life acknowledged."""
    table = in_first_view(Table(kind=kind, settings=VsrSettings(log_bytes=1)))
    for event in (b"1", b"2"):
        table.force("a", event)
        table.deliver(among="ab")
    # An offer of the state with two events is on its way for long.
    table.mail.append((table["b"].me, "a", FetchEvents(table["b"].cur_viewid, None)))
    table.deliver(kinds=(FetchEvents,), losing=False)
    table.mail.append((table["b"].me, "a", FetchChunks(table["b"].cur_viewid, 1, 0)))
    table.deliver(kinds=(FetchChunks,), losing=False)
    late = [mail for mail in table.mail if isinstance(mail[2], CohortStateOffer | CohortStateChunk)]
    assert len(late) > 1
    table.mail.clear()
    told = table.force("a", b"3")
    table.deliver(among="ab")
    assert told
    announced = NewView(table["a"].cur_view, tuple(table["a"].log.history)[:-1])
    first_view = NewView(table["a"].cur_view, (*announced.history, Viewstamp(table["a"].led, 0)))
    table.start("b")
    table.gone = {"a"}
    late.insert(0, (table["a"].me, "b", first_view))
    for sender, to, message in late:
        table[to].receive(sender, message)
    assert table["b"].up_to_date is bool(problems)
    table.mail.clear()
    table["b"].manage()
    table.deliver(among="bc")
    if not problems:
        # b without its state and c behind: a has to be asked.
        assert not table["b"].is_active
        assert not table["c"].is_active
    assert table.problems() == problems


def test_who_promised_more_is_brought_back_by_a_new_view() -> None:
    table = in_first_view(Table())
    table["c"].manage()
    table.mail.clear()  # nobody hears it
    table["c"].try_again()
    table.mail.clear()
    announcement = NewView(table["a"].cur_view, tuple(table["a"].log.history))
    table.mail.append((table["a"].me, "c", announcement))
    table.deliver(kinds=(NewView, Superseded))
    table["a"].manage()
    table.deliver()
    assert {table[name].cur_viewid for name in "abc"} == {table["a"].max_viewid}
    assert table["a"].is_primary
    assert not table.problems()


def test_a_backup_whose_primary_is_well_declines_until_the_inviter_has_heard_from_it() -> None:
    """Whoever is cut off from the primary does not call the others away from it."""
    table = in_first_view(Table())
    table["c"].manage()
    table.deliver(among="bc")
    assert table["b"].is_active
    assert table["b"].max_viewid == ViewId(1, "a", 1)
    table.fire("c", "vsr invite")
    table.deliver()
    # The primary has accepted, so that the view is over: now the inviter insists.
    assert table["a"].is_primary
    assert {table[name].cur_viewid for name in "abc"} == {ViewId(2, "c", 1)}
    assert not table.problems()


def test_an_invitation_that_was_declined_is_followed_when_the_primary_is_lost() -> None:
    table = in_first_view(Table())
    table["c"].manage()
    table.deliver(among="bc")
    table.gone = {"a"}
    table["b"].reachability_changed(["a"])
    table.deliver(among="bc")
    assert table["b"].is_primary
    assert table["c"].is_active
    assert table["b"].cur_viewid == ViewId(2, "c", 1)
    assert not table.problems()


def test_an_earlier_life_does_not_lead() -> None:
    """Whoever was chosen and has lost its state since must not start the view."""
    table = in_first_view(Table())
    table["c"].manage()
    table.deliver(kinds=(Invite, AcceptInvitation), losing=False)
    table.start("a")
    table.deliver(kinds=(InitView,), losing=False)
    assert not table["a"].is_active
    assert not table.problems()


def test_who_acknowledges_a_view_after_another_was_taken_into_it_hears_of_that_one() -> None:
    """At the founding of a group a backup said for ever that its view had two members of three."""
    table = Table()
    table.gone = {"c"}
    table["a"].manage()
    table.deliver(among="ab", kinds=(Invite, AcceptInvitation), losing=False)
    table.gone = set()
    table.mail = [mail for mail in table.mail if isinstance(mail[2], NewView)]
    table.deliver(kinds=(NewView,), losing=False)
    assert [sender.id for sender, _, _ in table.mail] == ["b", "c"]
    table.mail.reverse()
    table.deliver()
    table.fire("a", "vsr buffer")
    table.deliver()
    for name in "abc":
        assert [member.id for member in table[name].cur_view.members] == ["a", "b", "c"]
    assert not table.problems()


def test_backups_are_told_who_is_in_the_view_until_they_have_heard_it() -> None:
    table = in_first_view(Table())
    table.gone = {"c"}
    table["a"].reachability_changed([])
    for _ in range(3):
        table.mail.clear()  # lost on the way
        table.fire("a", "vsr buffer")
    assert len(table["b"].cur_view.members) == 3
    table.deliver(among="ab")
    assert [member.id for member in table["b"].cur_view.members] == ["a", "b"]
    table.fire("a", "vsr buffer")
    assert not table.mail  # there is nothing more to say
    assert not table.problems()
