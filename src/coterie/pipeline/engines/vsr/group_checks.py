"""Checks of one group of cohorts: views, what is forced, what cohorts know."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from coterie.kernel.views import NO_VIEW
from coterie.pipeline.history.results import Results
from coterie.pipeline.read.rows import view_row

if TYPE_CHECKING:
    from coterie.kernel.views import ViewId
    from coterie.pipeline.engines.vsr.history import CohortGroup, Place


def check_cohorts(found: CohortGroup) -> Results:
    """Run all checks that look at one group of cohorts, but not at the events themselves."""
    results = Results(found.group)
    viewids_ordered(found, results)
    one_primary(found, results)
    forced_majority(found, results)
    forced_events_survive(found, results)
    known_in_order(found, results)
    crashed_count_for_nothing(found, results)
    equal_states(found, results)
    return results


def viewids_ordered(found: CohortGroup, results: Results) -> None:
    """The views that a replica promises and enters only rise, through all its lives."""
    check = "viewids ordered"
    results.checked(check, len(found.promises))
    for replica, mine in groupby(found.promises, key=lambda each: each[0][0]):
        before: ViewId = NO_VIEW
        last: Place | None = None
        for place, view, is_active in mine:
            if view < before or (view == before and not is_active):
                results.violate(
                    check,
                    f"{replica} had promised {before}, and promised {view}",
                    view=view_row(view),
                    rows=[each for each in (last, place) if each is not None],
                )
            if view >= before:
                before, last = view, place


def one_primary(found: CohortGroup, results: Results) -> None:
    """A view has one primary, and one initial history."""
    check = "one primary"
    results.checked(check, len(found.started))
    by_view = sorted(found.started, key=lambda each: (each.view, each.place))
    for view, each in groupby(by_view, key=lambda one: one.view):
        members = list(each)
        primaries = sorted({one.primary for one in members})
        if len(primaries) > 1:
            results.violate(
                check,
                f"{view} has {' and '.join(primaries)} as primary",
                view=view_row(view),
                rows=[one.place for one in members],
            )


def forced_majority(found: CohortGroup, results: Results) -> None:
    """What is called forced was known to a majority of the configuration that counts there."""
    check = "forced majority"
    results.checked(check, len(found.forced))
    for view, claim in found.forced.items():
        configuration = found.configuration_at(view, claim.number)
        everyone = configuration.everyone
        holders = {id for id in everyone if found.knew.get((id, view), -1) >= claim.number}
        if configuration.is_quorum(holders):
            continue
        claimer = claim.place[0]
        is_own = claimer in holders or claimer in found.incomplete
        if is_own and configuration.is_quorum(holders | found.unheard(view)):
            results.undecided(check, 1, "journals are missing that may know what was forced")
            continue
        results.violate(
            check,
            f"{view}:{claim.number} was called forced, and only {sorted(holders)} knew it",
            view=view_row(view),
            replicas=sorted({*holders, claim.place[0]}),
            rows=[claim.place],
        )


def forced_events_survive(found: CohortGroup, results: Results) -> None:
    """What was forced is part of the initial state of every later view."""
    check = "forced events survive"
    leading = [each for each in found.started if each.leads]
    for each in leading:
        earlier = [view for view in found.forced if view < each.view]
        results.checked(check, len(earlier))
        for view in earlier:
            claim = found.forced[view]
            if each.history.get(view, -1) < claim.number:
                results.violate(
                    check,
                    f"{view}:{claim.number} was forced, and {each.view} began with "
                    f"{each.history.get(view)}",
                    view=view_row(each.view),
                    rows=[claim.place, each.place],
                )


def known_in_order(found: CohortGroup, results: Results) -> None:
    """The events a cohort knows of a view have no gaps."""
    check = "known in order"
    results.checked(check, found.events)
    for place, sentence in found.gaps:
        results.violate(check, sentence, rows=[place])


def crashed_count_for_nothing(found: CohortGroup, results: Results) -> None:
    """Who is active in a view knows all that its history says."""
    check = "crashed cohorts count for nothing"
    results.checked(check, len(found.started))
    for each in found.started:
        if each.lacks:
            results.violate(
                check,
                f"{each.place[0]} was active in {each.view} with {each.lacks[0]}",
                view=view_row(each.view),
                rows=[each.place],
            )


def equal_states(found: CohortGroup, results: Results) -> None:
    """States at equal viewstamps are equal."""
    check = "equal states"
    results.checked(check, len(found.states))
    ordered = sorted(found.states, key=lambda each: (each[0], each[2]))
    for known, each in groupby(ordered, key=lambda one: one[0]):
        states = list(each)
        if len({digest for _, digest, _ in states}) > 1:
            told = ", ".join(f"{place[0]} had {digest.hex()[:12]}" for _, digest, place in states)
            results.violate(
                check,
                f"cohorts differ in their state at {known}: {told}",
                view=view_row(known.view),
                rows=[place for _, _, place in states],
            )
