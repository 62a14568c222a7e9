"""All boundaries that are fuzzed, for each engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tests.fuzz import (
    agents,
    backups,
    clients,
    cohorts,
    columns,
    configs,
    control,
    datagrams,
    journals,
    managers,
    objects,
    peers,
    program_disks,
    programs,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.tally import Tally


class Boundary(NamedTuple):
    """What gives wrong inputs to one boundary of one engine."""

    run: Callable[[int, int], Tally]
    """From a seed, so many inputs."""
    inputs_a_run: int
    """After so many everything begins anew, with the next seed."""
    inputs_in_check: int
    """How many are given in `./check --long`."""


BOUNDARIES: dict[tuple[str, str], Boundary] = {
    ("peers", "stack"): Boundary(partial(peers.run, peers.STACKS), 1200, 3600),
    ("peers", "colours"): Boundary(partial(peers.run, peers.COLOURS), 1200, 3600),
    ("peers", "vsr"): Boundary(cohorts.run, 1000, 1000),
    ("peers", "objects"): Boundary(objects.run, 600, 3600),
    ("peers", "llft"): Boundary(programs.run, 600, 2400),
    ("clients", "stack"): Boundary(partial(clients.fuzz, "stack"), 20_000, 8000),
    ("clients", "vsr"): Boundary(partial(clients.fuzz, "vsr"), 20_000, 4000),
    ("clients", "colours"): Boundary(partial(clients.fuzz, "colours"), 20_000, 4000),
    ("datagrams", "stack"): Boundary(datagrams.fuzz, 20_000, 10_000),
    ("control", "stack"): Boundary(partial(control.fuzz, "stack"), 50_000, 20_000),
    ("control", "vsr"): Boundary(partial(control.fuzz, "vsr"), 50_000, 20_000),
    ("config", "stack"): Boundary(partial(configs.fuzz, "stack"), 10_000, 5000),
    ("config", "vsr"): Boundary(partial(configs.fuzz, "vsr"), 10_000, 5000),
    ("journals", "stack"): Boundary(partial(journals.fuzz_journals, "stack"), 5000, 2500),
    ("journals", "vsr"): Boundary(partial(journals.fuzz_journals, "vsr"), 5000, 2500),
    ("journals", "colours"): Boundary(partial(journals.fuzz_journals, "colours"), 5000, 2500),
    ("journals", "llft"): Boundary(program_disks.fuzz, 2500, 1000),
    ("snapshots", "stack"): Boundary(partial(journals.fuzz_snapshots, "stack"), 5000, 2500),
    ("snapshots", "vsr"): Boundary(partial(journals.fuzz_snapshots, "vsr"), 5000, 2500),
    ("snapshots", "colours"): Boundary(partial(journals.fuzz_snapshots, "colours"), 5000, 2500),
    ("columns", "stack"): Boundary(partial(columns.fuzz, "stack"), 5000, 1000),
    ("columns", "vsr"): Boundary(partial(columns.fuzz, "vsr"), 5000, 1000),
    ("columns", "colours"): Boundary(partial(columns.fuzz, "colours"), 5000, 1000),
    ("agents", "llft"): Boundary(agents.fuzz, 50_000, 20_000),
    ("hosts", "manager"): Boundary(managers.fuzz, 10_000, 4000),
    ("backups", "stack"): Boundary(backups.fuzz, 2000, 1000),
    ("dumps", "stack"): Boundary(partial(journals.fuzz_dumps, "stack"), 20_000, 10_000),
}
"""By boundary and engine; under viewstamped replication nothing is dumped."""
