"""A process made of nothing: what a context needs, under the test's control."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.seeded import seeded

from coterie.kernel.clock import Duration, Instant
from coterie.kernel.layers import Context
from coterie.kernel.settings import Settings
from coterie.kernel.timers import Timers
from coterie.kernel.views import Configuration, Member, ReplicaAddresses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.records import Record


class Bare:
    """Surroundings that keep what they are given; everybody is in touch with everybody."""

    def __init__(self) -> None:
        self.now = Instant(0)
        self.sent: list[tuple[tuple[str, ...], msgspec.Struct]] = []
        self.records: list[Record] = []
        self.timers = Timers()
        self.whereabouts: dict[str, ReplicaAddresses] = {}

    def send(
        self, destinations: Sequence[str], group: str, incarnation: int, message: msgspec.Struct
    ) -> None:
        del group, incarnation
        # By way of bytes, as in a real process: vectors go on changing at their owner.
        copy = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
        self.sent.append((tuple(destinations), copy))

    def hear_of(self, group: str, configuration: Configuration) -> None:
        pass

    def meet(self, group: str, configuration: Configuration) -> None:
        pass

    def reaches(self, replica: str) -> bool:
        del replica
        return True

    def in_touch(self, one: str, other: str) -> bool:
        del one, other
        return True

    def set_timer(self, name: tuple[str, ...], wait: Duration, fire: Callable[[], None]) -> None:
        self.timers.set(name, Instant(self.now + wait), fire)

    def timer_is_set(self, name: tuple[str, ...]) -> bool:
        return self.timers.is_set(name)

    def cancel_timer(self, name: tuple[str, ...]) -> None:
        self.timers.cancel(name)

    def report(self, record: Record) -> None:
        self.records.append(record)


def bare_context(
    name: str = "a", *, members: str = "abc", settings: Settings | None = None
) -> tuple[Context, Bare]:
    """A context of replica *name* and the surroundings it speaks to."""
    surroundings = Bare()
    context = Context(
        group="group",
        me=Member(name, 1),
        configuration=Configuration(1, tuple(members)),
        settings=settings or Settings(),
        random=seeded(name),
        surroundings=surroundings,
    )
    return context, surroundings
