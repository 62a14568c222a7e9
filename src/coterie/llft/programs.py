"""What a program is to the engine: threads that want something, one at a time.

Whatever a program meets that another replica might meet otherwise is an operation with a result:
which thread goes on, what it reads and from where, the clock, chance, locks. The primary chooses
and writes the order down; everybody else performs what the order says. Between two operations a
program does nothing that could come out differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.claims import Order, OrderKind


class DivergedError(Exception):
    """The program does not want to do what the order says."""


class Want(NamedTuple):
    """What a thread would do next."""

    thread: int
    kind: OrderKind
    conn: str = ""
    """From or to which connection; for reading, nothing means any that is free."""
    size: int = 0
    """How many bytes it wants to read at most."""
    data: bytes = b""
    """What it wants to write."""
    deadline: int = 0
    """When, on the group's clock, its time has come."""
    waits: bool = True
    """Whether it waits until it can read or write; who does not is told to try again."""


class OrderedProgram(Protocol):
    """A deterministic machine that orders drive."""

    def wants(self) -> Sequence[Want]:
        """Say what its threads want; those that wait for another thread want nothing."""

    def may_take(self, thread: int, conn: str) -> bool:
        """Say whether a thread that reads from any connection may read from this one."""

    def can_perform(self, order: Order) -> bool:
        """Say whether it could do now what an order says; a real program may be behind."""

    def perform(self, order: Order, taken: bytes) -> bytes:
        """Do what an order says, and give what it wrote; raises `DivergedError`."""

    def snapshot(self) -> bytes:
        """Give the whole state."""

    def restore(self, state: bytes) -> None:
        """Become what `snapshot` gave."""

    @property
    def mark(self) -> int:
        """A number that differs where states differ, as far as that is cheap."""
