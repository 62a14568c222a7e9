"""Chaos: a served group under load while its replicas are killed, paused and restarted.

    python -m tests.service.chaos --seconds 120

Everything the clients saw is checked afterwards: histories are linearizable, nothing acknowledged
was lost or done twice, every call had an outcome by its deadline. The longest gaps in the service
are reported for each kind of fault.
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from tests import idle_time
from tests.patience import PATIENCE
from tests.service.load import SLACK, Load, Notes
from tests.service.served import Served

from coterie.checking.linearizability import Linearizable

KINDS = ("kill the orderer", "kill another", "kill two", "pause", "restart", "kill all")
WEIGHTS = (5, 3, 2, 4, 2, 1)
FAULTS_MIN = 3
"""So many happen in any case, however long they take on a busy machine."""


@dataclass
class Fault:
    """Something that was done to the group."""

    at: float
    kind: str
    ids: list[str]
    is_whole: bool = True
    """Whether all replicas were in the primary view before."""
    gap: float = 0.0
    """The longest time without an acknowledged update."""


@dataclass
class Findings:
    """What came of it."""

    notes: Notes
    faults: list[Fault] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Say which promises were broken."""
        problems = list(self.notes.violations)
        verdict = self.notes.verdict()
        if not isinstance(verdict, Linearizable):
            problems.append(str(verdict))
        if self.notes.latest > SLACK:
            problems.append(f"a call ended {self.notes.latest:.2f} s after its deadline")
        return problems

    def measure(self) -> None:
        """Give each gap to the fault that made it: the first one in it, or the last before."""
        for begin, end in pairwise(self.notes.done_at):
            inside = [fault for fault in self.faults if begin <= fault.at < end]
            before = [fault for fault in self.faults if fault.at < begin]
            for fault in inside[:1] or before[-1:]:
                fault.gap = max(fault.gap, end - begin)

    def report(self) -> str:
        """Tell it to people."""
        notes = self.notes
        lines = [f"updates acknowledged: {len(notes.done_at)}, unknown: {notes.unknown}"]
        lines[0] += f", surely not done: {notes.not_done}; on registers: {len(notes.history)}"
        longest = max((fault.gap for fault in self.faults), default=0.0)
        lines.append(f"longest gap in service: {longest:.2f} s")
        for is_whole, when in ((True, "all were up"), (False, "some were down already")):
            for kind in KINDS:
                gaps = sorted(
                    fault.gap
                    for fault in self.faults
                    if (fault.kind, fault.is_whole) == (kind, is_whole)
                )
                if gaps:
                    middle = gaps[len(gaps) // 2]
                    lines.append(
                        f"  {kind:17} while {when:22} {len(gaps):3} times: gap {middle:.2f} s "
                        f"(median), {gaps[-1]:.2f} s (longest)"
                    )
        problems = self.problems()
        lines += [f"BROKEN: {problem}" for problem in problems]
        if not problems:
            lines.append("linearizable; nothing lost, nothing done twice, every call had its end")
        return "\n".join(lines)


class Chaos:
    """One run."""

    def __init__(self, served: Served, *, seed: int, replicas: int, pause: float) -> None:
        self._served = served
        self._random = Random(seed)  # noqa: S311 -- to be repeated
        self._replicas = replicas
        self._pause = pause
        self._resuming: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> Findings:
        """Do it for so long."""
        served, random = self._served, self._random
        await served.until_primary(self._replicas)
        load = Load(served.addresses, random, scribes=3, readers=3)
        findings = Findings(load.notes)
        end = time.monotonic() + seconds
        async with load:
            await load.until(50)
            while time.monotonic() < end or len(findings.faults) < FAULTS_MIN:
                [kind] = random.choices(KINDS, WEIGHTS)
                is_whole = all(each.role == "primary" for each in served.processes().values())
                fault = Fault(time.monotonic(), kind, [], is_whole)
                fault.ids = self._do(kind)
                findings.faults.append(fault)
                await asyncio.sleep(self._pause * random.uniform(0.5, 1.5))
                if not await self._serves_again(load):
                    load.notes.violations.append(f"no service {PATIENCE:.0f} s after: {fault}")
                    break
            await asyncio.gather(*self._resuming)
        await load.check_end()
        findings.measure()
        return findings

    async def _serves_again(self, load: Load) -> bool:
        """Wait for the service before the next fault, so that each answers for its own gap."""
        try:
            async with asyncio.timeout(PATIENCE):
                await load.until(len(load.notes.done_at) + 1)
        except TimeoutError:
            return False
        return True

    def _do(self, kind: str) -> list[str]:
        served = self._served
        ids = [chr(ord("a") + number) for number in range(self._replicas)]
        orderer = self._orderer()
        others = [id for id in ids if id != orderer]
        match kind:
            case "kill the orderer":
                return served.signal(signal.SIGKILL, orderer)
            case "kill another":
                return served.signal(signal.SIGKILL, self._random.choice(others))
            case "kill two":
                return served.signal(signal.SIGKILL, *self._random.sample(ids, 2))
            case "restart":
                return served.signal(signal.SIGTERM, self._random.choice(ids))
            case "kill all":
                return served.signal(signal.SIGKILL)
            case _:
                paused = served.signal(signal.SIGSTOP, self._random.choice(ids))
                resuming = asyncio.create_task(self._resume(paused))
                self._resuming.add(resuming)
                resuming.add_done_callback(self._resuming.discard)
                return paused

    async def _resume(self, ids: list[str]) -> None:
        await asyncio.sleep(self._random.uniform(0.1, 2.0))
        self._served.signal(signal.SIGCONT, *ids)

    def _orderer(self) -> str:
        """The first member of the newest primary view gives the order."""
        for event in reversed(self._served.events):
            if event["event"] == "role" and event["role"] == "primary":
                return str(event["members"][0])
        return "a"


async def run(seconds: float, *, seed: int, replicas: int, pause: float, sync: str) -> Findings:
    """Serve a group in a folder of its own, and make chaos."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--replicas={replicas}", f"--sync={sync}"]
        async with Served(Path(folder), *options) as served:
            chaos = Chaos(served, seed=seed, replicas=replicas, pause=pause)
            return await chaos.run(seconds)


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--pause", type=float, default=3.0, help="between two faults, on average")
    parser.add_argument("--sync", choices=("none", "interval", "turn"), default="none")
    parser.add_argument("--verbose", action="store_true", help="tell of every fault")
    args = parser.parse_args()
    findings = idle_time.run(
        run(
            args.seconds,
            seed=args.seed,
            replicas=args.replicas,
            pause=args.pause,
            sync=args.sync,
        )
    )
    for fault in findings.faults if args.verbose else ():
        at = fault.at - findings.faults[0].at
        print(f"{at:7.2f} s  {fault.kind} ({' '.join(fault.ids)}): {fault.gap:.2f} s")
    print(findings.report())
    return 1 if findings.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
