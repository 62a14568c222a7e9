"""Time, chance and ids for updates, the same on every replica.

An update may not ask the machine what time it is, for every machine answers differently. It asks
here. The functions know which call is running, because replicas run one call at a time:

    @update
    def acquire(self, owner: str) -> str | None:
        if self.owner is None or now() > self.expires:
            self.owner, self.expires, self.ticket = owner, now() + seconds(10), new_id()
        return self.ticket if self.owner == owner else None

Chance and ids are made from the seed of the group and the identity of the entry, so a call that
is rolled back and executed again draws the same numbers, wherever it then stands in the order.

A class in its own unit tests has no replica around it; `standing_in` lets it run there.
"""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Protocol

from coterie.objects.errors import NotInAnUpdate

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunningUpdate(Protocol):
    """Whatever executes calls, as seen from inside one."""

    def group_time(self) -> int:
        """Give group time in microseconds since 1970."""

    def entropy(self) -> bytes:
        """Give bytes that belong to the running update alone, the same on every replica."""


class _Current:
    """The call that is running, if any."""

    __slots__ = ("drawn", "entropy", "generator", "running")

    def __init__(self) -> None:
        self.running: RunningUpdate | None = None
        self.entropy = b""
        """The entropy of the update that `generator` and `drawn` are for."""
        self.generator: Random | None = None
        self.drawn = 0


_current = _Current()


def enter(running: RunningUpdate | None) -> RunningUpdate | None:
    """Make calls run inside *running* from now on; give what they ran inside before."""
    before = _current.running
    _current.running = running
    # Two updates in a row may have the same entropy: the same entry on two copies of the state.
    _current.entropy = b""
    return before


def now() -> int:
    """Give group time: microseconds since 1970, never going back."""
    running = _current.running
    if running is None:
        raise NotInAnUpdate("now() has a meaning inside updates and queries only")
    return running.group_time()


def random() -> Random:
    """Give a generator that draws the same numbers on every replica.

    Within one call it is the same generator each time.
    """
    _begin("random()")
    if _current.generator is None:
        _current.generator = Random(_current.entropy)  # noqa: S311 -- the same everywhere is the point
    return _current.generator


def new_id() -> str:
    """Give a name of 32 hexadecimal digits that nothing else in the group ever gets."""
    _begin("new_id()")
    _current.drawn += 1
    return blake2b(_current.entropy, digest_size=16, salt=b"%d" % _current.drawn).hexdigest()


def _begin(what: str) -> None:
    running = _current.running
    if running is None:
        raise NotInAnUpdate(f"{what} has a meaning inside updates only")
    entropy = running.entropy()
    if entropy != _current.entropy:
        _current.entropy = entropy
        _current.generator = None
        _current.drawn = 0


class _StandIn:
    def __init__(self, time: int, seed: bytes) -> None:
        self._time = time
        self._seed = seed

    def group_time(self) -> int:
        return self._time

    def entropy(self) -> bytes:
        return self._seed


@contextmanager
def standing_in(*, time: int = 0, seed: bytes = b"test") -> Iterator[None]:
    """Let the functions of this module work outside a replica, for unit tests of a class."""
    before = enter(_StandIn(time, seed))
    try:
        yield
    finally:
        enter(before)
