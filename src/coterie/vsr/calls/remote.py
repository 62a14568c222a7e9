"""The remote calls of a transaction, from the side of the caller (figure 2).

Each call is a subaction (3.6). A call is sent to one primary in one view, again and again under the
same id, and runs there once. If the view changes before the answer comes, nobody can say whether
it ran: the caller then gives the call up, with all that it may have called, and makes it anew under
another id. All later calls, and the calls they make, carry what was given up, so that nothing of
it is seen; and only calls in the pset are installed.

Calls of one transaction may run at the same time. Each carries which others may be running, so that
a group keeps them apart (`locks.py`); when it is sent again, it carries what is so by then.

A call whose method raised has changed nothing, also where it had called others: its failure is a
part of the transaction, with what it had read, but what it called is given up.

A part of a transaction that is aborted alone is the same thing on purpose: its calls are given up,
answered or not. No message has to arrive for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.vsr.calls.executor import Completion
from coterie.vsr.calls.messages import CallRequest
from coterie.vsr.commit.psets import CallsProgress, Pair, participants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coterie.kernel.views import ViewId
    from coterie.vsr.calls.messages import CallRefused, CallReply
    from coterie.vsr.calls.primary_requests import PrimaryRequests
    from coterie.vsr.commit.psets import Aid, CallId, Pset
    from coterie.vsr.settings import VsrSettings


GIVEN_UP_MAX = 1000
"""How much a transaction may give up: later calls carry it."""

TOO_MUCH_GIVEN_UP = f"it has given up more than {GIVEN_UP_MAX} calls"


class NotRun(NamedTuple):
    """A call has no part in the transaction, and why."""

    reason: str


class RemoteCalls:
    """The calls that one caller makes for one transaction."""

    def __init__(  # noqa: PLR0913 -- what calls are made of
        self,
        requests: PrimaryRequests,
        settings: VsrSettings,
        *,
        actor: str,
        aid: Aid,
        prefix: str = "",
        given_up: tuple[CallId, ...] = (),
        progress: CallsProgress | None = None,
    ) -> None:
        self._requests = requests
        self._settings = settings
        self._actor = actor
        self.aid = aid
        self._prefix = prefix
        self.given_up: list[CallId] = list(given_up)
        self.void: list[CallId] = []
        """Of these, what calls had called whose methods raised."""
        self.progress = progress
        """What the client has told of itself; None if this is the client."""
        self._psets: dict[CallId, Pset] = {}
        """Of each call that was answered: where it, and what it called, stand."""
        self.groups: list[str] = []
        """All groups that were called, also in vain, and those that they called."""
        self._count = 0
        self._waiting: dict[CallId, Callable[[Completion | NotRun], None]] = {}

    @property
    def pset(self) -> set[Pair]:
        """The calls that are parts of the transaction, and what they called."""
        return {pair for pset in self._psets.values() for pair in pset}

    @property
    def begun(self) -> int:
        """How many calls were begun; they are numbered from 1."""
        return self._count

    @property
    def are_under_way(self) -> bool:
        """Whether any call has no answer yet."""
        return bool(self._waiting)

    def call(
        self,
        group: str,
        method: str,
        arguments: bytes,
        then: Callable[[Completion | NotRun], None],
    ) -> None:
        """Make a call; *then* gets what came of it."""
        self._count += 1
        call = f"{self._prefix}{self._count}"
        self._waiting[call] = then
        self._note([group])

        def make(view: ViewId) -> CallRequest:
            given_up = tuple(self.given_up)
            progress = self.progress or CallsProgress(self._count, tuple(map(int, self._waiting)))
            return CallRequest(
                self._actor, view, self.aid, call, method, arguments, given_up, progress
            )

        def moved() -> None:
            if self._waiting.pop(call, None) is not None:
                self.given_up.append(call)
                self.call(group, method, arguments, then)

        def no_answer() -> None:
            if self._waiting.pop(call, None) is not None:
                self.given_up.append(call)
                then(NotRun(f"{group} did not answer in time"))

        self._requests.ask(
            ("call", self.aid, call),
            group,
            make,
            patience=self._settings.call_patience,
            on_timeout=no_answer,
            moved=moved,
        )

    def _note(self, groups: Iterable[str]) -> None:
        self.groups += [group for group in groups if group not in self.groups]

    def on_reply(self, message: CallReply) -> None:
        """Take the answer to a call; one to a call that was given up comes too late."""
        then = self._finished(message.call)
        if then is not None:
            self._psets[message.call] = message.pset
            self._note((*participants(message.pset), *message.groups))
            for each in message.void:
                if each not in self.given_up:
                    self.given_up.append(each)
                    self.void.append(each)
            if len(message.pset) > 1 or message.groups:
                self.tell_progress()
            if len(self.given_up) > GIVEN_UP_MAX:
                then(NotRun(TOO_MUCH_GIVEN_UP))
            else:
                then(Completion(message.result, message.is_failure))

    def tell_progress(self) -> None:
        """Send calls again that may wait for one which made calls itself, and is over now."""
        for call in list(self._waiting):
            self._requests.again(("call", self.aid, call))

    def on_refused(self, message: CallRefused) -> None:
        """Take the refusal of a call."""
        then = self._finished(message.call)
        if then is not None:
            self._note(message.groups)
            self.given_up.append(message.call)
            then(NotRun(message.reason))

    def give_up_since(self, begun: int, reason: str) -> None:
        """Give up all calls but the first so many, also those that were answered."""
        for call in [f"{self._prefix}{number}" for number in range(begun + 1, self._count + 1)]:
            then = self._finished(call)
            self._psets.pop(call, None)
            if call not in self.given_up:
                self.given_up.append(call)
            if then is not None:
                then(NotRun(reason))

    def fail(self, reason: str) -> None:
        """Learn that the transaction is over: no call of it will be answered."""
        waiting = list(self._waiting.values())
        self.cancel()
        for then in waiting:
            then(NotRun(reason))

    def cancel(self) -> None:
        """Wait for no answer any more."""
        for call in self._waiting:
            self._requests.done(("call", self.aid, call))
        self._waiting.clear()

    def _finished(self, call: CallId) -> Callable[[Completion | NotRun], None] | None:
        then = self._waiting.pop(call, None)
        if then is not None:
            self._requests.done(("call", self.aid, call))
        return then
