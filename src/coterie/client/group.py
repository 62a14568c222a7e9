"""A client of one group: how a request comes to its outcome through the faults of replicas.

A request without an answer for a while is made again at another replica; it waits longer where
the replica answers others, because that one is busy, not gone. A request that was not taken is
made again after a pause. When a connection is lost, or a replica says that it may have passed
over an answer, everything asked for there is asked for again. All of it ends with the request's
deadline.

No task and no timer belongs to a single request: one timer stands for the earliest moment at
which something must be done about any of them.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from coterie.client.access import Access
from coterie.client.deadlines import check_deadline
from coterie.client.errors import NotDone
from coterie.client.replicas import Replicas
from coterie.client.requests import (
    GRAIN,
    OpenRequest,
    QueryRequest,
    ReportRequest,
    TokenRequest,
)
from coterie.client.sessions.stack import ClientSession, Window
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS, ClientSettings
from coterie.client.updates import BatchRequest, UpdateRequest
from coterie.objects.classes.declared import NO_ERRORS
from coterie.objects.errors import CommandTooLarge
from coterie.objects.execution.outcomes import NotTaken, Opened
from coterie.protocol.messages import (
    TOKEN_MAX,
    AskAgain,
    News,
    Refusals,
    Reported,
    RolledBackNotice,
    SettledNotice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.client.channel import Channel
    from coterie.client.requests import Request
    from coterie.kernel.views import Viewstamp
    from coterie.objects import Answer, Done, Failed
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.protocol.messages import FromReplica, Refusal, Report, Welcome

REFUSALS_MAX = 3
"""How often a replica that says it takes updates may refuse one before another is sought."""
PATIENCE = 4
"""How many times longer a request waits where other answers come."""
LATE = "no outcome by the deadline"
FEW = 8
"""With so many calls outstanding a client asks for much: it then spreads the load."""

FRAME_BYTES_AROUND = 1024
"""Room in a frame for what stands around the arguments of a call."""


class GroupClient:
    """The client; `open` before use, `close` afterwards."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        group: str = "",
        access: Access | None = None,
        settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
    ) -> None:
        self.access = Access() if access is None else access
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.group = group
        self.welcome: Welcome | None = None
        """The first welcome: what does not change from replica to replica."""
        self.replicas = Replicas(
            self, addresses, group=group, access=self.access, settings=settings
        )
        self._random = Random()  # noqa: S311 -- spreads attempts in time, protects nothing
        self._is_closed = False
        # Requests that are not over, and how many of them have begun.
        self._live: dict[Request, None] = {}
        self._begun = 0
        self._begun_bytes = 0
        self._size_max = 0
        """What a request may take at most; known once we were made welcome."""
        self._tokens: dict[int, TokenRequest] = {}
        self._token = 0
        self._windows: dict[int, Window] = {}
        self._sessions: dict[ClientSession, None] = {}
        self._queued: dict[ClientSession, None] = {}
        """The sessions in which calls wait."""
        self._unsettled: dict[Channel, list[tuple[Done | Failed, UpdateRequest]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # ---- opening and closing

    async def open(self, deadline: float | None = None, *, spread: bool = True) -> None:
        """Find a replica; raise `NotWelcome` if none will have us, `NotDone` at the deadline.

        Without *spread*, stay with the first that answers.
        """
        wait = self.settings.deadline if deadline is None else check_deadline(deadline)
        try:
            async with asyncio.timeout(wait):
                await self.replicas.find_home()
                if spread:
                    await self.replicas.spread()
        except TimeoutError:
            reason = self.replicas.last_reason
            raise NotDone(f"no replica answered within {wait} s: {reason}") from None

    async def close(self) -> None:
        """End all sessions and connections; calls that have no outcome get one now."""
        self._is_closed = True
        for request in list(self._live):
            request.give_up("the client was closed")
        home = self.replicas.home
        if home is not None and home.is_ready:
            home.parcel().closes.extend(self._windows)
        if self._timer is not None:
            self._timer.cancel()
        await self.replicas.close()

    # ---- what users ask for

    @property
    def majority(self) -> int:
        """How many replicas are a majority."""
        assert self.welcome is not None
        return self.welcome.majority

    @property
    def window_requests_max(self) -> int:
        """How many results a session keeps."""
        assert self.welcome is not None
        return self.welcome.window_requests_max

    def until(self, deadline: float | None) -> float:
        """Give the moment at which a call that begins now must have an outcome."""
        return self.loop.time() + (
            self.settings.deadline if deadline is None else check_deadline(deadline)
        )

    def session(self) -> ClientSession:
        """Give a further session, which shares the connections."""
        session = ClientSession(self)
        self.add_session(session)
        return session

    def add_session(self, session: ClientSession) -> None:
        """Take a further session, which shares the connections."""
        self._sessions[session] = None

    def query(  # noqa: PLR0913 -- a query has these parts
        self,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        level: str = "consistent",
        not_before: Viewstamp | None = None,
        deadline: float | None = None,
        is_detailed: bool = False,
    ) -> asyncio.Future[object]:
        """Execute a query at one replica."""
        future = self.loop.create_future()
        request = QueryRequest(
            self,
            future,
            self.until(deadline),
            self._new_token(),
            method,
            arguments,
            decode,
            level,
            not_before,
            is_detailed,
        )
        request.errors = errors
        self._ask(request)
        return future

    async def report(self, deadline: float | None = None) -> Report:
        """Have the replica we are with report on itself and its group."""
        future = self.loop.create_future()
        self._ask(ReportRequest(self, future, self.until(deadline), self._new_token()))
        report: Report = await future
        return report

    def _ask(self, request: TokenRequest) -> None:
        if not self.may_wait:
            raise NotDone(f"{self.settings.queue_max} calls wait in this client (queue_max)")
        self._tokens[request.token] = request
        self.begin(request)
        self.send(request)

    def _new_token(self) -> int:
        self._token = self._token % TOKEN_MAX + 1
        return self._token

    # ---- what sessions ask for

    @property
    def has_room(self) -> bool:
        """Whether another request may be outstanding."""
        settings = self.settings
        return (
            self._begun < settings.in_flight_max
            and self._begun_bytes < settings.in_flight_bytes_max
            and not self._is_closed
        )

    @property
    def may_wait(self) -> bool:
        """Whether another call may wait in this client."""
        return len(self._live) < self.settings.queue_max

    def enqueue(self, request: UpdateRequest | BatchRequest) -> None:
        """Watch the deadline of a call that waits in its session."""
        if self._is_closed:
            raise NotDone("the client is closed")
        self._check_size(request)
        self._live[request] = None
        self._queued[request.session] = None
        request.check_at = request.deadline
        self._check_by(request.deadline)

    def begin(self, request: Request) -> None:
        """Count a request that is about to be sent."""
        if self._is_closed:
            raise NotDone("the client is closed")
        if request.size > self._size_max:
            self._check_size(request)
        self._live[request] = None
        self._begun += 1
        self._begun_bytes += request.size
        if self._begun == FEW:
            self.replicas.spread_out()

    def _check_size(self, request: Request) -> None:
        """Refuse at once what no frame can carry: the replica would hang up on all calls."""
        assert self.welcome is not None, "requests are made once we were made welcome"
        room = self.welcome.frame_bytes_max - FRAME_BYTES_AROUND
        if request.size > room:
            raise CommandTooLarge(
                f"the arguments take {request.size} bytes, and a frame carries {room} "
                "(frame_bytes_max of the clients' port): send less at a time"
            )

    def unbegin(self, request: Request) -> None:
        """Take `begin` back: it will begin again."""
        self._begun -= 1
        self._begun_bytes -= request.size
        request.check_at = request.deadline

    def open_window(self) -> asyncio.Future[object]:
        """Have the group open a session; gives its id."""
        future = self.loop.create_future()
        self._ask(OpenRequest(self, future, self.until(None), self._new_token()))
        return future

    def add_window(self, session: ClientSession, id: int) -> Window:
        """Note a session that was opened."""
        window = self._windows[id] = Window(id, self.window_requests_max)
        if session not in self._sessions:  # closed meanwhile
            self.close_window(id)
        return window

    def remove_window(self, window: Window) -> None:
        """Forget a session that the group has forgotten, unless answers may still come."""
        if not window.pending:
            self._windows.pop(window.id, None)

    def remove_session(self, session: ClientSession) -> None:
        """Forget a session, and let the group forget it."""
        self._sessions.pop(session, None)
        if session.window is not None:
            self.close_window(session.window.id)

    def close_window(self, id: int) -> None:
        """Forget a session id, and let the group forget it."""
        self._windows.pop(id, None)
        home = self.replicas.home
        if home is not None and home.is_ready:
            home.parcel().closes.append(id)

    def finished(self, request: Request) -> None:
        """Forget a request that is over, and let those that wait begin."""
        self._live.pop(request, None)
        if request.release():
            self._begun -= 1
            self._begun_bytes -= request.size
        if self._queued and self.has_room:
            self._pump()

    def free(self, token: int) -> None:
        """Forget a request's token: nobody waits for its answer."""
        self._tokens.pop(token, None)

    def _pump(self) -> None:
        for session in list(self._queued):
            session.pump()
            if not session.queue:
                del self._queued[session]
            if not self.has_room:
                return

    # ---- sending

    def send_first(self, request: UpdateRequest, now: float) -> None:
        """Make a call for the first time, *now*: what most calls need, and nothing else."""
        home = self.replicas.home
        timer = self._timer
        if (
            home is None
            or not home.is_ready
            or home.is_suspect
            or timer is None
            or request.votes is not None
        ):
            self.send(request)
            return
        deadline = request.deadline
        wait = (deadline - now) / 4
        hedge_after = self.settings.hedge_after
        request.wait = wait = min(hedge_after, wait)
        request.channel = home
        request.attempts = 1
        request.sent_at = now
        home.add(request)
        request.check_at = check_at = now + wait
        if check_at < self._timer_at:
            self._check_by(check_at)

    def send(self, request: Request, channel: Channel | None = None) -> None:
        """Make a request at the best replica, other than the last one if there is a choice."""
        if channel is None:
            channel = self.replicas.choose(request.channel)
        now = self.loop.time()
        settings = self.settings
        if not request.wait:
            request.wait = min(settings.hedge_after, (request.deadline - now) / 4)
        elif request.attempts:
            wait = request.wait * 2 * self._random.uniform(0.75, 1.25)
            request.wait = min(wait, 4 * settings.hedge_after)
        request.channel = channel
        request.is_resting = False
        if channel is None:
            self.replicas.seek()
        else:
            request.attempts += 1
            request.sent_at = now
            channel.add(request)
            if isinstance(request, UpdateRequest) and request.votes is not None:
                self._watch_elsewhere(request)
        request.check_at = check_at = min(now + request.wait, request.deadline)
        if self._timer is None or check_at < self._timer_at:
            self._check_by(check_at)

    def _watch_elsewhere(self, request: UpdateRequest) -> None:
        """Have the other replicas answer, too, so that a majority can be counted."""
        self.replicas.want_all()
        for channel in self.replicas.ready():
            self._watch_at(request, channel)

    def _watch_at(self, request: UpdateRequest, channel: Channel) -> None:
        if channel is not request.channel and channel not in request.watched_at:
            assert request.window is not None
            request.watched_at += (channel,)
            channel.parcel().watches.append((request.window.id, request.number))

    def try_later(self, request: Request, channel: Channel, reason: str) -> None:
        """Make a request again after a pause: it was not taken."""
        request.reason = f"replica {channel.replica!r} says: {reason}"
        if not channel.is_primary or request.refusals >= REFUSALS_MAX:
            self.replicas.suspect(channel)
        settings = self.settings
        pause = min(settings.retry_first * 2 ** min(request.refusals, 20), settings.retry_max)
        now = self.loop.time()
        at = now + pause * self._random.uniform(0.5, 1.5)
        request.check_at = min(at, request.check_at, request.deadline)
        self._check_by(request.check_at)

    def follow(self, request: UpdateRequest, channel: Channel, outcome: Done | Failed) -> None:
        """Tell the request when an outcome is settled or rolled back where it was answered."""
        self._unsettled.setdefault(channel, []).append((outcome, request))
        if request.votes is None:
            request.deadline = self.loop.time() + self.settings.settle_max
            request.check_at = request.deadline
            self._check_by(request.deadline)

    def rest(self, request: Request) -> None:
        """Ask no more for what is on record where it was asked: its answer comes by itself."""
        request.is_resting = True
        wait = PATIENCE * self.settings.hedge_after
        request.check_at = min(self.loop.time() + wait, request.deadline)
        self._check_by(request.check_at)

    # ---- the clock

    def _check_by(self, when: float) -> None:
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_at(when, self._sweep)

    def _sweep(self) -> None:
        """Do what is due for every request, and find out when something is due next."""
        self._timer = None
        now = self.loop.time() + GRAIN
        for request in list(self._live):
            if request.check_at <= now and not request.is_over:
                self._check(request, now)
        if self._live and not self._is_closed:
            self._check_by(min(request.check_at for request in self._live))

    def _check(self, request: Request, now: float) -> None:
        if request.future.cancelled():
            request.end()  # the caller has gone away
        elif now >= request.deadline:
            if request.channel is None and not request.reason and request.attempts == 0:
                request.reason = self.replicas.last_reason
            request.give_up(LATE)
        elif isinstance(request, UpdateRequest | BatchRequest) and request.window is None:
            request.check_at = request.deadline  # it waits in its session
        elif request.is_resting:
            self._look_after(request)
        else:
            self._ask_elsewhere(request, now)

    def _look_after(self, request: Request) -> None:
        """Ask where the primary component is, if a request rests elsewhere and may leave."""
        channel = request.channel
        assert channel is not None, "it rests where it was asked"
        if channel.is_ready and channel.is_primary:
            self.send(request, channel)  # it is known there by now
            return
        if not request.wants_red:
            self.replicas.suspect(channel)
            home = self.replicas.home
            if home is not None and home.is_ready and home.is_primary:
                self.send(request, home)
                return
        self.rest(request)

    def _ask_elsewhere(self, request: Request, now: float) -> None:
        channel = request.channel
        if channel is not None and channel.is_ready and request.attempts > request.refusals:
            if channel.answered_at <= now - request.wait:
                self.replicas.suspect(channel)
            elif not self._has_waited_enough(request, now):
                return
        self.send(request)

    def _has_waited_enough(self, request: Request, now: float) -> bool:
        """Be more patient where the replica answers others, and have another one at hand.

        Were all requests made again elsewhere because all are slow, they would be slower still.
        """
        settings = self.settings
        patience = min(PATIENCE * settings.hedge_after, (request.deadline - request.sent_at) / 2)
        until = request.sent_at + patience
        if now < until:
            request.check_at = min(now + request.wait, until)
            return False
        if not self.replicas.has_spare():
            request.check_at = min(now + settings.retry_first, request.deadline)
            return False
        return True

    # ---- what channels report

    def on_ready(self, channel: Channel) -> None:
        welcome = channel.welcome
        assert welcome is not None
        if self.welcome is None:
            self.welcome = welcome
            self.group = welcome.group
            self._size_max = welcome.frame_bytes_max - FRAME_BYTES_AROUND
        self.replicas.learn(welcome.peers)
        self.replicas.on_ready(channel)
        for request in list(self._live):
            if isinstance(request, UpdateRequest | BatchRequest) and request.window is None:
                continue  # it waits in its session
            last = request.channel
            if request.is_resting and last is not None and last.is_ready:
                continue
            if last is None or last.is_suspect or not last.is_ready:
                self.send(request, channel)
            elif isinstance(request, UpdateRequest) and request.votes is not None:
                self._watch_at(request, channel)

    def on_lost(self, channel: Channel) -> None:
        self._unsettled.pop(channel, None)
        self.replicas.on_lost(channel)
        if self._is_closed:
            return
        for request in list(self._live):
            if request.channel is channel and not request.is_over:
                request.reason = self.replicas.last_reason
                if isinstance(request, UpdateRequest):
                    request.void()
                self.send(request)

    def on_answers(self, channel: Channel, answers: Sequence[Answer]) -> None:
        windows, tokens = self._windows, self._tokens
        if answers and type(answers[-1].outcome) is not NotTaken:
            channel.answered_at = channel.read_at
            if channel.is_suspect and channel.is_primary:
                channel.is_suspect = False
        for answer in answers:
            session = answer.session
            request: Request | None
            if session:
                window = windows.get(session)
                request = window.pending.get(answer.request) if window is not None else None
            else:
                request = tokens.get(answer.request)
                if request is None and isinstance(answer.outcome, Opened):
                    # Opened twice, because the first answer was late.
                    channel.parcel().closes.append(answer.outcome.session)
            if request is not None:
                request.answered(channel, answer)

    def on_message(self, channel: Channel, message: FromReplica) -> None:
        match message:
            case Refusals(refusals=refusals):
                for refusal in refusals:
                    self._refused(refusal)
            case SettledNotice(position=position):
                self._settle(channel, position)
            case RolledBackNotice(position=position):
                self._roll_back(channel, position)
            case AskAgain():
                self._ask_again(channel)
            case News(peers=peers):
                self.replicas.learn(peers)
                if not channel.is_primary:
                    self.replicas.prefer_another(channel)
            case Reported(token=token, report=report):
                asked = self._tokens.get(token)
                if isinstance(asked, ReportRequest):
                    asked.end(report)
            case _:
                pass

    def _refused(self, refusal: Refusal) -> None:
        request: Request | None
        if refusal.session:
            window = self._windows.get(refusal.session)
            request = window.pending.get(refusal.request) if window is not None else None
        else:
            request = self._tokens.get(refusal.request)
        if request is not None:
            request.refused(refusal)

    def _ask_again(self, channel: Channel) -> None:
        self._unsettled.pop(channel, None)
        for request in list(self._live):
            if request.channel is channel and not request.is_over:
                self.send(request, channel)

    def _settle(self, channel: Channel, position: int) -> None:
        waiting = self._unsettled.get(channel)
        if waiting:
            self._unsettled[channel] = [each for each in waiting if each[0].position > position]
            for outcome, request in waiting:
                if outcome.position <= position:
                    request.settle(outcome)

    def _roll_back(self, channel: Channel, position: int) -> None:
        waiting = self._unsettled.get(channel)
        if waiting:
            self._unsettled[channel] = [each for each in waiting if each[0].position <= position]
            for outcome, request in waiting:
                if outcome.position > position and not request.is_over:
                    request.void()
                    self.send(request)
