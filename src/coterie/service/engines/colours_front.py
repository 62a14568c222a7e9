"""The front of an object over a partitioned network: what clients are told in which colour.

A call has an answer when it is executed red, and another when it is green. Both are sent, each
with its colour; which of them counts is up to the client (`coterie.client.sessions.colours`). They
follow from the action and nothing takes them back: what is executed anew in another place, because
others came before it, is answered anew. So nobody is told of roll-backs here.

**Exactly once.** A call may become two actions, where its client asked on both sides of a cut. The
one that is green first is executed, and the session remembers it. That needs the session to be
opened before, in the global order, too: outside of the primary component a call is taken only where
the opening of its session is known, and then Lamport's order puts it behind. Elsewhere its client
is told that there is no such session, and nothing was done.

**Sessions are told when they are red.** Their ids are made from the identity of the action, which
stays; so a client that is cut off with a minority can begin there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.components import GREEN, RED
from coterie.kernel.engine import Role, Standing
from coterie.kernel.errors import Refused
from coterie.objects.execution.outcomes import (
    EXECUTED,
    SESSION_EVICTED,
    Answer,
    NotTaken,
    Opened,
)
from coterie.objects.fronts import Level
from coterie.protocol.kinds import kind_of
from coterie.protocol.messages import AskAgain, Refusal
from coterie.service.engines.stack_front import ObjectFront

if TYPE_CHECKING:
    from coterie.objects import ObjectHost
    from coterie.objects.execution.outcomes import Outcome
    from coterie.protocol.messages import Ask, Query
    from coterie.service.caller import Caller
    from coterie.service.port import ClientPort

NOT_PRIMARY = (
    "this replica is not in the primary component: ask another, wait, or read weak or dirty"
)
UNKNOWN_YET = "a component is being formed, and the session is not known here yet: wait"
_COLOURS = {Standing.AUTHORITATIVE: GREEN, Standing.OPTIMISTIC: RED}
"""What the host says of what it answers at once, in the words of this engine."""


class ColoursFront(ObjectFront):
    """Speaks for all clients of one group at one replica."""

    engine = "colours"

    def __init__(self, port: ClientPort, group: str) -> None:
        super().__init__(port, group)
        self._told: set[int] = set()
        """Openings of sessions that are told, and not green yet."""

    # ---- requests, inside a turn

    def _take_updates(self, host: ObjectHost, caller: Caller, ask: Ask) -> None:
        for update in ask.updates:
            session, number = update.session, update.number
            if not self._may_call(host, caller, session, number, ask.asked_at):
                continue
            try:
                host.call(
                    session,
                    number,
                    update.method,
                    update.arguments,
                    update.lowest,
                    ask.asked_at,
                )
            except Refused as error:
                caller.refuse(Refusal(session, number, kind_of(error), str(error)))

    def _may_call(
        self, host: ObjectHost, caller: Caller, session: int, number: int, asked_at: int
    ) -> bool:
        return self._may_take(
            host, caller, session, number, SESSION_EVICTED
        ) and not self._is_known(host, caller, session, number, asked_at)

    def _may_take(
        self, host: ObjectHost, caller: Caller, session: int, number: int, unknown: Outcome
    ) -> bool:
        """Say whether a call of a session may become an action here; if not, tell the caller.

        *unknown* is what it is told where its session is not known.
        """
        if self._routes.get(session) is not caller and not self._route(caller, session, number):
            return False
        status = host.status
        role = Role.FORMING if status is None else status.role
        if role is Role.PRIMARY or session in host.copies.machine.sessions.table:
            return True
        outcome = unknown if role is Role.NON_PRIMARY else NotTaken(UNKNOWN_YET)
        caller.answer(Answer(session, number, outcome, Standing.NON_PRIMARY))
        return False

    def _is_known(
        self, host: ObjectHost, caller: Caller, session: int, number: int, asked_at: int
    ) -> bool:
        """Answer what is an action already, and is not green yet; say whether it is.

        It may be another replica's, so it is watched until it is green.
        """
        known = host.outcome_of(session, number)
        if known is None or known.position <= host.settled_position:
            return False
        if not self._watch(host, caller, session, number):
            return False
        caller.answer(Answer(session, number, known, RED, asked_at))
        return True

    def _watch(self, host: ObjectHost, caller: Caller, session: int, number: int) -> bool:
        if (session, number) in caller.watched:
            return True
        if len(caller.watched) >= self._port.settings.watches_max:
            self._port.events.count("port.watches_refused")
            return False
        try:
            host.watch(session, number)
        except Refused:
            self._port.events.count("port.watches_refused")
            return False
        caller.watched.add((session, number))
        return True

    def _take_batches(self, host: ObjectHost, caller: Caller, ask: Ask) -> None:
        for batch in ask.batches:
            unknown = NotTaken(NOT_PRIMARY)
            if not self._may_take(host, caller, batch.session, batch.first, unknown):
                continue
            try:
                host.call_many(
                    batch.session,
                    batch.first,
                    batch.method,
                    batch.arguments,
                    batch.lowest,
                    ask.asked_at,
                )
            except Refused as error:
                caller.refuse(Refusal(batch.session, batch.first, kind_of(error), str(error)))

    def _take_query(self, host: ObjectHost, caller: Caller, query: Query, asked_at: int) -> None:
        status = host.status
        is_cut_off = status is not None and status.role is Role.NON_PRIMARY
        if is_cut_off and query.level == Level.CONSISTENT.value:
            # As an action it would wait, and grow what is red, for nobody in the end.
            refusal = NotTaken(NOT_PRIMARY)
            caller.answer(Answer(0, query.token, refusal, Standing.NON_PRIMARY, asked_at))
            return
        super()._take_query(host, caller, query, asked_at)

    # ---- the front of the host, inside a turn

    def answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            if not answer.session:
                self._answer_token(answer)
                continue
            caller = self._routes.get(answer.session)
            if caller is None:
                continue
            standing = _COLOURS.get(answer.standing, answer.standing)
            if standing.is_final:
                self._unwatch(caller, answer)
            elif standing is RED and not isinstance(answer.outcome, EXECUTED):
                # Not executed in the place it has here, and it may be in the one it will have.
                continue
            caller.answer(_with(answer, standing))

    def _unwatch(self, caller: Caller, answer: Answer) -> None:
        watched = (answer.session, answer.request)
        if watched in caller.watched:
            caller.watched.discard(watched)
            self.hosted.host.unwatch(*watched)

    def _answer_token(self, answer: Answer) -> None:
        if isinstance(answer.outcome, Opened):
            token = answer.request
            is_told = token in self._told
            if answer.standing.is_final:
                self._told.discard(token)
            else:
                self._told.add(token)
            if is_told:
                return
            answer = _with(answer, GREEN)  # its id is for good
        elif answer.standing is RED:
            return  # a consistent read, which is answered when it is green
        super()._answer_token(_with(answer, _COLOURS.get(answer.standing, answer.standing)))

    def settled(self, position: int) -> None:
        # What is green is answered as such.
        self.settled_position = max(self.settled_position, position)

    def rolled_back(self, position: int) -> None:
        # What was answered is answered again, in the same turn.
        del position

    def restored(self, position: int) -> None:
        self.settled_position = max(self.settled_position, position)
        for caller in self.callers.values():
            caller.tell(AskAgain())


def _with(answer: Answer, standing: Standing) -> Answer:
    if answer.standing is standing:
        return answer
    told = Answer(answer.session, answer.request, answer.outcome, standing, answer.asked_at)
    return told if not answer.age else msgspec.structs.replace(told, age=answer.age)
