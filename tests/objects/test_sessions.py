"""Sessions against a naive model that looks at everything every time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.views import NO_VIEW, Member
from coterie.objects import HostSettings
from coterie.objects.execution.outcomes import Done
from coterie.objects.execution.sessions import SMALL, Session, Sessions, session_id, weigh

SETTINGS = HostSettings(
    sessions_max=3, window_requests_max=4, window_bytes_max=400, sessions_bytes_max=700
)


def outcome(position: int, size: int) -> Done:
    return Done(position, NO_VIEW, position, b"x" * size)


class Naive:
    """The same rules, written down without any care for speed."""

    def __init__(self) -> None:
        self.sessions: dict[int, dict[int, Done]] = {}
        self.lowest: dict[int, int] = {}
        self.used: dict[int, int] = {}

    def bytes(self, id: int) -> int:
        return sum(map(weigh, self.sessions[id].values()))

    def evict(self, spare: int) -> None:
        oldest = min((id for id in self.sessions if id != spare), key=lambda id: self.used[id])
        del self.sessions[oldest]

    def open(self, id: int, position: int) -> None:
        if id in self.sessions:
            return
        if len(self.sessions) >= SETTINGS.sessions_max:
            self.evict(spare=id)
        self.sessions[id] = {}
        self.lowest[id] = 1
        self.used[id] = position

    def call(self, id: int, request: int, lowest: int, position: int, size: int) -> str:
        if id not in self.sessions:
            return "evicted"
        if request < self.lowest[id]:
            return "forgotten"
        self.used[id] = position
        self.lowest[id] = max(lowest, self.lowest[id])
        window = self.sessions[id]
        if request in window:
            return f"known {window[request].position}"
        full = (
            len(window) >= SETTINGS.window_requests_max
            or self.bytes(id) >= SETTINGS.window_bytes_max
        )
        if full:
            self.sweep(id)
        if (
            len(window) >= SETTINGS.window_requests_max
            or self.bytes(id) >= SETTINGS.window_bytes_max
        ):
            return "full"
        window[request] = outcome(position, size)
        while len(self.sessions) > 1 and sum(map(self.bytes, self.sessions)) > 700:
            self.evict(spare=id)
        return "executed"

    def sweep(self, id: int) -> None:
        window = self.sessions[id]
        for number in [number for number in window if number < self.lowest[id]]:
            del window[number]


def call(  # noqa: PLR0913, PLR0917 -- a call has these parts
    sessions: Sessions, id: int, request: int, lowest: int, position: int, size: int
) -> str:
    """What a machine does with a call."""
    session = sessions.table.get(id)
    if session is None:
        return "evicted"
    if request < session.lowest:
        return "forgotten"
    session.used = position
    sessions.raise_lowest(session, lowest)
    stored = session.outcomes.get(request)
    if stored is not None:
        return f"known {stored.position}"
    if not sessions.has_room(session):
        return "full"
    session.outcomes[request] = done = outcome(position, size)
    if weigh(done):
        sessions.add_weight(session, size)
    return "executed"


commands = st.lists(
    st.tuples(st.just("open"), st.integers(1, 6))
    | st.tuples(st.just("close"), st.integers(1, 6))
    | st.tuples(
        st.just("call"),
        st.integers(1, 6),
        st.integers(0, 12),
        st.integers(0, 8),
        st.sampled_from([0, SMALL, 150, 390]),
    ),
    max_size=60,
)


@given(commands, st.integers(0, 60))
def test_sessions_do_what_the_naive_model_does(
    script: list[tuple[Any, ...]], copied_at: int
) -> None:
    sessions, naive = Sessions(SETTINGS), Naive()
    for position, (what, id, *rest) in enumerate(script, start=1):
        if position == copied_at:
            # A copy, and one that went through a snapshot, go on alike.
            sessions = sessions.copy()
            twin = Sessions(SETTINGS)
            for session in sessions.in_order():
                part = Session(session.id, session.used, session.lowest)
                kept = [(number, session.outcome(number)) for number in session.outcomes]
                twin.take(part, [(number, each) for number, each in kept if each is not None])
            sessions = twin
        if what == "open":
            sessions.open(id, position)
            naive.open(id, position)
        elif what == "close":
            assert sessions.close(id) == (naive.sessions.pop(id, None) is not None)
        else:
            request, lowest, size = rest
            assert call(sessions, id, request, lowest, position, size) == naive.call(
                id, request, lowest, position, size
            )
        assert {id: each.outcomes for id, each in sessions.table.items()} == naive.sessions
        assert sessions.bytes == sum(map(naive.bytes, naive.sessions))


def test_ids_come_from_identities_and_do_not_repeat() -> None:
    ids = {
        session_id(Member(id, life), number)
        for id in "abc"
        for life in (1, 2, 3)
        for number in range(500)
    }
    assert len(ids) == 3 * 3 * 500
    assert all(0 < id < 1 << 63 for id in ids)


def test_a_use_since_the_last_eviction_counts() -> None:
    sessions = Sessions(SETTINGS)
    for id in (1, 2, 3, 4):
        sessions.open(id, id)
    assert list(sessions.table) == [2, 3, 4]
    sessions.table[2].used = 5
    sessions.open(6, 6)
    assert list(sessions.table) == [2, 4, 6]


def test_many_sessions_that_come_and_go_leave_nothing_behind() -> None:
    sessions = Sessions(HostSettings(sessions_max=10))
    for position in range(1, 5000):
        sessions.open(position, position)
        if position % 3 == 0:
            sessions.close(position)
    assert len(sessions) == 10
    assert sessions._heap is not None
    assert len(sessions._heap) < 200


def test_without_order_only_what_was_executed_here_is_let_go() -> None:
    sessions = Sessions(SETTINGS, is_ordered=False)
    session = sessions.open(1, 1)
    assert session is not None
    for number in (1, 2, 4):
        session.outcomes[number] = outcome(number, 1)
    # The client has the answer to 3 from elsewhere; here it is still on its way.
    sessions.raise_lowest(session, 5)
    assert (session.lowest, list(session.outcomes)) == (3, [4])
    session.outcomes[3] = outcome(3, 1)
    sessions.raise_lowest(session, 5)
    assert (session.lowest, list(session.outcomes)) == (5, [])
    for id in range(2, 20):
        sessions.open(id, id)
    assert len(sessions) == 19
