"""Transactions for programs without an event loop: the same outcomes, from a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.service.vsr_deployment import GROUPS, SETTINGS, Deployment, play
from tests.transactional.banks import ClassBank, Frozen

import coterie
from coterie.ready import Counter
from coterie.vsr.commit.client import Fate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BANKS = {name: GROUPS[name] for name in ("eu", "us", "hits")}


def play_blocking(tmp_path: Path, story: Callable[[ClassBank, ClassBank, list[str]], None]) -> None:
    """Run a story in a thread, with two banks that are served in this one."""

    def connected(addresses: list[str]) -> None:
        with (
            coterie.connect_blocking(ClassBank, addresses, group="eu", settings=SETTINGS) as eu,
            coterie.connect_blocking(ClassBank, addresses, group="us", settings=SETTINGS) as us,
        ):
            story(eu, us, addresses)

    async def serve(deployment: Deployment) -> None:
        await deployment.start_all()
        await asyncio.to_thread(connected, deployment.seeds)

    play(tmp_path, serve, BANKS)


def test_leaving_the_block_commits_and_an_exception_aborts(tmp_path: Path) -> None:
    def story(eu: ClassBank, us: ClassBank, addresses: list[str]) -> None:
        with coterie.transaction_blocking(eu, us) as t:
            assert t.eu.withdraw("alice", 10) == 90
            assert t["us"].deposit("bob", 10) == 110
        assert t.outcome is not None
        assert t.outcome.fate is Fate.COMMITTED
        assert t.aid is not None
        assert coterie.outcome_of_blocking(t.aid, eu).fate is Fate.COMMITTED
        assert (eu.balance("alice"), us.balance("bob")) == (90, 110)

        with coterie.transaction_blocking(eu, us) as t:
            with pytest.raises(Frozen), t.part():  # noqa: PT012 -- the block
                t.us.deposit("bob", 10)
                t.us.freeze("bob")
            with t.part():
                assert t.us.deposit("bob", 0) == 110

        with (  # noqa: PT012 -- the block
            pytest.raises(RuntimeError, match="never mind"),
            coterie.transaction_blocking(eu, us) as t,
        ):
            t.eu.withdraw("alice", 10)
            raise RuntimeError("never mind")
        assert t.outcome is not None
        assert t.outcome.fate is Fate.ABORTED
        assert eu.balance("alice") == 90

        with coterie.transaction_blocking(eu) as t:
            with pytest.raises(coterie.MethodFailed, match="Overdrawn"):
                t.eu.withdraw("alice", 1000)
            with pytest.raises(Frozen, match="alice is frozen"):
                t.eu.freeze("alice")
            with pytest.raises(coterie.BadArguments, match="amount"):
                t.eu.withdraw("alice", "all of it")
            with pytest.raises(coterie.UnknownGroup, match="there is no group 'mars'"):
                _ = t.mars
            t.eu.withdraw("alice", 1)
        assert eu.balance("alice") == 89
        with pytest.raises(AttributeError, match=r"ClassBank\.accounts cannot be assigned"):
            eu.accounts = {}
        with pytest.raises(Frozen) as frozen:
            eu.freeze("alice")
        assert frozen.value.since == 1.5
        with pytest.raises(coterie.TransactionOver):
            t.eu.withdraw("alice", 1)

        with (
            coterie.connect_blocking(Counter, addresses, group="hits") as hits,
            pytest.raises(coterie.CoterieError, match="takes no transactions"),
        ):
            coterie.transaction_blocking(eu, hits)
        with pytest.raises(coterie.CoterieError, match="over one group at least"):
            coterie.transaction_blocking()
        with pytest.raises(TypeError, match="no object that connect_blocking"):
            coterie.transaction_blocking(Counter())

    play_blocking(tmp_path, story)
