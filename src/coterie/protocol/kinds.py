"""Why a replica hangs up on a client, or refuses a request: names that both ends know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.objects.errors import BadArguments, CommandTooLarge, NotAllowed, UnknownMethod

if TYPE_CHECKING:
    from coterie.kernel.errors import Refused

WRONG_GROUP = "group"
WRONG_SECRET = "secret"  # noqa: S105 -- the name of a mistake
NO_CLIENT = "client"
"""The certificate at the other end is not that of a client."""
WRONG_VERSION = "version"
WRONG_CLASS = "class"
"""Kinds of `Farewell` that the same replica would say again."""
BUSY = "busy"
"""The replica has too many clients at present."""
MALFORMED = "malformed"
"""The client has sent what makes no sense."""
TOO_LARGE = "size"
"""What the replica would have to say fits into no frame."""

NOT_ALLOWED = "role"
"""The kind of `Refusal` for what a client may not do."""

REFUSALS: dict[str, type[Refused]] = {
    "arguments": BadArguments,
    "method": UnknownMethod,
    "size": CommandTooLarge,
    NOT_ALLOWED: NotAllowed,
}
"""Kinds of `Refusal` that say what is wrong with the request itself."""


def kind_of(error: Refused) -> str:
    """Give the kind under which a replica sends an error."""
    for kind, cls in REFUSALS.items():
        if isinstance(error, cls):
            return kind
    return ""
