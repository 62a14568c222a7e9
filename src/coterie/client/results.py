"""What a method answered, and what that answer may claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coterie.client.errors import NotDone
from coterie.kernel.engine import Standing

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from coterie.kernel.views import Viewstamp
    from coterie.objects.execution.commands import Grounds

R_co = TypeVar("R_co", covariant=True)


OnReordered = Callable[["Result[Any] | Exception", "Result[Any] | Exception"], object]
"""Is told the red outcome of a call, and the green one where that is another: each a result, or
what was raised."""


class Result(Generic[R_co]):
    """An answer with its place in the order.

    For an update the viewstamp and position are where it was executed; for a query they name the
    last entry in the state it saw: how fresh the answer is. A red update has no position yet: 0.
    """

    __slots__ = (
        "_follow",
        "age",
        "has_changed",
        "position",
        "seen",
        "standing",
        "value",
        "viewstamp",
    )

    def __init__(  # noqa: PLR0913 -- made where answers are read
        self,
        value: R_co,
        viewstamp: Viewstamp,
        position: int,
        standing: Standing,
        follow: Callable[[], Awaitable[Result[R_co]]] | None = None,
        *,
        has_changed: bool = False,
        age: float | None = 0.0,
        seen: Grounds | None = None,
    ) -> None:
        self.value = value
        self.viewstamp = viewstamp
        self.position = position
        self.standing = standing
        self.has_changed = has_changed
        """Whether the red answer that the caller was given before was another one."""
        self.age = age
        """How many seconds old the state may be that a query saw: for so long its replica has not
        been in a primary view, as far as it noticed. None where it does not know."""
        self.seen = seen
        """Of a query: what an update can rest on (`options(if_unchanged=...)`)."""
        self._follow = follow

    @property
    def is_authoritative(self) -> bool:
        """Whether this answer stands for ever."""
        return self.standing.is_final

    async def settled(self) -> Result[R_co]:
        """Wait until the update cannot be rolled back any more, and give its last answer.

        If it was rolled back it is executed again, and the answer may be another one. Raises
        `MethodFailed` if it then failed, and `OutcomeUnknown` if nobody could say in time.
        """
        if self.standing.is_final:
            return self
        if self._follow is None:
            raise NotDone("an optimistic answer to a query does not settle: ask again, `weak`")
        return await self._follow()

    def __repr__(self) -> str:
        standing = self.standing.name.lower()
        changed = ", changed" if self.has_changed else ""
        return f"Result({self.value!r}, {standing}{changed}, at {self.position} ({self.viewstamp}))"
