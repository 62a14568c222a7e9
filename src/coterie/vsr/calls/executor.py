"""What runs the code of a module, and what it may ask for while it runs.

The engine knows objects by name and as bytes; which class stands behind them is for the executor.
A method runs as a generator. It reads and writes through `ObjectAccess`, which takes the locks; it
yields a `Nested` call to another group and is sent the `Completion` of it; it returns its own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol


class Nested(NamedTuple):
    """A call to another group, as part of the same transaction."""

    group: str
    method: str
    arguments: bytes


class Completion(NamedTuple):
    """What came of a call: a result, or the error that it raised."""

    result: bytes
    is_failure: bool = False


class ObjectAccess(Protocol):
    """The objects of a group, as one call of one transaction sees them."""

    @property
    def identity(self) -> str:
        """The name of the call, which no other call ever has."""

    def read(self, name: str) -> bytes | None:
        """Give the value of an object, under a read lock; None if it does not exist."""

    def write(self, name: str, value: bytes | None) -> None:
        """Give an object a tentative version, under a write lock; None removes it."""


Running = Generator[Nested, Completion, Completion]


class Executor(Protocol):
    """What the engine needs of the code of a module."""

    def run(self, method: str, arguments: bytes, access: ObjectAccess) -> Running:
        """Run a method; errors of the method are completions, not exceptions.

        A run may be given up at any read, write or nested call, and begun again later.
        """
