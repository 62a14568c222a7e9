"""A served group under load while every replica it began with is replaced.

    python -m tests.service.replacing --journals FOLDER

One replica becomes three, then five; each of the five is replaced in turn, and then two go. Clients
enter numbers all the while, and note what was lost or done twice, and the longest time without an
acknowledged update, for each kind of change.
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.service.chaos import Findings
from tests.service.load import Load, Notes
from tests.service.served import Served

GROWTH = 4
"""From one replica to five."""
BETWEEN = 20
"""How many updates are acknowledged between two changes."""


@dataclass
class Replacing:
    """What came of it."""

    notes: Notes
    changes: list[tuple[float, float, str]] = field(default_factory=list)
    """When each change began and was done, and what it was."""
    problems: list[str] = field(default_factory=list)
    founders: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)

    def gaps(self) -> dict[str, float]:
        """Give the longest time without an acknowledged update, for each kind of change."""
        longest: dict[str, float] = {}
        for begin, end in pairwise(self.notes.done_at):
            kinds = {kind for at, until, kind in self.changes if at <= end and begin <= until}
            for kind in kinds or {"nothing"}:
                longest[kind] = max(longest.get(kind, 0.0), end - begin)
        return longest

    def report(self) -> str:
        """Tell it to people."""
        lines = [f"{len(self.notes.done_at)} updates acknowledged, {self.notes.unknown} unknown"]
        for kind in sorted({kind for _, _, kind in self.changes}):
            took = sorted(until - at for at, until, each in self.changes if each == kind)
            lines.append(
                f"  {kind:8} {len(took):2} times: {took[len(took) // 2]:.2f} s (median), longest "
                f"gap in service {self.gaps().get(kind, 0.0):.3f} s"
            )
        return "\n".join([*lines, *(f"BROKEN: {each}" for each in self.problems)])


async def replace_all(served: Served) -> Replacing:
    """Change the members of a group that has one, with load on it."""
    await served.until_primary(1)
    # What the load does is the same each time, and when changes come is up to the machine.
    async with Load(served.addresses, Random(1), scribes=3, readers=2) as load:  # noqa: S311
        outcome = Replacing(load.notes)

        async def change(kind: str, *words: str) -> str:
            await load.until(len(load.notes.done_at) + BETWEEN)
            begun = time.monotonic()
            status, out, err = await served.run(kind, served.name, *words)
            outcome.changes.append((begun, time.monotonic(), kind))
            if status:
                outcome.problems.append(f"{kind} {' '.join(words)}: {err.strip()}")
            return out

        for _ in range(GROWTH):
            await change("add")
        outcome.founders = sorted(served.processes())
        for id in outcome.founders:
            await change("replace", id)
        for id in sorted(served.processes())[:2]:
            await change("remove", id)
        await load.until(len(load.notes.done_at) + BETWEEN)
    load.addresses = served.addresses  # those it began with are all gone
    await load.check_end()
    outcome.members = sorted(served.processes())
    outcome.problems += Findings(load.notes).problems()
    return outcome


async def run(folder: Path, *options: str) -> Replacing:
    """Serve a group in a folder, and do it."""
    async with Served(folder, "--replicas=1", *options) as served:
        return await replace_all(served)


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--journals", type=Path, help="where the group and its journals stay")
    parser.add_argument("--engine", default="", help="the engine, if not a stack")
    args = parser.parse_args()
    options = [f"--engine={args.engine}"] if args.engine else []
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(run(args.journals or Path(folder), *options))
    print(outcome.report())
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
