"""What a method answered, and what that answer may claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from coterie.client.errors import NotDone
from coterie.kernel.engine import Standing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coterie.kernel.views import Viewstamp

R_co = TypeVar("R_co", covariant=True)


class Result(Generic[R_co]):
    """An answer with its place in the order.

    For an update the viewstamp and position are where it was executed; for a query they name the
    last entry in the state it saw: how fresh the answer is.
    """

    __slots__ = ("_follow", "position", "standing", "value", "viewstamp")

    def __init__(
        self,
        value: R_co,
        viewstamp: Viewstamp,
        position: int,
        standing: Standing,
        follow: Callable[[], Awaitable[Result[R_co]]] | None = None,
    ) -> None:
        self.value = value
        self.viewstamp = viewstamp
        self.position = position
        self.standing = standing
        self._follow = follow

    @property
    def is_authoritative(self) -> bool:
        """Whether this answer stands for ever."""
        return self.standing is Standing.AUTHORITATIVE

    async def settled(self) -> Result[R_co]:
        """Wait until the update cannot be rolled back any more, and give its last answer.

        If it was rolled back it is executed again, and the answer may be another one. Raises
        `MethodFailed` if it then failed, and `OutcomeUnknown` if nobody could say in time.
        """
        if self.standing is Standing.AUTHORITATIVE:
            return self
        if self._follow is None:
            raise NotDone("an optimistic answer to a query does not settle: ask again, `weak`")
        return await self._follow()

    def __repr__(self) -> str:
        standing = self.standing.name.lower()
        return f"Result({self.value!r}, {standing}, at {self.position} ({self.viewstamp}))"
