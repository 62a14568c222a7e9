"""The front of one hosted object: between the clients at the port and the host.

Requests come in with the frames of callers and are made of the host inside the next turn; answers
come inside turns, gather with each caller, and leave when the turn has ended.

**Nothing is kept for a request.** An answer finds its caller by its session, which is used by one
client at a time, so the latest caller that used it is the one; where there is no session the token
names the caller. What a caller waits for it knows itself: if the state is replaced by a transfer,
in which requests may have been executed without an answer, all are told to ask again, and a
request that was executed is answered from its session.

**Sessions open for good.** Where entries are delivered optimistically a session could be rolled
back under its client, whose updates would then be refused as of an evicted session, and nobody
could tell the two apart. So an opened session is told only once it is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coterie.client.errors import kind_of
from coterie.client.messages import (
    TOKEN_BITS,
    TOKEN_MAX,
    AskAgain,
    News,
    Peer,
    Refusal,
    Reported,
    RolledBack,
)
from coterie.kernel.engine import Standing
from coterie.kernel.errors import Refused
from coterie.objects.errors import UnknownMethod
from coterie.objects.fronts import Level
from coterie.objects.outcomes import Answer, NotTaken, Opened
from coterie.service.describe import describe_methods, report_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.client.messages import Ask, MethodReport, Query, Report
    from coterie.kernel.engine import Status, Version
    from coterie.kernel.views import Configuration
    from coterie.objects import Definition, ObjectHost
    from coterie.service.caller import Caller
    from coterie.service.port import ClientPort

LEVELS = {level.value: level for level in Level}


class Hosted(Protocol):
    """What the front needs of a replica in a live process (`coterie.service.hosted`)."""

    @property
    def host(self) -> ObjectHost:
        """What executes."""

    @property
    def configuration(self) -> Configuration:
        """The replicas of the group."""

    @property
    def version(self) -> Version:
        """How advanced the replica's history is."""

    @property
    def trouble(self) -> str:
        """Why the replica is not as it should be, in words; empty if it is."""

    def ask(self, request: Callable[[ObjectHost], None]) -> None:
        """Have a request made of the host inside the next turn."""


class ObjectFront:
    """Speaks for all clients of one group at one replica."""

    engine = ""

    def __init__(self, port: ClientPort, group: str) -> None:
        self.group = group
        self.callers: dict[int, Caller] = {}
        """Those who said hello to this group, by their numbers."""
        self.settled_position = 0
        self._port = port
        self._hosted: Hosted | None = None
        self._routes: dict[int, Caller] = {}
        self._unsettled: dict[Caller, None] = {}
        # Sessions opened by entries that are not settled yet: (position, at the latest; answer).
        self._opening: list[tuple[int, Answer]] = []
        self._described: Definition | None = None
        self._methods: list[MethodReport] = []

    def attach(self, hosted: Hosted) -> None:
        """Speak for this replica; before the port is opened."""
        self._hosted = hosted

    @property
    def hosted(self) -> Hosted:
        """The replica behind the front."""
        assert self._hosted is not None, "a front is attached before its port is opened"
        return self._hosted

    # ---- callers come and go

    def add(self, caller: Caller) -> None:
        """Take a caller that has been made welcome."""
        self.callers[caller.number] = caller

    def remove(self, caller: Caller) -> None:
        """Forget a caller whose connection has ended."""
        self.callers.pop(caller.number, None)
        self._unsettled.pop(caller, None)
        for session in caller.sessions:
            if self._routes.get(session) is caller:
                del self._routes[session]
        if caller.watched:
            watched = caller.watched
            self.hosted.ask(lambda host: _unwatch(host, watched))

    @property
    def class_name(self) -> str:
        """What the group replicates."""
        return self.hosted.host.definition.name

    @property
    def window_requests_max(self) -> int:
        """How many results of a session are kept."""
        return self.hosted.host.settings.window_requests_max

    @property
    def majority(self) -> int:
        """How many replicas it takes."""
        return self.hosted.configuration.majority

    @property
    def role(self) -> str:
        """What the replica may do at present, in the words of `Role`."""
        status = self.hosted.host.standing
        return "starting" if status is None else status.role.value

    def peers(self) -> list[Peer]:
        """The replicas of the group, with what clients need to find them."""
        status = self.hosted.host.standing
        in_view = {member.id for member in status.members} if status is not None else set()
        addresses = self._port.addresses
        return [
            Peer(id, addresses.get(id, ""), id in in_view)
            for id in self.hosted.configuration.members
        ]

    # ---- requests, inside a turn

    def receive(self, caller: Caller, ask: Ask, size: int) -> None:
        """Have all requests of one frame made inside the next turn."""

        def take(host: ObjectHost) -> None:
            caller.taken(size)
            self.take(host, caller, ask)

        self.hosted.ask(take)

    def take(self, host: ObjectHost, caller: Caller, ask: Ask) -> None:
        """Make all requests of one frame."""
        for session in ask.closes:
            host.close_session(session)  # also of a client that has hung up: it said goodbye
        if caller.is_over:
            return
        asked_at = ask.asked_at
        if ask.updates:
            self._take_updates(host, caller, ask)
        if ask.batches:
            self._take_batches(host, caller, ask)
        for query in ask.queries:
            self._take_query(host, caller, query, asked_at)
        for token in ask.opens:
            host.open_session(caller.token(token), asked_at)
        if ask.watches or ask.unwatches:
            self._take_watches(host, caller, ask)
        for token in ask.reports:
            caller.tell(Reported(token, self._report()))

    def _take_updates(self, host: ObjectHost, caller: Caller, ask: Ask) -> None:
        asked_at = ask.asked_at
        call = host.call
        routes = self._routes
        for update in ask.updates:
            session, number = update.session, update.number
            if routes.get(session) is not caller and not self._route(caller, session, number):
                continue
            try:
                call(session, number, update.method, update.arguments, update.lowest, asked_at)
            except Refused as error:
                caller.refuse(Refusal(session, number, kind_of(error), str(error)))

    def _take_query(self, host: ObjectHost, caller: Caller, query: Query, asked_at: int) -> None:
        try:
            level = LEVELS.get(query.level)
            if level is None:
                raise UnknownMethod(f"there is no level {query.level!r}")
            token = caller.token(query.token)
            host.read(level, token, query.method, query.arguments, asked_at)
        except Refused as error:
            caller.refuse(Refusal(0, query.token, kind_of(error), str(error)))

    def _take_batches(self, host: ObjectHost, caller: Caller, ask: Ask) -> None:
        asked_at = ask.asked_at
        for batch in ask.batches:
            session, first, lowest = batch.session, batch.first, batch.lowest
            if self._routes.get(session) is not caller and not self._route(caller, session, first):
                continue
            try:
                host.call_many(session, first, batch.method, batch.arguments, lowest, asked_at)
            except Refused as error:
                caller.refuse(Refusal(session, first, kind_of(error), str(error)))

    def _take_watches(self, host: ObjectHost, caller: Caller, ask: Ask) -> None:
        for session, number in ask.watches:
            if self._routes.get(session) is not caller and not self._route(caller, session, number):
                continue
            known = host.outcome_of(session, number)
            if known is not None:
                is_settled = known.position <= host.settled_position
                standing = Standing.AUTHORITATIVE if is_settled else Standing.OPTIMISTIC
                self.answer([Answer(session, number, known, standing)])
            if len(caller.watched) < self._port.settings.watches_max:
                try:
                    # Also if it is known: it may be rolled back and come again.
                    host.watch(session, number)
                    caller.watched.add((session, number))
                except Refused:
                    self._port.events.count("port.watches_refused")
        for session, number in ask.unwatches:
            caller.watched.discard((session, number))
            host.unwatch(session, number)

    def _route(self, caller: Caller, session: int, number: int) -> bool:
        """Have the answers of a session go to a caller; say whether that may be."""
        if len(caller.sessions) >= self._port.settings.sessions_max:
            reason = "too many sessions are used on this connection (sessions_max)"
            caller.answer(Answer(session, number, NotTaken(reason), Standing.NON_PRIMARY))
            return False
        self._routes[session] = caller
        caller.sessions.add(session)
        return True

    def _report(self) -> Report:
        definition = self.hosted.host.definition
        if self._described is not definition:  # the group may go on as a later version of its class
            self._described, self._methods = definition, describe_methods(definition)
        return report_on(
            group=self.group,
            replica=self._port.replica,
            incarnation=self._port.incarnation,
            host=self.hosted.host,
            methods=self._methods,
            peers=self.peers(),
            version=self.hosted.version,
            trouble=self.hosted.trouble,
        )

    # ---- the front of the host, inside a turn

    def answer(self, answers: list[Answer]) -> None:
        routes = self._routes
        for answer in answers:
            session = answer.session
            if not session:
                self._answer_token(answer)
                continue
            caller = routes.get(session)
            if caller is None:
                continue
            caller.answer(answer)
            if answer.standing is Standing.OPTIMISTIC:
                self._unsettled[caller] = None

    def _answer_token(self, answer: Answer) -> None:
        caller = self.callers.get(answer.request >> TOKEN_BITS)
        if caller is None:
            return
        if isinstance(answer.outcome, Opened) and answer.standing is Standing.OPTIMISTIC:
            # The entry is among those delivered so far, so not above the host's position.
            self._opening.append((self.hosted.host.position, answer))
            return
        caller.answer(
            Answer(
                0,
                answer.request & TOKEN_MAX,
                answer.outcome,
                answer.standing,
                answer.asked_at,
            )
        )

    def settled(self, position: int) -> None:
        if position <= self.settled_position:
            return
        self.settled_position = position
        if self._opening:
            opened = [answer for place, answer in self._opening if place <= position]
            self._opening = [each for each in self._opening if each[0] > position]
            for answer in opened:
                self._answer_token(_authoritative(answer))
        if self._unsettled:
            for caller in self._unsettled:
                caller.settled(position)
            self._unsettled = {caller: None for caller in self._unsettled if caller.unsettled}

    def rolled_back(self, position: int) -> None:
        # A session opened above is void, or is opened again under another id: its client asks
        # once more when it hears nothing.
        self._opening = [each for each in self._opening if each[0] <= position]
        for caller in self.callers.values():
            caller.tell(RolledBack(position))

    def restored(self, position: int) -> None:
        self._opening.clear()
        self.settled_position = max(self.settled_position, position)
        for caller in self.callers.values():
            caller.tell(AskAgain())

    def status(self, status: Status) -> None:
        del status
        self.tell_news()

    def tell_news(self) -> None:
        """Tell all callers where the replica and its peers stand."""
        if self._hosted is None or not self.callers:
            return
        news = News(self.role, self.peers())
        for caller in self.callers.values():
            caller.tell(news)


def _authoritative(answer: Answer) -> Answer:
    return Answer(
        answer.session, answer.request, answer.outcome, Standing.AUTHORITATIVE, answer.asked_at
    )


def _unwatch(host: ObjectHost, watched: set[tuple[int, int]]) -> None:
    for session, number in watched:
        host.unwatch(session, number)
