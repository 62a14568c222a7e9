"""Cohorts that begin old: what is on their disks before the first life of a run.

A history of hundreds of views, an end of every transaction that can be remembered, and a state that
earlier views installed; the lives and segments before are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.engines.vsr import CohortRecovery
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.journal.facts import Facts
from coterie.journal.format import Mark
from coterie.journal.removed import note_removed
from coterie.journal.snapshots import SnapshotStore
from coterie.kernel.cohorts import CohortViews
from coterie.kernel.engine import Version
from coterie.kernel.records import Started
from coterie.kernel.views import NO_VIEW, Member, ViewId, Viewstamp
from coterie.simulation.world.age import VIEWS
from coterie.vsr.commit.psets import Aid
from coterie.vsr.objects.group_state import BaseVersion, Ended, GroupState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coterie.journal.disk import Disk
    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.views import Configuration
    from coterie.simulation.world.age import Age
    from coterie.vsr.settings import VsrSettings


def old_history(age: Age, configuration: Configuration) -> tuple[Viewstamp, ...]:
    """Give the history of a group of that age: hundreds of views, one primary after the other."""
    members = configuration.members
    first = max(age.view - VIEWS, 0) + 1
    views = [
        ViewId(number, members[number % len(members)], age.lives)
        for number in range(first, age.view + 1)
    ]
    # Of each view a few events; of the last one as many as events can be counted.
    few = [Viewstamp(view, 1 + view.number % 7) for view in views[:-1]]
    return (*few, Viewstamp(views[-1], age.number))


def old_state(
    age: Age,
    groups: Mapping[str, Configuration],
    group: str,
    objects: Mapping[str, bytes],
    settings: VsrSettings,
) -> list[bytes]:
    """Give the state of a group of that age, with these objects in it."""
    last = old_history(age, groups[group])[-1]
    state = GroupState(ended_max=settings.ended_max, chunk_bytes=settings.chunk_bytes)
    state.objects = {name: BaseVersion(value, last) for name, value in objects.items()}
    for number in range(settings.ended_max):
        aid = Aid(group, last.view, age.number - settings.ended_max + number)
        state.ended[aid] = Ended(committed=number % 3 != 0, vs=last)
    for each in groups:
        # Whatever ended in the views before is forgotten.
        view = old_history(age, groups[each])[-2].view
        state.forgotten[each] = Aid(each, view, age.number)
    return list(state.snapshot())


def write_old_cohort(  # noqa: PLR0913 -- what a journal is made of
    disk: Disk,
    group: str,
    id: str,
    *,
    configuration: Configuration,
    age: Age,
    chunks: Iterable[bytes],
    settings: KeeperSettings,
) -> None:
    """Write what a cohort has on disk that has come of age; *chunks* are its state."""
    history = old_history(age, configuration)
    last = history[-1]
    found = CohortRecovery(
        group=group,
        replica=id,
        incarnation=age.lives,
        reason="",
        configuration=configuration,
        views=CohortViews(last.view, last.view, last.view if last.view.proposer == id else NO_VIEW),
        has_state=True,
        base=history,
        spans=[],
        history=history,
        facts=Facts(),
        snapshot=None,
        end=Mark(age.lives - 1, age.number),
    )
    keeper = CohortKeeper(disk, group, id, configuration, settings, found=found)
    me = Member(id, age.lives)
    keeper.write([Started(group=group, member=me, at=0, stack="VSR", configuration=configuration)])
    keeper.sync()
    draft = SnapshotStore(disk, group, id).begin(
        last.number, Version(last.view, last.number), after=keeper.writer.end, history=history
    )
    draft.write(chunks)
    keeper.close()
    note_removed(disk, group, id, {age.lives - 1: ((1, age.number),)})
