"""Named one-shot timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.clock import Instant
from coterie.kernel.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable


class Watch:
    """Timers that note their names when they fire."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.fired: list[str] = []

    def set(self, name: str, deadline: int, then: Callable[[], None] | None = None) -> None:
        def fire() -> None:
            self.fired.append(name)
            if then is not None:
                then()

        self.timers.set((name,), Instant(deadline), fire)

    def fire_due(self, now: int) -> list[str]:
        self.fired.clear()
        self.timers.fire_due(Instant(now))
        return list(self.fired)


def test_timers_fire_in_order_of_time_then_of_setting() -> None:
    watch = Watch()
    for name, deadline in [("z", 5), ("late", 9), ("a", 5), ("early", 1), ("m", 5)]:
        watch.set(name, deadline)
    assert watch.fire_due(5) == ["early", "z", "a", "m"]
    assert watch.timers.next_deadline() == 9


def test_a_timer_fires_once_and_not_too_early() -> None:
    watch = Watch()
    watch.set("a", 5)
    assert watch.fire_due(4) == []
    assert watch.timers.is_set(("a",))
    assert watch.fire_due(5) == ["a"]
    assert not watch.timers.is_set(("a",))
    assert watch.fire_due(6) == []


def test_a_timer_set_again_replaces_the_earlier_one() -> None:
    watch = Watch()
    watch.set("sooner", 9)
    watch.set("sooner", 2)
    watch.set("later", 1)
    watch.set("later", 8)
    assert watch.timers.next_deadline() == 2
    assert watch.fire_due(5) == ["sooner"]
    assert watch.fire_due(20) == ["later"]


def test_a_cancelled_timer_is_gone() -> None:
    watch = Watch()
    watch.set("a", 1)
    watch.timers.cancel(("a",))
    watch.timers.cancel(("never set",))
    assert not watch.timers.is_set(("a",))
    assert watch.timers.next_deadline() is None
    assert watch.fire_due(5) == []


def test_a_timer_set_while_firing_fires_too_if_it_is_due() -> None:
    watch = Watch()

    def set_more() -> None:
        watch.set("due", 3)
        watch.set("not due", 4)

    watch.set("first", 1, then=set_more)
    watch.set("second", 2)
    assert watch.fire_due(3) == ["first", "second", "due"]
    assert watch.fire_due(4) == ["not due"]


def test_a_timer_can_set_itself_again_while_firing() -> None:
    watch = Watch()
    watch.set("beat", 1, then=lambda: watch.set("beat", 11))
    assert watch.fire_due(5) == ["beat"]
    assert watch.timers.next_deadline() == 11


def test_a_timer_cancelled_or_replaced_while_others_fire_does_not_fire() -> None:
    watch = Watch()

    def interfere() -> None:
        watch.timers.cancel(("b",))
        watch.set("c", 9)

    watch.set("first", 1, then=interfere)
    watch.set("b", 1)
    watch.set("c", 1)
    assert watch.fire_due(5) == ["first"]
    assert watch.fire_due(9) == ["c"]


steps = st.one_of(
    st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 20)),
    st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
    st.tuples(st.just("pass"), st.just(""), st.integers(0, 6)),
)


@given(st.lists(steps, max_size=40))
def test_timers_do_as_a_list_of_deadlines_would(plan: list[tuple[str, str, int]]) -> None:
    watch = Watch()
    model: dict[str, tuple[int, int]] = {}
    now = 0
    for serial, (step, name, number) in enumerate(plan):
        if step == "set":
            watch.set(name, now + number)
            model[name] = (now + number, serial)
        elif step == "cancel":
            watch.timers.cancel((name,))
            model.pop(name, None)
        else:
            now += number
            due = sorted((place, timer) for timer, place in model.items() if place[0] <= now)
            model = {timer: place for timer, place in model.items() if place[0] > now}
            assert watch.fire_due(now) == [timer for _, timer in due]
        assert watch.timers.next_deadline() == min((at for at, _ in model.values()), default=None)
        assert all(watch.timers.is_set((timer,)) == (timer in model) for timer in "abc")
