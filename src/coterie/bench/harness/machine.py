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
    """How busy other work kept the machine, from when this is made.

    What the host of a virtual machine gave to other machines is other work, too.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy = _busy_seconds()
        self._ours = family_seconds()

    def busy_cores(self) -> float:
        """Give how many cores were busy on average with what we and our children did not do.

        0 where the system does not tell.
        """
        took = time.perf_counter() - self._began
        theirs = (_busy_seconds() - self._busy) - (family_seconds() - self._ours)
        return max(theirs / took, 0.0)


def _busy_seconds() -> float:
    """Give the processor time of everybody, other machines included, since this one started."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *rest = map(int, words[1:9])  # interrupts, stolen time
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def family_seconds() -> float:
    """Give the processor time of this process and all below it, ended ones included."""
    try:
        processes = dict(filter(None, map(_times_of, Path("/proc").glob("[0-9]*/stat"))))
    except OSError:
        return _own_seconds()
    family = {os.getpid()}
    # A process is younger than its parent, but numbers begin anew: so until nobody is added.
    size = 0
    while size != len(family):
        size = len(family)
        family |= {each for each, (parent, _) in processes.items() if parent in family}
    ticks = sum(processes[each][1] for each in family if each in processes)
    return ticks / os.sysconf("SC_CLK_TCK") or _own_seconds()


def _times_of(path: Path) -> tuple[int, tuple[int, int]] | None:
    """Give a process, its parent, and the ticks of it and of its children that have ended."""
    try:
        words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # it has ended meanwhile
    return int(path.parent.name), (int(words[1]), sum(map(int, words[11:15])))


def _own_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
