"""The demo of a replicated program keeps its promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coterie.bench.harness.controller import free_ports
from coterie.demo.program import REQUESTS, show_program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long  # real processes, killed three times
def test_the_web_server_of_the_library_is_killed_under_its_clients_eyes(tmp_path: Path) -> None:
    said: list[str] = []
    [port] = free_ports(1)
    show_program(tmp_path, port, said.append)
    assert len([line for line in said if f"{REQUESTS} more pages on the same" in line]) == 3
