"""What a client may do, applied to what it asks for; and, where a group is audited, written down.

Both happen in the turn that takes the requests, before anything is done with them. What a client
may not do is refused with a sentence; what it asks for too often is not taken, which its client
library takes as a reason to ask later. The records of a turn are written before its answers leave,
so whatever was answered has been written down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.engine import Standing
from coterie.kernel.records import AskedCall, CallsAsked
from coterie.objects.classes.methods import decode_parts
from coterie.objects.execution.outcomes import Answer, NotTaken
from coterie.objects.execution.sessions import owner_of
from coterie.protocol.kinds import NOT_ALLOWED
from coterie.protocol.messages import Refusal
from coterie.service.known_clients import OPERATE, READ, WRITE

if TYPE_CHECKING:
    from coterie.kernel.layers import Context
    from coterie.protocol.messages import Ask
    from coterie.service.caller import Caller
    from coterie.service.port import ClientPort

UPDATE, QUERY = "update", "query"
NEEDS = {UPDATE: WRITE, QUERY: READ}
"""The role that each kind of call needs."""


class CallAdmission:
    """Stands between the callers of one group and its replica, inside turns."""

    def __init__(self, port: ClientPort, group: str, *, is_audited: bool) -> None:
        self.group = group
        self.is_audited = is_audited
        self._port = port
        self._calls: list[AskedCall] = []

    def is_needed(self, caller: Caller) -> bool:
        """Say whether what a caller asks for has to be looked at."""
        return self.is_audited or caller.client.is_limited

    def admit(self, caller: Caller, ask: Ask, context: Context) -> Ask:
        """Give what is left of a frame's requests; the others are refused."""
        client = caller.client
        left = msgspec.structs.replace(
            ask,
            updates=[
                each
                for each in ask.updates
                if self._admits(caller, UPDATE, each.method, each.session, each.number)
            ],
            batches=[
                each
                for each in ask.batches
                if self._admits(
                    caller,
                    UPDATE,
                    each.method,
                    each.session,
                    each.first,
                    count=_length(each.arguments),
                )
            ],
            queries=[
                each
                for each in ask.queries
                if self._admits(caller, QUERY, each.method, 0, each.token)
            ],
            conditional=[
                each
                for each in ask.conditional
                if self._admits(caller, UPDATE, each.method, each.session, each.number)
                and all(
                    # Whether a query answers this or that is told by the outcome.
                    self._admits(caller, QUERY, condition.method, each.session, each.number)
                    for condition in each.conditions
                )
            ],
            opens=[token for token in ask.opens if self._admits_session(caller, token)],
            closes=[
                session
                for session in ask.closes
                if owner_of(session) == client.owner or client.has(OPERATE, self.group)
            ],
            watches=ask.watches if client.may_update(self.group) else [],
        )
        self.report(caller, context)
        return left

    def judge(self, caller: Caller, call: AskedCall) -> tuple[str, str]:
        """Judge one call, and note it; give why it may never be made, and why not now."""
        client = caller.client
        never = later = ""
        if client.is_limited:
            never = client.why_not(self.group, call.method, NEEDS[call.what])
            if not never:
                later = client.why_not_now(call.count, self._port.loop.time())
        if never:
            self._refused(caller, call, never)
        elif later:
            self._port.events.count("port.calls_over_rate")
        if self.is_audited:
            self._calls.append(msgspec.structs.replace(call, refused=never or later))
        return never, later

    def note(self, call: AskedCall) -> None:
        """Note something that nobody is refused."""
        if self.is_audited:
            self._calls.append(call)

    def report(self, caller: Caller, context: Context) -> None:
        """Have what was noted written down with this turn."""
        if self._calls:
            calls, self._calls = self._calls, []
            context.report(
                CallsAsked(
                    group=context.group,
                    member=context.me,
                    at=context.now,
                    client=caller.client.name,
                    address=caller.address,
                    calls=calls,
                )
            )

    def _admits(  # noqa: PLR0913, PLR0917 -- what a call has
        self, caller: Caller, what: str, method: str, session: int, request: int, count: int = 1
    ) -> bool:
        call = AskedCall(what, method, session, request, count, "", "")
        never, later = self.judge(caller, call)
        return self._tell(caller, session, request, never, later)

    def _admits_session(self, caller: Caller, token: int) -> bool:
        """Say whether a session may be opened; sessions are for updates, and few are kept."""
        client = caller.client
        never = later = ""
        if client.is_limited:
            if not client.may_update(self.group):
                never = f"{client} may make no updates in {self.group}, and needs no session"
            else:
                later = client.why_not_now(1, self._port.loop.time())
        return self._tell(caller, 0, token, never, later)

    @staticmethod
    def _tell(caller: Caller, session: int, request: int, never: str, later: str) -> bool:
        if never:
            caller.refuse(Refusal(session, request, NOT_ALLOWED, never))
        elif later:
            caller.answer(Answer(session, request, NotTaken(later), Standing.NON_PRIMARY))
        return not never and not later

    def _refused(self, caller: Caller, call: AskedCall, reason: str) -> None:
        self._port.events.warn(
            "call refused",
            counter="port.calls_not_allowed",
            client=caller.client.name,
            address=caller.address,
            group=self.group,
            call=f"{call.what} {call.method[:_NAME_CHARS_MAX]}",
            reason=reason,
        )


_NAME_CHARS_MAX = 64


def _length(arguments: msgspec.Raw) -> int:
    """Give how many calls are packed together; what cannot be read will be refused, as one."""
    try:
        return len(decode_parts(arguments))
    except msgspec.DecodeError:
        return 1
