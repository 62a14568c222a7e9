"""How the members of a group change while it serves.

A configuration is a function of the history: an entry `Reconfigure` says which one is in force from
its own position on. So everybody who has the same history counts the same quorums, and whoever is
told of an entry is told under which configuration it counts.

Any change of members is two entries. The first makes the group *joint*: from there on a quorum is
one of the members before and one of those to come, so no majority of either can decide alone. The
second, proposed once the first has settled, leaves joint. One change at a time: the next begins
when the last has settled. To admit a learner, or to send one away, changes no quorum and takes one
entry.

An entry whose configuration does not follow the one in force where it stands is void; two members
may propose the same step at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Chunks
from coterie.kernel.errors import Refused
from coterie.kernel.views import ChangedConfiguration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from coterie.kernel.views import Configuration, ReplicaAddresses, ReplicaId


class Reconfigure(msgspec.Struct, tag=11, frozen=True, array_like=True, gc=False):
    """From this entry on the configuration is another one."""

    clock: int
    """Every command of an object group has one; this says that nobody looked at a clock."""
    to: ChangedConfiguration


_NO_CLOCK = -1
_PREFIX = b"\x93\x0b"
"""How an entry of this kind begins: an array of three, its tag first."""
_STATE_MAGIC = b"\xc1coterie configuration"
"""Before a configuration that stands before a state; no state begins with this byte."""
_encoder = msgspec.msgpack.Encoder()
_decoder = Decoder(Reconfigure)
_configuration_decoder = Decoder(ChangedConfiguration)


def encode_change(to: ChangedConfiguration) -> bytes:
    """Give the payload of an entry that changes the configuration."""
    return _encoder.encode(Reconfigure(_NO_CLOCK, to))


def is_change(payload: bytes) -> bool:
    """Say whether an entry looks like one that changes the configuration."""
    return payload.startswith(_PREFIX)


def decode_change(payload: bytes) -> ChangedConfiguration | None:
    """Give the configuration that an entry is to bring about, if it is such an entry."""
    if not is_change(payload):
        return None
    try:
        return _decoder.decode(payload).to
    except msgspec.DecodeError:
        return None


def follows(to: ChangedConfiguration, now: Configuration) -> bool:
    """Say whether *to* may take the place of *now*."""
    if to.number != now.number + 1 and (now.number or to.number > _FIRST_CHANGE):
        return False
    if not now.number:
        return True  # we did not know the first one: we joined later
    if now.before:
        return to == left(now)
    if set(to.everyone) & set(now.gone) or not to.members:
        return False
    return to.before == now.members or (not to.before and to.members == now.members)


_FIRST_CHANGE = 2
"""The number of the configuration after the first one."""


def changed(configuration: Configuration) -> ChangedConfiguration:
    """Give a configuration with all there is to say of it, as histories speak of it."""
    if isinstance(configuration, ChangedConfiguration):
        return configuration
    return ChangedConfiguration(configuration.number, configuration.members)


# ---- the steps


def admitting(
    now: Configuration, id: ReplicaId, addresses: Sequence[ReplicaAddresses] = ()
) -> ChangedConfiguration:
    """Give the configuration with a new learner; raise `Refused` if it cannot be.

    *addresses* say where all are found, as far as is known.
    """
    _check_settled(now)
    if id in now.everyone:
        raise Refused(f"{id} belongs to the group already")
    if id in now.gone:
        raise Refused(f"{id} was removed from the group, and ids are never used again: choose one")
    return _after(now, learners=(*now.learners, id), addresses=(*addresses_of(now), *addresses))


def promoting(now: Configuration, learners: Collection[ReplicaId]) -> ChangedConfiguration:
    """Give the joint configuration that makes members of learners."""
    rest = tuple(id for id in now.learners if id not in learners)
    members = (*now.members, *(id for id in now.learners if id in learners))
    return _after(now, members=members, learners=rest, before=now.members)


def dismissing(
    now: Configuration, id: ReplicaId, present: Collection[ReplicaId]
) -> ChangedConfiguration:
    """Give the next configuration on the way to one without *id*.

    *present* are those who take part at the moment. Raises `Refused` if the group would be without
    a member, or the members that stay without a majority.
    """
    _check_settled(now)
    gone = (*now.gone, id)
    if id in now.learners:
        rest = tuple(other for other in now.learners if other != id)
        return _after(now, learners=rest, gone=gone)
    if id not in now.members:
        raise Refused(f"{id} does not belong to the group; it has {', '.join(now.everyone)}")
    members = tuple(other for other in now.members if other != id)
    if not members:
        raise Refused(f"{id} is the last member: stop the group instead")
    to = _after(now, members=members, before=now.members)
    if not to.is_quorum(present):
        missing = [other for other in members if other not in present]
        raise Refused(
            f"without {id} the group would have no majority: {', '.join(missing)} not in touch;"
            " start them first"
        )
    return to


def left(now: Configuration) -> ChangedConfiguration:
    """Give the configuration that is no longer joint."""
    gone = tuple(id for id in now.before if id not in now.members)
    return _after(now, gone=(*now.gone, *gone))


def addresses_of(now: Configuration) -> tuple[ReplicaAddresses, ...]:
    """Say where those are found who belong to a configuration, as far as it does."""
    return now.addresses if isinstance(now, ChangedConfiguration) else ()


def _after(  # noqa: PLR0913 -- what a configuration has
    now: Configuration,
    *,
    members: tuple[ReplicaId, ...] | None = None,
    learners: tuple[ReplicaId, ...] | None = None,
    before: tuple[ReplicaId, ...] = (),
    gone: tuple[ReplicaId, ...] | None = None,
    addresses: Iterable[ReplicaAddresses] | None = None,
) -> ChangedConfiguration:
    """Give the one that follows *now*, with only what is said changed; it is not joint."""
    to = ChangedConfiguration(
        now.number + 1,
        now.members if members is None else members,
        now.learners if learners is None else learners,
        before,
        now.gone if gone is None else gone,
    )
    found = addresses_of(now) if addresses is None else addresses
    latest = {each.id: each for each in found}
    kept = tuple(latest[id] for id in to.everyone if id in latest)
    return msgspec.structs.replace(to, addresses=kept)


def _check_settled(now: Configuration) -> None:
    if now.before:
        raise Refused("the members are being changed: wait until that is done, then ask again")


# ---- a configuration before a state


class ChunksAfter(Chunks):
    """A state with one more chunk before it."""

    def __init__(self, first: bytes, state: Chunks) -> None:
        super().__init__(())
        self._first: bytes | None = first
        self._state = state
        self.is_elsewhere = state.is_elsewhere

    def __next__(self) -> bytes:
        first, self._first = self._first, None
        return next(self._state) if first is None else first

    def poll(self) -> bytes | None:
        first, self._first = self._first, None
        return self._state.poll() if first is None else first

    def close(self) -> None:
        self._state.close()


def first_chunk(configuration: Configuration) -> bytes | None:
    """Give the chunk that stands before a state, if one does."""
    if not isinstance(configuration, ChangedConfiguration):
        return None
    return _STATE_MAGIC + _encoder.encode(configuration)


def take_off(chunks: Iterable[bytes]) -> tuple[ChangedConfiguration | None, Iterator[bytes]]:
    """Give the configuration before a state, if there is one, and the state."""
    rest = iter(chunks)
    first = next(rest, None)
    if first is None:
        return None, iter(())
    if first.startswith(_STATE_MAGIC):
        return _configuration_decoder.decode(first[len(_STATE_MAGIC) :]), rest
    return None, _chain(first, rest)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
