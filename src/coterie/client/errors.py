"""How a call can end other than well.

| Exception | The call |
|---|---|
| `MethodFailed` | was executed, once, and the method raised; the object is as it was before |
| `Changed` (a `MethodFailed`) | was not executed: what it rests on (`if_unchanged`) had changed |
| `NotDone` (and all other kinds of `coterie.kernel.errors.Refused`) | surely had no effect |
| `OutcomeUnknown` | may have been executed, or may be yet, but never twice |
"""

from __future__ import annotations

from coterie.kernel.errors import CoterieError, Refused
from coterie.objects.errors import Changed, MethodFailed

__all__ = ["Changed", "MethodFailed", "NotDone", "NotWelcome", "OutcomeUnknown"]


class NotDone(Refused):
    """The call surely had no effect; it may be made again as a new one."""


class OutcomeUnknown(CoterieError):
    """Nobody can say by the deadline whether the call was executed. It never is twice.

    A new call would be a second one: ask the object what is the case first.
    """


class NotWelcome(CoterieError):
    """A replica does not talk to this client, and trying again would not help.

    `kind` says why: `coterie.protocol.kinds`.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
