"""A progress line for long work: on a terminal only, and gone when the work is done."""

import shutil
import sys
import time
from types import TracebackType
from typing import Self

_BAR = 24


class Progress:
    """Shows how much of *total* is done, how fast, and a remark.

    Writes to the error stream, so that what a command prints stays clean.
    """

    def __init__(self, total: int, unit: str) -> None:
        self._total = total
        self._unit = unit
        self._done = 0
        self._remark = ""
        self._begun = time.monotonic()
        self._drawn = 0.0
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def step(self, remark: str = "") -> None:
        """Note that one more is done."""
        self._done += 1
        self._remark = remark
        if time.monotonic() - self._drawn > 0.1:  # noqa: PLR2004 -- ten times a second is enough
            self._draw()

    def _draw(self) -> None:
        if not self._is_shown:
            return
        self._drawn = time.monotonic()
        elapsed = max(self._drawn - self._begun, 1e-6)
        filled = _BAR * self._done // max(self._total, 1)
        bar = "█" * filled + "·" * (_BAR - filled)
        line = f"{bar} {self._done}/{self._total} {self._unit}, {self._done / elapsed:.1f}/s"
        if self._remark:
            line += f", {self._remark}"
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{line[:width]}")
        sys.stderr.flush()
