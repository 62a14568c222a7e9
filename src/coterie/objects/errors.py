"""What can go wrong between an object, its callers and the platform. Each says what to do."""

from coterie.kernel.errors import CoterieError, Refused


class NotReplicable(CoterieError):
    """A class cannot be replicated as it is written; the message says why and what to write."""


class UnknownMethod(Refused):
    """The class has no such method for callers; nothing was proposed."""


class BadArguments(Refused):
    """Arguments do not fit the method's annotations; nothing was proposed."""


class CommandTooLarge(Refused):
    """A call is larger than the host's settings allow; nothing was proposed."""


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


class ReplicaBroken(CoterieError):
    """This replica may have strayed from the others and must stop; start it again, empty.

    Raised when something happened inside an update that cannot be the same everywhere, such as
    running out of memory. From then on everything but reading `reason` raises it again.
    """


class QueryFailed(CoterieError):
    """A query raised; the message names the error."""


class NotPrimary(Refused):
    """Only members of a primary view may change the group's state: wait for one."""


class TransferUnfinished(CoterieError):
    """An object was asked to take over a state and did not say that it had."""
