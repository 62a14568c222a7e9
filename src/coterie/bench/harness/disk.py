"""The yardstick of what is durable: one write and fdatasync on the disk that holds the journals."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

SYNC_COUNT = 20
SYNC_BYTES = 4096
_sync = getattr(os, "fdatasync", os.fsync)


def file_system(folder: str) -> str:
    """Give the kind of file system a folder is on; empty where the system does not tell."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    place = os.path.realpath(folder)
    best, kind = "", ""
    for line in mounts:
        _, point, found = line.split()[:3]
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def sync_ms() -> float:
    """Give how many milliseconds a small write and its sync take, where temporary files go."""
    times: list[float] = []
    with tempfile.TemporaryFile(prefix="coterie-bench-") as file:
        for _ in range(SYNC_COUNT):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(SYNC_BYTES))
            _sync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return median(times)
