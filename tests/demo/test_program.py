"""The demo of a replicated program keeps its promise."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from coterie.bench.harness.controller import free_ports
from coterie.demo.program import REQUESTS, ProgramDemoFailed, show_program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow  # real processes, and a port that somebody has
def test_a_server_that_cannot_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    """It was waited for, for two minutes, and nobody heard what it had said."""
    ended = pytest.raises(ProgramDemoFailed, match=r"ended with status \d+\s+it said:")
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken, ended as failed:
        show_program(tmp_path, taken.getsockname()[1], said.append)
    assert "in use" in str(failed.value)


@pytest.mark.long  # real processes, killed three times
def test_the_web_server_of_the_library_is_killed_under_its_clients_eyes(tmp_path: Path) -> None:
    said: list[str] = []
    [port] = free_ports(1)
    show_program(tmp_path, port, said.append)
    assert len([line for line in said if f"{REQUESTS} more pages on the same" in line]) == 3
