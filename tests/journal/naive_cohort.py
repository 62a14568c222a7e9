"""A cohort that does what cohorts do to their journals, and knows what it should remember."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from coterie.journal.disk import Disk
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.journal.keeper import KeeperSettings
from coterie.kernel.cohorts import CohortViews
from coterie.kernel.engine import Checkpoint, Version
from coterie.kernel.records import (
    EventsKnown,
    InvitationAccepted,
    InvitationsMade,
    Record,
    Started,
    StateTaken,
    Stopped,
    ViewStarted,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId, Viewstamp

GROUP, ID = "bank", "a"
EVERYONE = Configuration(1, ("a", "b", "c"))
OTHER = Member("b", 1)
FIRST = (Viewstamp(NO_VIEW, 0),)


class State(msgspec.Struct):
    """What a cohort knows: all events there ever were, and where they stand."""

    history: list[Viewstamp]
    events: list[bytes]

    def copy(self) -> State:
        return State(list(self.history), list(self.events))


class NaiveCohort:
    """One cohort of a group whose other cohorts are made up."""

    def __init__(self, disk: Disk, settings: KeeperSettings, random: Random) -> None:
        self.disk = disk
        self.settings = settings
        self.random = random
        self.views = CohortViews()
        self.state: State | None = State(list(FIRST), [])
        """None while it is lost."""
        self.status = "underling"
        self.keeper: CohortKeeper
        self.turn: list[Record] = []

    # ---- lives

    def start(self) -> None:
        """Begin a life, and take over what the journal says."""
        self.keeper = CohortKeeper(self.disk, GROUP, ID, EVERYONE, self.settings)
        self.keeper.checkpoint = self.checkpoint
        found = self.keeper.recovery
        self.views = found.views
        self.state = None
        if found.has_state:
            chunks = found.chunks()
            events = msgspec.msgpack.decode(b"".join(chunks), type=list[bytes]) if chunks else []
            events += [event for span in found.spans for event in span.events]
            self.state = State(list(found.history), events)
        self.status = "underling"
        self.report(Started, stack="VSR", configuration=EVERYONE, is_zombie=not found.has_state)
        self.end_turn()

    @property
    def me(self) -> Member:
        return Member(ID, self.keeper.incarnation)

    def checkpoint(self) -> Checkpoint:
        assert self.state is not None
        history = tuple(self.state.history)
        version = Version(history[-1].view, sum(each.number for each in history))
        chunks = self._chunks(self.state.events)
        return Checkpoint(version.position, version, chunks, history=history)

    def _chunks(self, events: list[bytes]) -> Iterator[bytes]:
        data = msgspec.msgpack.encode(events)
        return iter([data[:20], data[20:]])

    def report(self, kind: type[msgspec.Struct], **fields: object) -> None:
        record = kind(group=GROUP, member=self.me, at=self.keeper.writer.sequence, **fields)
        self.turn.append(record)  # type: ignore[arg-type]

    def end_turn(self, now: int = 0) -> None:
        """Write the turn; what it promised counts when this returns."""
        turn, self.turn = self.turn, []
        self.keeper.write(turn)
        if self.keeper.needs_sync(now):
            self.keeper.sync()

    # ---- what cohorts do

    def invite(self) -> None:
        view = ViewId(self.views.max_viewid.number + 1, ID, self.me.incarnation)
        self.status = "manager"
        self.views = self.views.promised(view)
        self.report(InvitationsMade, view=view)

    def accept(self) -> None:
        view = ViewId(self.views.max_viewid.number + self.random.randint(1, 2), "b", 1)
        known = Viewstamp(NO_VIEW, 0) if self.state is None else self.state.history[-1]
        self.status = "underling"
        self.views = self.views.promised(view)
        crashed = self.state is None
        self.report(InvitationAccepted, view=view, crashed=crashed, known=known, was_primary=False)

    def lead(self) -> None:
        """Begin to lead the view that was promised last."""
        assert self.state is not None
        self.state.history.append(Viewstamp(self.views.max_viewid, 0))
        self.status = "primary"
        self._enter(self.me)

    def follow(self) -> None:
        """Be brought into the view that was promised last, by events or by a state."""
        view = self.views.max_viewid
        if self.state is None or self.random.random() < 0.3:
            count = self.random.randrange(5)
            self.state = State(
                [*FIRST, Viewstamp(view, 0)], [b"taken %d" % n for n in range(count)]
            )
            self.report(StateTaken, view=view, source=OTHER, history=tuple(self.state.history))
        else:
            passed = ViewId(view.number - 1, "c", 9)
            if passed > self.state.history[-1].view and self.random.random() < 0.5:
                self.state.history.append(Viewstamp(passed, 0))
                self.learn(self.random.randint(1, 3))
            self.state.history.append(Viewstamp(view, 0))
        self.status = "backup"
        self._enter(OTHER)

    def _enter(self, primary: Member) -> None:
        assert self.state is not None
        view = self.views.max_viewid
        self.views = self.views.started(view, is_primary=primary == self.me)
        self.report(
            ViewStarted,
            view=view,
            primary=primary,
            members=(OTHER, self.me),
            history=tuple(self.state.history),
        )

    def learn(self, count: int) -> None:
        """Know more events of the view it stands in."""
        assert self.state is not None
        last = self.state.history[-1]
        events = [b"%d of %d" % (last.number + 1 + n, last.view.number) for n in range(count)]
        self.state.history[-1] = Viewstamp(last.view, last.number + count)
        self.state.events += events
        self.report(EventsKnown, view=last.view, first=last.number + 1, events=events)

    def stop(self) -> None:
        self.report(Stopped)

    def act(self) -> None:
        """Do something that is possible now."""
        if self.status in {"primary", "backup"} and self.random.random() < 0.8:
            self.learn(self.random.randint(1, 3))
        elif self.random.random() < 0.5:
            if self.random.random() < 0.5:
                self.invite()
            else:
                self.accept()
        elif self.views.max_viewid > self.views.cur_viewid:
            if self.state is not None and self.views.max_viewid.proposer == ID:
                self.lead()
            else:
                self.follow()
