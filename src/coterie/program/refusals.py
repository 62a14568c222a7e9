"""What cannot be replicated, and what to do instead: one sentence each.

A refusal is an `OSError` to the program, so that one that can do without goes on; whoever runs it
is told each sentence once, with the place. An audit hook (PEP 578) is the net below: whatever
reaches a real socket, process or file to write to, past what we replaced, meets it.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from coterie.program.machine import machine, stack_of_program
from coterie.program.wire import WireKind

SENTENCES = {
    "fork": "the program starts another process ({what}); a group replicates one process: run it"
    " with one worker and threads",
    "tls": "the program speaks TLS itself; give it a plain port, and TLS ends at the edge:"
    " coterie program run --tls-cert FILE --tls-key FILE",
    "connect": "the program connects to {what}; a rehearsal connects to nobody, and coterie program"
    " run only by TCP, where --allow-connect says so",
    "datagram": "the program opens a socket for {what}; only TCP is replicated",
    "unix": "the program listens at the Unix socket {what}; let it listen at a TCP port",
    "file": "the program writes to the file {what}; a replica has no files of its own yet: keep"
    " what it must not lose in memory, and what it logs on standard output",
    "sqlite": "the program opens the database {what}; only sqlite in memory (':memory:') is"
    " replicated",
    "timer": "the program asks the system for {what}; use threading.Timer, sched or asyncio",
    "kill": "the program sends a signal to process {what}; it can only send one to itself",
    "edge-triggered": "the program polls edge-triggered; use level-triggered polling",
    "descriptor": "the program polls the descriptor {what}, which is no socket or pipe of its own",
    "real": "a real socket was opened ({what}) past the replicated ones; use a driver written in"
    " Python, imported by the program itself",
    "threads": "an extension module has started a thread of its own ({what}), which nothing can"
    " order; switch its threads off",
    "busy": "no call for {what} seconds of processor time: the program computes or busy-waits, and"
    " nobody else is served meanwhile; wait with time.sleep, a lock or a queue",
}

_told: set[tuple[str, str]] = set()
allowed = 0
"""Above 0 while our own code does what the program may not."""


class NotReplicated(OSError):
    """The program asked for something that cannot be the same in all replicas."""


def sentence(key: str, what: object = "") -> str:
    """Give the sentence of a refusal."""
    return SENTENCES[key].format(what=what)


def refuse(key: str, what: object = "", number: int = errno.EPERM) -> NotReplicated:
    """Tell whoever runs the program, once a place; give the error to raise."""
    text = sentence(key, what)
    stack = stack_of_program()
    place = (key, stack[-1] if stack else "")
    if place not in _told:
        _told.add(place)
        if machine().is_leading:
            shown = "\n".join(stack[-4:])
            machine().course.tell(WireKind.REFUSED, f"{text}\n{shown}".rstrip())
    return NotReplicated(number, text)


_PROCESSES = {
    *("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system"),
    *("subprocess.Popen", "pty.spawn"),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"),
    *("os.chmod", "os.chown", "os.utime"),
}
_HARMLESS = ("/dev/null", "/dev/tty")


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if allowed:
        return
    if event == "open":
        path, mode, flags = args
        if isinstance(path, int) or path in _HARMLESS:
            return
        writes = isinstance(flags, int) and flags & _WRITING
        if writes or (isinstance(mode, str) and set(mode) & set("wax+")):
            raise refuse("file", _text(path))
    elif event in _PROCESSES:
        raise refuse("fork", event)
    elif event == "socket.__new__":
        raise refuse("real", event)
    elif event == "sqlite3.connect":
        if not _is_in_memory(_text(args[0])):
            raise refuse("sqlite", _text(args[0]))
    elif event in _CHANGES:
        raise refuse("file", _text(args[0]))


def _text(path: object) -> str:
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)


def _is_in_memory(path: str) -> bool:
    return path in {":memory:", ""} or "mode=memory" in path or path.startswith("file::memory:")


def install_net() -> None:
    """Hang the net up."""
    sys.addaudithook(_audit)
