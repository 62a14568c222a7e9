"""The digest of a machine's state: equal states share it, on any machine.

It covers everything that decides what the next entry does: the object, the sessions by their size
and number, group time, what unaware clients asked for, and announced versions.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from coterie.objects.classes.encodable import encode
from coterie.objects.errors import StateNotEncodable

if TYPE_CHECKING:
    from coterie.objects.execution.machine import StateMachine


class Digested(NamedTuple):
    """A digest, how many bytes the object took, and why it could not be encoded, if so."""

    digest: bytes
    size: int
    fault: str


def digest_of(machine: StateMachine) -> Digested:
    """Digest the state as it is now."""
    hashed = blake2b(digest_size=16)
    fault = ""
    try:
        data = machine.definition.canonical_state(machine.object)
    except StateNotEncodable as error:
        # The same on every replica, and no reason for all of them to stop at once; but how it is
        # put into words may differ.
        fault = str(error)
        data = fault.encode()
    hashed.update(data)
    sessions = machine.sessions
    rest = (machine.position, machine.results, len(sessions), sessions.bytes, sessions.evicted)
    if machine.is_ordered:
        hashed.update(encode((rest, machine.time.value, machine.time.to_clocks())))
    if any(machine.records.summary):
        hashed.update(encode(machine.records.summary))
    announced = machine.announcements.to_list()
    if announced:
        hashed.update(encode((machine.definition.version, announced)))
    return Digested(hashed.digest(), len(data), fault)
