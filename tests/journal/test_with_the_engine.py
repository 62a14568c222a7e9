"""The engine's own records, written by real journals and recovered, in simulated runs.

Every replica keeps a journal on a simulated disk, synced every turn, and each of its lives begins
with what recovery gives. That must be what the replica knew when it crashed, and the run must keep
all promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from tests.seeded import seeded

import coterie.kernel.process
from coterie.journal.life import begin_life
from coterie.journal.recovery import Recovery, recover
from coterie.journal.retention import Retention, retain
from coterie.journal.snapshots import SnapshotStore
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings, JournalWriter
from coterie.kernel.clock import seconds
from coterie.kernel.engine import Past, Run
from coterie.kernel.process import Effects, Process
from coterie.kernel.records import HistoryAdopted, Record
from coterie.kernel.views import Member
from coterie.replication.primary import PrimaryViews
from coterie.simulation.campaign import RunOptions, run_seed
from coterie.simulation.disk import SimulatedDisk
from coterie.simulation.group import Host

SEEDS = 3


class Keeper:
    """The journal of one host, over all its lives."""

    def __init__(self, host: Host, seed: int) -> None:
        self.host = host
        self.disk = SimulatedDisk(seed=f"{seed}/{host.id}")
        self.random: Random = seeded("engine", seed, host.id)
        self.settings = JournalSettings(segment_bytes=self.random.choice((1000, 5000, 1 << 20)))
        self.recoveries: list[Recovery] = []
        self.writer: JournalWriter
        found_group(self.disk, self.group, host.id)

    @property
    def group(self) -> str:
        return self.host.group.name

    def begin(self) -> Recovery:
        if self.recoveries and self.random.random() < 0.5:
            self.disk.lose_power()
        recovery = recover(self.disk, self.group, self.host.id)
        assert recovery.incarnation == self.host.incarnation
        self.writer = begin_life(self.disk, recovery, self.settings)
        self.recoveries.append(recovery)
        return recovery

    def write(self, records: Sequence[Record]) -> None:
        """Store a turn, as a driver would."""
        for record in records:
            if isinstance(record, HistoryAdopted) and record.restored:
                self.snapshot(adopts=record.restored)
        self.writer.append(records)
        self.writer.sync()
        if self.random.random() < 0.01:
            self.snapshot()
        if self.random.random() < 0.01:
            retain(self.disk, self.group, self.host.id, Retention(journal_bytes_max=0))

    def snapshot(self, *, adopts: int = 0) -> None:
        log, ledger = primary(self.host).log, self.host.ledger
        assert ledger is not None
        if log.settled:
            SnapshotStore(self.disk, self.group, self.host.id).begin(
                log.settled,
                log.version,
                after=self.writer.end,
                origins=log.origins(log.settled).items(),
                adopts=adopts,
            ).write(ledger.snapshot())


def primary(host: Host) -> PrimaryViews:
    assert host.replica is not None
    return next(layer for layer in host.replica.layers if isinstance(layer, PrimaryViews))


def entries(runs: Sequence[Run], above: int) -> list[tuple[int, object, Member, int, bytes]]:
    return [
        (run.position + i, run.viewstamp(i), run.origin, run.first + i, payload)
        for run in runs
        for i, payload in enumerate(run.payloads)
        if run.position + i > above
    ]


def origins(past: Past) -> dict[Member, int]:
    """For every origin its last entry up to the settled position."""
    return dict(past.origins) | {
        origin: number
        for position, _, origin, number, _ in entries(past.runs, past.position)
        if position <= past.settled
    }


def check_same(recovered: Past, known: Past) -> None:
    assert recovered.version == known.version
    assert recovered.settled == known.settled
    assert recovered.is_zombie == known.is_zombie
    assert entries(recovered.runs, known.settled) == entries(known.runs, known.settled)
    assert origins(recovered) == origins(known)


@pytest.mark.parametrize("stack", ["PRIMARY:DYNSEQ:VSYNC", "SAFE:PRIMARY:TOKEN:VSYNC"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_life_begins_with_what_the_last_one_knew(
    stack: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keepers: dict[str, Keeper] = {}
    of_process: dict[int, Keeper] = {}
    restarts = 0

    def past(host: Host) -> Past:
        nonlocal restarts
        known = known_past(host)
        keeper = keepers.get(host.id)
        if keeper is None:
            keeper = keepers[host.id] = Keeper(host, seed)
        recovered = keeper.begin().past()
        if known is not None:
            restarts += 1
            check_same(recovered, known)
        of_process[id(host.process)] = keeper
        return recovered

    def turn(process: Process, *arguments: Any, **options: Any) -> Effects:  # noqa: ANN401
        effects = plain_turn(process, *arguments, **options)
        of_process[id(process)].write(effects.records)
        return effects

    known_past = Host._past
    plain_turn = Process.turn
    monkeypatch.setattr(Host, "_past", past)
    monkeypatch.setattr(coterie.kernel.process.Process, "turn", turn)
    options = RunOptions(stack=stack, durable=True, duration=seconds(15), history_bytes=400)
    run = run_seed(seed, options)
    assert run.violations == []
    assert restarts > 0
