"""One server that is not replicated: a plain object behind a socket, with the standard library.

    python plain_server.py 127.0.0.1:7801

Its clients are those of a group of servers (`service_client.py`), and cannot tell the two apart,
until it dies. It remembers the last reply to each client, so that what is sent again is executed
once.
"""
# ruff: noqa: INP001 -- a program, not a package

import json
import socket
import struct
import sys

HEAD = struct.Struct("!4sBBQQ")
MAGIC, REQUEST, REPLY, INTERFACE = b"COT1", 1, 2, 4
DONE, FAILED = 0, 1


class Counter:
    """The object: what a group replicates is the same, as a class of Coterie."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def total(self) -> int:
        return self.value


def serve(host: str, port: int) -> None:
    """Answer requests for ever."""
    served = Counter()
    methods = {"add": served.add, "total": served.total}
    records: dict[int, tuple[int, int, object]] = {}
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((host, port))
    sys.stdout.write(f"serving at {host}:{opened.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        data, source = opened.recvfrom(65536)
        if len(data) < HEAD.size or not data.startswith(MAGIC):
            continue
        _, kind, _, client, number = HEAD.unpack_from(data)
        last, status, answer = records.get(client, (0, DONE, None))
        if number < last:
            continue  # a late copy
        if number > last:
            status, answer = DONE, {"members": ["one"]}
            try:
                if kind == INTERFACE:
                    answer = {"name": "Counter", "methods": dict.fromkeys(methods, "")}
                elif kind == REQUEST:
                    method, *arguments = json.loads(data[HEAD.size :])
                    answer = methods[method](*arguments)
            except (ValueError, KeyError, TypeError) as error:
                status, answer = FAILED, [type(error).__name__, str(error)]
        records[client] = (number, status, answer)
        reply = HEAD.pack(MAGIC, REPLY, status, client, number)
        opened.sendto(reply + json.dumps(answer).encode(), source)


if __name__ == "__main__":
    where, _, at = sys.argv[1].rpartition(":")
    serve(where, int(at))
