"""A progress line for long work: drawn on a terminal, else a line every ten seconds."""

import shutil
import sys
import time
from types import TracebackType
from typing import Self

_BAR = 24
_DRAW_SECONDS = 0.1
_LINE_SECONDS = 10.0


class Progress:
    """Shows how much of *total* is done, how fast, and a remark.

    Writes to the error stream, so that what a command prints stays clean. On a terminal the line is
    gone when the work is done; whoever reads a file or a pipe gets a line now and then, so that
    minutes of work do not look like a program that hangs.
    """

    def __init__(self, total: int, unit: str) -> None:
        self._total = total
        self._unit = unit
        self._done = 0
        self._remark = ""
        self._begun = self._shown = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def step(self, remark: str = "") -> None:
        """Note that one more is done."""
        self._done += 1
        self._remark = remark
        now = time.monotonic()
        if now - self._shown > (_DRAW_SECONDS if self._is_terminal else _LINE_SECONDS):
            self._shown = now
            if self._is_terminal:
                self._draw()
            else:
                print(self._text(), file=sys.stderr, flush=True)

    def _draw(self) -> None:
        filled = _BAR * self._done // max(self._total, 1)
        bar = "█" * filled + "·" * (_BAR - filled)
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{f'{bar} {self._text()}'[:width]}")
        sys.stderr.flush()

    def _text(self) -> str:
        elapsed = max(time.monotonic() - self._begun, 1e-6)
        text = f"{self._done}/{self._total} {self._unit}, {self._done / elapsed:.1f}/s"
        return f"{text}, {self._remark}" if self._remark else text
