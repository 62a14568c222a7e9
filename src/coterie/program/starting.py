"""`python -m coterie.program.starting WIRE lead|follow|FOUNDED WORDS`: a program's own process.

Runs in the program's interpreter, before anything of the program: makes the course and the machine,
replaces what must be replaced, hangs up the net, and becomes the program. WORDS are what stood
behind the interpreter: a script, `-m MODULE` or `-c CODE`, and its arguments. A replica follows
until it is told to lead; FOUNDED is when its group was founded, by its machine's clock, and behind
a colon the descriptor of the folder for copies of the process, if any are to be made.
"""

from __future__ import annotations

import atexit
import encodings.idna  # noqa: F401 -- real look-ups of names load it, only where they are made
import fcntl
import os
import random
import runpy
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

from coterie.program import machine as machines
from coterie.program import refusals
from coterie.program.courses import FollowingCourse, LeadingCourse
from coterie.program.replicated import ReplicaCourse
from coterie.program.standins import clocks, libraries, polling, replacing, sockets, system, threads
from coterie.program.wire import WireKind

if TYPE_CHECKING:
    from coterie.program.courses import Course

LOADED_EARLY = ("socket", "selectors", "asyncio", "logging", "concurrent.futures")
_shaken: list[Any] = []
_leave, _setitimer = os._exit, signal.setitimer
_WIRE_FIRST = 300
"""Our own descriptors are above: the numbers of the program's files must not depend on them."""
BUSY_WARN, BUSY_STOP = 5, 30
"""Seconds of processor time without a call."""


def shake() -> None:
    """Move what is allocated from here on: addresses differ from those of whoever led."""
    chance = random.SystemRandom()
    _shaken.extend(object() for _ in range(chance.randrange(1000, 5000)))
    _shaken.extend(bytearray(chance.randrange(1, 2000)) for _ in range(chance.randrange(500)))
    _shaken.extend([None] * chance.randrange(1, 40) for _ in range(chance.randrange(500)))
    # Holes of every size, so that neighbours in one process are none in the other.
    keep = [each for each in _shaken if chance.random() < 0.5]  # noqa: PLR2004 -- a half
    _shaken.clear()
    _shaken.extend(keep)


class BusyWatch:
    """Notices a program that makes no calls, and threads that are not the program's."""

    def __init__(self, machine: machines.Determinizer) -> None:
        self._machine = machine
        self._last = -1
        self._ticks = 0

    def start(self) -> None:
        """Look after each second of processor time."""
        signal.signal(signal.SIGVTALRM, self._look)
        self.rearm()

    @staticmethod
    def rearm() -> None:
        """Look after each second from here on; copies of a process have no timers."""
        _setitimer(signal.ITIMER_VIRTUAL, 1.0, 1.0)

    def _look(self, *_: object) -> None:
        if self._machine.course.is_cut:
            _leave(0)  # nobody is left to answer to
        others = len(sys._current_frames()) - 1
        if others:
            self._machine.stop(refusals.sentence("threads", others))
        if self._machine.operations != self._last:
            self._last, self._ticks = self._machine.operations, 0
            return
        self._ticks += 1
        if self._ticks == BUSY_WARN:
            stack = "\n".join(machines.stack_of_program())
            text = f"{refusals.sentence('busy', self._ticks)}\n{stack}".rstrip()
            self._machine.course.tell(WireKind.SAID, text)
        elif self._ticks >= BUSY_STOP:
            self._machine.stop(refusals.sentence("busy", self._ticks))


def _course(wire: int, role: str) -> Course:
    match role:
        case "lead":
            return LeadingCourse(wire)
        case "follow":
            return FollowingCourse(wire)
        case _:
            founded, _, folder = role.partition(":")
            return ReplicaCourse(wire, int(founded), _raised(int(folder)) if folder else None)


def _raised(number: int) -> int:
    """Give a descriptor a high number."""
    high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _WIRE_FIRST)
    os.close(number)
    return high


def install(wire: int, role: str) -> machines.Determinizer:
    """Make this process one that leads or follows."""
    # Real signals go to whoever runs the program, and come back in order.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    early = [name for name in LOADED_EARLY if name in sys.modules]
    assert not early, f"{early} must be loaded over the stand-ins"
    machine = machines.install(_course(_raised(wire), role))
    watch = BusyWatch(machine)
    watch.start()
    machine.course.on_thawed = watch.rearm
    replacing.install_finder()
    threads.install_threads()
    clocks.install_clocks()
    polling.install_polling()
    sockets.install_sockets()
    libraries.install_libraries()
    system.install_system()
    replacing.sweep()
    refusals.install_net()
    return machine


def _run_words(words: list[str]) -> None:
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        code = compile(words[1], "<string>", "exec")
        runpy._run_code(code, {"__name__": "__main__"})  # type: ignore[attr-defined]
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))  # noqa: PTH120
        runpy.run_path(words[0], run_name="__main__")


def _status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    sys.stderr.write(f"{error.code}\n")
    return 1


def _as_program(words: list[str]) -> int:
    """Run the program to its end, with all that Python does there."""
    status = 0
    try:
        _run_words(words)
    except SystemExit as error:
        status = _status(error)
    except BaseException as error:  # noqa: BLE001 -- as Python does with what nobody catches
        sys.excepthook(type(error), error, error.__traceback__)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    for end in (threads.end_threads, atexit._run_exitfuncs):
        try:
            end()
        except SystemExit as error:
            status = _status(error)
        except BaseException as error:  # noqa: BLE001 -- as above
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return status


def main(argv: list[str]) -> None:
    """Become the program."""
    wire, role, *words = argv
    if role == "follow":
        shake()
    sys.dont_write_bytecode = True
    # What this module was started with is no business of the program's.
    sys.modules["__main__"].__dict__.pop("main", None)
    leave, write = os._exit, os.write
    try:
        machine = install(int(wire), role)
        machine.run(lambda: machine.exit(_as_program(words)))
    except BaseException:  # noqa: BLE001 -- a fault of ours; Python's own way out is the program's now
        write(2, traceback.format_exc().encode())
        leave(70)


if __name__ == "__main__":
    from coterie.program.starting import main as _main

    _main(sys.argv[1:])
