"""RSP-1 and RSP-2, of groups whose clients know nothing of replication (**rsp** 3).

The promises are worded in `coterie.checking.servers`, and are read from journals as there: an entry
says in which view its synchroniser was decided, and who proposed it; answers say who committed the
output, and where the request was executed. A request may be ordered twice, and its two entries and
its answer need not lie in one range, so one task looks at a whole group. It remembers a few numbers
for each request; only groups under ONUS are looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.checking.servers import request_in
from coterie.pipeline.history.results import VIOLATIONS_MAX, Results
from coterie.pipeline.lake.lake import writer_of
from coterie.pipeline.lake.ranges import read_columns

if TYPE_CHECKING:
    from coterie.pipeline.history.results import Place
    from coterie.pipeline.lake.lake import Lake

RSP_1, RSP_2 = "RSP-1", "RSP-2"
_ENTRY_COLUMNS = ("view", "number", "origin", "payload", "sequence")
_REPLY_COLUMNS = ("session", "request", "position", "sequence")
_ROWS_SHOWN = 10

Id = tuple[int, int]


class ServedGroup(NamedTuple):
    """A group of servers, to be checked."""

    group: str


def is_served(lake: Lake, group: str) -> bool:
    """Say whether a group's replicas served clients that know nothing of replication."""
    stacks = lake.table("lives", group)["stack"].unique().to_pylist()
    return any(stack and "ONUS" in stack.split(":") for stack in stacks)


def check_served(lake: Lake, group: str) -> Results:
    """One synchroniser in each view, one execution, one output."""
    results = Results(group)
    ordered = _one_synchroniser(lake, results)
    _one_output(lake, results, ordered)
    return results


def _one_synchroniser(lake: Lake, results: Results) -> set[Id]:
    """In each view at most one replica is decided to synchronise a request."""
    decided: dict[tuple[int, int, Any], dict[tuple[str, int], Place]] = {}
    seen: set[tuple[str, int, int, int]] = set()
    for path, _ in lake.files_of("entries", results.group):
        replica, incarnation = writer_of(str(path))
        table = read_columns(str(path), _ENTRY_COLUMNS)
        columns = (table[name].to_pylist() for name in _ENTRY_COLUMNS)
        for view, number, origin, payload, sequence in zip(*columns, strict=True):
            stamp = (view["proposer"], view["incarnation"], view["number"], number)
            if stamp in seen:
                continue
            seen.add(stamp)
            request = request_in(payload)
            if request is not None:
                place = (replica, incarnation, sequence)
                proposer = (origin["id"], origin["incarnation"])
                decided.setdefault((*request.id, request.view), {})[proposer] = place
    results.checked(RSP_1, len(decided))
    for (client, number, view), proposers in decided.items():
        if len(proposers) > 1 and results.count(RSP_1).found < VIOLATIONS_MAX:
            named = ", ".join(f"{id}#{life}" for id, life in sorted(proposers))
            results.violate(
                RSP_1,
                f"request {number} of client {client} was synchronised by {named} in view {view}",
                replicas=sorted({id for id, _ in proposers}),
                rows=list(proposers.values()),
            )
    return {(client, number) for client, number, _ in decided}


def _one_output(lake: Lake, results: Results, ordered: set[Id]) -> None:
    """A request is executed at one place, and one replica commits its output."""
    outputs: dict[Id, list[tuple[int, Place]]] = {}
    for path, _ in lake.files_of("replies", results.group):
        replica, incarnation = writer_of(str(path))
        table = read_columns(str(path), _REPLY_COLUMNS)
        columns = (table[name].to_pylist() for name in _REPLY_COLUMNS)
        for session, request, position, sequence in zip(*columns, strict=True):
            if (session, request) in ordered:
                place = (replica, incarnation, sequence)
                outputs.setdefault((session, request), []).append((position, place))
    results.checked(RSP_2, len(outputs))
    for (client, number), told in outputs.items():
        if len(told) == 1:
            continue
        rows = [place for _, place in told][:_ROWS_SHOWN]
        positions = sorted({position for position, _ in told})
        what = f"request {number} of client {client}"
        if len(positions) > 1:
            results.violate(
                RSP_1, f"{what} was executed at {positions}", position=positions[0], rows=rows
            )
        who = ", ".join(f"{replica}#{incarnation}" for replica, incarnation, _ in rows)
        results.violate(RSP_2, f"{what} was answered by {who}", position=positions[0], rows=rows)
