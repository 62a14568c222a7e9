"""Whether a view can be formed of the cohorts that accepted, and who leads it (section 4).

A view may only be formed if somebody in it knows every event that was ever forced. An event is
forced when a majority knows it, so a majority of acceptances includes one cohort that knew it; but
that cohort may have crashed since and lost its state. The three conditions say when crashed
acceptances do no harm:

1. a majority accepted normally: one of those still knows;
2. all crashed ones were last active in earlier views than the best normal one: whatever was forced
   in those is part of the later view's initial state;
3. they were last active in the same view as the best normal one, and the primary of that view is
   among the normal ones: it knows at least as much as any of its backups.

Majorities are those of the configuration in the history that will win: the best normal one. A later
configuration was forced, if it was, with a majority of this one, of which somebody would be here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.views import NO_VIEW, Configuration, Member, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.kernel.views import ReplicaId


class Response(msgspec.Struct, frozen=True, gc=False):
    """How one cohort accepted; `known` as in `messages.Accept`."""

    member: Member
    crashed: bool
    known: Viewstamp
    was_primary: bool
    configuration: Configuration | None = None
    """The last one in its history; None if it has not said."""


def can_form(responses: Iterable[Response], configuration: Configuration) -> bool:
    """Say whether a view of these cohorts is sure to know all that was ever forced."""
    accepted = {response.member.id for response in responses}
    normal = [response for response in responses if not response.crashed]
    if not configuration.is_quorum(accepted) or not normal:
        return False
    if configuration.is_quorum({response.member.id for response in normal}):
        return True
    normal_viewid = max(response.known.view for response in normal)
    crash_viewid = max(response.known.view for response in responses if response.crashed)
    if crash_viewid < normal_viewid:
        return True
    return crash_viewid == normal_viewid and any(
        response.was_primary and response.known.view == normal_viewid for response in normal
    )


def winning_configuration(responses: Iterable[Response], otherwise: Configuration) -> Configuration:
    """Give the configuration in the best normal history; *otherwise* if nobody says one."""
    said = [each for each in responses if not each.crashed and each.configuration is not None]
    if not said:
        return otherwise
    # Of those who know as much none has another one: they have the same history.
    best = max(said, key=lambda each: each.known)
    return best.configuration or otherwise


def choose_primary(
    responses: Iterable[Response], preference: Sequence[ReplicaId], successor: ReplicaId = ""
) -> Member:
    """Give the cohort that knows most: the old primary if it can be, else by *preference*.

    The old primary comes first because nothing is lost if it stays; only a *successor* that it has
    named itself comes before it, and who stays before who is to go, or only learns.
    """
    normal = [response for response in responses if not response.crashed]
    best = max(response.known for response in normal)
    candidates = [response for response in normal if response.known == best]
    ranks = {id: rank for rank, id in enumerate(preference)}
    return min(
        candidates,
        key=lambda each: (
            each.member.id != successor,
            each.member.id not in ranks,
            not (each.was_primary and each.known.view != NO_VIEW),
            ranks.get(each.member.id, len(ranks)),
            each.member,
        ),
    ).member
