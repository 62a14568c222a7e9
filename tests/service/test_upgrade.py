"""A rolling upgrade of real processes, as an operator would do it: a new file, and restarts."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE
from tests.service.served import Served

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # starts real processes

FIRST = """
from coterie import update


class Ledger:
    entries: list[int] = []

    @update
    def enter(self, amount: int) -> int:
        self.entries.append(amount)
        return sum(self.entries)
"""
SECOND = """
from coterie import query, update


class LedgerOfVersion1:
    entries: list[int] = []

    @update
    def enter(self, amount: int) -> int:
        self.entries.append(amount)
        return sum(self.entries)


class Ledger:
    version = 2
    previous = LedgerOfVersion1
    total: int = 0

    def upgrade(self, old: LedgerOfVersion1) -> None:
        self.total = sum(old.entries)

    @update
    def enter(self, amount: int, *, note: str = "") -> int:
        self.total += amount
        return self.total

    @query
    def read(self) -> int:
        return self.total
"""


def test_replicas_are_upgraded_one_by_one_and_none_goes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with Served(tmp_path, source=FIRST) as served:
            await served.until_primary(3)
            assert await served.run("call", "ledger", "enter", "5") == (0, "5\n", "")
            file = tmp_path / "ledger.py"
            file.write_text(SECOND, encoding="utf-8")
            for total, id in enumerate("abc", start=6):
                status, _, err = await served.run("call", "ledger", "read")
                assert (status, "no method 'read'" in err) == (2, True)
                before = len(served.events)
                served.signal(signal.SIGKILL, id)
                await served.until_primary(3, after=before)
                assert await served.run("call", "ledger", "enter", "1") == (0, f"{total}\n", "")
            async with asyncio.timeout(PATIENCE):
                while (await served.run("call", "ledger", "read"))[:2] != (0, "8\n"):
                    pass  # the last announcement is on its way
            assert await served.run("call", "ledger", "enter", "1") == (0, "9\n", "")

            file.write_text(FIRST, encoding="utf-8")
            served.signal(signal.SIGKILL, "a")
            reason = "the group runs version 2 of Ledger"
            await served.until(lambda: any(reason in str(event) for event in served.events))
            assert await served.run("call", "ledger", "enter", "1") == (0, "10\n", "")

    asyncio.run(story())
