"""What can go wrong between an object, its callers and the platform. Each says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from coterie.kernel.engine import Standing
    from coterie.kernel.views import Viewstamp


def is_of_this_machine(error: BaseException) -> bool:
    """Say whether an exception is not the method's doing: other replicas may not have met it.

    Every other one is, also what does not derive from `Exception`, as `sys.exit()` raises: it is
    raised again wherever the method is executed again, and must not stop replica after replica.
    """
    return isinstance(error, MemoryError | KeyboardInterrupt)


class NotReplicable(CoterieError):
    """A class cannot be replicated as it is written; the message says why and what to write."""


class UnknownMethod(Refused):
    """The class has no such method for callers; nothing was proposed."""


class BadArguments(Refused):
    """Arguments do not fit the method's annotations; nothing was proposed."""


class CommandTooLarge(Refused):
    """A call is larger than the host's settings allow; nothing was proposed."""


class NotAllowed(Refused):
    """The client may not call the method, by what it has shown; nothing was proposed."""


class BadResult(CoterieError):
    """A method answered something else than its annotation says; an update fails, and is undone."""


class ResultTooLarge(CoterieError):
    """An update answered more than the settings allow; it fails, and is undone."""


class NotInAnUpdate(CoterieError):
    """Group time, chance or ids were asked for where they have no meaning."""


class StateNotEncodable(CoterieError):
    """The object holds something its declared fields cannot carry to another replica."""


class BadSnapshot(CoterieError):
    """A state from elsewhere cannot be taken over; the old one stays."""


class MethodFailed(CoterieError):
    """The method raised; an update that raises leaves no trace.

    `error` is the name of the exception's class, `message` what it said. Inside a transaction,
    which may go on, a call is not ordered yet: there `viewstamp` and `standing` are None. An error
    that the class declares is raised as itself instead, with this as its `__cause__`.
    """

    def __init__(
        self,
        error: str,
        message: str,
        viewstamp: Viewstamp | None = None,
        standing: Standing | None = None,
        fields: bytes = b"",
    ) -> None:
        super().__init__(f"{error}: {message}" if message else error)
        self.error = error
        self.message = message
        self.viewstamp = viewstamp
        self.standing = standing
        self.fields = fields
        """Of a declared error, what it is made from (`coterie.objects.classes.declared`)."""
        self.follow: Callable[[], Awaitable[Any]] | None = None
        """Gives what becomes of the call, where the failure may not be the end of it."""

    async def settled(self) -> Any:  # noqa: ANN401 -- a result of whichever method failed
        """Wait until the outcome stands for ever: give the result, or raise the failure."""
        if self.follow is None:
            raise self
        return await self.follow()


class NotPrimary(Refused):
    """Only members of a primary view may change the group's state: wait for one."""


class TransferUnfinished(CoterieError):
    """An object was asked to take over a state and did not say that it had."""


class Changed(MethodFailed):
    """What an update rests on has changed (`options(if_unchanged=...)`): read again, and decide."""
