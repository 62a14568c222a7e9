"""How a call can end other than well.

| Exception | The call |
|---|---|
| `MethodFailed` | was executed, once, and the method raised; the object is as it was before |
| `NotDone` (and all other kinds of `coterie.kernel.errors.Refused`) | surely had no effect |
| `OutcomeUnknown` | may have been executed, or may be yet, but never twice |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError, Refused
from coterie.objects.errors import BadArguments, CommandTooLarge, UnknownMethod

if TYPE_CHECKING:
    from coterie.kernel.engine import Standing
    from coterie.kernel.views import Viewstamp

WRONG_GROUP = "group"
WRONG_SECRET = "secret"  # noqa: S105 -- the name of a mistake
WRONG_VERSION = "version"
WRONG_CLASS = "class"
BUSY = "busy"
"""Kinds of `Farewell` and `NotWelcome`; all but the last will not go away by trying again."""


class NotDone(Refused):
    """The call surely had no effect; it may be made again as a new one."""


class OutcomeUnknown(CoterieError):
    """Nobody can say by the deadline whether the call was executed. It never is twice.

    A new call would be a second one: ask the object what is the case first.
    """


class MethodFailed(CoterieError):
    """The method raised; an update that raises leaves no trace.

    `error` is the name of the exception's class, `message` what it said.
    """

    def __init__(self, error: str, message: str, viewstamp: Viewstamp, standing: Standing) -> None:
        super().__init__(f"{error}: {message}" if message else error)
        self.error = error
        self.message = message
        self.viewstamp = viewstamp
        self.standing = standing


class NotWelcome(CoterieError):
    """A replica does not talk to this client, and trying again would not help; `kind` says why."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


REFUSALS: dict[str, type[Refused]] = {
    "arguments": BadArguments,
    "method": UnknownMethod,
    "size": CommandTooLarge,
}
"""Kinds of `Refusal` that say what is wrong with the request itself."""


def kind_of(error: Refused) -> str:
    """Give the kind under which a replica sends an error."""
    for kind, cls in REFUSALS.items():
        if isinstance(error, cls):
            return kind
    return ""
