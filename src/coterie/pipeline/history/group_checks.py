"""Checks that need all of a group's small tables at once: views, what witnesses say, digests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coterie.journal import Kind
from coterie.pipeline.history.results import Results
from coterie.pipeline.history.view_checks import check_views

if TYPE_CHECKING:
    from coterie.pipeline.history.witnesses import Breach, Testimony, Witness
    from coterie.pipeline.lake.lake import Lake

Row = dict[str, Any]


def check_group(lake: Lake, testimony: Testimony) -> Results:
    """Run all checks that look at a group as a whole."""
    group = testimony.group
    results = Results(group)
    views = lake.table("views", group).to_pylist()
    check_views(testimony, views, lake.table("messages", group).to_pylist(), results)
    counted_rightly(
        testimony,
        lake.table("lives", group).to_pylist(),
        lake.table("findings", group).to_pylist(),
        results,
    )
    kept_word(testimony, results)
    active_replication(testimony, valid_digests(testimony, lake.table("digests", group)), results)
    return results


def counted_rightly(
    testimony: Testimony, lives: list[Row], findings: list[Row], results: Results
) -> None:
    """Who accepted a view held its whole initial history; who had forgotten fetched it first."""
    check = "counted rightly"
    for finding in findings:
        if finding["kind"] == Kind.CONTRADICTION.value:
            replica, incarnation = finding["replica"], finding["incarnation"]
            results.violate(
                check,
                f"the records of {replica} contradict each other: {finding['reason']}",
                rows=[
                    (replica, incarnation, sequence)
                    for sequence in range(finding["first"], finding["last"] + 1)
                ],
            )
    zombies = {
        (row["replica"], row["incarnation"]): row["sequence"] for row in lives if row["is_zombie"]
    }
    for witness in testimony.witnesses:
        results.checked(check, len(witness.acceptances))
        if testimony.has_accepted_loss:
            continue
        fetched = {witness.place(event.key)[1] for event in witness.voidings if event.is_adoption}
        for key, _ in witness.acceptances:
            _, incarnation, sequence = witness.place(key)
            begun = zombies.get((witness.replica, incarnation))
            if begun is None or incarnation in fetched:
                continue
            if witness.may_lack(witness.key(incarnation, begun), key):
                results.undecided(check, 1, "what it fetched may stand where records are missing")
            else:
                results.violate(
                    check,
                    f"{witness.replica} had lost its memory and accepted a primary view without "
                    "fetching a history first",
                    rows=[
                        (witness.replica, incarnation, begun),
                        (witness.replica, incarnation, sequence),
                    ],
                )


def kept_word(testimony: Testimony, results: Results) -> None:
    """No replica gives up what it called authoritative, nor forgets it without saying so."""
    for check in ("authoritative for ever", "memory"):
        results.checked(check, sum(len(witness.voidings) for witness in testimony.witnesses))
    if testimony.has_accepted_loss:
        return
    for witness in testimony.witnesses:
        for breach in witness.breaches:
            _break(results, "authoritative for ever", witness, breach)
        results.undecided(
            "authoritative for ever", len(witness.doubts), "records before these are missing"
        )
        if witness.is_complete:
            for breach in witness.lapses:
                _break(results, "memory", witness, breach)


def _break(results: Results, check: str, witness: Witness, breach: Breach) -> None:
    results.violate(
        check,
        f"{witness.replica} had called everything up to {breach.settled} authoritative and "
        f"{breach.how}: only {breach.position} was left",
        position=breach.position + 1,
        rows=[witness.place(breach.key)],
    )


def valid_digests(testimony: Testimony, digests: pa.Table) -> pa.Table:
    """Keep the digests of states that their replicas called authoritative."""
    keep = np.zeros(len(digests), np.bool_)
    names = np.array(digests["replica"].to_pylist(), object)
    lives, sequences = digests["incarnation"].to_numpy(), digests["sequence"].to_numpy()
    positions = digests["position"].to_numpy()
    for witness in testimony.witnesses:
        mine = np.flatnonzero(names == witness.replica)
        if len(mine):
            begun = np.array([witness.key(life, 0) for life in lives[mine].tolist()], np.int64)
            _, _, claimed = witness.fates(positions[mine], begun + sequences[mine])
            keep[mine] = claimed
    return digests.filter(pa.array(keep)).sort_by("position")


def active_replication(testimony: Testimony, digests: pa.Table, results: Results) -> None:
    """3.4.2: replicas with equal histories have equal states."""
    check = "active replication"
    results.checked(check, len(digests))
    different = digests.group_by("position").aggregate([("digest", "count_distinct")])
    for position in different.filter(pc.field("digest_count_distinct") > 1)["position"].to_pylist():
        rows = digests.filter(pc.field("position") == position).to_pylist()
        states: dict[bytes, list[str]] = {}
        for row in rows:
            states.setdefault(row["digest"], []).append(row["replica"])
        told = "; ".join(
            f"{', '.join(names)} had {digest.hex()}" for digest, names in states.items()
        )
        results.violate(
            check,
            f"replicas of {testimony.group} differ in their state at {position}: {told}",
            position=position,
            rows=[(row["replica"], row["incarnation"], row["sequence"]) for row in rows],
        )
