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

from coterie.kernel.errors import CoterieError, Refused
from coterie.kernel.layers import Layer
from coterie.vsr.calls.messages import (
    BeginTransaction,
    CallRefused,
    CallReply,
    Elsewhere,
    EndTransaction,
    StillHere,
    StillThere,
    TransactionBegun,
    TransactionEnded,
    decoder,
)
from coterie.vsr.calls.primary_requests import PrimaryRequests
from coterie.vsr.calls.remote import GIVEN_UP_MAX, TOO_MUCH_GIVEN_UP, NotRun, RemoteCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import msgspec

    from coterie.kernel.layers import Context
    from coterie.kernel.views import Configuration, Member
    from coterie.vsr.calls.executor import Completion
    from coterie.vsr.commit.psets import Aid, Pset
    from coterie.vsr.settings import VsrSettings


PARTS_MAX = 16
"""How deep parts of transactions go within parts."""


class TransactionOver(CoterieError):
    """A transaction is used after its end; begin another one."""


class Fate(enum.Enum):
    """How a transaction ended, as far as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Nobody answered in time: ask again by the transaction's aid."""


class TransactionOutcome(NamedTuple):
    """How a transaction ended, and why."""

    fate: Fate
    aid: Aid | None
    reason: str = ""
    pset: Pset = ()
    """Where its calls stand in the histories of their groups, if it is committed."""


class Subaction:
    """A part of a transaction (3.6): what is called from its beginning on."""

    def __init__(self, begun: int) -> None:
        self.begun = begun
        """How many calls were begun before."""


class ClientTransaction:
    """One transaction of a client."""

    def __init__(self, client: TransactionClient, number: int, coordinator: str) -> None:
        self.client = client
        self.number = number
        self.coordinator = coordinator
        self.remote: RemoteCalls | None = None
        """None until the coordinator has given the transaction its name."""
        self.outcome: TransactionOutcome | None = None
        self._then: Callable[[TransactionOutcome], None] | None = None
        self._ending = False
        self._early: list[tuple[Callable[[], None], Callable[[NotRun], None]]] = []
        """What waits for the name: what to do when it is known, and when it never will be."""
        self._failed: NotRun | None = None
        self._is_void = False
        """Whether its coordinator has aborted it."""
        self._parts: list[Subaction] = []
        """Those that are open, each within the one before."""

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

        After a call that did not run the transaction, or the part of it, can only be aborted.
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
        if not self.client.requests.knows(group):
            return f"there is no group {group!r}"
        size_max = self.client.settings.call_bytes_max
        if len(arguments) > size_max:
            return f"arguments of {len(arguments)} bytes are over the limit of {size_max}"
        return ""

    def begin_part(self) -> Subaction:
        """Begin a part, which can be aborted alone; calls are of the innermost part (3.6).

        Calls of the transaction see each other's work when they are over. So nothing that is no
        part of it may run beside it: that could have seen what is void afterwards.
        """
        self._check()
        if self._early or (self.remote is not None and self.remote.are_under_way):
            raise Refused("calls of this transaction are under way: await them, then begin a part")
        if len(self._parts) >= PARTS_MAX:
            raise Refused(f"parts within parts go {PARTS_MAX} deep at most")
        part = Subaction(0 if self.remote is None else self.remote.begun)
        self._parts.append(part)
        return part

    def end_part(self, part: Subaction) -> NotRun | None:
        """Make a part one with what is around it; if a call of it did not run, abort it."""
        self._check_innermost(part)
        failed = self._failed
        if failed is not None:
            self.abort_part(part, failed.reason)
        else:
            self._parts.pop()
        return failed

    def abort_part(self, part: Subaction, reason: str) -> None:
        """Give up all calls of a part: the transaction goes on as if they had not been made."""
        self._check_innermost(part)
        self._parts.pop()

        def give_up() -> None:
            if self.remote is not None and self.outcome is None:
                self.remote.give_up_since(part.begun, reason)
                is_too_much = len(self.remote.given_up) > GIVEN_UP_MAX
                self._failed = NotRun(TOO_MUCH_GIVEN_UP) if is_too_much else None

        if not self._is_void and not self.is_over:
            self._when_begun(give_up, lambda _: None)

    def _check_innermost(self, part: Subaction) -> None:
        if not self._parts or self._parts[-1] is not part:
            self._failed = NotRun("a part was ended before one that was begun within it")
            self._is_void = True
            raise Refused(f"{self._failed.reason}: the transaction can only be aborted")

    def commit(self, then: Callable[[TransactionOutcome], None]) -> None:
        """Commit, if all calls ran; else abort."""
        self._check()
        if self._failed is not None:
            self.abort(self._failed.reason, then)
        else:
            self._end(then, commit=True, reason="")

    def abort(self, reason: str, then: Callable[[TransactionOutcome], None]) -> None:
        """Abort the transaction: nothing of it is done."""
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

    def _end(
        self, then: Callable[[TransactionOutcome], None], *, commit: bool, reason: str
    ) -> None:
        self._ending = True
        self._then = then

        def make() -> None:
            remote = self.remote
            assert remote is not None, "the transaction has its name"
            remote.cancel()
            pset, groups = tuple(sorted(remote.pset)), tuple(remote.groups)
            message = EndTransaction(self.client.actor, remote.aid, commit, pset, groups, reason)
            self.client.requests.ask(
                ("end", remote.aid),
                self.coordinator,
                lambda _: message,
                patience=self.client.settings.outcome_patience,
                on_timeout=lambda: self._over(
                    TransactionOutcome(Fate.UNKNOWN, remote.aid, "no answer")
                ),
            )

        self._when_begun(make, lambda _: None)

    # ---- what the client hears

    def begun(self, aid: Aid) -> None:
        """Learn the transaction's name."""
        self.remote = RemoteCalls(
            self.client.requests, self.client.settings, actor=self.client.actor, aid=aid
        )
        early, self._early = self._early, []
        for what, _ in early:
            what()

    def not_begun(self) -> None:
        """Learn that no coordinator answered: nothing happened, and nothing will."""
        reason = f"{self.coordinator} did not answer in time"
        early, self._early = self._early, []
        self._over(TransactionOutcome(Fate.ABORTED, None, reason))
        for _, if_never in early:
            if_never(NotRun(reason))

    def ended(self, message: TransactionEnded) -> None:
        """Learn how the transaction ended, or that it can only be aborted."""
        if not self._ending:
            # The coordinator aborted it of its own accord; what is left is to say so.
            self._failed = NotRun(message.reason)
            self._is_void = True
            if self.remote is not None:
                self.remote.fail(message.reason)
            return
        if not message.committed:
            fate = Fate.ABORTED if message.is_known else Fate.UNKNOWN
            self._over(TransactionOutcome(fate, message.aid, message.reason))
            return
        assert self.remote is not None, "only what has begun commits"
        self._over(
            TransactionOutcome(Fate.COMMITTED, message.aid, "", tuple(sorted(self.remote.pset)))
        )

    def _over(self, outcome: TransactionOutcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.client.over(self)
            if self._then is not None:
                self._then(outcome)


class TransactionClient(Layer):
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
        self.requests = PrimaryRequests(context, directory, settings)
        self._count = 0
        self._beginning: dict[int, ClientTransaction] = {}
        self._transactions: dict[Aid, ClientTransaction] = {}
        self._asked: dict[Aid, list[Callable[[TransactionOutcome], None]]] = {}
        """Who wants to know how a transaction ended that is not in progress here."""

    def begin(self, coordinator: str) -> ClientTransaction:
        """Begin a transaction that *coordinator* is to commit; raises `UnknownGroup`."""
        self._count += 1
        number = self._count
        transaction = ClientTransaction(self, number, coordinator)
        self._beginning[number] = transaction
        self.requests.ask(
            ("begin", number),
            coordinator,
            lambda _: BeginTransaction(self.actor, number),
            patience=self.settings.call_patience,
            on_timeout=lambda: self._not_begun(number),
        )
        return transaction

    def find_out(self, aid: Aid, then: Callable[[TransactionOutcome], None]) -> None:
        """Ask how a transaction ended, of whomever; raises `UnknownGroup`.

        One that is not decided yet is aborted by the question, so that there is an answer.
        """
        message = EndTransaction(self.actor, aid, False, (), (), "somebody asked how it ended")  # noqa: FBT003

        def no_answer() -> None:
            asked = self._asked.pop(aid, [])
            for each in asked:
                each(TransactionOutcome(Fate.UNKNOWN, aid, f"{aid.group} did not answer in time"))

        self._asked.setdefault(aid, []).append(then)
        self.requests.ask(
            ("find out", aid),
            aid.group,
            lambda _: message,
            patience=self.settings.outcome_patience,
            on_timeout=no_answer,
        )

    def _found_out(self, message: TransactionEnded) -> None:
        fate = Fate.COMMITTED if message.committed else Fate.ABORTED
        if not message.is_known:
            fate = Fate.UNKNOWN
        self.requests.done(("find out", message.aid))
        for then in self._asked.pop(message.aid, []):
            then(TransactionOutcome(fate, message.aid, message.reason))

    def _not_begun(self, number: int) -> None:
        transaction = self._beginning.pop(number, None)
        if transaction is not None:
            transaction.not_begun()

    def over(self, transaction: ClientTransaction) -> None:
        """Forget a transaction that has ended."""
        self._beginning.pop(transaction.number, None)
        if transaction.remote is not None:
            transaction.remote.cancel()
            self.requests.done(("end", transaction.remote.aid))
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
                self.requests.learn(message)
            case TransactionBegun(number=number, aid=aid):
                self._on_began(number, aid)
            case CallReply() | CallRefused() | TransactionEnded():
                self._on_news(message)
            case StillThere():
                self._on_still_there(sender, message)
            case _:
                self.context.count("client.messages_of_no_use")

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """Primaries are found by asking, not by the failure detector."""

    def _on_news(self, message: CallReply | CallRefused | TransactionEnded) -> None:
        if isinstance(message, TransactionEnded) and message.aid in self._asked:
            self._found_out(message)
        transaction = self._transactions.get(message.aid)
        if transaction is None or transaction.remote is None:
            return
        match message:
            case CallReply():
                transaction.remote.on_reply(message)
            case CallRefused():
                transaction.remote.on_refused(message)
            case TransactionEnded():
                transaction.ended(message)

    def _on_still_there(self, sender: Member, message: StillThere) -> None:
        aid = message.aid
        answer: StillHere | EndTransaction = StillHere(self.actor, aid)
        if aid not in self._transactions:
            answer = EndTransaction(self.actor, aid, False, (), (), "its client has forgotten it")  # noqa: FBT003
        self.context.send_to(message.actor, [sender.id], answer)

    def _on_began(self, number: int, aid: Aid) -> None:
        transaction = self._beginning.pop(number, None)
        if transaction is not None:
            self.requests.done(("begin", number))
            self._transactions[aid] = transaction
            transaction.begun(aid)
