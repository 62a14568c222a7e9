"""Clocks and chance: each reading and each draw is an entry.

There is one clock, the group's, in nanoseconds since the program was founded (**llft** V-D). The
monotonic clocks show it as it is, the wall clock adds the time of the founding; so both go on
without a jump whoever leads. It does not follow later corrections of a machine's clock.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

from coterie.program.entries import EPOCH, EntryKind, Wake
from coterie.program.machine import machine
from coterie.program.standins.replacing import replace, replace_in_type, when_imported

_urandom = os.urandom
_time_ns, _process_time_ns = time.time_ns, time.process_time_ns
_localtime, _gmtime, _strftime = time.localtime, time.gmtime, time.strftime
_asctime = time.asctime
_GROUP, _PROCESS = 0, 1
_epoch = 0


def group_clock() -> int:
    """Read the group's clock, in nanoseconds."""
    here = machine()
    here.checkpoint()
    here.now = here.decide(EntryKind.CLOCK, _GROUP, lambda: (here.course.clock(), b""))[0]
    return here.now


def _monotonic_ns() -> int:
    return group_clock()


def _monotonic() -> float:
    return group_clock() / 1e9


def _wall_ns() -> int:
    return _epoch + group_clock()


def _wall() -> float:
    return (_epoch + group_clock()) / 1e9


def _busy_ns() -> int:
    here = machine()
    here.checkpoint()
    return here.decide(EntryKind.CLOCK, _PROCESS, lambda: (_process_time_ns(), b""))[0]


def _busy() -> float:
    return _busy_ns() / 1e9


def _clock_gettime_ns(clock: int) -> int:
    if clock == time.CLOCK_REALTIME:
        return _wall_ns()
    if clock in {time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID}:
        return _busy_ns()
    return group_clock()


def _clock_gettime(clock: int) -> float:
    return _clock_gettime_ns(clock) / 1e9


def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    deadline = group_clock() + int(seconds * 1e9)
    here = machine()
    while here.block(deadline) is not Wake.TIMEOUT:
        pass


def local_time(seconds: float | None = None) -> time.struct_time:
    """Give the local time, now if no time is given."""
    return _localtime(_wall() if seconds is None else seconds)


def _utc_time(seconds: float | None = None) -> time.struct_time:
    return _gmtime(_wall() if seconds is None else seconds)


def _text_time(parts: Any = None) -> str:
    return _asctime(local_time() if parts is None else parts)


def _text_of_seconds(seconds: float | None = None) -> str:
    return _asctime(local_time(seconds))


def _format_time(form: str, parts: Any = None) -> str:
    return _strftime(form, local_time() if parts is None else parts)


def draw(count: int) -> bytes:
    """Draw bytes."""
    if count < 0:
        raise ValueError("negative argument not allowed")
    here = machine()
    here.checkpoint()
    return here.decide(EntryKind.BYTES, 0, lambda: (0, _urandom(count)))[1]


def _getrandom(size: int, flags: int = 0) -> bytes:
    return draw(size)


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    if a is None:
        a = int.from_bytes(draw(32))
    _original_seed(self, a, version)


_original_seed = random.Random.seed


def install_clocks() -> None:
    """Replace clocks and chance."""
    global _epoch  # noqa: PLW0603 -- a process has one
    _epoch = machine().decide(EntryKind.RESULT, EPOCH, lambda: (_time_ns(), b""))[0]
    for name, standin in {
        "time": _wall,
        "time_ns": _wall_ns,
        "monotonic": _monotonic,
        "monotonic_ns": _monotonic_ns,
        "perf_counter": _monotonic,
        "perf_counter_ns": _monotonic_ns,
        "process_time": _busy,
        "process_time_ns": _busy_ns,
        "thread_time": _busy,
        "thread_time_ns": _busy_ns,
        "clock_gettime": _clock_gettime,
        "clock_gettime_ns": _clock_gettime_ns,
        "sleep": _sleep,
        "localtime": local_time,
        "gmtime": _utc_time,
        "asctime": _text_time,
        "ctime": _text_of_seconds,
        "strftime": _format_time,
    }.items():
        replace(time, name, standin)
    replace(os, "urandom", draw)
    replace(os, "getrandom", _getrandom)
    random.Random.seed = _seed  # type: ignore[method-assign]
    # The module's functions are methods of one generator, bound before.
    state: Any = random
    state.seed = state._inst.seed
    state.seed()
    when_imported("datetime", _change_datetime)
    when_imported("ssl", _change_ssl_random)
    sys.modules.setdefault("_uuid", None)  # type: ignore[arg-type]
    when_imported("uuid", _change_uuid)


def _change_datetime(module: Any) -> None:
    moment, day = module.datetime, module.date

    def now(cls: Any, tz: Any = None) -> Any:
        return cls.fromtimestamp(_wall(), tz)

    def utcnow(cls: Any) -> Any:
        return cls.fromtimestamp(_wall(), module.timezone.utc).replace(tzinfo=None)

    def today(cls: Any) -> Any:
        return cls.fromtimestamp(_wall())

    replace_in_type(moment, "now", classmethod(now))
    replace_in_type(moment, "utcnow", classmethod(utcnow))
    replace_in_type(moment, "today", classmethod(today))
    replace_in_type(day, "today", classmethod(today))


def _change_ssl_random(module: Any) -> None:
    replace(module, "RAND_bytes", draw)


def _change_uuid(module: Any) -> None:
    module._generate_time_safe = module._UuidCreate = None
    # Python's own rule for a machine without a network card: random, with the multicast bit.
    module._node = int.from_bytes(draw(6)) | (1 << 40)
