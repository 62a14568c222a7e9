"""Unreplicated clients of transactions (3.5).

A client begins a transaction at a group that coordinates it, makes calls, and commits or aborts. It
hears one of three things: committed, aborted and why, or, if nobody answers in time, unknown.

    transaction = client.begin("eu")
    transaction.call("eu", "withdraw", arguments, then)
    ...
    transaction.commit(then)
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.kernel.errors import CoterieError
from coterie.kernel.layers import Layer
from coterie.vsr.calling import (
    Began,
    Begin,
    CallRefused,
    Elsewhere,
    End,
    Ending,
    Reply,
    StillHere,
    StillThere,
    decoder,
)
from coterie.vsr.courier import Courier
from coterie.vsr.remote import NotRun, RemoteCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import msgspec

    from coterie.kernel.layers import Context
    from coterie.kernel.views import Configuration, Member
    from coterie.vsr.executor import Completion
    from coterie.vsr.psets import Aid, Pset
    from coterie.vsr.settings import VsrSettings


class TransactionOver(CoterieError):
    """A transaction is used after its end; begin another one."""


class Fate(enum.Enum):
    """How a transaction ended, as far as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Nobody answered in time: ask again by the transaction's aid."""


class Outcome(NamedTuple):
    """How a transaction ended, and why."""

    fate: Fate
    aid: Aid | None
    reason: str = ""
    pset: Pset = ()
    """Where its calls stand in the histories of their groups, if it is committed."""


class ClientTransaction:
    """One transaction of a client."""

    def __init__(self, client: Client, number: int, coordinator: str) -> None:
        self.client = client
        self.number = number
        self.coordinator = coordinator
        self.remote: RemoteCalls | None = None
        """None until the coordinator has given the transaction its name."""
        self.outcome: Outcome | None = None
        self._then: Callable[[Outcome], None] | None = None
        self._ending = False
        self._early: list[tuple[Callable[[], None], Callable[[NotRun], None]]] = []
        """What waits for the name: what to do when it is known, and when it never will be."""
        self._failed: NotRun | None = None

    @property
    def is_over(self) -> bool:
        """Whether the transaction is ending, or has ended."""
        return self._ending or self.outcome is not None

    @property
    def aid(self) -> Aid | None:
        """The transaction's name, once it is known."""
        return None if self.remote is None else self.remote.aid

    # ---- use

    def call(
        self,
        group: str,
        method: str,
        arguments: bytes,
        then: Callable[[Completion | NotRun], None],
    ) -> None:
        """Make a call; *then* gets its result, or why it did not run.

        After a call that did not run the transaction can only be aborted.
        """
        self._check()
        refusal = self._why_not(group, arguments)
        if refusal:
            self._failed = NotRun(refusal)
            then(self._failed)
            return

        def note(outcome: Completion | NotRun) -> None:
            if self.outcome is None:
                if isinstance(outcome, NotRun):
                    self._failed = outcome
                then(outcome)

        def make() -> None:
            assert self.remote is not None, "the transaction has its name"
            self.remote.call(group, method, arguments, note)

        self._when_begun(make, then)

    def _why_not(self, group: str, arguments: bytes) -> str:
        if not self.client.courier.knows(group):
            return f"there is no group {group!r}"
        size_max = self.client.settings.call_bytes_max
        if len(arguments) > size_max:
            return f"arguments of {len(arguments)} bytes are over the limit of {size_max}"
        return ""

    def commit(self, then: Callable[[Outcome], None]) -> None:
        """Commit, if all calls ran; else abort."""
        self._check()
        if self._failed is not None:
            self.abort(self._failed.reason, then)
        else:
            self._end(then, commit=True, reason="")

    def abort(self, reason: str, then: Callable[[Outcome], None]) -> None:
        """Have nothing done of all this."""
        self._check()
        self._end(then, commit=False, reason=reason)

    def _check(self) -> None:
        if self.is_over:
            raise TransactionOver("this transaction is over: begin another one")

    def _when_begun(self, what: Callable[[], None], if_never: Callable[[NotRun], None]) -> None:
        if self.remote is None:
            self._early.append((what, if_never))
        else:
            what()

    def _end(self, then: Callable[[Outcome], None], *, commit: bool, reason: str) -> None:
        self._ending = True
        self._then = then

        def make() -> None:
            remote = self.remote
            assert remote is not None, "the transaction has its name"
            remote.cancel()
            pset, groups = tuple(sorted(remote.pset)), tuple(remote.groups)
            message = End(self.client.actor, remote.aid, commit, pset, groups, reason)
            self.client.courier.ask(
                ("end", remote.aid),
                self.coordinator,
                lambda _: message,
                patience=self.client.settings.outcome_patience,
                on_timeout=lambda: self._over(Outcome(Fate.UNKNOWN, remote.aid, "no answer")),
            )

        self._when_begun(make, lambda _: None)

    # ---- what the client hears

    def begun(self, aid: Aid) -> None:
        """Learn the transaction's name."""
        self.remote = RemoteCalls(
            self.client.courier, self.client.settings, actor=self.client.actor, aid=aid
        )
        early, self._early = self._early, []
        for what, _ in early:
            what()

    def not_begun(self) -> None:
        """Learn that no coordinator answered: nothing happened, and nothing will."""
        reason = f"{self.coordinator} did not answer in time"
        early, self._early = self._early, []
        self._over(Outcome(Fate.ABORTED, None, reason))
        for _, if_never in early:
            if_never(NotRun(reason))

    def ended(self, message: Ending) -> None:
        """Learn how the transaction ended, or that it can only be aborted."""
        if not self._ending:
            # The coordinator aborted it of its own accord; what is left is to say so.
            self._failed = NotRun(message.reason)
            if self.remote is not None:
                self.remote.fail(message.reason)
            return
        if not message.committed:
            fate = Fate.ABORTED if message.is_known else Fate.UNKNOWN
            self._over(Outcome(fate, message.aid, message.reason))
            return
        assert self.remote is not None, "only what has begun commits"
        self._over(Outcome(Fate.COMMITTED, message.aid, "", tuple(sorted(self.remote.pset))))

    def _over(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.client.over(self)
            if self._then is not None:
                self._then(outcome)


class Client(Layer):
    """An actor that runs transactions; the bottom of a `Replica` that is none."""

    name = "CLIENT"

    def __init__(
        self, context: Context, directory: Mapping[str, Configuration], settings: VsrSettings
    ) -> None:
        super().__init__(context)
        self.has_left = False
        self.highest = 0
        self.settings = settings
        self.actor = context.group
        self.courier = Courier(context, directory, settings)
        self._count = 0
        self._beginning: dict[int, ClientTransaction] = {}
        self._transactions: dict[Aid, ClientTransaction] = {}
        self._asked: dict[Aid, list[Callable[[Outcome], None]]] = {}
        """Who wants to know how a transaction ended that is not in progress here."""

    def begin(self, coordinator: str) -> ClientTransaction:
        """Begin a transaction that *coordinator* is to commit; raises `UnknownGroup`."""
        self._count += 1
        number = self._count
        transaction = ClientTransaction(self, number, coordinator)
        self._beginning[number] = transaction
        self.courier.ask(
            ("begin", number),
            coordinator,
            lambda _: Begin(self.actor, number),
            patience=self.settings.call_patience,
            on_timeout=lambda: self._not_begun(number),
        )
        return transaction

    def find_out(self, aid: Aid, then: Callable[[Outcome], None]) -> None:
        """Ask how a transaction ended, of whomever; raises `UnknownGroup`.

        One that is not decided yet is aborted by the question, so that there is an answer.
        """
        message = End(self.actor, aid, False, (), (), "somebody asked how it ended")  # noqa: FBT003

        def no_answer() -> None:
            asked = self._asked.pop(aid, [])
            for each in asked:
                each(Outcome(Fate.UNKNOWN, aid, f"{aid.group} did not answer in time"))

        self._asked.setdefault(aid, []).append(then)
        self.courier.ask(
            ("find out", aid),
            aid.group,
            lambda _: message,
            patience=self.settings.outcome_patience,
            on_timeout=no_answer,
        )

    def _found_out(self, message: Ending) -> None:
        fate = Fate.COMMITTED if message.committed else Fate.ABORTED
        if not message.is_known:
            fate = Fate.UNKNOWN
        self.courier.done(("find out", message.aid))
        for then in self._asked.pop(message.aid, []):
            then(Outcome(fate, message.aid, message.reason))

    def _not_begun(self, number: int) -> None:
        transaction = self._beginning.pop(number, None)
        if transaction is not None:
            transaction.not_begun()

    def over(self, transaction: ClientTransaction) -> None:
        """Forget a transaction that has ended."""
        self._beginning.pop(transaction.number, None)
        if transaction.remote is not None:
            transaction.remote.cancel()
            self.courier.done(("end", transaction.remote.aid))
            self._transactions.pop(transaction.remote.aid, None)

    # ---- what the process calls (`coterie.kernel.replica.Bottom`)

    def start(self) -> None:
        """Nothing happens before somebody begins a transaction."""

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message of a group."""
        return decoder.decode(message)

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Take a message of a group."""
        match message:
            case Elsewhere():
                self.courier.learn(message)
            case Began(number=number, aid=aid):
                self._on_began(number, aid)
            case Reply() | CallRefused() | Ending():
                self._on_news(message)
            case StillThere():
                self._on_still_there(sender, message)
            case _:
                self.context.count("client.messages_of_no_use")

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """Primaries are found by asking, not by the failure detector."""

    def _on_news(self, message: Reply | CallRefused | Ending) -> None:
        if isinstance(message, Ending) and message.aid in self._asked:
            self._found_out(message)
        transaction = self._transactions.get(message.aid)
        if transaction is None or transaction.remote is None:
            return
        match message:
            case Reply():
                transaction.remote.on_reply(message)
            case CallRefused():
                transaction.remote.on_refused(message)
            case Ending():
                transaction.ended(message)

    def _on_still_there(self, sender: Member, message: StillThere) -> None:
        aid = message.aid
        answer: StillHere | End = StillHere(self.actor, aid)
        if aid not in self._transactions:
            answer = End(self.actor, aid, False, (), (), "its client has forgotten it")  # noqa: FBT003
        self.context.send_to(message.actor, [sender.id], answer)

    def _on_began(self, number: int, aid: Aid) -> None:
        transaction = self._beginning.pop(number, None)
        if transaction is not None:
            self.courier.done(("begin", number))
            self._transactions[aid] = transaction
            transaction.begun(aid)
