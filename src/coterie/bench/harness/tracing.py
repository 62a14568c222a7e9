"""Counting forced writes from outside: a trace of the system calls of other processes."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.bench.harness.controller import BenchError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

SYNCS = ("fsync", "fdatasync", "sync_file_range", "msync", "syncfs", "sync")


class Traced:
    """How many forced writes there were; known when the trace has ended."""

    count = 0


@asynccontextmanager
async def count_syncs(processes: Sequence[int]) -> AsyncIterator[Traced]:
    """Count the forced writes of some processes while the block lasts."""
    if not shutil.which("strace"):
        raise BenchError("strace is not installed, so forced writes cannot be counted")
    traced = Traced()
    with tempfile.TemporaryDirectory(prefix="coterie-trace-") as folder:
        trace = Path(folder) / "trace"
        attached = [word for process in processes for word in ("-p", str(process))]
        tracer = await asyncio.create_subprocess_exec(
            *("strace", "-f", "-e", f"trace={','.join(SYNCS)}", "-o", str(trace), *attached),
            stderr=asyncio.subprocess.PIPE,
        )
        assert tracer.stderr is not None
        for _ in processes:
            if b"attached" not in await tracer.stderr.readline():
                raise BenchError("strace may not look at the replicas, so nothing can be counted")
        try:
            yield traced
        finally:
            tracer.send_signal(signal.SIGINT)
            await tracer.wait()
        text = await asyncio.to_thread(trace.read_text, encoding="utf-8", errors="replace")
        traced.count = sum(
            any(f" {name}(" in line for name in SYNCS) and "resumed" not in line
            for line in text.splitlines()
        )
