"""Checks that compare all replicas over one range of positions, columns against columns.

They need nothing from other ranges, so a history of any size is checked range by range, without a
shuffle. Each check is a function over the `Findings` of one range; what it promises is said in
`coterie.pipeline.checks`, by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from coterie.kernel.engine import Standing as Claim
from coterie.pipeline.judging import Judgement, Standing, fates, judge
from coterie.pipeline.lake import writer_of
from coterie.pipeline.ranges import EntryFiles, Range, read_replies
from coterie.pipeline.requests import requests_of
from coterie.pipeline.results import VIOLATIONS_MAX, Results
from coterie.pipeline.witnesses import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from coterie.pipeline.requests import Requests
    from coterie.pipeline.results import Place
    from coterie.pipeline.witnesses import Testimony

    Numbers = NDArray[np.int64]

_LATE = np.iinfo(np.int64).max
_EARLY = np.iinfo(np.int64).min
_REPLY_COLUMNS = ("position", "stamp", "standing", "session", "request", "at", "sequence", "digest")


@dataclass(slots=True)
class Answers:
    """Replies of one range as columns, and which replica gave each."""

    table: pa.Table
    replicas: list[tuple[str, int, int]]
    """Replica, life, and how many rows, in the order of the table."""

    def __getitem__(self, column: str) -> Numbers:
        values: Numbers = self.table[column].to_numpy()
        return values

    def place(self, row: int) -> Place:
        """Say which record of which replica a row is from."""
        sequence = self.table["sequence"][row].as_py()
        for replica, incarnation, size in self.replicas:
            if row < size:
                return replica, incarnation, sequence
            row -= size
        raise IndexError(row)


class RangeFacts:
    """What the checks of one range work on."""

    def __init__(self, task: Range, testimony: Testimony) -> None:
        self.task = task
        self.testimony = testimony
        self.files = EntryFiles(task.entries, testimony)
        self.rows = self.files.rows
        self.judgement: Judgement = judge(self.rows, testimony, task.start, task.width)
        self.chosen = np.flatnonzero(self.judgement.standings == Standing.AUTHORITATIVE)
        """The authoritative entries, by place in the judgement."""
        self._answers: Answers | None = None
        self._requests: Requests | None = None
        self._matching: Numbers | None = None
        self._stamps: Numbers | None = None

    @property
    def positions(self) -> Numbers:
        """Of the authoritative entries."""
        return self.judgement.positions[self.chosen]

    def dense(self, values: Numbers, missing: int) -> Numbers:
        """Lay out a value of each authoritative entry by position."""
        laid = np.full(self.task.width, missing, np.int64)
        laid[self.positions - self.task.start] = values
        return laid

    @property
    def answers(self) -> Answers:
        """The replies of this range."""
        if self._answers is None:
            tables = [read_replies([file], _REPLY_COLUMNS) for file in self.task.replies]
            replicas = [
                (*writer_of(file), len(table))
                for file, table in zip(self.task.replies, tables, strict=True)
            ]
            nothing = read_replies([], _REPLY_COLUMNS)
            self._answers = Answers(pa.concat_tables([nothing, *tables]), replicas)
        return self._answers

    @property
    def stamps(self) -> Numbers:
        """Of the authoritative entries."""
        if self._stamps is None:
            rows = self.judgement.rows[self.chosen]
            self._stamps = self.files.take(rows, ("stamp",))["stamp"].to_numpy()
        assert self._stamps is not None
        return self._stamps

    @property
    def requests(self) -> Requests:
        """What the authoritative entries ask for."""
        if self._requests is None:
            # Where nobody was answered, nobody's request needs to be known.
            chosen = self.chosen if self.task.replies else self.chosen[:0]
            payloads = self.files.take(self.judgement.rows[chosen], ("payload",))["payload"]
            self._requests = requests_of(payloads)
        return self._requests

    @property
    def matching(self) -> Numbers:
        """Which answers speak of authoritative entries."""
        if self._matching is None:
            answers = self.answers
            offsets = np.maximum(answers["position"] - self.task.start, 0)
            is_right = self.dense(self.stamps, 0)[offsets] == answers["stamp"]
            self._matching = np.flatnonzero(is_right & self.is_known(answers["position"]))
        return self._matching

    def is_known(self, positions: Numbers) -> NDArray[np.bool_]:
        """Say of positions in this range whether an authoritative entry is known there."""
        known = np.zeros(self.task.width, np.bool_)
        known[self.positions - self.task.start] = True
        is_inside: NDArray[np.bool_] = known[np.maximum(positions - self.task.start, 0)]
        return is_inside

    def places(self, position: int) -> list[Place]:
        """Say where the entries at a position stand in all journals."""
        rows = np.flatnonzero(self.rows.positions == position)
        return [self.place(row) for row in rows.tolist()]

    def place(self, row: int) -> Place:
        """Say where one acceptance stands."""
        incarnation, sequence = place_of(int(self.rows.keys[row]))
        return self.testimony.names[int(self.rows.bits[row])], incarnation, sequence


def check_range(task: Range, testimony: Testimony, clock_bound: int) -> Results:
    """Run all checks that need one range only."""
    facts = RangeFacts(task, testimony)
    results = Results(task.group)
    one_authoritative_entry(facts, results)
    authoritative_majority(facts, results)
    settled_too_early(facts, results)
    authoritative_for_ever(facts, results)
    global_ordering(facts, results)
    acknowledged(facts, results)
    the_right_request(facts, results)
    real_time(facts, results, clock_bound)
    return results


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
    for each in np.flatnonzero(judgement.lacks_majority).tolist():
        position = int(judgement.positions[each])
        holders = judgement.holders[each] | judgement.implicit[each]
        results.violate(
            check,
            f"{_named(facts, judgement.claims[each])} called the entry at {position} "
            f"authoritative; of {len(testimony.configuration.members)} replicas only "
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
    if testimony.missing or testimony.has_accepted_loss:
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
        accepted[bit, : max(witness.unseen - start + 1, 0)] = 0
    counted = accepted[: len(testimony.configuration.members), places]
    for witness in testimony.witnesses:
        if witness.is_shortened:
            continue  # in which views it settled is not at hand
        ranks = witness.settled_in(positions)
        had = (counted <= ranks).sum(axis=0)
        early = (ranks >= 0) & (had < testimony.configuration.majority)
        for index in np.flatnonzero(early).tolist():
            position = int(positions[index])
            results.violate(
                check,
                f"{witness.replica} called the entry at {position} authoritative in a view in "
                f"which, and before which, only {had[index]} of "
                f"{len(testimony.configuration.members)} replicas had accepted it",
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
                    rows=[(witness.replica, *place_of(accepted)), *facts.places(position)],
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
        if not witness.is_complete:
            results.undecided(check, len(holes), "journals are not whole")
            continue
        for position in holes[:VIOLATIONS_MAX].tolist():
            results.violate(
                check,
                f"{witness.replica} called everything up to {witness.settled_max} authoritative "
                f"and never accepted an entry at {position}",
                position=position,
                replicas=[witness.replica],
                rows=facts.places(position),
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
    offsets = answers["position"][told] - facts.task.start
    is_known = facts.is_known(answers["position"][told])
    is_right = facts.dense(facts.stamps, 0)[offsets] == answers["stamp"][told]
    is_gap = _is_in_gap(facts, answers["position"][told]) & ~is_known
    results.undecided(check, int(is_gap.sum()), "these parts of the history are not at hand")
    for row in told[~(is_known & is_right) & ~is_gap].tolist():
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
    """The same for two ranges, of which the later holds an answer from before a request."""
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
        np.minimum.at(ends, offsets, facts.answers["at"][matching])
    return ends


def interval_starts(facts: RangeFacts) -> Numbers | None:
    """Give, for each position of the range, when it was asked for; None if nobody says."""
    if not facts.requests.are_commands or not (facts.requests.asked_at > 0).any():
        return None
    asked = np.where(facts.requests.asked_at > 0, facts.requests.asked_at, _EARLY)
    return facts.dense(asked, _EARLY)


def _is_in_gap(facts: RangeFacts, positions: Numbers) -> NDArray[np.bool_]:
    """Say of positions whether the journals that should tell of them are not there."""
    testimony = facts.testimony
    if testimony.missing:
        return np.ones(len(positions), np.bool_)
    return positions <= max(witness.unseen for witness in testimony.witnesses)


def _named(facts: RangeFacts, bits: int | np.uint64) -> str:
    return _listed(facts.testimony.names_of(int(bits)))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"


def _print(fingerprint: int | np.int64) -> str:
    return f"{int(fingerprint) & (1 << 64) - 1:016x}"
