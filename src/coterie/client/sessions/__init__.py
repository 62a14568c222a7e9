"""What calls are made in, once a replica has made the client welcome: one way for each engine.

A welcome says which family of engines runs the group. Under the *stack*, calls are made in a
session whose outcomes the group remembers; under *vsr* each call is a transaction. Callers see one
shape, `CallSession`, with the same outcomes. Engines are imported by those who need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from coterie.client.errors import NotDone, NotWelcome
from coterie.objects.classes.declared import NO_ERRORS
from coterie.protocol.kinds import WRONG_VERSION

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from coterie.client.group import GroupClient
    from coterie.client.results import OnReordered
    from coterie.kernel.views import Viewstamp
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.objects.execution.commands import Condition


class CallSession(Protocol):
    """In what a client calls a group. Futures are done when the outcome of a call is known."""

    @property
    def batch_max(self) -> int:
        """How many calls can be made together."""

    def open(self) -> asyncio.Future[object]:
        """Make ready; done when calls can be made."""

    def call(  # noqa: PLR0913 -- a call has these parts
        self,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        deadline: float | None = None,
        is_detailed: bool = False,
        majority: bool = False,
        colour: str = "green",
        conditions: tuple[Condition, ...] = (),
        on_reordered: OnReordered | None = None,
    ) -> asyncio.Future[object]:
        """Call an update; failures are raised as the *errors* that its class declares.

        It is executed only where its *conditions* hold. *on_reordered* is called where its green
        outcome is another than its red one.
        """

    def call_many(
        self,
        method: str,
        arguments: Sequence[bytes],
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        deadline: float | None = None,
    ) -> asyncio.Future[object]:
        """Call an update several times, at most `batch_max`; gives results and exceptions."""

    def query(  # noqa: PLR0913 -- a query has these parts
        self,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        level: str = "consistent",
        not_before: Viewstamp | None = None,
        deadline: float | None = None,
        is_detailed: bool = False,
    ) -> asyncio.Future[object]:
        """Call a query."""

    def close(self) -> None:
        """Make no further calls."""


FAMILIES = {
    "colours": "coterie.client.sessions.colours",
    "stack": "coterie.client.sessions.stack",
    "vsr": "coterie.client.sessions.vsr",
}
"""Engine families by name: the module of each has `open_calls`."""


def refuse_red(colour: str) -> None:
    """Refuse a call that asks for a red answer, in a group whose answers have no colours."""
    if colour != "green":
        raise NotDone(
            f"colour={colour!r} is for groups over a partitioned network"
            ' (stack = "COLOURS:DYNSEQ:VSYNC"): leave it out'
        )


def open_calls(client: GroupClient) -> AbstractAsyncContextManager[CallSession]:
    """Give what calls are made in, for a client that was made welcome."""
    assert client.welcome is not None, "who opens calls was made welcome"
    name = client.welcome.engine or "stack"
    module = FAMILIES.get(name)
    if module is None:
        raise NotWelcome(
            WRONG_VERSION,
            f"the group {client.group!r} runs under {name!r}, which this release does not know:"
            " run the release of its replicas",
        )
    opened: AbstractAsyncContextManager[CallSession] = import_module(module).open_calls(client)
    return opened
