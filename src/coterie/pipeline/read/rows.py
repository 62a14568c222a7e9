"""Names of views and members as values of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.views import Member, ViewId, Viewstamp


def view_row(view: ViewId) -> dict[str, Any]:
    """Give a view id as a value of a column."""
    return {"number": view.number, "proposer": view.proposer, "incarnation": view.incarnation}


def member_row(member: Member) -> dict[str, Any]:
    """Give a member as a value of a column."""
    return {"id": member.id, "incarnation": member.incarnation}


def members_row(members: Iterable[Member]) -> list[dict[str, Any]]:
    """Give members as a value of a column."""
    return [member_row(member) for member in members]


def viewstamp_row(viewstamp: Viewstamp) -> dict[str, Any]:
    """Give a viewstamp as a value of a column."""
    return {"view": view_row(viewstamp.view), "number": viewstamp.number}
