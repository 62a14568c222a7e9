"""A client of a service, with the standard library alone. It knows nothing of replication.

    python service_client.py 127.0.0.1:7801 add 5          # one server, or any one of a group
    python service_client.py 239.255.7.1:7700 add 5        # a multicast address: all of them

It sends its request, waits, and sends the same again until it is answered: whether one server
answers or a group of them, and whichever of these are alive, the request is executed once.
"""
# ruff: noqa: INP001 -- a program, not a package

import json
import secrets
import socket
import struct
import sys
import time

HEAD = struct.Struct("!4sBBQQ")
MAGIC, REQUEST, REPLY, MEMBERS, INTERFACE = b"COT1", 1, 2, 3, 4
DONE, FAILED, REFUSED = 0, 1, 2
AGAIN_SECONDS = 0.3
"""How long to wait before a request is sent again."""


class ServiceError(Exception):
    """The method raised, or nobody answered in time."""


class Service:
    """One service at one address, or at several of which any may answer."""

    def __init__(self, *addresses: str, deadline: float = 10.0, interface: str = "") -> None:
        self._addresses = [_parse(address) for address in addresses]
        self._turn = 0
        self._client = secrets.randbelow(1 << 62) + 1
        self._number = 0
        self._deadline = deadline
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        if interface:
            own = socket.inet_aton(interface)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        self._methods: set[str] | None = None

    def bind(self, *methods: str) -> None:
        """Make sure that the service has these methods; others are refused from now on."""
        found = set(self._ask(INTERFACE, b"")["methods"])
        if missing := set(methods) - found:
            raise ServiceError(f"the service has no {', '.join(sorted(missing))}")
        self._methods = found

    def call(self, method: str, *arguments: object) -> object:
        """Have a method executed once; give its result, or raise `ServiceError`."""
        if self._methods is not None and method not in self._methods:
            raise ServiceError(f"the service has no {method}")
        return self._ask(REQUEST, json.dumps([method, *arguments]).encode())

    def members(self) -> list[str]:
        """Give the servers of the service, as one of them sees it."""
        return list(self._ask(MEMBERS, b"")["members"])

    def close(self) -> None:
        self._socket.close()

    def _ask(self, kind: int, body: bytes):  # noqa: ANN202 -- whatever the service answers
        self._number += 1
        request = HEAD.pack(MAGIC, kind, 0, self._client, self._number) + body
        end = time.monotonic() + self._deadline
        refusal = "nobody answered"
        while time.monotonic() < end:
            address = self._addresses[self._turn % len(self._addresses)]
            try:
                self._socket.sendto(request, address)
            except OSError as error:
                refusal = str(error)
            reply = self._wait(min(end, time.monotonic() + AGAIN_SECONDS))
            if reply is None:
                self._turn += 1  # perhaps that one is gone
                continue
            status, answer = reply
            if status == DONE:
                return answer
            if status == FAILED:
                raise ServiceError(": ".join(answer))
            refusal = answer
            time.sleep(AGAIN_SECONDS)
        raise ServiceError(f"{refusal}; it may or may not have been done")

    def _wait(self, until: float) -> tuple[int, object] | None:
        """Give the reply to the present request; whatever else comes is an old one."""
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(65536)
                magic, kind, status, client, number = HEAD.unpack_from(data)
                if (magic, kind, client, number) == (MAGIC, REPLY, self._client, self._number):
                    return status, json.loads(data[HEAD.size :])
            except (TimeoutError, ConnectionError, struct.error, ValueError):
                continue
        return None


def _parse(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    where, what, *rest = sys.argv[1:]
    service = Service(*where.split(","))
    values = [json.loads(each) if each[:1] in '-0123456789"[{tfn' else each for each in rest]
    answer = service.members() if what == "members" else service.call(what, *values)
    sys.stdout.write(json.dumps(answer) + "\n")
