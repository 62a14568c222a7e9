"""Checks that compare all replicas over one range of positions, columns against columns.

They need nothing from other ranges, so a history of any size is checked range by range, without a
shuffle. Each check is a function over the `RangeFacts` of one range; what it promises is said in
`coterie.pipeline.engines.stack.checks`, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from coterie.kernel.engine import Standing as Claim
from coterie.pipeline.history.authoritative import AuthoritativeRange
from coterie.pipeline.history.judging import EntryStanding, Judgement, bits_of, fates, judge
from coterie.pipeline.history.requests import requests_of
from coterie.pipeline.history.results import VIOLATIONS_MAX, Results
from coterie.pipeline.lake.ranges import EntryFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from coterie.pipeline.history.requests import Requests
    from coterie.pipeline.history.results import Place
    from coterie.pipeline.history.witnesses import Testimony
    from coterie.pipeline.lake.ranges import Range

    Numbers = NDArray[np.int64]

_LATE = np.iinfo(np.int64).max
_EARLY = np.iinfo(np.int64).min
ENDS = "who is said to have accepted these has a journal that may lack its end"
CONTENT = ("view", "number", "origin", "identity", "payload", "stamp")
"""What an entry is made of, wherever it stands."""


class RangeFacts(AuthoritativeRange):
    """A range, judged, with all that its checks work on."""

    def __init__(self, task: Range, testimony: Testimony) -> None:
        self.testimony = testimony
        self.files = EntryFiles(task.entries, testimony)
        self.rows = self.files.rows
        self.judgement: Judgement = judge(self.rows, testimony, task.start, task.width)
        self.chosen = np.flatnonzero(self.judgement.standings == EntryStanding.AUTHORITATIVE)
        """The authoritative entries, by place in the judgement."""
        super().__init__(task, self.judgement.positions[self.chosen])
        self._entries: pa.Table | None = None
        self._requests: Requests | None = None

    def entries(self) -> pa.Table:
        """Give what all entries of the judgement contain; from then on it is at hand."""
        if self._entries is None:
            self._entries = self.files.take(self.judgement.rows, CONTENT)
        return self._entries

    def load_stamps(self) -> Numbers:
        """Give the stamps of the authoritative entries."""
        stamps: Numbers = self._of_chosen(self.chosen, "stamp").to_numpy()
        return stamps

    def content(self, after: int) -> pa.Table:
        """Give the authoritative entries above a position."""
        chosen = self.chosen[self.positions > after]
        table = self.files.take(self.judgement.rows[chosen], CONTENT)
        return table.append_column("position", pa.array(self.judgement.positions[chosen]))

    @property
    def requests(self) -> Requests:
        """What the authoritative entries ask for."""
        if self._requests is None:
            # Where nobody was answered, nobody's request needs to be known.
            chosen = self.chosen if self.task.replies else self.chosen[:0]
            self._requests = requests_of(self._of_chosen(chosen, "payload"))
        return self._requests

    def _of_chosen(self, chosen: Numbers, column: str) -> pa.ChunkedArray:
        """Give a column of some entries of the judgement."""
        if self._entries is None:
            return self.files.take(self.judgement.rows[chosen], (column,))[column]
        values = self._entries[column]
        return values if len(chosen) == len(values) else values.take(pa.array(chosen))

    def places(self, position: int) -> list[Place]:
        """Say where the entries at a position stand in all journals."""
        rows = np.flatnonzero(self.rows.positions == position)
        return [self.place(row) for row in rows.tolist()]

    def place(self, row: int) -> Place:
        """Say where one acceptance stands."""
        return self.testimony.witnesses[int(self.rows.bits[row])].place(int(self.rows.keys[row]))


def check_range(facts: RangeFacts, clock_bound: int) -> Results:
    """Run all checks that need one range only."""
    results = Results(facts.task.group)
    one_authoritative_entry(facts, results)
    authoritative_majority(facts, results)
    settled_too_early(facts, results)
    authoritative_for_ever(facts, results)
    global_ordering(facts, results)
    acknowledged(facts, results)
    the_right_request(facts, results)
    real_time(facts, results, clock_bound)
    _name_views(facts, results)
    return results


def _name_views(facts: RangeFacts, results: Results) -> None:
    """Put into violations at positions the view in which the entry there was ordered."""
    judgement = facts.judgement
    for row in results.violations:
        if row["view"] is None and row["position"] is not None:
            there = np.flatnonzero(judgement.positions == row["position"])
            best = there[np.argsort(judgement.standings[there], kind="stable")][:1]
            if len(best):
                row["view"] = facts.files.take(judgement.rows[best], ("view",))["view"][0].as_py()


def one_authoritative_entry(facts: RangeFacts, results: Results) -> None:
    """No position has two entries that are, or are called, authoritative."""
    check = "one authoritative entry"
    judgement = facts.judgement
    results.checked(check, len(facts.rows.positions))
    for position in np.unique(judgement.positions[judgement.is_disputed]).tolist():
        rivals = np.flatnonzero((judgement.positions == position) & judgement.is_disputed)
        told = " and ".join(
            f"{_named(facts, judgement.holders[each])} accepted "
            f"{_print(judgement.fingerprints[each])}"
            for each in rivals.tolist()
        )
        results.violate(
            check,
            f"position {position} has several authoritative entries: {told}",
            position=position,
            rows=facts.places(position),
        )


def authoritative_majority(facts: RangeFacts, results: Results) -> None:
    """What a replica calls authoritative was accepted by a majority."""
    check = "authoritative majority"
    judgement, testimony = facts.judgement, facts.testimony
    is_claimed = judgement.claims != 0
    results.checked(check, int(is_claimed.sum()))
    results.undecided(
        check, int(judgement.is_by_word.sum()), "journals are missing that may hold these entries"
    )
    results.undecided(check, int(judgement.is_unproven.sum()), ENDS)
    for each in np.flatnonzero(judgement.lacks_majority).tolist():
        position = int(judgement.positions[each])
        holders = judgement.holders[each] | judgement.implicit[each]
        results.violate(
            check,
            f"{_named(facts, judgement.claims[each])} called the entry at {position} "
            f"authoritative; of {len(testimony.configuration_at(position).members)} replicas only "
            f"{_named(facts, holders)} accepted it",
            position=position,
            rows=facts.places(position),
        )


def settled_too_early(facts: RangeFacts, results: Results) -> None:
    """What a replica calls authoritative in a view, a majority had accepted in it or before.

    Journals have no common clock. But a replica hears only from members of the view it is in: what
    others accepted in later views cannot have been what it counted.
    """
    check = "authoritative majority"
    testimony, rows, start = facts.testimony, facts.rows, facts.task.start
    if testimony.has_accepted_loss:
        return
    positions = facts.positions
    places = positions - start
    prints = facts.dense(facts.judgement.fingerprints[facts.chosen], 0)
    accepted = np.full((len(testimony.witnesses), facts.task.width), _LATE, np.int64)
    for bit, witness in enumerate(testimony.witnesses):
        mine = np.flatnonzero(rows.bits == bit)
        mine = mine[rows.fingerprints[mine] == prints[rows.positions[mine] - start]]
        np.minimum.at(accepted[bit], rows.positions[mine] - start, witness.ranks(rows.keys[mine]))
        for rank, restored in witness.restorations:
            covered = accepted[bit, : max(restored - start + 1, 0)]
            np.minimum(covered, rank, out=covered)
        # What may have been accepted in records that are not at hand may have been in time.
        is_silent = witness.is_silent_at(positions)
        if witness.is_cut_off:
            # What it says it accepted, it did not accept once more behind its end.
            is_silent |= (positions > witness.settled) & (accepted[bit, places] == _LATE)
        accepted[bit, places[is_silent]] = 0
    accepted = accepted[:, places]
    counted = np.uint64(testimony.counted)
    for witness in testimony.witnesses:
        if witness.is_shortened or not witness.is_complete:
            continue  # in which views it settled is not at hand
        ranks = witness.settled_in(positions)
        had = bits_of(accepted <= ranks) & counted
        early = (ranks >= 0) & ~testimony.has_quorum(had, positions)
        for index in np.flatnonzero(early).tolist():
            position = int(positions[index])
            results.violate(
                check,
                f"{witness.replica} called the entry at {position} authoritative in a view in "
                f"which, and before which, only {np.bitwise_count(had[index])} of "
                f"{len(testimony.configuration_at(position).members)} replicas had accepted it",
                position=position,
                rows=facts.places(position),
            )


def authoritative_for_ever(facts: RangeFacts, results: Results) -> None:
    """Who accepts a primary view has every authoritative entry of its initial history."""
    check = "authoritative for ever"
    rows, testimony = facts.rows, facts.testimony
    results.checked(check, len(rows.positions))
    prints = facts.dense(facts.judgement.fingerprints[facts.chosen], 0)
    differs = rows.fingerprints != prints[rows.positions - facts.task.start]
    strays = np.flatnonzero(differs & facts.is_known(rows.positions))
    if not len(strays) or testimony.has_accepted_loss:
        return
    until, _, _ = fates(rows, testimony)
    for row in strays.tolist():
        position, key = int(rows.positions[row]), int(rows.keys[row])
        witness = testimony.witnesses[int(rows.bits[row])]
        for accepted, length in witness.acceptances:
            if key < accepted < until[row] and position <= length:
                results.violate(
                    check,
                    f"{witness.replica} accepted a primary view whose initial history has "
                    f"{length} entries while it held another entry at {position} than the "
                    "authoritative one",
                    position=position,
                    rows=[witness.place(accepted), *facts.places(position)],
                )
                break


def global_ordering(facts: RangeFacts, results: Results) -> None:
    """5.4.1: what replicas call authoritative are prefixes of one sequence, without holes."""
    check = "global ordering"
    start, width = facts.task.start, facts.task.width
    rows, judgement = facts.rows, facts.judgement
    for bit, witness in enumerate(facts.testimony.witnesses):
        low, high = (
            max(start, witness.covered + 1, witness.unseen + 1, 1),
            min(start + width - 1, witness.settled_max),
        )
        if low > high:
            continue
        results.checked(check, high - low + 1)
        has = np.zeros(width, np.bool_)
        has[rows.positions[rows.bits == bit] - start] = True
        holes = np.flatnonzero(~has[low - start : high - start + 1]) + low
        is_excused = witness.is_silent_at(holes)
        said = witness.settled_where
        results.undecided(check, int(is_excused.sum()), "journals are not whole")
        for position in holes[~is_excused][:VIOLATIONS_MAX].tolist():
            results.violate(
                check,
                f"{witness.replica} called everything up to {witness.settled_max} authoritative "
                f"and never accepted an entry at {position}",
                position=position,
                replicas=[witness.replica],
                rows=[*([said] if said else ()), *facts.places(position)],
            )
    several = judgement.positions[judgement.claims != 0]
    for position in several[:-1][np.diff(several) == 0].tolist():
        results.violate(
            check,
            f"replicas called different entries at {position} authoritative",
            position=position,
            rows=facts.places(position),
        )


def acknowledged(facts: RangeFacts, results: Results) -> None:
    """What a client was told to be authoritative is in the history, at that place."""
    check = "acknowledged means authoritative"
    answers = facts.answers
    told = np.flatnonzero((answers["standing"] == Claim.AUTHORITATIVE) & (answers["position"] > 0))
    if not len(told):
        return
    results.checked(check, len(told))
    positions, stamps = answers["position"][told], answers["stamp"][told]
    is_known = facts.is_known(positions)
    is_right = is_known & (facts.dense(facts.stamps, 0)[positions - facts.task.start] == stamps)
    may_be = ~is_known & _may_be_authoritative(facts, positions, stamps)
    results.undecided(check, int(may_be.sum()), "these parts of the history are not at hand")
    for row in told[~is_right & ~may_be].tolist():
        position = int(answers["position"][row])
        place = answers.place(row)
        results.violate(
            check,
            f"{place[0]} told session {answers['session'][row]} that request "
            f"{answers['request'][row]} is authoritative at {position}; the history has "
            f"{'another entry' if position in facts.positions else 'no authoritative entry'} there",
            position=position,
            rows=[place, *facts.places(position)],
        )


def _may_be_authoritative(
    facts: RangeFacts, positions: Numbers, stamps: Numbers
) -> NDArray[np.bool_]:
    """Say of entries whether enough may have accepted them in records that are not at hand."""
    testimony, judgement = facts.testimony, facts.judgement
    missing = testimony.unheard_at(positions)
    accepted = np.zeros(len(positions), np.uint64)
    if missing.any():
        found = facts.entries()["stamp"].to_numpy()
        known = {
            (int(position), int(stamp)): int(holders)
            for position, stamp, holders in zip(
                judgement.positions, found, judgement.holders | judgement.implicit, strict=True
            )
            if not facts.is_known(np.array([position]))[0]
        }
        pairs = zip(positions.tolist(), stamps.tolist(), strict=True)
        accepted = np.array([known.get(pair, 0) for pair in pairs], np.uint64)
    accepted &= np.uint64(testimony.counted)
    return testimony.has_quorum(accepted | missing, positions)


def the_right_request(facts: RangeFacts, results: Results) -> None:
    """The entry at the place that an answer names is the one that was asked for."""
    check = "exactly once"
    matching = facts.matching
    if not len(matching) or not facts.requests.are_commands:
        return
    results.checked(check, len(matching))
    answers, requests = facts.answers, facts.requests
    offsets = answers["position"][matching] - facts.task.start
    index = facts.dense(np.arange(len(facts.chosen)), -1)[offsets]
    session, request = answers["session"][matching], answers["request"][matching]
    first, last = requests.first[index], requests.last[index]
    is_right = (requests.session[index] == session) & (first <= request) & (request <= last)
    for row, found in zip(matching[~is_right].tolist(), index[~is_right].tolist(), strict=True):
        position = int(answers["position"][row])
        results.violate(
            check,
            f"request {answers['request'][row]} of session {answers['session'][row]} was said to "
            f"be executed at {position}, where request {requests.first[found]} of session "
            f"{requests.session[found]} stands",
            position=position,
            rows=[answers.place(row), *facts.places(position)],
        )


def real_time(facts: RangeFacts, results: Results, clock_bound: int) -> None:
    """What ended before something else was asked for stands before it in the order."""
    check = "linearizability"
    ends, asked = interval_ends(facts), interval_starts(facts)
    if asked is None:
        return
    results.checked(check, int((asked != _EARLY).sum()))
    results.extents.append((facts.task.number, int(ends.min()), int(asked.max())))
    # For each position the earliest end of anything behind it.
    behind = np.full(len(ends) + 1, _LATE, np.int64)
    behind[:-1] = np.minimum.accumulate(ends[::-1])[::-1]
    late = np.flatnonzero((asked != _EARLY) & (asked - clock_bound > behind[1:]))
    for offset in late.tolist():
        position = facts.task.start + offset
        other = facts.task.start + offset + 1 + int(np.argmin(ends[offset + 1 :]))
        results.violate(
            check,
            f"what stands at {position} was asked for at {asked[offset]} by the client's clock, "
            f"more than {clock_bound} µs after what stands at {other} had been answered "
            f"({behind[offset + 1]} by the replica's clock)",
            position=position,
            rows=[*facts.places(position), *facts.places(other)],
        )


def real_time_across(
    earlier: Range, later: Range, testimony: Testimony, clock_bound: int
) -> Results:
    """Check real time between two ranges: nothing in the later ends before the earlier asks."""
    results = Results(earlier.group)
    before, behind = RangeFacts(earlier, testimony), RangeFacts(later, testimony)
    asked, ends = interval_starts(before), interval_ends(behind)
    if asked is not None and asked.max() - clock_bound > ends.min():
        position = earlier.start + int(asked.argmax())
        other = later.start + int(ends.argmin())
        results.violate(
            "linearizability",
            f"what stands at {position} was asked for at {asked.max()} by the client's clock, "
            f"more than {clock_bound} µs after what stands at {other} had been answered "
            f"({ends.min()} by the replica's clock)",
            position=position,
            rows=[*before.places(position), *behind.places(other)],
        )
    return results


def interval_ends(facts: RangeFacts) -> Numbers:
    """Give, for each position of the range, when it was first answered."""
    ends = np.full(facts.task.width, _LATE, np.int64)
    matching = facts.matching
    if len(matching):
        offsets = facts.answers["position"][matching] - facts.task.start
        np.minimum.at(ends, offsets, facts.answers["recorded_at"][matching])
    return ends


def interval_starts(facts: RangeFacts) -> Numbers | None:
    """Give, for each position of the range, when it was asked for; None if nobody says."""
    if not facts.requests.are_commands or not (facts.requests.asked_at > 0).any():
        return None
    asked = np.where(facts.requests.asked_at > 0, facts.requests.asked_at, _EARLY)
    return facts.dense(asked, _EARLY)


def _named(facts: RangeFacts, bits: int | np.uint64) -> str:
    return _listed(facts.testimony.names_of(int(bits)))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"


def _print(fingerprint: int | np.int64) -> str:
    return f"{int(fingerprint) & (1 << 64) - 1:016x}"
