"""Figures as they come, each with what other work used of the machine while it was taken."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.machine import Others

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.bench.harness.figures import Figure

TOGETHER_SECONDS = 0.1
"""Figures that come so soon after each other are of the same measurement."""


class Gathered:
    """All figures of one run, which are also told as they come."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.figures: list[Figure] = []
        self._progress = progress
        self._others = Others()
        self._since = time.perf_counter()
        self._others_cores = 0.0

    def add(self, figure: Figure) -> None:
        """Keep a figure that was measured since the one before."""
        now = time.perf_counter()
        if now - self._since > TOGETHER_SECONDS:
            self._others_cores = round(self._others.busy_cores(), 2)
        self._others, self._since = Others(), time.perf_counter()
        figure = msgspec.structs.replace(figure, others_cores=self._others_cores)
        self.figures.append(figure)
        self._progress(str(figure))
