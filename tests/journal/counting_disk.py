"""A disk that notes what is read of it."""

from __future__ import annotations

from collections import Counter

from coterie.simulation.world.disk import SimulatedDisk

HEAD_BYTES = 4096
"""What may be read again of a file: its head, which says what the file is."""


class CountingDisk(SimulatedDisk):
    """Counts how often each byte behind the heads was read."""

    def __init__(self) -> None:
        super().__init__()
        self._reads: list[tuple[str, int, int]] = []

    def read(self, path: str, offset: int, length: int) -> bytes:
        data = super().read(path, offset, length)
        self._reads.append((path, offset, offset + len(data)))
        return data

    def forget_reads(self) -> None:
        self._reads.clear()

    def times_read(self) -> dict[str, int]:
        """How often the most often read byte behind the head of each file was read."""
        counts: dict[str, Counter[int]] = {}
        for path, start, end in self._reads:
            blocks = range(max(start, HEAD_BYTES), end)
            if blocks:
                counts.setdefault(path, Counter()).update(blocks)
        return {path: max(count.values()) for path, count in counts.items()}
