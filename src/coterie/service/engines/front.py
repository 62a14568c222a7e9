"""The front of a group at the clients' port: who is connected, and what all of them are told.

Each engine family has its own, for what its clients may ask; callers, peers, news and reports are
the same for all. A front is called inside turns, and what it has for a caller leaves when the turn
has ended (`coterie.service.port`).
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from coterie.kernel.errors import FrameError
from coterie.protocol.messages import News, Peer, Refusal, Reported
from coterie.service.admission import CallAdmission
from coterie.service.describe import describe_methods, report_on
from coterie.service.engines.hosted import HostedReplica

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from coterie.kernel.views import Member
    from coterie.objects import Definition
    from coterie.protocol.messages import Ask, MethodReport, Report
    from coterie.service.caller import Caller
    from coterie.service.port import ClientPort

H = TypeVar("H", bound=HostedReplica)


class GroupFront(abc.ABC, Generic[H]):
    """Speaks for all clients of one group at one replica; making it puts it at the port."""

    engine: ClassVar[str]
    """The family, as clients know it (`coterie.client`)."""
    guest_tags: ClassVar[frozenset[object]] = frozenset()
    """The tags of messages that a client which is a process of its own may send to the replica;
    none where the group has no such clients (`coterie.service.transaction_clients`)."""

    def __init__(self, port: ClientPort, group: str) -> None:
        self.group = group
        self.callers: dict[int, Caller] = {}
        """The clients that said hello to this group, by their numbers."""
        self._port = port
        self._hosted: H | None = None
        self._described: Definition | None = None
        self._methods: list[MethodReport] = []
        self.admission = CallAdmission(port, group, is_audited=group in port.audited)
        port.fronts[group] = self

    def attach(self, hosted: H) -> None:
        """Speak for this replica; before the port is opened."""
        self._hosted = hosted

    @property
    def hosted(self) -> H:
        """The replica behind the front."""
        assert self._hosted is not None, "a front is attached before its port is opened"
        return self._hosted

    # ---- what a caller is told

    @property
    def class_name(self) -> str:
        """What the group replicates."""
        return self.hosted.definition.name

    @property
    def window_requests_max(self) -> int:
        """How many requests of a session may be outstanding; 1 where there are no sessions."""
        return 1

    @property
    def majority(self) -> int:
        """How many replicas of the group are a majority."""
        return self.hosted.configuration.majority

    @property
    def role(self) -> str:
        """What the replica may do at present, in the words of `Role`."""
        status = self.hosted.status
        return "starting" if status is None else status.role.value

    @property
    def preferred(self) -> str:
        """The replica at which a client does best that asks for little; empty if any will do."""
        return ""

    def peers(self) -> list[Peer]:
        """The replicas of the group, in their order, with what clients need to find them."""
        status = self.hosted.status
        in_view = {member.id for member in status.members} if status is not None else set()
        addresses = self._port.addresses
        return [
            Peer(id, addresses.get(id, ""), id in in_view)
            for id in self.hosted.configuration.members
        ]

    def report(self) -> Report:
        """Say where the replica stands at present, and what can be called."""
        definition = self.hosted.definition
        if self._described is not definition:  # the group may go on as a later version of its class
            self._described, self._methods = definition, describe_methods(definition)
        port = self._port
        return report_on(
            self.hosted,
            engine=self.engine,
            replica=port.replica,
            incarnation=port.incarnation,
            methods=self._methods,
            peers=self.peers(),
        )

    def tell_news(self) -> None:
        """Tell all callers where the replica and its peers stand."""
        if self._hosted is None or not self.callers:
            return
        news = News(self.role, self.peers())
        for caller in self.callers.values():
            caller.tell(news)

    # ---- callers come, ask and go

    def add(self, caller: Caller) -> None:
        """Take a caller that has been made welcome."""
        self.callers[caller.number] = caller

    def remove(self, caller: Caller) -> None:
        """Forget a caller whose connection has ended."""
        self.callers.pop(caller.number, None)

    def receive(self, caller: Caller, ask: Ask, size: int, *, alone: bool = False) -> None:
        """Have all requests of one frame, of *size* bytes, made inside the next turn.

        *alone* says that nothing came with it over this connection.
        """

        def take() -> None:
            caller.taken(size)
            asked = ask
            if self.admission.is_needed(caller):
                asked = self.admission.admit(caller, ask, self.hosted.replica.context)
            self.take(caller, asked)

        if alone:
            self.hosted.call_alone(take)
        else:
            self.hosted.call(take)

    def admit_guest(
        self, caller: Caller, guest: Member, messages: Sequence[msgspec.Raw]
    ) -> Sequence[msgspec.Raw]:
        """Give which messages of a client that is a process of its own are taken, inside a turn."""
        del caller, guest
        return messages

    def said(self, caller: Caller, message: object, size: int) -> None:
        """Take a message that clients of some objects send only; raises `FrameError` by default."""
        del caller, size
        raise FrameError("message", f"a {type(message).__name__} is not for this group")

    def report_or_refuse(self, caller: Caller, ask: Ask, why: str) -> None:
        """Give reports, and refuse anything else that is asked for."""
        if caller.is_over:
            return
        for token in ask.reports:
            caller.tell(Reported(token, self.report()))
        refused = [(update.session, update.number) for update in ask.updates]
        refused += [(update.session, update.number) for update in ask.conditional]
        refused += [(batch.session, batch.first) for batch in ask.batches]
        refused += [(0, token) for token in ask.opens]
        refused += [(0, query.token) for query in ask.queries]
        for session, request in refused:
            caller.refuse(Refusal(session, request, "", why))

    @abc.abstractmethod
    def take(self, caller: Caller, ask: Ask) -> None:
        """Make all requests of one frame, inside a turn; the caller's connection may be over."""
