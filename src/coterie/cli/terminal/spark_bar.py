"""How far work on Spark has come: a bar on a terminal, else a line for each job.

Spark tells how many tasks its stages have and how many are done: a classic session when it is
asked, one of Spark Connect by itself. Stages come one after the other and nobody knows how many
there will be, so the bar is that of the present job alone, and what is done is named before it.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pyspark.sql import SparkSession

_BAR = 24
_INTERVAL_SECONDS = 0.2


class SparkBar:
    """Shows the jobs of *spark*, from one `begin` to the next; on the error stream."""

    def __init__(self, spark: SparkSession, stream: TextIO | None = None) -> None:
        self._spark = spark
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty()
        self._job = ""
        self._began = 0.0
        self._stages: dict[int, tuple[int, int]] = {}
        """Tasks done and tasks in all, of each stage of the present job."""
        self._earlier: set[int] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._drawing = threading.Thread(target=self._draw_often, daemon=True)

    def __enter__(self) -> Self:
        if self._is_shown:
            if _is_connect(self._spark):
                self._spark.registerProgressHandler(self._hear)  # type: ignore[arg-type]
            self._drawing.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The session is about to end, and must not be asked any more.
        self._is_over.set()
        if self._is_shown:
            self._drawing.join()
            if _is_connect(self._spark):
                self._spark.removeProgressHandler(self._hear)  # type: ignore[arg-type]
            self._close("stopped after" if kind else "")

    def begin(self, job: str) -> None:
        """Say which job comes now; what came before it is done."""
        if not self._is_shown:
            print(f"  {job} ...", file=self._stream, flush=True)
            return
        self._close()
        with self._lock:
            self._job, self._began = job, time.monotonic()
            self._earlier.update(self._stages)
            self._stages.clear()

    def rest(self) -> None:
        """Say that nothing is being done for a while."""
        if self._is_shown:
            self._close()

    # ---- inside

    def _close(self, remark: str = "") -> None:
        """Put a line that stays in the place of the bar."""
        with self._lock:
            if self._job:
                took = time.monotonic() - self._began
                self._write(f"  {self._job:<8} {remark}{' ' if remark else ''}{took:.1f} s\n")
            self._job = ""

    def _draw_often(self) -> None:
        while not self._is_over.wait(_INTERVAL_SECONDS):
            try:
                self._draw()
            except Exception:  # noqa: BLE001 -- the session has ended; who works with it will say so
                return

    def _draw(self) -> None:
        if not _is_connect(self._spark):
            self._ask()
        with self._lock:
            if self._job:
                self._write(self._line())

    def _line(self) -> str:
        done = sum(each[0] for each in self._stages.values())
        total = sum(each[1] for each in self._stages.values())
        filled = _BAR * done // max(total, 1)
        bar = "█" * filled + "·" * (_BAR - filled)
        tasks = f"{done}/{total} tasks, " if total else ""
        return f"  {self._job:<8} {bar} {tasks}{time.monotonic() - self._began:.0f} s"

    def _ask(self) -> None:
        """Ask a session in this process, not one over Spark Connect, how far its tasks are."""
        tracker = self._spark.sparkContext.statusTracker()
        for stage in {*self._stages, *tracker.getActiveStageIds()} - self._earlier:
            info = tracker.getStageInfo(stage)
            if info is not None:
                self._note(stage, info.numCompletedTasks, info.numTasks)

    def _hear(self, *, stages: Iterable[Any] | None, **_: object) -> None:
        """Take what Spark Connect tells."""
        for stage in stages or ():
            if stage.stage_id not in self._earlier:
                self._note(stage.stage_id, stage.num_completed_tasks, stage.num_tasks)

    def _note(self, stage: int, done: int, total: int) -> None:
        with self._lock:
            self._stages[stage] = (done, total)

    def _write(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        kept = line[:width] + ("\n" if line.endswith("\n") and len(line) > width else "")
        self._stream.write(f"\r\x1b[K{kept}")
        self._stream.flush()


def _is_connect(spark: SparkSession) -> bool:
    from coterie.pipeline.spark.session import is_remote  # noqa: PLC0415 -- slow to import

    return is_remote(spark)
