"""Addresses of processes, as they are written: host:port, and [host]:port for IPv6."""

from __future__ import annotations

from typing import NamedTuple

from coterie.kernel.errors import CoterieError

_PORT_MAX = 65535


class AddressError(CoterieError):
    """A text is no address."""


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, *, port_min: int = 1) -> Address:
    """Read an address; *port_min* 0 allows port 0, which lets the system choose one."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or not host or (":" in host) != bracketed:
        raise AddressError(
            f"{text!r} is no address: write host:port, for example 127.0.0.1:7000 or [::1]:7000"
        )
    if not (port.isascii() and port.isdigit() and port_min <= int(port) <= _PORT_MAX):
        raise AddressError(
            f"{text!r} has no usable port: it is a number from {port_min} to {_PORT_MAX}"
        )
    return Address(host, int(port))
