"""Sessions with a stack: what makes a call exactly-once.

A session is known to the group by an id and numbers its requests from 1; replicas remember the
outcomes of a *window* of them. The client says with every request below which number it will
never ask again, and keeps its outstanding numbers within the window, so that no replica ever has
to refuse one. If the group has forgotten the session (evicted for others, or closed by an
operator), another is opened, and what surely was not executed goes on in that one.

Calls that find no room wait here, in order, until there is some or their deadline passes.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from coterie.client.deadlines import check_deadline
from coterie.client.errors import NotDone
from coterie.client.requests import GRAIN
from coterie.client.sessions import refuse_red
from coterie.client.updates import BatchRequest, UpdateRequest
from coterie.objects.classes.declared import NO_ERRORS
from coterie.objects.errors import NotAllowed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Sequence

    from coterie.client.group import GroupClient
    from coterie.client.results import OnReordered
    from coterie.kernel.views import Viewstamp
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.objects.execution.commands import Condition

MARGIN = 24
"""How far below the window's limit a client stays."""


class Window:
    """The numbers of one session id."""

    __slots__ = ("id", "limit", "lowest", "numbers", "pending")

    def __init__(self, id: int, window_requests_max: int) -> None:
        self.id = id
        self.limit = max(1, window_requests_max - MARGIN)
        self.numbers = 0
        self.lowest = 1
        self.pending: dict[int, UpdateRequest | BatchRequest] = {}

    def lowest_now(self) -> int:
        """Give the number below which everything is over."""
        lowest = self.lowest
        pending = self.pending
        numbers = self.numbers
        while lowest <= numbers and lowest not in pending:
            lowest += 1
        self.lowest = lowest
        return lowest

    def has_room(self, count: int) -> bool:
        """Say whether so many more requests fit."""
        limit = self.limit
        wanted = self.numbers + count
        return wanted - self.lowest < limit or wanted - self.lowest_now() < limit


class ClientSession:
    """One session of a client, through all ids it may come to have."""

    batch_kind: ClassVar = BatchRequest

    def __init__(self, client: GroupClient) -> None:
        self.queue: deque[UpdateRequest | BatchRequest] = deque()
        self.window: Window | None = None
        self._client = client
        self._opening: asyncio.Future[object] | None = None

    # ---- calling

    def call(  # noqa: PLR0913 -- a call has these parts
        self,
        method: str,
        arguments: bytes,
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        deadline: float | None = None,
        is_detailed: bool = False,
        majority: bool = False,
        colour: str = "green",
        conditions: tuple[Condition, ...] = (),
        on_reordered: OnReordered | None = None,
    ) -> asyncio.Future[object]:
        """Make a call; the future is done when its outcome is known."""
        refuse_red(colour)
        del on_reordered  # what is not red has one outcome
        client = self._client
        loop = client.loop
        future = loop.create_future()
        now = loop.time()
        allowed = client.settings.deadline if deadline is None else check_deadline(deadline)
        request = UpdateRequest(
            client, future, now + allowed, self, method, arguments, decode, is_detailed
        )
        if errors is not NO_ERRORS:
            request.errors = errors
        if conditions:
            request.rest_on(conditions)
        if majority:
            request.votes = {}
        window = self.window
        if window is None or self.queue or not window.has_room(1) or not client.has_room:
            self._enter(request, 1)
            return future
        client.begin(request)
        window.numbers = number = window.numbers + 1
        request.window = window
        request.number = number
        window.pending[number] = request
        client.send_first(request, now)
        return future

    def call_many(
        self,
        method: str,
        arguments: Sequence[bytes],
        decode: Callable[[bytes], object],
        *,
        errors: DeclaredErrors = NO_ERRORS,
        deadline: float | None = None,
    ) -> asyncio.Future[object]:
        """Make calls together, 1 to `batch_max`; gives a list of results and exceptions."""
        if not 1 <= len(arguments) <= self.batch_max:
            raise ValueError(f"{len(arguments)} calls are no batch: give 1 to {self.batch_max}")
        client = self._client
        future = client.loop.create_future()
        until = client.until(deadline)
        request = self.batch_kind(client, future, until, self, method, arguments, decode)
        request.errors = errors
        self._enter(request, len(arguments))
        return future

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
        """Execute a query at one replica; it changes nothing, so it needs no session."""
        return self._client.query(
            method,
            arguments,
            decode,
            errors=errors,
            level=level,
            not_before=not_before,
            deadline=deadline,
            is_detailed=is_detailed,
        )

    @property
    def batch_max(self) -> int:
        """How many calls can be made together."""
        return self._client.window_requests_max // 4

    def _enter(self, request: UpdateRequest | BatchRequest, count: int) -> None:
        client = self._client
        window = self.window
        if window is not None and not self.queue and window.has_room(count) and client.has_room:
            client.begin(request)
            self._begin(request, window, count)
        else:
            if not client.may_wait:
                raise NotDone(
                    f"{client.settings.queue_max} calls wait in this client already (queue_max)"
                )
            client.enqueue(request)
            self.queue.append(request)
            if window is None:
                self.open()

    def _begin(self, request: UpdateRequest | BatchRequest, window: Window, count: int) -> None:
        first = window.numbers + 1
        window.numbers += count
        request.window = window
        if isinstance(request, UpdateRequest):
            request.number = first
            window.pending[first] = request
        else:
            request.first = first
            for number in range(first, first + count):
                window.pending[number] = request
        self._client.send(request)

    def pump(self) -> None:
        """Let waiting calls begin while there is room."""
        queue = self.queue
        client = self._client
        now = client.loop.time() + GRAIN
        while queue:
            request = queue[0]
            if request.is_over:
                queue.popleft()
                continue
            if request.deadline <= now:
                return  # it is about to be given up, and should not be sent any more
            count = len(request.results) if isinstance(request, BatchRequest) else 1
            window = self.window
            if window is None or not window.has_room(count) or not client.has_room:
                return
            queue.popleft()
            client.begin(request)
            self._begin(request, window, count)

    # ---- opening

    def open(self) -> asyncio.Future[object]:
        """Have the group give us an id; done when it has."""
        if self._opening is None:
            self._opening = self._client.open_window()
            self._opening.add_done_callback(self._opened)
        return self._opening

    def _opened(self, opening: asyncio.Future[object]) -> None:
        self._opening = None
        refusal = None if opening.cancelled() else opening.exception()
        if isinstance(refusal, NotAllowed):
            while self.queue:  # it would be refused again
                self.queue.popleft().end(error=refusal)
            return
        if opening.cancelled() or refusal is not None:
            # Calls that wait have deadlines of their own; as long as one does, go on.
            if any(not request.is_over for request in self.queue):
                self.open()
            return
        id = opening.result()
        assert isinstance(id, int)
        self.window = self._client.add_window(self, id)
        self.pump()

    def move(self, request: UpdateRequest) -> None:
        """Make a call, which was surely not executed, in a new session."""
        window = request.window
        assert window is not None
        window.pending.pop(request.number, None)
        request.window = None
        request.number = 0
        request.attempts = request.refusals = 0
        request.channel = None
        self._client.unbegin(request)
        self._client.enqueue(request)
        self.queue.appendleft(request)
        self.renew(window)
        self.pump()

    def renew(self, window: Window | None) -> None:
        """The group does not know this window's session: open another."""
        if window is not None and self.window is window:
            self.window = None
            self._client.remove_window(window)
            self.open()

    def close(self) -> None:
        """Tell the group that the session is not needed any more."""
        self._client.remove_session(self)


@asynccontextmanager
async def open_calls(client: GroupClient) -> AsyncIterator[ClientSession]:
    """Give a session; it is closed with its client."""
    yield client.session()
