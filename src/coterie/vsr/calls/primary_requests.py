"""Requests to the primaries of groups: found, sent, and sent again until answered.

The location service of the paper is a directory here, from the names of groups to their
configurations; which cohort leads is learned from the cohorts, and remembered (section 3), and so
is who belongs to a group after its members have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.kernel.clock import Instant
from coterie.kernel.errors import CoterieError
from coterie.vsr.calls.messages import Elsewhere, WhereIs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from coterie.kernel.clock import Duration
    from coterie.kernel.layers import Context
    from coterie.kernel.views import ChangedConfiguration, Configuration, ReplicaId, ViewId
    from coterie.vsr.settings import VsrSettings

_RESEND = "vsr requests"
_DOUBT_AFTER = 3
"""After so many requests without an answer the primary may be another one."""
_DOUBLINGS_MAX = 3
"""From then on the pauses double, so often: a primary that is only slow is not made slower."""

RequestKey = tuple[object, ...]


class UnknownGroup(CoterieError):
    """There is no group of that name in the directory."""


class Whereabouts(NamedTuple):
    """The latest view of a group that was heard of, and its primary."""

    view: ViewId
    primary: ReplicaId


class _Request:
    __slots__ = ("deadline", "due", "group", "make", "moved", "on_timeout", "sent_in", "tries")

    def __init__(
        self,
        group: str,
        make: Callable[[ViewId], msgspec.Struct],
        deadline: Instant | None,
        on_timeout: Callable[[], None] | None,
        moved: Callable[[], None] | None,
    ) -> None:
        self.group = group
        self.make = make
        self.deadline = deadline
        self.on_timeout = on_timeout
        self.moved = moved
        self.sent_in: ViewId | None = None
        self.tries = 0
        self.due = Instant(0)
        """When it is to be sent again."""


class PrimaryRequests:
    """The requests of one actor that have no answer yet."""

    def __init__(
        self,
        context: Context,
        directory: Mapping[str, Configuration],
        settings: VsrSettings,
    ) -> None:
        self._context = context
        self._directory = directory
        self._in_vain: dict[str, int] = {}
        """How many times the cohorts of a group were asked without an answer."""
        self._members: dict[str, ChangedConfiguration] = {}
        """Who belongs to groups of the directory whose members have changed."""
        self._settings = settings
        self._requests: dict[RequestKey, _Request] = {}
        self._known: dict[str, Whereabouts] = {}
        self._asked: dict[str, Instant] = {}
        """When the cohorts of a group were last asked where their primary is."""
        self._hear_of_all()

    def ask(  # noqa: PLR0913 -- a request has these parts
        self,
        key: RequestKey,
        group: str,
        make: Callable[[ViewId], msgspec.Struct],
        *,
        patience: Duration | None = None,
        on_timeout: Callable[[], None] | None = None,
        moved: Callable[[], None] | None = None,
    ) -> None:
        """Send what *make* makes for the view of a group, until `done` is called.

        After *patience* the request is dropped and *on_timeout* called. With *moved* the request
        is never sent in two views: instead it is dropped, and *moved* called.
        """
        if group not in self._directory:
            raise UnknownGroup(f"there is no group {group!r}: the directory does not list it")
        deadline = None if patience is None else Instant(self._context.now + patience)
        request = _Request(group, make, deadline, on_timeout, moved)
        self._requests[key] = request
        self._send(key, request)
        self._resend_later()

    def knows(self, group: str) -> bool:
        """Say whether the directory lists a group."""
        return group in self._directory

    def done(self, key: RequestKey) -> None:
        """Learn that a request is answered."""
        self._requests.pop(key, None)

    def again(self, key: RequestKey) -> None:
        """Send a request once more now, because there is news for it to carry."""
        request = self._requests.get(key)
        if request is not None:
            self._send(key, request)

    def clear(self) -> None:
        """Forget all requests."""
        self._requests.clear()

    def tell(self, group: str, message: msgspec.Struct) -> None:
        """Send to the primary of a group, or to all cohorts if it is not known; once."""
        where = self._known.get(group)
        if where is None:
            self.tell_all(group, message)
        else:
            self._context.send_to(group, [where.primary], message)

    def tell_all(self, group: str, message: msgspec.Struct) -> None:
        """Send to all cohorts of a group, once."""
        configuration = self._members.get(group) or self._directory.get(group)
        if group == self._context.group:
            configuration = self._context.configuration
        if configuration is not None:
            everyone = dict.fromkeys((*configuration.members, *configuration.before))
            self._context.send_to(group, list(everyone), message)

    def tell_others(self, message: msgspec.Struct) -> None:
        """Send to all cohorts of all other groups, once."""
        for group in self._directory:
            if group != self._context.group:
                self.tell_all(group, message)

    def learn(self, message: Elsewhere) -> None:
        """Take news of where a group's primary is; of groups that there are, or it would grow."""
        if not self.knows(message.actor):
            return
        self._learn_members(message)
        self._in_vain.pop(message.actor, None)
        known = self._known.get(message.actor)
        if known is not None and message.view <= known.view:
            return
        self._known[message.actor] = Whereabouts(message.view, message.primary)
        for key, request in list(self._requests.items()):
            if request.group == message.actor:
                request.tries = 0
                self._send(key, request)

    def _learn_members(self, message: Elsewhere) -> None:
        to, group = message.configuration, message.actor
        known = self._members.get(group)
        if to is not None and (known is None or to.number > known.number):
            self._members[group] = to
            self._hear_of_all()

    def _hear_of_all(self) -> None:
        """Have the process know who belongs to all groups: who has left one may be in another."""
        for group, founded in self._directory.items():
            if group != self._context.group:
                self._context.hear_of(group, self._members.get(group, founded))

    def _send(self, key: RequestKey, request: _Request) -> None:
        where = self._known.get(request.group)
        doublings = min(max(request.tries - _DOUBT_AFTER, 0), _DOUBLINGS_MAX)
        pause = self._settings.request_resend << doublings
        # Requests are looked at every so often; one that is almost due then is due.
        request.due = Instant(self._context.now + pause - self._settings.request_resend // 2)
        if where is None or request.tries >= _DOUBT_AFTER:
            self._ask_where(request.group)
        if where is None:
            return
        if request.moved is not None and request.sent_in not in (None, where.view):
            del self._requests[key]
            request.moved()
            return
        request.sent_in = where.view
        request.tries += 1
        self._context.send_to(request.group, [where.primary], request.make(where.view))

    def _ask_where(self, group: str) -> None:
        """Ask where the primary of a group is, once for all requests that are in doubt."""
        now, asked_at = self._context.now, self._asked.get(group)
        if asked_at is None or now - asked_at >= self._settings.request_resend // 2:
            self._asked[group] = now
            self.tell_all(group, WhereIs(self._context.group))
            self._in_vain[group] = in_vain = self._in_vain.get(group, 0) + 1
            if in_vain > _DOUBT_AFTER:
                # Perhaps none of those is there any more that are known here.
                self.tell_others(WhereIs(self._context.group, group))

    def where(self, group: str) -> Elsewhere | None:
        """Say where another group is, as far as is known here."""
        known = self._known.get(group)
        if known is None:
            return None
        return Elsewhere(group, known.view, known.primary, self._members.get(group))

    def _resend_later(self) -> None:
        if self._requests and not self._context.timer_is_set(_RESEND):
            self._context.set_timer(_RESEND, self._settings.request_resend, self._resend)

    def _resend(self) -> None:
        now = self._context.now
        for key, request in list(self._requests.items()):
            if key not in self._requests:
                continue
            if request.deadline is not None and now >= request.deadline:
                del self._requests[key]
                if request.on_timeout is not None:
                    request.on_timeout()
            elif now >= request.due:
                self._send(key, request)
        self._resend_later()
