"""How views find each other and merge (**objects** section 4.2, figure 12).

The contact of a view, its first member, tells everyone in the configuration that the view
exists. Of two contacts that hear of each other the layer above chooses who proposes the joint
view; the other asks it to (merge request). A proposer waits a moment for further requests, so
that many views merge at once.

The same message tells a member that has been left behind so: it sees that members of its view
are in a later view without it. Members that did not answer a proposal are shunned for a while,
longer each time, or a healthy view would stop again and again for one that cannot follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.layers import Side
from coterie.membership.messages import Alive, MergeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.views import Member
    from coterie.membership.vsync import Vsync


_PLAIN_MEMBER_TICKS = 10
"""How many times rarer a plain member tells its own view where it is than the contact does."""


class Discovery:
    """Everything a member does about members that are not in its view."""

    def __init__(self, vsync: Vsync) -> None:
        self._vsync = vsync
        self._context = vsync.context
        self._merges: dict[Member, MergeRequest] = {}
        self._merges_due = False
        self._shunned: dict[Member, tuple[int, int]] = {}
        self._greeted: set[str] = set()
        self._ticks = 0

    def start(self) -> None:
        """Begin to look for other views."""
        self._tick()

    @property
    def _is_contact(self) -> bool:
        vsync = self._vsync
        return (
            vsync.current.members[0] == vsync.me
            and not vsync.multicast.is_frozen
            and not vsync.has_left
        )

    def _everyone(self) -> list[str]:
        return [id for id in self._vsync.configuration.everyone if id != self._vsync.me.id]

    def _tick(self) -> None:
        if self._vsync.has_left:
            return
        self._say_alive(self._everyone())
        self._ticks += 1
        if self._ticks % _PLAIN_MEMBER_TICKS == 0 and not self._is_contact:
            # Whoever has gone on without us, and cannot reach us through its contact, answers.
            self._tell_where_we_are(self._vsync.multicast.others)
        self._vsync.consider_soon()
        self._context.set_timer("alive", self._context.settings.alive_interval, self._tick)

    def greet_new(self) -> None:
        """Tell replicas that have just come into reach at once that our view exists."""
        reached = {id for id in self._everyone() if self._context.reaches(id)}
        self._say_alive(sorted(reached - self._greeted))
        self._greeted = reached

    def _say_alive(self, replicas: list[str]) -> None:
        if self._is_contact:
            self._tell_where_we_are(replicas)

    def _tell_where_we_are(self, replicas: list[str]) -> None:
        vsync = self._vsync
        value = vsync.above.alive_value()
        vsync.send(replicas, Alive(vsync.current.id, vsync.current.members, value))

    def on_alive(self, sender: Member, message: Alive) -> None:
        """Learn of another view, or that ours has gone on without us."""
        vsync = self._vsync
        mine = vsync.current
        vsync.note_number(message.view)
        if message.view == mine.id:
            return
        vsync.above.alive_heard(message.value)
        vsync.note_departed(
            [
                member
                for member in mine.members
                if member.id == sender.id and member.incarnation < sender.incarnation
            ]
        )
        shared = [member for member in mine.members if member in message.members]
        if message.view > mine.id and message.view != vsync.change.promised:
            # They went on to a view that we are not about to install.
            vsync.note_departed(shared)
        elif shared and message.view < mine.id:
            # They are behind, and some who they think are with them are with us: let them know.
            # Only who is ahead answers, or two could answer each other for ever.
            self._tell_where_we_are([sender.id])
        elif not shared and self._may_not_know_our_contact(sender):
            self._tell_where_we_are([sender.id])
        # Views that share members do not merge: the side left behind first forms its own.
        if not shared and sender in message.members[:1]:
            self._meet(sender, message)

    def _may_not_know_our_contact(self, sender: Member) -> bool:
        """Say whether we should speak for our contact: who joins may know a few of us only."""
        contact = self._vsync.current.members[0]
        return (
            self._vsync.configuration.number > 1
            and contact != self._vsync.me
            and not self._context.in_touch(sender.id, contact.id)
        )

    def _meet(self, sender: Member, message: Alive) -> None:
        vsync = self._vsync
        if not self._is_contact or self.is_shunned(sender) or not self._context.reaches(sender.id):
            return
        ours = Side(vsync.me, vsync.current.id, vsync.current.members, vsync.above.alive_value())
        theirs = Side(sender, message.view, message.members, message.value)
        decision = vsync.above.proposes_merge(ours, theirs)
        if decision is True:
            self._say_alive([sender.id])
        elif decision is False and not self._context.timer_is_set("merge"):
            vsync.send([sender.id], MergeRequest(ours.view, ours.members, ours.value))
            self._context.set_timer("merge", self._context.settings.merge_timeout, _nothing)

    def on_merge_request(self, sender: Member, message: MergeRequest) -> None:
        """Gather a request to join us."""
        vsync = self._vsync
        vsync.note_number(message.view)
        if not self._is_contact or sender not in message.members:
            return
        if any(member in vsync.current.members for member in message.members):
            self._tell_where_we_are([sender.id])
            return
        ours = Side(vsync.me, vsync.current.id, vsync.current.members, vsync.above.alive_value())
        theirs = Side(sender, message.view, message.members, message.value)
        if vsync.above.proposes_merge(ours, theirs) is None:
            return
        self._merges[sender] = message
        if not self._context.timer_is_set("gather"):
            self._context.set_timer("gather", self._context.settings.merge_gather, self._gathered)

    def _gathered(self) -> None:
        self._merges_due = True
        self._vsync.consider_soon()

    def due_merges(self) -> list[Member]:
        """Give, once, the members of the views that asked to merge, contacts first."""
        if not self._merges_due:
            return []
        self._merges_due = False
        merges, self._merges = self._merges, {}
        known = {member.id for member in self._vsync.current.members}
        newcomers: dict[str, Member] = {}
        for request in merges.values():
            for member in request.members:
                seen = newcomers.get(member.id)
                if member.id not in known and (seen is None or seen < member):
                    newcomers[member.id] = member
        return list(newcomers.values())

    # ---- members that did not answer

    def shun(self, member: Member) -> None:
        """Leave a member out for a while, twice as long as the last time."""
        settings = self._context.settings
        _, last = self._shunned.get(member, (0, 0))
        wait = min(max(settings.shun_min, 2 * last), settings.shun_max)
        # Only the latest life of a replica matters, so there is at most one entry for each.
        for other in [other for other in self._shunned if other.id == member.id]:
            del self._shunned[other]
        self._shunned[member] = (self._context.now + wait, wait)

    def is_shunned(self, member: Member) -> bool:
        """Say whether a member is to be left out at present."""
        until, _ = self._shunned.get(member, (0, 0))
        return self._context.now < until

    def forgive(self, members: Iterable[Member]) -> None:
        """Members that took part in a view change are good again."""
        for member in members:
            self._shunned.pop(member, None)


def _nothing() -> None:
    """A timer that only has to have run out."""
