"""From one view to the next: propose, flush, cut, ready, install.

1. The first member (by rank) that all seems to depend on proposes a view to its members.
2. Each member that agrees *stops*: it passes nothing more up in its old view, acknowledges
   nothing more there, and answers with what it has received and what it knows to be stable. It
   promises itself to this view; only a higher view id can win it back.
3. For those who come from one old view the proposer computes the *cut*, the most that any of
   them has of each sender. Who lacks something fetches it from a member that has it and says
   it is ready. When nobody lacks anything this step is skipped.
4. When all are ready the proposer installs the view. So when a member delivers the rest of its
   old view, everyone who comes along is known to have the same packets, which is what safe
   delivery in a transitional view needs.

Every step is repeated until it is answered. A member that does not answer in time is left out
of the next attempt; a proposer that falls silent is replaced. A member that has stopped never
goes back to its old view: in the worst case it goes on alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import BadMessage
from coterie.kernel.views import NO_VIEW, Member, ViewId
from coterie.membership.messages import Cut, Flush, Install, Nak, Propose, Ready, Refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coterie.membership.vsync import Vsync


class Proposal:
    """A view that this member tries to form."""

    __slots__ = ("begun_at", "cuts", "flushes", "heard_at", "members", "ready", "view")

    def __init__(self, view: ViewId, members: tuple[Member, ...], begun_at: int) -> None:
        self.view = view
        self.members = members
        self.begun_at = begun_at
        self.heard_at: dict[Member, int] = {}
        self.flushes: dict[Member, Flush] = {}
        self.cuts: dict[ViewId, Cut] = {}
        self.ready: set[Member] = set()

    def silent(self) -> list[Member]:
        """The members whose next answer is missing."""
        answered = self.ready if self.cuts else self.flushes
        return [member for member in self.members if member not in answered]


class ViewChange:
    """Both roles in a view change: the proposer's and every member's."""

    def __init__(self, vsync: Vsync) -> None:
        self._vsync = vsync
        self._context = vsync.context
        self.promised = NO_VIEW
        """The highest view this member has agreed to."""
        self._proposer: Member | None = None
        self._proposer_heard_at = 0
        self._answer: Flush | Ready | None = None
        self._cut: Cut | None = None
        self._proposal: Proposal | None = None
        self._installs: dict[Member, Install] = {}
        self._trouble_since: int | None = None

    @property
    def is_changing(self) -> bool:
        """Whether this member waits for the outcome of a proposal."""
        return self._proposer is not None

    # ---- when to change

    def consider(self) -> None:
        """Propose a view if the current one has to change and that is up to us."""
        vsync = self._vsync
        if vsync.has_left or self.is_changing:
            return
        with_us = [member for member in vsync.current.members if vsync.is_with_us(member)]
        stopped = vsync.multicast.is_frozen
        if not stopped and self._is_whole(with_us):
            self._trouble_since = None
            newcomers = vsync.discovery.due_merges() if with_us[0] == vsync.me else ()
            joined = self._clique(with_us, newcomers)
            if len(joined) > len(with_us) or (vsync.is_to_be_renewed and with_us[0] == vsync.me):
                self._propose(joined)
            return
        if with_us[0] == vsync.me:
            self._propose(self._clique(with_us, vsync.discovery.due_merges()))
            return
        # Those before us in rank should act. Each gets its time, then we go on without them.
        if self._trouble_since is None:
            self._trouble_since = self._context.now
        turn = with_us.index(vsync.me) * self._context.settings.proposer_patience
        if self._context.now - self._trouble_since > turn:
            self._propose(self._clique(with_us[with_us.index(vsync.me) :], ()))

    def _is_whole(self, with_us: Sequence[Member]) -> bool:
        members = self._vsync.current.members
        return len(with_us) == len(members) and len(self._clique(with_us, ())) == len(members)

    def _clique(self, members: Sequence[Member], newcomers: Iterable[Member]) -> list[Member]:
        """Give ourselves and, in rank order, all who are in touch with everyone chosen so far."""
        me = self._vsync.me
        in_touch = self._context.in_touch
        chosen = [me]
        for member in [*members, *newcomers]:
            if all(
                member.id != other.id and in_touch(member.id, other.id) for other in chosen
            ) and not self._vsync.discovery.is_shunned(member):
                chosen.append(member)
        ranks = {member: rank for rank, member in enumerate([*members, *newcomers])}
        return sorted(chosen, key=lambda member: ranks.get(member, -1))

    # ---- the proposer

    def _propose_without(self, left_out: Sequence[Member]) -> None:
        """Try again without some members, and let those go their own way."""
        proposal = self._proposal
        assert proposal is not None
        self._propose([member for member in proposal.members if member not in left_out])
        if self._proposal is not None:
            self._send_all(left_out, Propose(self._proposal.view, self._proposal.members))

    def _propose(self, members: Sequence[Member]) -> None:
        vsync = self._vsync
        assert vsync.me in members
        vsync.highest += 1
        view = ViewId(vsync.highest, vsync.me.id, vsync.me.incarnation)
        proposal = self._proposal = Proposal(view, tuple(members), self._context.now)
        self._installs = {}
        vsync.report_proposal(view, proposal.members)
        self._context.count("vsync.proposals")
        self._trouble_since = None
        message = Propose(view, proposal.members)
        self._send_all(proposal.members, message)
        self.on_propose(vsync.me, message)

    def on_flush(self, sender: Member, message: Flush) -> None:
        """Take the answer of a member that has stopped."""
        proposal = self._proposal
        if proposal is None or message.view != proposal.view:
            self._repeat_install(sender, message.view)
            return
        if sender not in proposal.members or not self._makes_sense(sender, message):
            return
        # A member that is still fetching repeats its flush: a sign of life.
        proposal.heard_at[sender] = self._context.now
        if proposal.cuts:
            return
        proposal.flushes.setdefault(sender, message)
        if len(proposal.flushes) < len(proposal.members):
            return
        apart = _who_must_stay_apart(proposal.flushes, self._vsync.me)
        if apart:
            self._context.count("vsync.laggards_left_out", len(apart))
            self._propose_without(apart)
        else:
            self._decide_cuts(proposal)

    def _makes_sense(self, sender: Member, message: Flush) -> bool:
        """Say whether a flush can be true."""
        width = len(message.previous_members)
        makes_sense = sender in message.previous_members and width == len(message.received) == len(
            message.stable
        )
        vsync = self._vsync
        if makes_sense and message.previous == vsync.current.id:
            makes_sense = vsync.multicast.is_plausible(message.received)
        if not makes_sense:
            self._context.count("vsync.bad_flushes")
        return makes_sense

    def _decide_cuts(self, proposal: Proposal) -> None:
        """Everyone has stopped: compute what each old view's members must have."""
        proposal.begun_at = self._context.now
        groups: dict[ViewId, list[Member]] = {}
        for member in proposal.members:
            groups.setdefault(proposal.flushes[member].previous, []).append(member)
        for previous, members in groups.items():
            vectors = [proposal.flushes[member].received for member in members]
            cut = [max(column) for column in zip(*vectors, strict=True)]
            holders = [
                members[column.index(most)]
                for column, most in zip(zip(*vectors, strict=True), cut, strict=True)
            ]
            proposal.cuts[previous] = Cut(proposal.view, cut, holders)
            proposal.ready.update(
                member for member, vector in zip(members, vectors, strict=True) if vector == cut
            )
        for member in proposal.members:
            if member not in proposal.ready:
                self._send(member, proposal.cuts[proposal.flushes[member].previous])
        self._install_if_ready(proposal)

    def on_ready(self, sender: Member, message: Ready) -> None:
        """Learn that a member has everything up to the cut."""
        proposal = self._proposal
        if proposal is None or message.view != proposal.view:
            self._repeat_install(sender, message.view)
            return
        if proposal.cuts and sender in proposal.members:
            proposal.ready.add(sender)
            self._install_if_ready(proposal)

    def _install_if_ready(self, proposal: Proposal) -> None:
        if self._proposal is not proposal or len(proposal.ready) < len(proposal.members):
            return
        self._proposal = None
        flushes = [proposal.flushes[member] for member in proposal.members]
        previous = tuple(flush.previous for flush in flushes)
        values = tuple(flush.value for flush in flushes)
        configuration = max((flush.configuration for flush in flushes), key=lambda c: c.number)
        self._installs = {}
        for member, flush in zip(proposal.members, flushes, strict=True):
            together = [other for other in flushes if other.previous == flush.previous]
            stable = [
                max(column) for column in zip(*(other.stable for other in together), strict=True)
            ]
            self._installs[member] = Install(
                proposal.view,
                proposal.members,
                previous,
                values,
                configuration,
                proposal.cuts[flush.previous].cut,
                stable,
            )
        for member, install in self._installs.items():
            if member != self._vsync.me:
                self._send(member, install)
        self.on_install(self._vsync.me, self._installs[self._vsync.me])

    def _repeat_install(self, sender: Member, view: ViewId) -> None:
        install = self._installs.get(sender)
        if install is not None and install.view == view:
            self._send(sender, install)

    def on_refuse(self, sender: Member, message: Refuse) -> None:
        """Learn that a member has promised itself to a later view."""
        vsync = self._vsync
        if message.promised <= message.view:
            raise BadMessage("a refusal for the sake of an earlier view")
        vsync.note_number(message.promised)
        proposal = self._proposal
        if proposal is None or message.view != proposal.view or sender not in proposal.members:
            return
        # If the other proposer lives, the member is its; if not, we ask again with a higher id.
        rival = message.promised.proposer
        if rival != vsync.me.id and self._context.reaches(rival):
            self._propose_without([sender])
        else:
            self._propose(proposal.members)

    # ---- every member

    def on_propose(self, sender: Member, message: Propose) -> None:
        """Agree to a view, if it is newer than what we have agreed to and we reach its proposer."""
        vsync = self._vsync
        if (message.view.proposer, message.view.incarnation) != (sender.id, sender.incarnation):
            # Whoever took part would promise itself to a view that its proposer knows nothing of.
            raise BadMessage("a proposal in another's name")
        if len({member.id for member in message.members}) != len(message.members):
            raise BadMessage("a proposal that names a replica twice")
        vsync.note_number(message.view)
        if any(member.id not in vsync.configuration.everyone for member in message.members):
            self._context.count("vsync.proposals_with_strangers")
            return
        if vsync.me not in message.members or sender not in message.members:
            if sender == self._proposer and message.view > self.promised:
                self._wait_for_no_one()
            return
        if message.view == self.promised and self._proposer == sender:
            self._proposer_heard_at = self._context.now
            self._repeat_answer()
        elif message.view <= max(self.promised, vsync.current.id):
            self._send(sender, Refuse(message.view, max(self.promised, vsync.current.id)))
        elif sender == vsync.me or self._context.reaches(sender.id):
            self._stop_for(sender, message.view)

    def _stop_for(self, proposer: Member, view: ViewId) -> None:
        vsync = self._vsync
        if proposer != vsync.me:
            self._proposal = None
        value = vsync.above.flush_value()
        vsync.freeze()
        self.promised = view
        self._proposer = proposer
        self._proposer_heard_at = self._context.now
        self._cut = None
        multicast = vsync.multicast
        self._answer = Flush(
            view,
            vsync.current.id,
            vsync.current.members,
            list(multicast.received),
            list(multicast.stable),
            value,
            vsync.configuration,
        )
        self._context.set_timer("change", self._context.settings.flush_resend, self._repeat)
        self._repeat_answer()

    def on_cut(self, sender: Member, message: Cut) -> None:
        """Fetch what is missing up to the cut, then say so."""
        if message.view != self.promised or sender != self._proposer:
            return
        members = self._vsync.current.members
        holders_known = len(message.holders) == len(members) and all(
            holder in members for holder in message.holders
        )
        if not self._vsync.multicast.is_plausible(message.cut) or not holders_known:
            self._context.count("vsync.bad_vectors")
            return
        self._proposer_heard_at = self._context.now
        if self._cut is None:
            self._cut = message
            self._fetch()
        self.packets_arrived()

    def packets_arrived(self) -> None:
        """Look whether the cut is complete now."""
        cut = self._cut
        if cut is None or isinstance(self._answer, Ready) or self._vsync.multicast.lacks(cut.cut):
            return
        self._answer = Ready(self.promised)
        self._repeat_answer()

    def _fetch(self) -> None:
        cut = self._cut
        if cut is None:
            return
        for rank, first, last in self._vsync.multicast.lacks(cut.cut):
            self._send(cut.holders[rank], Nak(self._vsync.current.id, [(rank, first, last)]))

    def _holders_of_missing(self) -> list[Member]:
        if self._cut is None:
            return []
        gaps = self._vsync.multicast.lacks(self._cut.cut)
        return list(dict.fromkeys(self._cut.holders[rank] for rank, _, _ in gaps))

    def on_install(self, sender: Member, message: Install) -> None:
        """Go on in the new view, if it is the one we stopped for."""
        if message.view != self.promised or sender != self._proposer:
            return
        if not self._can_install(message):
            self._context.count("vsync.bad_installs")
            return
        self._proposer = None
        self._answer = None
        self._cut = None
        self._trouble_since = None
        self._context.cancel_timer("change")
        self._vsync.discovery.forgive(message.members)
        self._vsync.install(message)

    def _can_install(self, message: Install) -> bool:
        """Say whether an install is complete, about us, and leaves nothing behind."""
        vsync = self._vsync
        multicast = vsync.multicast
        size = len(message.members)
        return (
            vsync.me in message.members
            and len(message.previous) == len(message.values) == size
            and message.previous[message.members.index(vsync.me)] == vsync.current.id
            and multicast.is_plausible(message.cut)
            and multicast.is_plausible(message.stable)
            and all(member.id in vsync.configuration.everyone for member in message.members)
            and not multicast.lacks(message.cut)
        )

    def on_leave(self, sender: Member) -> None:
        """Do not wait for a member that has left."""
        proposal = self._proposal
        if proposal is not None and sender in proposal.members and sender != self._vsync.me:
            self._propose_without([sender])

    # ---- repeating, and giving up

    def _repeat(self) -> None:
        """While a change is under way, repeat what is unanswered; give up what is hopeless."""
        proposer = self._proposer
        if proposer is None or self._vsync.has_left:
            return
        settings = self._context.settings
        self._context.set_timer("change", settings.flush_resend, self._repeat)
        if proposer == self._vsync.me:
            self._repeat_proposal()
            return
        silence = self._context.now - self._proposer_heard_at
        if silence > settings.proposer_patience or not self._context.reaches(proposer.id):
            self._give_up(proposer)
            return
        self._fetch()
        self._repeat_answer()

    def _repeat_proposal(self) -> None:
        proposal = self._proposal
        if proposal is None:
            return
        vsync = self._vsync
        silent = proposal.silent()
        lost = [member for member in silent if not self._context.reaches(member.id)]
        now, patience = self._context.now, self._context.settings.flush_timeout
        if now - proposal.begun_at > patience:
            enough = now - 10 * patience > proposal.begun_at
            lost += [
                member
                for member in silent
                if member not in lost
                and (enough or now - proposal.heard_at.get(member, 0) > patience)
            ]
        if vsync.me in lost:
            # We ourselves cannot get what the cut asks of us, so it is the holders that fail.
            lost = [*lost, *self._holders_of_missing()]
            lost.remove(vsync.me)
        if lost:
            for member in lost:
                vsync.discovery.shun(member)
            self._propose_without(lost)
            return
        for member in silent:
            if proposal.cuts:
                self._send(member, proposal.cuts[proposal.flushes[member].previous])
            else:
                self._send(member, Propose(proposal.view, proposal.members))

    def _give_up(self, proposer: Member) -> None:
        """The proposer is gone or hopeless: someone else must, in the end we ourselves."""
        self._context.count("vsync.proposers_given_up")
        self._vsync.discovery.shun(proposer)
        self._vsync.note_departed([proposer])
        self._wait_for_no_one()

    def _wait_for_no_one(self) -> None:
        """Be stopped, with no proposal to hope for."""
        self._proposer = None
        self._answer = None
        self._cut = None
        self._context.cancel_timer("change")
        self._vsync.consider_soon()

    def _repeat_answer(self) -> None:
        if self._proposer is not None and self._answer is not None:
            self._send(self._proposer, self._answer)

    def _send(
        self, member: Member, message: Flush | Ready | Refuse | Cut | Install | Nak | Propose
    ) -> None:
        if member == self._vsync.me:
            self._vsync.receive(member, message)
        else:
            self._vsync.send([member.id], message)

    def _send_all(self, members: Sequence[Member], message: Propose) -> None:
        me = self._vsync.me
        self._vsync.send([member.id for member in members if member != me], message)


def _who_must_stay_apart(flushes: Mapping[Member, Flush], me: Member) -> list[Member]:
    """Give those who cannot come along yet, for the sake of agreement on successors (3.3.5).

    A laggard is still in a view that another member has been in and has left for a later one.
    Going on together, the two would accept the old view and the new one with and without
    something in between. A laggard must first install a view of its own; if that is the
    proposer, it goes on without those who are ahead of it.
    """
    ahead_of: dict[Member, list[Member]] = {}
    for member, flush in flushes.items():
        ahead = [
            other
            for other in flush.previous_members
            if other in flushes and flushes[other].previous > flush.previous
        ]
        if ahead:
            ahead_of[member] = ahead
    return ahead_of[me] if me in ahead_of else list(ahead_of)
