"""Reading records into lives and eras."""

from __future__ import annotations

from tests.checking.stories import A, Author, B, C, history_of, members, view

from coterie.checking.history import GroupHistory, in_order, message_of
from coterie.checking.virtual_synchrony import integrity
from coterie.kernel.records import Delivery, Stopped


def a_life() -> Author:
    author = Author("a").starts().sends(1).delivers("a1", 1)
    author.proposes("2.a", "ab").ends("a").delivers("b1", 2, part=Delivery.TRANSITIONAL)
    return author.installs("2.a", "ab", along="a").sends(2).delivers("a2", 1)


def test_a_life_is_cut_into_eras_at_its_views() -> None:
    life = history_of(a_life()).lives[A]
    first, second = life.eras
    assert [era.view for era in life.eras] == [view("1.a"), view("2.a")]
    assert first.successor is second.installed
    assert second.successor is None
    assert [record.first for record in first.sent] == [1]
    assert [message[:3] for message in first.messages()] == [("a", 1, 1), ("b", 1, 1)]
    assert [(before, record.members) for before, record in first.transitional] == [
        (1, members("a"))
    ]
    assert [proposal.view for proposal in life.proposals] == [view("1.a"), view("2.a")]


def test_members_are_kept_apart_by_life() -> None:
    history = history_of(a_life(), Author("b").starts())
    assert list(history.lives) == [A, B]
    assert history.by_view().keys() == {view("1.a"), view("2.a"), view("1.b")}
    assert history.together().keys() == {(view("1.a"), view("2.a"))}


def test_records_before_any_view_are_stray() -> None:
    history = history_of(Author("a").sends(1).delivers("a1", 1).ends("a"))
    assert len(history.strays) == 3
    assert history.lives[A].eras == []
    assert len(list(integrity(history))) == 3


def test_records_of_a_view_that_is_over_or_has_not_begun_are_stray() -> None:
    author = a_life()
    for name in ("1.a", "3.a"):
        author.current = view(name)
        author.sends(7).delivers("a7", 7).ends("a")
    history = history_of(author)
    assert len(history.strays) == 6
    assert [era.view for era in history.lives[A].eras] == [view("1.a"), view("2.a")]
    assert history.records == len(author.records)


def test_a_stray_record_spoils_nothing_that_comes_after_it() -> None:
    author = a_life()
    author.current = view("1.a")
    author.delivers("a1", 1)
    author.current = view("2.a")
    author.sends(3).delivers("a3", 2)
    history = history_of(author)
    assert [record.first for record in history.lives[A].eras[-1].delivered] == [2, 3]
    assert len(history.strays) == 1


def test_the_end_of_a_life_is_known() -> None:
    history = history_of(a_life(), Author("b").starts(), Author("c").starts())
    history.add(Stopped(group="g", member=A, at=9))
    history.crashed(B)
    ended = {member: life.has_ended for member, life in history.lives.items()}
    assert ended == {A: True, B: True, C: False}


def test_the_dead_do_not_speak() -> None:
    author = a_life()
    history = history_of(author)
    history.crashed(A)
    history.add(author.records[-1])
    assert history.strays == [author.records[-1]]
    assert len(history.lives[A].eras[-1].delivered) == 1


def test_a_crash_of_one_who_never_wrote_anything_is_no_matter() -> None:
    history = GroupHistory()
    history.crashed(A)
    assert history.lives == {}


def test_sent_and_delivered_are_the_same_message() -> None:
    [era] = history_of(Author("a").starts().sends(1).delivers("a1", 1)).lives[A].eras
    assert message_of(era.sent[0]) == message_of(era.delivered[0])


def test_what_came_after_a_hole_does_not_count_for_the_order() -> None:
    author = Author("a").starts().delivers("a1", 1).ends("a")
    author.delivers("a2", 2, part=Delivery.TRANSITIONAL)
    author.delivers("a3", part=Delivery.AFTER_HOLE)
    [era] = history_of(author).lives[A].eras
    assert [record.first for record in in_order(era)] == [1, 2]
    assert len(era.messages()) == 3
