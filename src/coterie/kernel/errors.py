"""Errors that reach a user of the group-communication layers. Each says what to do."""


class CoterieError(Exception):
    """The root of all errors that Coterie raises on purpose."""


class StackError(CoterieError):
    """A stack cannot be built as written."""


class Refused(CoterieError):
    """A request was not taken and surely has no effect."""


class BacklogFull(Refused):
    """Too much is waiting already; try again once the group has caught up."""


class PayloadTooLarge(Refused):
    """A single message is larger than the group's settings allow."""


class FrameError(CoterieError):
    """Bytes from the network are not a frame of ours; `kind` names why, for counting."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class BadMessage(CoterieError):
    """A message from a peer makes no sense to the layer that got it; it is dropped."""


class ReplicaBroken(CoterieError):
    """This replica may have strayed from the others and must stop; start it again, empty.

    Raised when something happened inside an update that cannot be the same everywhere, such as
    running out of memory. From then on everything but reading `reason` raises it again.
    """
