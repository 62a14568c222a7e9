"""On what a benchmark ran; figures without it mean nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from coterie.runtime.loop import loop_name


def describe_machine() -> dict[str, str | int]:
    """Give what a reader needs to judge the figures.

    Ask before a measurement, so that the load average is that of other work.
    """
    loop = loop_name()
    return {
        "cores": _usable_cores(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": f"uvloop {version('uvloop')}" if loop == "uvloop" else loop,
        "coterie": version("coterie"),
        "load_average": f"{os.getloadavg()[0]:.1f}",
    }


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
