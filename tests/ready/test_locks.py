"""Locks and elections, as the plain objects they are."""

from __future__ import annotations

import pytest
from tests.ready.clocks import SECOND, START, at, make

from coterie.ready import Election, Full, Holding, Locks, Term

# ---- locks


class FewLocks(Locks):
    locks_max = 2


def test_a_lock_has_one_holder() -> None:
    locks = make(Locks)
    assert at(0, lambda: locks.acquire("disk", "ada")) == 1
    assert at(0, lambda: locks.acquire("disk", "bob")) is None
    assert at(0, lambda: locks.acquire("disk", "ada")) is None
    assert at(1, lambda: locks.holder("disk")) == Holding("ada", 1, START + 10 * SECOND)
    assert at(1, lambda: locks.acquire("tape", "bob")) == 2
    assert at(1, lambda: locks.release("disk", 1))
    assert at(1, lambda: locks.holder("disk")) is None
    assert not at(1, lambda: locks.release("disk", 1))
    assert at(1, lambda: locks.acquire("disk", "bob")) == 3


def test_a_lock_ends_and_its_late_owner_is_fenced_off() -> None:
    locks = make(Locks)
    at(0, lambda: locks.acquire("disk", "ada", 10))
    assert at(9.9, lambda: locks.is_current("disk", 1))
    assert not at(10, lambda: locks.is_current("disk", 1))
    assert not at(10, lambda: locks.renew("disk", 1))
    assert at(10, lambda: locks.acquire("disk", "bob", 10)) == 2
    assert not at(11, lambda: locks.renew("disk", 1))
    assert not at(11, lambda: locks.release("disk", 1))
    assert at(11, lambda: locks.is_current("disk", 2))


def test_a_lock_that_is_renewed_goes_on_under_the_same_number() -> None:
    locks = make(Locks)
    at(0, lambda: locks.acquire("disk", "ada", 10))
    assert at(9, lambda: locks.renew("disk", 1, 10))
    at(10, locks.on_tick)
    assert at(18, lambda: locks.holder("disk")) == Holding("ada", 1, START + 19 * SECOND)
    at(19, locks.on_tick)
    assert locks.count() == 0
    assert locks.agenda == []


def test_too_many_locks_are_refused_until_some_have_ended() -> None:
    locks = make(FewLocks)
    at(0, lambda: locks.acquire("a", "ada", 1))
    at(0, lambda: locks.acquire("b", "ada", 5))
    with pytest.raises(Full, match=r"2 locks are held \(locks_max\)"):
        at(0, lambda: locks.acquire("c", "ada"))
    assert at(1, lambda: locks.acquire("a", "bob", 1)) == 3  # its place is there
    at(2, locks.on_tick)
    assert at(2, lambda: locks.acquire("c", "ada")) == 4


def test_the_agenda_does_not_grow_with_every_renewal() -> None:
    locks = make(Locks)
    at(0, lambda: locks.acquire("disk", "ada", 1000))
    for second in range(1000):
        assert at(second, lambda: locks.renew("disk", 1, 100_000))
    assert len(locks.agenda) < 100


# ---- elections


class FewCandidates(Election):
    candidates_max = 2


def test_who_came_first_leads_and_the_others_wait_in_line() -> None:
    election = make(Election)
    assert at(0, election.leader) is None
    assert at(0, lambda: election.campaign("ada")) == Term(1, "ada")
    assert at(1, lambda: election.campaign("bob")) == Term(1, "ada")
    assert at(2, lambda: election.campaign("ada")) == Term(1, "ada")
    assert at(2, election.leader) == Term(1, "ada")
    assert at(2, election.standing) == ["ada", "bob"]


def test_a_leader_that_is_late_is_replaced_without_anybody_calling() -> None:
    election = make(Election)
    at(0, lambda: election.campaign("ada", 10))
    at(5, lambda: election.campaign("bob", 10))
    assert at(10, election.leader) is None
    assert not at(10, lambda: election.is_current(1))
    at(10, election.on_tick)
    assert at(10, election.leader) == Term(2, "bob")
    assert at(10, lambda: election.is_current(2))
    assert not at(10, lambda: election.is_current(1))
    assert at(11, lambda: election.campaign("ada")) == Term(2, "bob")
    at(20, election.on_tick)
    assert at(20, election.leader) == Term(3, "ada")


def test_a_candidate_that_comes_after_the_leaders_time_leads_at_once() -> None:
    election = make(Election)
    at(0, lambda: election.campaign("ada", 10))
    assert at(10, lambda: election.campaign("bob")) == Term(2, "bob")


def test_a_leader_that_resigns_is_followed_by_the_next() -> None:
    election = make(Election)
    at(0, lambda: election.campaign("ada"))
    at(0, lambda: election.campaign("bob"))
    assert at(1, lambda: election.resign("ada"))
    assert not at(1, lambda: election.resign("ada"))
    assert at(1, election.leader) == Term(2, "bob")
    assert at(1, lambda: election.resign("bob"))
    assert at(1, election.leader) is None
    assert not at(1, lambda: election.is_current(2))
    assert at(2, lambda: election.campaign("ada")) == Term(3, "ada")


def test_who_is_late_stands_no_more_and_cannot_resign() -> None:
    election = make(Election)
    at(0, lambda: election.campaign("ada", 1))
    at(0, lambda: election.campaign("bob", 9))
    assert at(1, election.standing) == ["bob"]
    assert not at(5, lambda: election.resign("ada"))
    assert at(5, election.standing) == ["bob"]
    assert at(5, election.leader) == Term(2, "bob")
    assert at(5, lambda: election.resign("bob"))
    assert at(5, election.leader) is None


def test_a_term_has_one_leader_even_if_it_comes_back() -> None:
    election = make(Election)
    at(0, lambda: election.campaign("ada", 1))
    assert at(5, lambda: election.campaign("ada", 1)) == Term(2, "ada")


def test_too_many_candidates_are_refused() -> None:
    election = make(FewCandidates)
    at(0, lambda: election.campaign("ada", 1))
    at(0, lambda: election.campaign("bob", 9))
    with pytest.raises(Full, match=r"2 candidates \(candidates_max\)"):
        at(0, lambda: election.campaign("cy"))
    assert at(0, lambda: election.campaign("ada", 1)) == Term(1, "ada")
    at(2, election.on_tick)
    assert at(2, lambda: election.campaign("cy")) == Term(2, "bob")
