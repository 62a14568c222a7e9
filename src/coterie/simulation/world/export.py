"""Journals of simulated runs as real files, for the pipeline and for people.

Beside the journals stands `true-times.csv`: when, in the simulation's own time, each turn was
written. Replicas only know their own clocks, which jump and drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from coterie.simulation.world.machine import Machine

TRUE_TIMES = "true-times.csv"


def write_journals(machines: Iterable[Machine], folder: Path) -> None:
    """Write the disks of all machines into one folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["group,replica,incarnation,sequence,true_us"]
    for machine in machines:
        machine.disk.write_out(folder)
        lines += [
            f"{group},{machine.id},{life},{last},{at}" for group, life, last, at in machine.written
        ]
    (folder / TRUE_TIMES).write_text("\n".join(lines) + "\n", encoding="utf-8")
