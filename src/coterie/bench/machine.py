"""On what a benchmark ran; figures without it mean nothing."""

from __future__ import annotations

import os
import platform
import resource
import time
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
        "loop_ns": _loop_ns(),
    }


def _loop_ns() -> int:
    """Give the processor time of one step of a plain loop: how fast Python is here and now."""
    steps = 300_000
    began = time.process_time_ns()
    total = 0
    for step in range(steps):
        total += step
    return (time.process_time_ns() - began) // steps


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


class Others:
    """How busy other work kept the machine, from when this is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy = _busy_seconds()
        self._ours = _our_seconds()

    def busy_cores(self) -> float:
        """Give how many cores were busy on average with what we and our children did not do.

        Children count once they have ended. 0 where the system does not tell.
        """
        took = time.perf_counter() - self._began
        theirs = (_busy_seconds() - self._busy) - (_our_seconds() - self._ours)
        return max(theirs / took, 0.0)


def _busy_seconds() -> float:
    """Give the processor time of everybody since the machine started."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts = map(int, words[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _our_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
