"""A state that is kept to start from again: for undoing, with one copy of the object.

Where copying is cheap (all fields are immutable, or containers of what is) a copy is kept; it
shares everything but the containers. Otherwise the encoded state is kept, which is quicker to
make than a copy, and smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.objects.execution import snapshots
from coterie.objects.execution.machine_parts import machine_from_parts, parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.objects.execution.machine import StateMachine


class StartingPoint:
    """The state of a machine at one position."""

    def __init__(self, machine: StateMachine, chunks: Sequence[bytes] | None = None) -> None:
        self._machine: StateMachine | None = None
        self._chunks: Sequence[bytes] = ()
        self._latest = machine.latest
        self._settings = machine.settings
        self._majority = machine.majority
        self._is_ordered = machine.is_ordered
        self.bytes = machine.definition.weigh(machine.object)
        """About how much it holds."""
        if machine.definition.copies_cheaply:
            self._machine = machine.copy()
        else:
            if chunks is None:
                chunks = list(snapshots.write(parts_of(machine), self._settings.chunk_bytes))
            self._chunks = chunks
            self.bytes = sum(map(len, chunks))

    def make(self) -> StateMachine:
        """Give a machine in that state."""
        if self._machine is not None:
            return self._machine.copy()
        return machine_from_parts(
            self._latest,
            self._settings,
            snapshots.read(self._chunks),
            majority=self._majority,
            is_ordered=self._is_ordered,
        )
