"""Calls in progress at a primary: their locks, what they have read and written so far.

No call ever waits inside a turn. One that meets a lock of another transaction is unwound: what it
wrote was an overlay, and it is run again when the lock may be free. If it has made no call itself
it also gives back the locks it had just taken; if it has, it keeps them, and what those calls
returned is given to it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.vsr.commit.events import ObjectRead, ObjectWritten
from coterie.vsr.objects.locks import LockOwner, Mode

if TYPE_CHECKING:
    from coterie.kernel.clock import Instant
    from coterie.kernel.views import Member, Viewstamp
    from coterie.vsr.calls.executor import Completion, Executor, Running
    from coterie.vsr.calls.messages import CallRequest
    from coterie.vsr.calls.remote import RemoteCalls
    from coterie.vsr.objects.group_state import GroupState
    from coterie.vsr.objects.locks import LockTable


class Blocked(BaseException):
    """A lock is held by another transaction; raised through the method to unwind it.

    Not an `Exception`, which a method may catch.
    """

    def __init__(self, name: str, mode: Mode) -> None:
        super().__init__(name)
        self.name = name
        self.mode = mode


class RunningCall:
    """One call, from its arrival to its completion. It is the `Access` of its method."""

    def __init__(
        self,
        message: CallRequest,
        caller: Member,
        state: GroupState,
        locks: LockTable,
        remote: RemoteCalls,
    ) -> None:
        self.message = message
        self.aid = message.aid
        self.owner = LockOwner(message.aid, message.call)
        self.caller = caller
        """The process that asked last."""
        self.remote = remote
        self.replies: list[Completion] = []
        """What the calls it made came to, in order."""
        self.generator: Running | None = None
        self.met: Blocked | None = None
        """The lock that it met while it ran, whatever the method made of being unwound."""
        self.waits_for: Blocked | None = None
        self.waits_since: Instant | None = None
        self._state = state
        self._locks = locks
        self._reads: dict[str, Viewstamp | None] = {}
        self._writes: dict[str, bytes | None] = {}

    # ---- what the method sees

    @property
    def identity(self) -> str:
        """The name of the call, which no other call ever has."""
        return f"{self.aid}/{self.message.call}"

    def read(self, name: str) -> bytes | None:
        """Give the value of an object, under a read lock."""
        self._lock(name, Mode.READ)
        if name in self._writes:
            return self._writes[name]
        transaction = self._state.transactions.get(self.aid)
        if transaction is not None:
            is_written, value = transaction.tentative(name)
            if is_written:
                return value
        version = self._state.objects.get(name)
        self._reads.setdefault(name, None if version is None else version.by)
        return None if version is None else version.value

    def write(self, name: str, value: bytes | None) -> None:
        """Give an object a tentative version, under a write lock."""
        self._lock(name, Mode.WRITE)
        self._writes[name] = value

    def _lock(self, name: str, mode: Mode) -> None:
        if self.met is None and not self._locks.acquire(
            self.owner, name, mode, self.message.progress
        ):
            self.met = Blocked(name, mode)
        if self.met is not None:
            raise self.met

    # ---- what the server does with it

    def learn(self, message: CallRequest) -> None:
        """Take what the client has told of itself since; the call is the same."""
        self.message = message
        self.remote.progress = message.progress
        self.remote.tell_progress()

    def begin(self, executor: Executor) -> Running:
        """Run the method from its beginning."""
        message = self.message
        self.generator = executor.run(message.method, message.arguments, self)
        return self.generator

    def unwind(self) -> None:
        """Forget what was done so far; the method will run again from its beginning."""
        if self.generator is not None:
            self.generator.close()
            self.generator = None
        self.met = None
        self._reads.clear()
        self._writes.clear()
        if not self.replies:
            self._locks.release_call(self.owner)

    @property
    def reads(self) -> list[ObjectRead]:
        """The objects read, each with its version."""
        return [ObjectRead(name, version) for name, version in self._reads.items()]

    @property
    def writes(self) -> list[ObjectWritten]:
        """The objects written, each with its tentative version."""
        return [ObjectWritten(name, value) for name, value in self._writes.items()]
