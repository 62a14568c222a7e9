"""The engine's own records, written by real journals and recovered, in simulated runs.

The simulator keeps real journals on simulated disks. Here it is compared, at every crash, what the
replica knew in its memory and what its next life was told by its journal.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coterie.journal.format import Sync
from coterie.kernel.clock import seconds
from coterie.kernel.engine import Past, Run
from coterie.kernel.views import Member
from coterie.replication.forming import FormingViews
from coterie.simulation import Host, RunOptions, run_seed
from coterie.simulation.engines.stack.replica import StackReplica

SEEDS = 3
FAULTS = ("loss", "delay", "partition", "isolation", "crash", "restart", "restart-all")
POWER = ("power", "power-all")


def known(host: Host) -> Past:
    """What a running replica has in its memory, as its next life should be told."""
    assert host.replica is not None
    primary = next(layer for layer in host.replica.layers if isinstance(layer, FormingViews))
    log = primary.log
    return Past(
        version=log.version,
        settled=log.settled,
        position=log.settled,
        origins=tuple(log.origins(log.settled).items()),
        runs=tuple(log.after(log.settled, up_to=log.end, bytes_max=1 << 62)),
        is_zombie=primary.is_zombie,
    )


def entries(runs: Sequence[Run], above: int) -> list[tuple[int, object, Member, int, bytes]]:
    return [
        (run.position + i, run.viewstamp(i), run.origin, run.first + i, payload)
        for run in runs
        for i, payload in enumerate(run.payloads)
        if run.position + i > above
    ]


def origins(past: Past, settled: int) -> dict[Member, int]:
    """For every origin its last entry up to a position."""
    return dict(past.origins) | {
        origin: number
        for position, _, origin, number, _ in entries(past.runs, past.position)
        if position <= settled
    }


def check_same(recovered: Past, known: Past) -> None:
    assert recovered.version == known.version
    # What was settled follows from what others have; with the machine, this knowledge may go.
    assert recovered.settled <= known.settled
    assert recovered.is_zombie == known.is_zombie
    assert entries(recovered.runs, known.settled) == entries(known.runs, known.settled)
    assert origins(recovered, known.settled) == origins(known, known.settled)


@pytest.mark.parametrize("sync", [Sync.TURN, Sync.NONE], ids=lambda sync: sync.value)
@pytest.mark.parametrize("stack", ["DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC", "PVSYNC"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_life_begins_with_what_the_last_one_knew(
    stack: str, seed: int, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: dict[str, Past] = {}
    restarts = 0
    kill, open_life = Host.kill, StackReplica.open

    def remember_and_die(host: Host) -> None:
        if host.is_up:
            memories[host.id] = known(host)
        kill(host)

    def open_life_and_compare(resident: StackReplica, incarnation_min: int) -> int:
        nonlocal restarts
        number = open_life(resident, incarnation_min)
        id = resident.machine.id
        assert resident.keeper is not None
        if id in memories:
            restarts += 1
            check_same(resident.keeper.past(), memories[id])
        return number

    monkeypatch.setattr(Host, "kill", remember_and_die)
    monkeypatch.setattr(StackReplica, "open", open_life_and_compare)
    faults = FAULTS + POWER if sync is Sync.TURN else FAULTS
    options = RunOptions(
        stack=stack, duration=seconds(15), history_bytes=400, sync=sync, faults=faults
    )
    assert run_seed(seed, options).violations == []
    assert restarts > 3
