"""Sockets: a stand-in for the module `_socket`, under the library's own `socket`.

The library's `socket.py` is loaded anew over this one, so that everything in it (files, timeouts,
`create_server`) is the library's own code. Clients are held by the edge; a socket of the program
that listens has the edge listen.
"""

from __future__ import annotations

import _socket
import errno
import io
import sys
from types import ModuleType
from typing import Any

from coterie.program.entries import ADDRESS, HOST, PORT, EntryKind
from coterie.program.machine import machine
from coterie.program.refusals import refuse
from coterie.program.standins import descriptors
from coterie.program.standins.descriptors import (
    OutsideConnection,
    OutsideListener,
    VirtualFile,
    add_file,
    close_descriptor,
    file_of,
    make_pair,
    os_error,
)
from coterie.program.standins.replacing import when_imported
from coterie.program.standins.threads import VirtualRLock, deadline_in

_LISTENERS = 1 << 30
"""Listeners are numbered from here on, connections below."""
_DIALLED = 1 << 29
"""Connections that the program itself asks for, from here on: it numbers them."""
_INET = {_socket.AF_INET, _socket.AF_INET6}
_MSG_PEEK = _socket.MSG_PEEK
_MSG_DONTWAIT = _socket.MSG_DONTWAIT


class _Unconnected(VirtualFile):
    """A socket that is neither connected nor listening."""

    def ready(self) -> int:
        return descriptors.POLLOUT | descriptors.POLLHUP


class VirtualSocket:
    """`_socket.socket`."""

    # The library's class adds `__weakref__`, which a base must not have.
    _name: Any
    _peer: Any
    __slots__ = ("_family", "_fd", "_name", "_options", "_peer", "_proto", "_timeout", "_type")

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        self._fd = -1
        if fileno is not None:
            file_of(fileno)
            self._fd = fileno
            known = _known.get(fileno)
            if known is not None:
                self._family, self._type, self._proto, self._name, self._peer = known
            else:
                self._family, self._type, self._proto = _socket.AF_UNIX, _socket.SOCK_STREAM, 0
                self._name = self._peer = ""
        else:
            self._family = _socket.AF_INET if family == -1 else int(family)
            kind = _socket.SOCK_STREAM if type == -1 else int(type)
            self._type = kind & ~(_socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK)
            self._proto = max(proto, 0)
            if self._type != _socket.SOCK_STREAM:
                raise refuse("datagram", "datagrams or raw packets", errno.EPROTONOSUPPORT)
            self._name = _nowhere(self._family)
            self._peer = None
            self._fd = add_file(_Unconnected())
        self._timeout: float | None = _default_timeout
        self._options: dict[tuple[int, int], Any] = {}
        self._apply_timeout()

    # ---- what it is

    # The library's class has properties of these names over ours.
    family = property(lambda self: self._family)
    type = property(lambda self: self._type)
    proto = property(lambda self: self._proto)

    def fileno(self) -> int:
        return self._fd

    def detach(self) -> int:
        fd, self._fd = self._fd, -1
        _known[fd] = self.family, self.type, self.proto, self._name, self._peer
        return fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd != -1:
            _known.pop(fd, None)
            close_descriptor(fd)

    def _file(self) -> Any:
        if self._fd == -1:
            raise os_error(errno.EBADF)
        return file_of(self._fd)

    def gettimeout(self) -> float | None:
        return self._timeout

    timeout = property(gettimeout)

    def settimeout(self, value: float | None) -> None:
        if value is not None and value < 0:
            raise ValueError("Timeout value out of range")
        self._timeout = None if value is None else float(value)
        self._apply_timeout()

    def setblocking(self, flag: bool) -> None:
        self.settimeout(None if flag else 0.0)

    def getblocking(self) -> bool:
        return self._timeout != 0

    def _apply_timeout(self) -> None:
        if self._fd != -1:
            file_of(self._fd).is_blocking = self._timeout != 0

    def _deadline(self) -> int | None:
        return deadline_in(self._timeout) if self._timeout else None

    def getsockname(self) -> Any:
        self._file()
        return self._name

    def getpeername(self) -> Any:
        self._file()
        if self._peer is None:
            raise os_error(errno.ENOTCONN)
        return self._peer

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        if (level, option) == (_socket.SOL_SOCKET, _socket.SO_TYPE):
            return self.type
        if (level, option) == (_socket.SOL_SOCKET, _socket.SO_ERROR):
            file = self._file()
            is_dialled = isinstance(file, OutsideConnection) and file.conn >= _DIALLED
            return file.connected() if is_dialled else 0
        if (level, option) == (_socket.SOL_SOCKET, _socket.SO_ACCEPTCONN):
            return int(isinstance(self._file(), OutsideListener))
        return self._options.get((level, option), bytes(size) if size else 0)

    def setsockopt(self, level: int, option: int, value: Any, size: int = 0) -> None:
        # The edge chooses options of its own; a program reads back what it wrote.
        self._options[level, option] = value

    # ---- listening and connecting

    def bind(self, address: Any) -> None:
        if self.family not in _INET:
            raise refuse("unix", address)
        self._name = (str(address[0]), int(address[1]), *address[2:])

    def listen(self, backlog: int = 128) -> None:
        here = machine()
        number = _LISTENERS + here.number()
        host, port = self._name[:2]
        here.checkpoint()
        found, _ = here.decide(
            EntryKind.RESULT, PORT, lambda: (here.course.listen(number, host, port, backlog), b"")
        )
        if found < 0:
            raise os_error(-found)
        self._name = (host or "0.0.0.0", found, *self._name[2:])  # noqa: S104 -- as asked for
        listener = OutsideListener(number)
        listener.is_blocking = self._timeout != 0
        descriptors.put_file(self._fd, listener)

    def _accept(self) -> tuple[int, Any]:
        listener = self._file()
        if not isinstance(listener, OutsideListener):
            raise os_error(errno.EINVAL)
        connection, peer = listener.accept(self._deadline())
        fd = add_file(connection)
        host, _, port = peer.rpartition(" ")
        address = (host, int(port), *self._name[2:])
        _known[fd] = self.family, self.type, self.proto, self._name, address
        return fd, address

    def connect(self, address: Any) -> None:
        if not self._may_connect:
            raise refuse("connect", address, errno.ECONNREFUSED)
        number = self.connect_ex(address)
        if number:
            raise os_error(number)

    @property
    def _may_connect(self) -> bool:
        return machine().course.may_connect and self.family in _INET

    def connect_ex(self, address: Any) -> int:
        here = machine()
        if not self._may_connect:
            refuse("connect", address)
            return errno.ECONNREFUSED
        file = self._file()
        if isinstance(file, OutsideConnection):
            # Asked again, as is usual while it is in progress.
            return errno.EISCONN if file.connected() == 0 else errno.EALREADY
        number = _DIALLED + here.number()
        self._peer = (str(address[0]), int(address[1]), *address[2:])
        dialled = OutsideConnection(number)
        dialled.is_blocking = self._timeout != 0
        descriptors.put_file(self._fd, dialled)
        return dialled.connect(self._peer[0], self._peer[1], self._deadline())

    # ---- reading and writing

    def recv(self, size: int, flags: int = 0) -> bytes:
        if size < 0:
            raise ValueError("negative buffersize in recv")
        file = self._file()
        was_blocking = file.is_blocking
        file.is_blocking = was_blocking and not flags & _MSG_DONTWAIT
        try:
            data: bytes = file.read(size, self._deadline(), is_peek=bool(flags & _MSG_PEEK))
        finally:
            file.is_blocking = was_blocking
        return data

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(min(size, len(view)) if size else len(view), flags)
        view[: len(data)] = data
        return len(data)

    def recvfrom(self, size: int, flags: int = 0) -> tuple[bytes, Any]:
        return self.recv(size, flags), None

    def recvfrom_into(self, buffer: Any, size: int = 0, flags: int = 0) -> tuple[int, Any]:
        return self.recv_into(buffer, size, flags), None

    def recvmsg(
        self, size: int, ancillary: int = 0, flags: int = 0
    ) -> tuple[bytes, list[Any], int, Any]:
        return self.recv(size, flags), [], 0, None

    def send(self, data: Any, flags: int = 0) -> int:
        count: int = self._file().write(_bytes(data), self._deadline())
        return count

    def sendall(self, data: Any, flags: int = 0) -> None:
        rest, deadline = _bytes(data), self._deadline()
        while rest:
            rest = rest[self._file().write(rest, deadline) :]

    def sendmsg(
        self, buffers: Any, ancillary: Any = (), flags: int = 0, address: Any = None
    ) -> int:
        return self.send(b"".join(map(_bytes, buffers)))

    def sendto(self, *args: Any) -> int:
        raise refuse("datagram", "datagrams", errno.EOPNOTSUPP)

    def shutdown(self, how: int) -> None:
        self._file().shut(how)

    def __repr__(self) -> str:
        return f"<socket object, fd={self._fd}, family={self.family}, type={self.type}>"

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) != -1:
            self.close()


_known: dict[int, tuple[int, int, int, Any, Any]] = {}
_default_timeout: float | None = None


def _nowhere(family: int) -> Any:
    return {_socket.AF_INET: ("0.0.0.0", 0), _socket.AF_INET6: ("::", 0, 0, 0)}.get(family, "")  # noqa: S104


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else bytes(memoryview(data).cast("B"))


# ---- the functions of `_socket`


def _socketpair(
    family: int | None = None, type: int = _socket.SOCK_STREAM, proto: int = 0
) -> tuple[VirtualSocket, VirtualSocket]:
    found = []
    for end in make_pair():
        fd = add_file(end)
        family = _socket.AF_UNIX if family is None else family
        _known[fd] = int(family), int(type), proto, "", ""
        found.append(VirtualSocket(fileno=fd))
    return found[0], found[1]


def _dup(fd: int) -> int:
    number = add_file(file_of(fd))
    if fd in _known:
        _known[number] = _known[fd]
    return number


def _set_default_timeout(value: float | None) -> None:
    global _default_timeout  # noqa: PLW0603 -- as the real one
    _default_timeout = value


def _asked(function: Any, *args: Any) -> str:
    """Ask the system for something in words; the same words for all replicas."""
    here = machine()

    def choose() -> tuple[int, bytes]:
        try:
            return 0, function(*args).encode()
        except OSError as error:
            return -(error.errno or errno.EIO), str(error.strerror).encode()

    here.checkpoint()
    value, data = here.decide(EntryKind.RESULT, ADDRESS, choose)
    if value < 0:
        raise _socket.gaierror(value, data.decode())
    return data.decode()


def _addresses(*args: Any) -> list[Any]:
    def words() -> str:
        rows = _socket.getaddrinfo(*args)
        return "\n".join(
            "\t".join(map(str, [int(f), int(k), p, name, *address]))
            for f, k, p, name, address in rows
            if f in _INET
        )

    rows = []
    for line in _asked(words).splitlines():
        family, kind, proto, name, host, *numbers = line.split("\t")
        rows.append((int(family), int(kind), int(proto), name, (host, *map(int, numbers))))
    return rows


def _getaddrinfo(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[Any]:
    return _addresses(host, port, family, type, proto, flags)


def _gethostbyaddr(host: str) -> tuple[str, list[str], list[str]]:
    def words() -> str:
        name, others, addresses = _socket.gethostbyaddr(host)
        return "\n".join((name, "\t".join(others), "\t".join(addresses)))

    name, others, addresses = _asked(words).split("\n")
    return name, others.split("\t") if others else [], addresses.split("\t")


def _getnameinfo(address: Any, flags: int) -> tuple[str, str]:
    host, _, port = _asked(lambda: "\t".join(_socket.getnameinfo(address, flags))).partition("\t")
    return host, port


def _gethostname() -> str:
    here = machine()
    return here.decide(EntryKind.RESULT, HOST, lambda: (0, _socket.gethostname().encode()))[
        1
    ].decode()


# ---- files of sockets


def guarded_buffer(base: type) -> type:
    """Make buffered files that several threads may share: one at a time, as with real threads."""

    def guarded(name: str) -> Any:
        original = getattr(base, name)

        def method(self: Any, *args: Any) -> Any:
            with self._guard:
                return original(self, *args)

        return method

    def __init__(self: Any, *args: Any) -> None:  # noqa: N807
        self._guard = VirtualRLock()
        base.__init__(self, *args)  # type: ignore[misc]

    names = (
        "read",
        "read1",
        "readinto",
        "readinto1",
        "peek",
        "readline",
        "readlines",
        "write",
        "flush",
    )
    methods: dict[str, Any] = {name: guarded(name) for name in names if hasattr(base, name)}
    return type(base.__name__, (base,), {**methods, "__init__": __init__})


class _GuardedIo(ModuleType):
    """The module `io` as `socket` sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(io, name)


def install_sockets() -> None:
    """Load the library's `socket` over the stand-in."""
    standin = ModuleType("_socket")
    vars(standin).update({k: v for k, v in vars(_socket).items() if k != "__name__"})
    vars(standin).update(
        socket=VirtualSocket,
        SocketType=VirtualSocket,
        socketpair=_socketpair,
        dup=_dup,
        close=close_descriptor,
        getdefaulttimeout=lambda: _default_timeout,
        setdefaulttimeout=_set_default_timeout,
        getaddrinfo=_getaddrinfo,
        gethostbyname=lambda host: _addresses(host, None, _socket.AF_INET)[0][4][0],
        gethostbyaddr=_gethostbyaddr,
        getnameinfo=_getnameinfo,
        gethostname=_gethostname,
    )
    for name in ("send_fds", "recv_fds"):
        vars(standin).pop(name, None)
    sys.modules["_socket"] = standin
    sys.modules.pop("socket", None)
    import socket  # noqa: PLC0415 -- only now is it the one for the program

    guarded: Any = _GuardedIo("io")
    for base in (io.BufferedReader, io.BufferedWriter):
        setattr(guarded, base.__name__, guarded_buffer(base))
    socket.io = guarded  # type: ignore[attr-defined]
    when_imported("ssl", _refuse_tls)


def _refuse_tls(module: Any) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise refuse("tls")

    module.SSLContext.wrap_socket = refused
    module.SSLContext.wrap_bio = refused
