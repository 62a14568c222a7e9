"""Whom a replica answers while it executes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.engine import Standing
    from coterie.kernel.requests import ServiceRequest
    from coterie.kernel.views import Member, ViewId
    from coterie.objects.execution.outcomes import Answer


class Answering:
    """Whom an execution answers here, what their answers may claim, and the answers."""

    __slots__ = ("answers", "enables", "me", "standing", "watched")

    def __init__(
        self,
        me: Member,
        standing: Standing,
        watched: set[tuple[int, int]],
        enables: Callable[[ServiceRequest, ViewId], bool] | None = None,
    ) -> None:
        self.me = me
        self.standing = standing
        self.watched = watched
        """Requests to answer here although another replica proposed them."""
        self.enables = enables
        """Learns which requests of unaware clients are executed; says if we answer them."""
        self.answers: list[Answer] = []
