"""Who belongs to a group of cohorts, and how that changes while it serves.

A configuration is a function of the history (`coterie.kernel.configuration`): an event
`Reconfigure` says which one counts from its own place on. Every event is forced under the
configuration that counts at its place, and a view is formed under that of the history that wins
(`formation.py`). `docs/internals/vsr.md` argues why that is safe.

A cohort is admitted as a *learner*: it is told everything, and counts for nothing. Once it knows
all, the primary adds the event that makes it a member; the group is then *joint*, and needs a
majority of the members before and one of those to come. When that event is forced, another one
leaves joint. To remove a member takes the same two events. Each step is taken by whoever leads, so
a change goes on when views do.

**Departure.** The paper's configurations never change. No view change is needed for one that does,
but where the primary itself is to go: it takes no new work until a cohort that stays knows
everything, and forms a view in which that one leads.

A cohort that is removed is told, by the primary (`NoMember`). One that was away then asks, since it
hears nobody any more (`WhoBelongs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.configuration import (
    ChunksAfter,
    admitting,
    decode_change,
    dismissing,
    encode_change,
    first_chunk,
    follows,
    is_change,
    left,
    promoting,
    take_off,
)
from coterie.kernel.engine import Chunks
from coterie.kernel.errors import BadMessage, Refused, ReplicaBroken
from coterie.kernel.records import ConfigurationForced
from coterie.kernel.views import NO_VIEW, ChangedConfiguration, Viewstamp
from coterie.vsr.views.messages import NoMember, WhoBelongs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coterie.kernel.views import Configuration, Member, ReplicaAddresses, ReplicaId
    from coterie.vsr.views.cohort import Cohort

_ASK = "vsr members"
_TELL = "vsr gone"


class CohortMembers:
    """The configurations in the history of one cohort."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._context = cohort.context
        self._founding = cohort.context.configuration
        self._known = [(Viewstamp(NO_VIEW, 0), self._founding)]
        """Where each stands in the history, from the last one on that may still count."""
        self.now: Configuration = self._founding
        """The last one in the history."""
        self.settled: Configuration = self._founding
        """The last one in the history that is known to be forced."""
        self._heard_forced: ChangedConfiguration | None = None
        """The last one that others have said to be forced."""
        self.heard = frozenset(self._founding.everyone)
        """Whom to listen to."""

    # ---- what counts

    @property
    def is_settled(self) -> bool:
        """Whether the last one in the history is known to be forced."""
        return self._is_forced(self._known[-1][0])

    def _is_forced(self, at: Viewstamp) -> bool:
        cohort = self._cohort
        return cohort.forced >= (at.number if at.view == cohort.cur_viewid else 0)

    @property
    def is_changing(self) -> bool:
        """Whether steps of a change are to come."""
        return bool(self.now.before or self.now.learners)

    @property
    def may_manage(self) -> bool:
        """Whether this cohort may form views: who was never more than a learner may not."""
        now, mine = self.now, self._cohort.me.id
        return bool(now.number) and mine not in now.learners

    @property
    def is_blank(self) -> bool:
        """Whether this cohort was admitted, and has never been in a view of its group."""
        return not self.now.number and self._cohort.cur_viewid == NO_VIEW

    @property
    def must_go(self) -> bool:
        """Whether the group will go on without this cohort, which leads it at present."""
        now = self.now
        return bool(now.before) and self._cohort.me.id not in now.members and self.is_settled

    def agreed(self, numbers: dict[ReplicaId, int], last: int) -> int:
        """Give up to which event of the present view quorums know all; -1 if not even its start.

        *numbers* says what each backup knows. Every event counts under its own configuration.
        """
        mine, view = self._cohort.me.id, self._cohort.cur_viewid
        end = last
        for at, configuration in reversed(self._known):
            start = at.number if at.view == view else 0
            known = min(
                _known_to_majority(ids, numbers, mine, last)
                for ids in (configuration.members, configuration.before)
                if ids
            )
            if known >= start:
                return min(known, end)
            if at.view != view:
                break
            end = start - 1
        return -1

    # ---- the history

    def read(self, events: Sequence[bytes]) -> Sequence[object]:
        """Read events; raise `BadMessage` if one of them is none."""
        module = self._cohort.module
        if not any(map(is_change, events)):
            return module.read(events)
        found: list[object] = []
        for event in events:
            if not is_change(event):
                found += module.read([event])
                continue
            to = decode_change(event)
            if to is None:
                raise BadMessage("no change of members looks like this")
            found.append(to)
        return found

    def perform(self, known: Viewstamp, events: Sequence[object]) -> None:
        """Have the module perform what is its own, and take changes of members."""
        module = self._cohort.module
        if not any(type(event) is ChangedConfiguration for event in events):
            module.perform(known, events)
            return
        number = known.number - len(events)
        for event in events:
            number += 1
            at = Viewstamp(known.view, number)
            if type(event) is ChangedConfiguration:
                self._take(at, event)
            else:
                module.perform(at, [event])

    def _take(self, at: Viewstamp, to: ChangedConfiguration) -> None:
        """Count by another configuration from here on; one that does not follow is void."""
        if not follows(to, self.now):
            self._context.count("vsr.void_changes")
            return
        self._known.append((at, to))
        self.now = to
        self._look()
        self._cohort.members_changed()

    def snapshot(self) -> Iterator[bytes]:
        """Give the state of the module, with the configuration before it."""
        state, first = self._cohort.module.snapshot(), first_chunk(self.now)
        if first is None:
            return state
        return ChunksAfter(first, state if isinstance(state, Chunks) else Chunks(state))

    def restore(self, chunks: Sequence[bytes], at: Viewstamp) -> None:
        """Take over a state; the configuration before it is known to be forced when *at* is."""
        try:
            configuration, state = take_off(chunks)
        except msgspec.DecodeError as error:
            raise BadMessage("the chunks are no state") from error
        self._cohort.module.restore(list(state))
        self.now = configuration or self._founding
        self._known = [(at, self.now)]
        self._look()
        self._cohort.members_changed()

    def _look(self) -> None:
        """Have all spoken with who may count; who is to go does until it is sure that it has."""
        target = self.now
        if len(self._known) > 1 and len(target.gone) > len(self._known[-2][1].gone):
            target = self._known[-2][1]
        self._look_for(target)

    def _look_for(self, configuration: Configuration) -> None:
        self.heard = frozenset((*configuration.everyone, *self.now.everyone))
        self._context.look_for(configuration)

    # ---- what is forced

    def forced_rose(self) -> None:
        """Learn that more is forced: a configuration may be."""
        if self.settled is self.now:
            return
        known = [place for place, each in enumerate(self._known) if self._is_forced(each[0])]
        if not known:
            return
        del self._known[: known[-1]]
        before, self.settled = self.settled, self._known[0][1]
        if self.settled is before:
            return
        self._look()
        cohort, configuration = self._cohort, self.settled
        if isinstance(configuration, ChangedConfiguration):
            place = self._known[0][0]
            cohort.report(ConfigurationForced, known=place, configuration=configuration)
        if cohort.buffer is not None and isinstance(configuration, ChangedConfiguration):
            gone = [id for id in before.everyone if id in configuration.gone]
            others = [id for id in (*configuration.everyone, *gone) if id != cohort.me.id]
            self._context.send(others, NoMember(configuration))
        self.tell_gone()
        cohort.members_changed()
        if cohort.me.id in configuration.gone:
            cohort.be_removed()

    def tell_gone(self) -> None:
        """Tell who was removed, as long as it is in touch: it may hear nothing else of us."""
        settled, context = self.told(), self._context
        if self._cohort.buffer is None or settled is None or context.timer_is_set(_TELL):
            return
        gone = [id for id in settled.gone if context.reaches(id)]
        context.send(gone, NoMember(settled))
        context.set_timer(_TELL, self._cohort.settings.underling_patience, self.tell_gone)

    # ---- steps

    def admit(self, id: ReplicaId, at: ReplicaAddresses | None) -> None:
        """Have a cohort join the group as a learner; raise `Refused` if it cannot be."""
        self._check_may_change()
        now = self.now
        self._add(admitting(now, id, self._context.found_at(now, at)))

    def dismiss(self, id: ReplicaId) -> None:
        """Have a cohort removed from the group; raise `Refused` if it cannot be."""
        self._check_may_change()
        buffer = self._cohort.buffer
        assert buffer is not None, "that was looked at"
        present = {each.id for each in buffer.backups if self._context.reaches(each.id)}
        self._add(dismissing(self.now, id, {*present, self._cohort.me.id}))

    def _check_may_change(self) -> None:
        if not self._cohort.is_serving:
            raise Refused("this replica is not in a primary view: ask another one, or wait")
        if not self.is_settled:
            raise Refused("the members are being changed: wait until that is done, then ask again")

    def _add(self, to: ChangedConfiguration) -> None:
        # Read again: who reads the journal must find what this cohort found.
        self._cohort.add(encode_change(to), to)

    def look_for_a_step(self) -> None:
        """Take the next step of a change, at the end of a turn, if one is due and may be taken."""
        now, buffer = self.now, self._cohort.buffer
        if buffer is None or not (now.before or now.learners) or not self.is_settled:
            return
        if not now.before:
            # Of those who are left a learner may know most, and then it leads.
            mine = self._cohort.me.id
            ready = [id for id in now.learners if id == mine or buffer.knows_nearly_all(id)]
            if ready:
                self._add(promoting(now, ready))
        elif self._cohort.me.id in now.members:
            self._add(left(now))
        else:
            heirs = [id for id in now.members if self._context.reaches(id)]
            heir = next((id for id in heirs if buffer.knows_all(id)), "")
            if heir:
                self._cohort.manage(successor=heir)

    # ---- news of members

    def told(self) -> ChangedConfiguration | None:
        """Give what strangers are told, who may not know who belongs to the group by now.

        A cohort that has just started would know that nothing is forced but by what is added, and
        in a group in which nothing is, nobody could learn of it who else is there.
        """
        settled, heard = self.settled, self._heard_forced
        if heard is not None and heard.number > settled.number:
            return heard
        return settled if isinstance(settled, ChangedConfiguration) else None

    @property
    def counted(self) -> tuple[ReplicaId, ...]:
        """Give who counts by the last one in the history, forced or not, if members changed."""
        now = self.now
        is_changed = isinstance(now, ChangedConfiguration)
        return tuple(dict.fromkeys((*now.members, *now.before))) if is_changed else ()

    def look_around(self) -> None:
        """Ask who belongs to the group, now and then, as long as too few are in touch."""
        cohort, context = self._cohort, self._context
        if cohort.has_left or cohort.reaches_majority or context.timer_is_set(_ASK):
            return
        others = [id for id in context.configuration.everyone if id != cohort.me.id]
        now = self.now if isinstance(self.now, ChangedConfiguration) else None
        context.send(others, WhoBelongs(max(self.now.number, context.configuration.number), now))
        context.set_timer(_ASK, cohort.settings.underling_patience, self.look_around)

    def on_question(self, sender: Member, message: WhoBelongs) -> None:
        """Tell who belongs to the group, if that is news."""
        self.hear(message.configuration)
        settled = self.told()
        if settled is not None and settled.number > message.number:
            self._context.send([sender.id], NoMember(settled))

    def is_gone(self, sender: Member) -> bool:
        """Say whether a cohort was removed; it is told then."""
        settled = self.told()
        if settled is None or sender.id not in settled.gone:
            return False
        self._context.send([sender.id], NoMember(settled))
        return True

    def hear(self, configuration: ChangedConfiguration | None) -> None:
        """Learn from others that the members have changed: look for them.

        They count only where this cohort's own history says so.
        """
        if configuration is None:
            return
        known = max(self.now.number, self._context.configuration.number)
        if configuration.number > known and self._cohort.me.id in configuration.everyone:
            self._look_for(configuration)

    def hear_forced(self, configuration: ChangedConfiguration | None) -> None:
        """Learn from others of a configuration that is forced: it is in every later history."""
        told = self.told()
        if configuration is not None and (told is None or configuration.number > told.number):
            self._heard_forced = configuration
        self.hear(configuration)

    def on_no_member(self, sender: Member, message: NoMember) -> None:
        """Learn of a configuration that is forced, perhaps without this cohort."""
        configuration, mine = message.configuration, self._cohort.me.id
        if mine not in configuration.gone:
            self.hear_forced(configuration)
            return
        # It leaves for good, so what says so must be what it can be: no earlier one, of a group to
        # which whoever says it belongs, and this cohort does not.
        is_theirs = sender.id in configuration.everyone and mine not in configuration.everyone
        if not is_theirs or configuration.number < self.now.number:
            raise BadMessage("no removal looks like this")
        self._cohort.be_removed()

    def check_disk(self, counted: Iterable[ReplicaId]) -> None:
        """Stop if this cohort counts as a member that was in views, and knows of none.

        What it promised there is lost with its disk, and it must not be counted again.
        """
        mine = self._cohort.me.id
        if self.is_blank and mine in counted:
            raise ReplicaBroken(
                f"{mine} is a member of {self._context.group}, and its disk does not hold what it "
                "promised as one: replace it by a replica with a new id"
            )


def _known_to_majority(
    ids: tuple[ReplicaId, ...], numbers: dict[ReplicaId, int], mine: ReplicaId, last: int
) -> int:
    """Give the greatest number of which a majority of *ids* knows all."""
    known = sorted((last if id == mine else numbers.get(id, -1) for id in ids), reverse=True)
    return known[len(ids) // 2]
