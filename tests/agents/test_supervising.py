"""The supervisor: what it tells each life of a process about the lives before it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

from coterie.agents.supervising import ProgramSupervisor

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from coterie.agents.deployment import ProgramDeployment


def test_a_life_that_has_taken_no_turn_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edge that dies while it reads its journal has not put on record that it is whole.

    Its next life would else go on from what the last copies had freed, which are gone.
    """
    told: list[bool] = []

    async def start(*words: str, **options: object) -> SimpleNamespace:
        del options
        told.append("--again" in words)

        async def wait() -> int:
            return -9

        return SimpleNamespace(pid=1, wait=wait)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    deployment: ProgramDeployment = SimpleNamespace(replicas={"r1": None})  # type: ignore[assignment]

    async def story() -> None:
        edge = ProgramSupervisor(tmp_path, deployment, lambda _, __: None).watched["edge"]
        await edge._live()
        await edge._live()
        edge._on_event("seen", {"orders": 0})
        await edge._live()

    asyncio.run(story())
    assert told == [False, False, True]
