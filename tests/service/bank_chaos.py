"""Chaos among banks: transfers over three groups while their primaries are killed and paused.

    python -m tests.service.bank_chaos --seconds 60

Clients in processes of their own make transfers, each a transaction over two groups, and audits,
each over all three. Checked: every audit that was committed saw all the money; at the end each
bank has had a part in exactly the transfers that its clients were told of, or found out about; and
every transaction had an outcome by its deadline. Reported: the share of transactions that were
aborted, and why; and how long no transfer of a bank was committed after each kind of fault.
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.patience import PATIENCE
from tests.service.banks import (
    ACCOUNTS,
    BANKS,
    FUNDS,
    TOTAL,
    ServedBanks,
    TransferProcess,
    load_bank,
)
from tests.service.transfer_client import DEADLINE, names_of

import coterie
from coterie.client import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("kill a primary", "kill another", "pause a primary", "kill two", "kill all")
WEIGHTS = (5, 2, 4, 1, 1)
FAULTS_MIN = 3
TRANSFERS_MIN = 50
STEPS = 4
"""How many steps with a deadline a transaction has at most: three calls and the end."""
SLACK = 2.0
"""How much later than its deadline an outcome may come on a machine that is busy."""


@dataclass
class Fault:
    """Something that was done to the processes, for the sake of one bank."""

    at: float
    kind: str
    bank: str
    ids: list[str]
    gap: float = 0.0
    """The longest time without a committed transfer of that bank."""


@dataclass
class Findings:
    """What came of it."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Give what clients said of one kind of transaction."""
        return [line for line in self.lines if line["kind"] == kind]

    def check(self) -> None:
        """Look for broken promises in what the clients saw."""
        for line in self.of("audit"):
            if line["outcome"] == "committed" and line["total"] != TOTAL:
                self.problems.append(f"an audit saw {line['total']}, and there is {TOTAL}")
        for line in [*self.of("audit"), *self.of("transfer")]:
            if line["took"] > STEPS * DEADLINE + SLACK:
                self.problems.append(f"a transaction took {line['took']:.1f} s: {line}")
        self._measure()

    def _measure(self) -> None:
        """Give each gap to the fault that made it: the first one in it, or the last before."""
        for bank in BANKS:
            committed = sorted(
                line["at"]
                for line in self.of("transfer")
                if line["outcome"] == "committed" and bank in line["banks"]
            )
            faults = [fault for fault in self.faults if fault.bank == bank]
            for begin, end in pairwise(committed):
                inside = [fault for fault in faults if begin <= fault.at < end]
                before = [fault for fault in faults if fault.at < begin]
                for fault in inside[:1] or before[-1:]:
                    fault.gap = max(fault.gap, end - begin)

    def report(self) -> str:
        """Tell it to people."""
        return "\n".join(self._report())

    def _report(self) -> Iterator[str]:
        for kind in ("transfer", "audit"):
            lines = self.of(kind)
            outcomes = Counter(line["outcome"] for line in lines)
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
            share = outcomes["aborted"] / max(1, len(lines))
            yield f"{kind}s: {counts or 'none'}; {share:.1%} were aborted"
        reasons = Counter(
            re.sub(r"\S*/\S*|'[^']*'|\d+", "…", line["reason"])
            for line in self.lines
            if line.get("outcome") == "aborted"
        )
        for reason, count in reasons.most_common(8):
            yield f"  {count:5} {reason}"
        for kind in KINDS:
            gaps = sorted(fault.gap for fault in self.faults if fault.kind == kind)
            if gaps:
                middle = gaps[len(gaps) // 2]
                yield (
                    f"  {kind:16} {len(gaps):3} times: no transfer for {middle:.2f} s (median), "
                    f"{gaps[-1]:.2f} s (longest)"
                )
        yield from (f"BROKEN: {problem}" for problem in self.problems)
        if not self.problems:
            yield "money conserved at every audit; every transfer in both banks or in none"


class Chaos:
    """One run."""

    def __init__(self, served: ServedBanks, *, seed: int, clients: int, pause: float) -> None:
        self._served = served
        self._random = Random(seed)  # noqa: S311 -- to be repeated
        self._clients = [TransferProcess(served, f"client{n}", seed + n) for n in range(clients)]
        self._pause = pause
        self._resuming: set[asyncio.Task[None]] = set()
        self.findings = Findings()

    async def run(self, seconds: float) -> Findings:
        """Do it for so long."""
        served, findings = self._served, self.findings
        await served.until_all_lead()
        await self._each_bank(lambda bank: bank.found(ACCOUNTS, FUNDS))
        for client in self._clients:
            await client.start()
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds or not self._is_enough:
            assert passed < seconds + PATIENCE, "nothing is committed between the faults"
            await asyncio.sleep(self._pause * self._random.uniform(0.5, 1.5))
            [kind] = self._random.choices(KINDS, WEIGHTS)
            bank = self._random.choice(BANKS)
            fault = Fault(time.monotonic(), kind, bank, [])
            fault.ids = self._do(kind, bank)
            findings.faults.append(fault)
        await asyncio.gather(*self._resuming)
        await asyncio.gather(*(client.stop() for client in self._clients))
        for client in self._clients:
            findings.lines += client.lines
        findings.check()
        await self._check_end()
        return findings

    @property
    def _is_enough(self) -> bool:
        """Whether enough has happened to judge by; on a busy machine it takes longer."""
        said = [line for client in self._clients for line in client.lines]
        kinds = Counter(line["kind"] for line in said if line["outcome"] == "committed")
        is_enough = kinds["transfer"] > TRANSFERS_MIN and kinds["audit"] > 0
        return is_enough and len(self.findings.faults) >= FAULTS_MIN

    async def _check_end(self) -> None:
        """Compare what the banks hold with what the clients know."""
        problems = self.findings.problems
        if sum(await self._each_bank(lambda bank: bank.total())) != TOTAL:
            problems.append("money was lost or made")
        for client in self._clients:
            parts = []
            for who in names_of(client.name):
                parts += await self._each_bank(lambda bank, who=who: bank.made(who))
            transfers = client.counts["transfers"]
            if client.counts["undecided"]:
                problems.append(f"{client.name}: nobody says how some transfers ended")
            elif sum(parts) != 2 * transfers:
                problems.append(f"{client.name} made {transfers} transfers, and the parts: {parts}")

    async def _each_bank(self, ask: Any) -> list[Any]:  # noqa: ANN401 -- any method
        cls = load_bank(self._served.folder)
        settings = ClientSettings(deadline=PATIENCE)
        answers = []
        for bank in BANKS:
            async with coterie.connect(
                cls, self._served.addresses, group=bank, settings=settings
            ) as connected:
                answers.append(await ask(connected))
        return answers

    def _do(self, kind: str, bank: str) -> list[str]:
        served = self._served
        primary = served.primary(bank)
        others = [id for id in "abc" if id != primary]
        match kind:
            case "kill a primary":
                return served.signal(signal.SIGKILL, primary)
            case "kill another":
                return served.signal(signal.SIGKILL, self._random.choice(others))
            case "kill two":
                return served.signal(signal.SIGKILL, primary, self._random.choice(others))
            case "kill all":
                return served.signal(signal.SIGKILL)
            case _:
                paused = served.signal(signal.SIGSTOP, primary)
                resuming = asyncio.create_task(self._resume(paused))
                self._resuming.add(resuming)
                resuming.add_done_callback(self._resuming.discard)
                return paused

    async def _resume(self, ids: list[str]) -> None:
        await asyncio.sleep(self._random.uniform(0.1, 2.0))
        self._served.signal(signal.SIGCONT, *ids)


async def run(
    seconds: float, *, seed: int, clients: int, pause: float, sync: str = "none"
) -> Findings:
    """Serve the banks in a folder of their own, and make chaos."""
    with tempfile.TemporaryDirectory() as folder:
        async with ServedBanks(Path(folder), f"--sync={sync}") as served:
            return await Chaos(served, seed=seed, clients=clients, pause=pause).run(seconds)


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=3, help="how many client processes")
    parser.add_argument("--pause", type=float, default=4.0, help="between two faults, on average")
    parser.add_argument("--sync", choices=("none", "primary", "turn"), default="none")
    parser.add_argument("--verbose", action="store_true", help="tell of every fault")
    args = parser.parse_args()
    findings = asyncio.run(
        run(
            args.seconds,
            seed=args.seed,
            clients=args.clients,
            pause=args.pause,
            sync=args.sync,
        )
    )
    for fault in findings.faults if args.verbose else ():
        at = fault.at - findings.faults[0].at
        ids = " ".join(fault.ids)
        print(f"{at:7.2f} s  {fault.kind} of {fault.bank} ({ids}): {fault.gap:.2f} s")
    print(findings.report())
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
