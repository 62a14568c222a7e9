"""The story of the demo, without Spark: it happens, and nothing confirmed is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coterie.demo.exchange import GROUP
from coterie.demo.story import IDS, tell
from coterie.journal.disk import FileDisk
from coterie.journal.engines.stack import recover
from coterie.objects.execution.commands import Call, decode_command
from coterie.runtime.loop import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_the_story_has_what_it_promises(tmp_path: Path) -> None:
    said: list[str] = []
    told = run(tell(tmp_path, said.append))
    assert any("rolled back" in line for line in said)
    for id in IDS:
        past = recover(FileDisk(tmp_path / id), GROUP, id).past()
        commands = [decode_command(payload) for run in past.runs for payload in run.payloads]
        # What a caller retried may stand there twice; it is executed once for its number.
        recorded = {
            (command.session, command.request): bytes(command.arguments)
            for command in commands
            if isinstance(command, Call)
        }.values()
        if past.position:
            continue  # the beginning is in a snapshot
        for call in told.heard.confirmed:
            assert sum(call.name.encode() in arguments for arguments in recorded) == 1, (id, call)
        for call in told.heard.unconfirmed:
            assert sum(call.name.encode() in arguments for arguments in recorded) <= 1
