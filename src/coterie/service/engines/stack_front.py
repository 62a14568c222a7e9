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

from typing import TYPE_CHECKING

from coterie.kernel.engine import Standing
from coterie.kernel.errors import Refused
from coterie.objects.errors import UnknownMethod
from coterie.objects.execution.outcomes import SESSION_EVICTED, Answer, NotTaken, Opened
from coterie.objects.execution.sessions import owner_of
from coterie.objects.fronts import Level
from coterie.protocol.kinds import kind_of
from coterie.protocol.messages import (
    TOKEN_BITS,
    TOKEN_MAX,
    AskAgain,
    Refusal,
    Reported,
    RolledBackNotice,
)
from coterie.service.engines.front import GroupFront
from coterie.service.engines.stack import HostedObject

if TYPE_CHECKING:
    from coterie.kernel.engine import Status
    from coterie.objects import ObjectHost
    from coterie.protocol.messages import Ask, Query
    from coterie.service.caller import Caller
    from coterie.service.port import ClientPort

LEVELS = {level.value: level for level in Level}


class ObjectFront(GroupFront[HostedObject]):
    """Speaks for all clients of one group at one replica."""

    engine = "stack"

    def __init__(self, port: ClientPort, group: str) -> None:
        super().__init__(port, group)
        self.settled_position = 0
        self._routes: dict[int, Caller] = {}
        self._unsettled: dict[Caller, None] = {}
        # Sessions opened by entries that are not settled yet: (position, at the latest; answer).
        self._opening: list[tuple[int, Answer]] = []

    @property
    def window_requests_max(self) -> int:
        """How many results of a session are kept."""
        return self.hosted.host.settings.window_requests_max

    @property
    def preferred(self) -> str:
        """The replica that puts calls into order: elsewhere each takes two turns more."""
        port = self._port
        orderer = self.hosted.orderer
        if orderer == port.replica and port.callers > port.settings.preferred_max:
            return ""
        return orderer

    def remove(self, caller: Caller) -> None:
        """Forget a caller whose connection has ended."""
        super().remove(caller)
        self._unsettled.pop(caller, None)
        for session in caller.sessions:
            if self._routes.get(session) is caller:
                del self._routes[session]
        if caller.watched:
            watched = caller.watched
            self.hosted.ask(lambda host: _unwatch(host, watched))

    # ---- requests, inside a turn

    def take(self, caller: Caller, ask: Ask) -> None:
        """Make all requests of one frame."""
        host = self.hosted.host
        for session in ask.closes:
            host.close_session(session)  # also of a client that has hung up: it said goodbye
        if caller.is_over:
            return
        asked_at = ask.asked_at
        if ask.updates:
            self._take_updates(host, caller, ask)
        if ask.conditional:
            self._take_conditional(host, caller, ask)
        if ask.batches:
            self._take_batches(host, caller, ask)
        for query in ask.queries:
            self._take_query(host, caller, query, asked_at)
        for token in ask.opens:
            host.open_session(caller.token(token), asked_at, caller.client.owner)
        if ask.watches or ask.unwatches:
            self._take_watches(host, caller, ask)
        for token in ask.reports:
            caller.tell(Reported(token, self.report()))

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

    def _take_conditional(self, host: ObjectHost, caller: Caller, ask: Ask) -> None:
        for update in ask.conditional:
            session, number = update.session, update.number
            if not self._may_call(host, caller, session, number, ask.asked_at):
                continue
            try:
                host.call(
                    *(session, number, update.method, update.arguments, update.lowest),
                    *(ask.asked_at, update.conditions),
                )
            except Refused as error:
                caller.refuse(Refusal(session, number, kind_of(error), str(error)))

    def _may_call(
        self, host: ObjectHost, caller: Caller, session: int, number: int, asked_at: int
    ) -> bool:
        """Say whether a call has to be made; if not, its caller is told why, or answered."""
        del host, asked_at
        return self._routes.get(session) is caller or self._route(caller, session, number)

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
            if (session, number) in caller.watched:
                caller.watched.discard((session, number))
                host.unwatch(session, number)

    def _route(self, caller: Caller, session: int, number: int) -> bool:
        """Have the answers of a session go to a caller; say whether that may be."""
        owner = caller.client.owner
        if owner and owner != owner_of(session):
            # It is not said whether there is such a session.
            self._port.events.warn("a session of another client", counter="port.sessions_foreign")
            caller.answer(Answer(session, number, SESSION_EVICTED, Standing.NON_PRIMARY))
            return False
        if len(caller.sessions) >= self._port.settings.sessions_max:
            reason = "too many sessions are used on this connection (sessions_max)"
            caller.answer(Answer(session, number, NotTaken(reason), Standing.NON_PRIMARY))
            return False
        self._routes[session] = caller
        caller.sessions.add(session)
        return True

    # ---- the front of the host, inside a turn

    def answer(self, answers: list[Answer]) -> None:
        routes = self._routes
        last: Caller | None = None
        standing = Standing.NON_PRIMARY
        together: list[Answer] = []
        for answer in answers:
            session = answer.session
            if session:
                caller = routes.get(session)
                if caller is None:
                    continue
                if caller is not last or answer.standing is not standing:
                    self._tell(last, together)
                    last, standing, together = caller, answer.standing, []
                together.append(answer)
            else:
                # What it brings must not come before what was answered first.
                self._tell(last, together)
                last, together = None, []
                self._answer_token(answer)
        self._tell(last, together)

    def _tell(self, caller: Caller | None, answers: list[Answer]) -> None:
        """Have a caller told answers that belong to sessions."""
        if caller is not None:
            caller.answer_all(answers)
            if caller.unsettled:
                self._unsettled[caller] = None

    def _answer_token(self, answer: Answer) -> None:
        caller = self.callers.get(answer.request >> TOKEN_BITS)
        if caller is None:
            return
        if isinstance(answer.outcome, Opened) and not answer.standing.is_final:
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
                age=answer.age,
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
            caller.tell(RolledBackNotice(position))

    def restored(self, position: int) -> None:
        self._opening.clear()
        self.settled_position = max(self.settled_position, position)
        for caller in self.callers.values():
            caller.tell(AskAgain())

    def status_changed(self, status: Status) -> None:
        del status
        self.tell_news()


def _authoritative(answer: Answer) -> Answer:
    return Answer(
        answer.session, answer.request, answer.outcome, Standing.AUTHORITATIVE, answer.asked_at
    )


def _unwatch(host: ObjectHost, watched: set[tuple[int, int]]) -> None:
    for session, number in watched:
        host.unwatch(session, number)
