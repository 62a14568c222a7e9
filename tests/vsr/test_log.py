"""Histories, and the events that are kept for those who come back."""

from __future__ import annotations

from coterie.kernel.views import NO_VIEW, ViewId, Viewstamp
from coterie.vsr.views.log import EventLog, covers

V1, V2, V3 = ViewId(1, "a", 1), ViewId(2, "b", 1), ViewId(3, "a", 1)


def log_of(bytes_max: int = 1000, views_max: int = 100) -> EventLog:
    return EventLog(bytes_max=bytes_max, views_max=views_max)


def test_a_history_has_one_viewstamp_for_each_view() -> None:
    log = log_of()
    log.begin_view(V1)
    assert log.append([b"one", b"two"]) == Viewstamp(V1, 2)
    log.begin_view(V2)
    assert log.append([b"three"]) == Viewstamp(V2, 1)
    assert log.history == [Viewstamp(NO_VIEW, 0), Viewstamp(V1, 2), Viewstamp(V2, 1)]
    assert log.knows(Viewstamp(V1, 2))
    assert not log.knows(Viewstamp(V1, 3))
    # The paper's formula, read as "for all", would call this known.
    assert not log.knows(Viewstamp(V3, 1))


def test_the_difference_spans_views() -> None:
    log = log_of()
    log.begin_view(V1)
    log.append([b"1", b"2", b"3"])
    log.begin_view(V2)
    log.append([b"4"])
    spans = log.after(Viewstamp(V1, 1), bytes_max=100)
    assert spans is not None
    assert [(span.view, span.first, span.events) for span in spans] == [
        (V1, 2, [b"2", b"3"]),
        (V2, 1, [b"4"]),
    ]
    assert log.after(Viewstamp(V2, 1), bytes_max=100) == []


def test_a_difference_comes_in_pieces_of_bounded_size() -> None:
    log = log_of()
    log.begin_view(V1)
    log.append([b"11", b"22", b"33"])
    [span] = log.after(Viewstamp(V1, 0), bytes_max=5) or []
    assert span.events == [b"11", b"22"]
    [span] = log.after(Viewstamp(V1, 0), bytes_max=1) or []
    assert span.events == [b"11"]


def test_what_is_forgotten_or_another_history_has_no_difference() -> None:
    log = log_of(bytes_max=200)
    log.begin_view(V1)
    for number in range(100):
        log.append([b"%010d" % number])
    assert log.after(Viewstamp(V1, 10), bytes_max=100) is None
    assert log.after(Viewstamp(V1, 99), bytes_max=100) is not None
    assert log.after(Viewstamp(V1, 101), bytes_max=100) is None
    assert log.after(Viewstamp(V2, 1), bytes_max=100) is None


def test_what_a_primary_still_has_to_send_is_never_forgotten() -> None:
    log = log_of(bytes_max=10)
    log.begin_view(V1)
    log.keep_above(Viewstamp(V1, 0))
    for number in range(200):
        log.append([b"%010d" % number])
    assert log.after(Viewstamp(V1, 0), bytes_max=10) is not None
    log.keep_above(Viewstamp(V1, 150))
    log.append([b"more"])
    assert log.after(Viewstamp(V1, 0), bytes_max=10) is None
    assert log.after(Viewstamp(V1, 150), bytes_max=10) is not None


def test_stepping_goes_only_from_the_end_of_a_view_to_the_next() -> None:
    log = log_of()
    log.begin_view(V1)
    log.append([b"1", b"2"])
    behind = [Viewstamp(NO_VIEW, 0), Viewstamp(V1, 3), Viewstamp(V2, 0), Viewstamp(V3, 0)]
    log.step_into(behind)
    assert log.last == Viewstamp(V1, 2)
    log.append([b"3"])
    log.step_into(behind)
    assert log.last == Viewstamp(V3, 0)
    assert covers(log.history, Viewstamp(V2, 0))


def test_a_history_goes_back_a_bounded_number_of_views() -> None:
    log = log_of(views_max=3)
    for number in range(1, 10):
        log.begin_view(ViewId(number, "a", 1))
    assert [known.view.number for known in log.history] == [7, 8, 9]
