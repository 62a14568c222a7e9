"""Encoding a large state in a forked process, while this one goes on taking turns.

A fork has the whole memory as it was at that moment, for the price of copying page tables (about
a millisecond for each hundred megabytes), and shares it until one of the two changes it. The child
encodes, writes the chunks into a pipe and ends; it touches nothing else of what it inherited: not
the event loop, no socket, no lock file.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import signal
import struct
from typing import TYPE_CHECKING, Never

from coterie.kernel.engine import Chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LENGTH = struct.Struct("!I")
_END = 0xFFFFFFFF
_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 20
_SILENCE_MAX_S = 60.0
_READY_MAX = 16
"""Chunks read ahead of whoever takes them; the child waits meanwhile."""


class EncoderFailed(OSError):
    """The process that encoded a state ended before it was done."""


class ForkedChunks(Chunks):
    """A state that another process encodes, as it was when this was made."""

    is_elsewhere = True

    def __init__(self, encode: Callable[[], Iterator[bytes]]) -> None:
        super().__init__(())
        reading, writing = os.pipe()
        with contextlib.suppress(OSError):  # only for speed
            fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        child = os.fork()
        if not child:
            _encode_and_end(encode, writing)
        os.close(writing)
        os.set_blocking(reading, False)
        self.child = child
        """The process that encodes; 0 once it has ended."""
        self._reading = reading
        self._buffer = bytearray()
        self._ready: list[bytes] = []
        self._is_over = False
        self._has_failed = False

    def poll(self) -> bytes | None:
        if not self._ready and not self._is_over:
            self._read()
        if self._ready:
            return self._ready.pop(0)
        if self._has_failed:
            raise EncoderFailed("the process that encoded the state ended before it was done")
        if self._is_over:
            raise StopIteration
        return None

    def __next__(self) -> bytes:
        while True:
            chunk = self.poll()
            if chunk is not None:
                return chunk
            if not select.select([self._reading], [], [], _SILENCE_MAX_S)[0]:
                self.close()
                raise EncoderFailed(f"nothing was encoded for {_SILENCE_MAX_S:.0f} s")

    def close(self) -> None:
        if self.child:
            os.close(self._reading)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.child, 0)
            self.child = 0
        self._is_over = True

    def __del__(self) -> None:
        self.close()

    def _read(self) -> None:
        """Take what is in the pipe, up to a few chunks."""
        buffer = self._buffer
        while len(self._ready) < _READY_MAX:
            try:
                data = os.read(self._reading, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._has_failed = True
                self.close()
                return
            buffer += data
            if self._split():
                self.close()
                return

    def _split(self) -> bool:
        """Take whole chunks out of the buffer; say whether the end has come."""
        buffer = self._buffer
        start = 0
        is_end = False
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length == _END:
                is_end = True
                break
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            self._ready.append(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return is_end


def _encode_and_end(encode: Callable[[], Iterator[bytes]], writing: int) -> Never:
    """Be the child: write all chunks, and end without running anything of the parent's."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # Whoever takes the parent's place must find its port and its lock free.
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        gc.disable()
        for chunk in encode():
            _write(writing, _LENGTH.pack(len(chunk)))
            _write(writing, chunk)
        _write(writing, _LENGTH.pack(_END))
        status = 0
    finally:
        os._exit(status)


def _write(writing: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writing, view) :]
