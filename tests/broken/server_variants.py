"""Deliberately broken variants of transactions: each leaves out one thing that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.vsr.calls.calls import CallsInProgress
from coterie.vsr.calls.running import RunningCall
from coterie.vsr.commit.coordinator import Coordinator, answer_to
from coterie.vsr.commit.server import Server
from coterie.vsr.objects.locks import LockTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.views import Member, Viewstamp
    from coterie.vsr.calls.messages import CallRequest, OutcomeQuery, Prepare
    from coterie.vsr.commit.psets import CallsProgress, Pset
    from coterie.vsr.objects.group_state import TransactionInProgress
    from coterie.vsr.objects.locks import LockOwner, Mode


class PreparesWithoutForce(Server):
    """Votes although a majority may not know the calls."""

    def force_calls(
        self, viewstamp: Viewstamp, then: Callable[[], None], *, is_read_only: bool
    ) -> None:
        del viewstamp, is_read_only
        then()


class ReadLocksNotForced(Server):
    """Votes at once for transactions that have only read (3.7 says why not)."""

    def force_calls(
        self, viewstamp: Viewstamp, then: Callable[[], None], *, is_read_only: bool
    ) -> None:
        if is_read_only:
            then()
        else:
            super().force_calls(viewstamp, then, is_read_only=is_read_only)


class LostCallsPass(Server):
    """Votes also if calls of the transaction were lost."""

    def is_compatible(self, message: Prepare, transaction: TransactionInProgress) -> bool:
        del message, transaction
        return True


class _NotMerged(CallsInProgress):
    def pset_of(self, running: RunningCall) -> Pset:
        del running
        return ()


class NestedPsetLost(Server):
    """Does not pass on the viewstamps of the calls that a call made."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.calls = _NotMerged(self)


class _LocksLost(CallsInProgress):
    def restart(self) -> None:
        self.stop()


class LocksNotKept(Server):
    """Begins to lead without the locks of transactions in progress."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.calls = _LocksLost(self)


class _NothingGivenUp(CallsInProgress):
    def _give_up(self, message: CallRequest) -> None:
        pass


class GivenUpCallsStay(Server):
    """Keeps what calls did that their transaction has given up."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.calls = _NothingGivenUp(self)


class _Guesses(Coordinator):
    def on_query(self, sender: Member, message: OutcomeQuery) -> None:
        if message.aid not in self._state.ended and message.aid not in self._active:
            self._abort(message.aid, (), "guessed")
            answer = answer_to(self._server, message, self._state.ended[message.aid])
            self._server.send(sender, message.actor, answer)
            return
        super().on_query(sender, message)


class AbortsWithoutForce(Server):
    """Calls a transaction aborted that it does not know, without asking its backups."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.coordinator = _Guesses(self)


class _ReadsFreely(RunningCall):
    def _lock(self, name: str, mode: object) -> None:
        if mode == 2:
            super()._lock(name, mode)  # type: ignore[arg-type]


class _CallsReadFreely(CallsInProgress):
    def _run(self, running: RunningCall) -> None:
        running.__class__ = _ReadsFreely
        super()._run(running)


class ReadsWithoutLocks(Server):
    """Reads without read locks."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.calls = _CallsReadFreely(self)


class _Familiar(LockTable):
    def is_free(self, owner: LockOwner, name: str, mode: Mode, progress: CallsProgress) -> bool:
        del progress
        return not self.in_the_way(owner.aid, name, mode)


class _FamiliarCalls(CallsInProgress):
    def stop(self) -> None:
        super().stop()
        self.locks = _Familiar()


class SiblingsSeeEachOther(Server):
    """Lets calls of one transaction share locks, although they run at the same time."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.calls = _FamiliarCalls(self)
