"""Real processes on a real disk, killed in the middle of their work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.journal.writing import GROUP, ID

from coterie.journal import FileDisk, JournalReader, recover
from coterie.kernel.records import EntriesAccepted

WRITER = textwrap.dedent("""
    import sys
    from tests.journal.writing import accepted, begin, confirmed, taken
    from coterie.journal import FileDisk, Sync

    writer = begin(FileDisk(sys.argv[1]), sync=Sync(sys.argv[2]), segment_bytes=100_000)
    position = writer.facts().version.position
    writer.append([accepted(position), confirmed(position)])
    while True:
        position += 1
        writer.append([taken(position, b"%d" % position * 500)])
        if writer.needs_sync(0):
            writer.sync()
        print(position, flush=True)
""")


@pytest.mark.slow  # real processes
@pytest.mark.parametrize("sync", ["turn", "none"])
def test_what_a_killed_process_had_written_is_there(sync: str, tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "journals")
    if not disk.boot_id:
        pytest.skip("this system does not tell its boot id")
    said = 0
    for life in range(1, 4):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(disk.root), sync],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said = int(line)
                if said >= 300 * life:
                    process.send_signal(signal.SIGKILL)
                    break
            said = max([said, *(int(line) for line in process.stdout if line.endswith(b"\n"))])
        recovery = recover(disk, GROUP, ID)
        assert (recovery.is_zombie, recovery.incarnation) == (False, life + 1), recovery.reason
        assert said <= recovery.version.position <= said + 1
        positions = [
            record.run.position
            for record in JournalReader(disk, GROUP, ID).records()
            if isinstance(record, EntriesAccepted)
        ]
        assert positions == list(range(1, recovery.version.position + 1))
        payloads = [payload for run in recovery.runs for payload in run.payloads]
        assert payloads == [b"%d" % n * 500 for n in positions]
