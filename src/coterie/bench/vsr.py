"""What viewstamped replication costs: calls, transactions over two groups, and fail-over.

    python -m coterie.bench.vsr [--quick]

All cohorts and the client run in one process, on one event loop, and talk in encoded frames; so
the figures are processor time of everybody together, and say how the ways compare rather than how
fast machines would be. The same class in a group of one cohort is the unreplicated run that the
paper compares with: remote calls should be as fast, and prepare should mostly not wait.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.machine import describe_machine
from coterie.objects import update
from coterie.transactional import LocalGroups, Table, TransactionAborted, local_groups

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Account:
    """The object of the benchmark: balances by name."""

    balances: Table[int, int] = {}  # noqa: RUF012 -- copied for each object

    @update
    def add(self, account: int, amount: int) -> int:
        """Change a balance."""
        balance = self.balances.get(account, 0) + amount
        self.balances[account] = balance
        return balance


class Line(msgspec.Struct, frozen=True):
    """One figure."""

    what: str
    cohorts: int
    per_second: float
    median_us: float


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    cohorts: tuple[int, ...] = (1, 3, 5)
    transactions: int = 2000
    together: int = 64
    """How many transactions run at the same time, for the throughput."""
    kills: int = 3


QUICK = Plan(cohorts=(1, 3), transactions=200, kills=1)


async def _one_group(groups: LocalGroups, account: int) -> None:
    async with groups.transaction("one") as t:
        await t.one.add(account, 1)


async def _two_groups(groups: LocalGroups, account: int) -> None:
    async with groups.transaction("one") as t:
        await t.one.add(account, -1)
        await t.two.add(account, 1)


async def _calls_only(groups: LocalGroups, account: int) -> None:
    """Ten calls in one transaction: what is left of the commit in each is a tenth."""
    async with groups.transaction("one") as t:
        for _ in range(10):
            await t.one.add(account, 1)


WAYS: dict[str, Callable[[LocalGroups, int], Awaitable[None]]] = {
    "transaction with one call": _one_group,
    "transaction with ten calls": _calls_only,
    "transaction over two groups": _two_groups,
}


async def _measure_way(groups: LocalGroups, what: str, plan: Plan, cohorts: int) -> Line:
    """Measure one after the other for the latency, many together for the throughput."""
    way = WAYS[what]
    took = []
    for number in range(plan.transactions // 4):
        began = time.perf_counter()
        await way(groups, number)
        took.append(time.perf_counter() - began)

    async def work(worker: int) -> None:
        # Everyone has accounts of its own: locks are not what is measured.
        for _ in range(max(1, plan.transactions // plan.together)):
            await way(groups, 1_000_000 + worker)

    began = time.perf_counter()
    await asyncio.gather(*(work(worker) for worker in range(plan.together)))
    elapsed = time.perf_counter() - began
    done = plan.together * max(1, plan.transactions // plan.together)
    return Line(what, cohorts, done / elapsed, sorted(took)[len(took) // 2] * 1e6)


async def _commits(groups: LocalGroups) -> bool:
    """Try a transaction; one whose coordinator died in it is aborted."""
    try:
        await _one_group(groups, 0)
    except TransactionAborted:
        return False
    return True


async def _measure_fail_over(groups: LocalGroups, plan: Plan, cohorts: int) -> Line:
    """Kill the primary again and again; measure until the next transaction is committed."""
    took = []
    for _ in range(plan.kills):
        primary = groups.primary("one")
        assert primary is not None, "the group has a primary"
        began = time.perf_counter()
        groups.kill(primary)
        while not await _commits(groups):
            pass
        took.append(time.perf_counter() - began)
        groups.start(primary)
        await _one_group(groups, 0)
    return Line("kill to next commit", cohorts, 0.0, sorted(took)[len(took) // 2] * 1e6)


async def measure(plan: Plan) -> list[Line]:
    """Measure everything."""
    lines: list[Line] = []
    for cohorts in plan.cohorts:
        async with local_groups(replicas=cohorts, one=Account, two=Account) as groups:
            await _two_groups(groups, 0)
            lines += [await _measure_way(groups, what, plan, cohorts) for what in WAYS]
            if cohorts > 2:  # noqa: PLR2004 -- fewer do not survive it
                lines.append(await _measure_fail_over(groups, plan, cohorts))
    return lines


def main() -> None:
    """Print the figures as a table."""
    parser = argparse.ArgumentParser(description="What viewstamped replication costs.")
    parser.add_argument("--quick", action="store_true", help="one and three cohorts, fewer")
    arguments = parser.parse_args()
    table = [f"{name}: {value}" for name, value in describe_machine().items()]
    table += ["", "| what | cohorts | a second | median, one at a time |", "|---|---|---|---|"]
    for line in asyncio.run(measure(QUICK if arguments.quick else Plan())):
        rate = f"{line.per_second:,.0f}" if line.per_second else ""
        table.append(f"| {line.what} | {line.cohorts} | {rate} | {line.median_us:,.0f} µs |")
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
