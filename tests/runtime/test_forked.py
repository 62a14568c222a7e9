"""States encoded in a forked process."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from coterie.runtime.forked import EncoderFailed, ForkedChunks

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKS = [bytes([number % 256]) * (number * 1000) for number in range(200)]


def poll_all(chunks: ForkedChunks) -> list[bytes]:
    given: list[bytes] = []
    while True:
        try:
            chunk = chunks.poll()
        except StopIteration:
            return given
        if chunk is not None:
            given.append(chunk)


def test_all_chunks_arrive_in_order() -> None:
    assert list(ForkedChunks(lambda: iter(CHUNKS))) == CHUNKS


def test_who_must_not_wait_asks_again() -> None:
    assert poll_all(ForkedChunks(lambda: iter(CHUNKS))) == CHUNKS


def test_the_state_is_that_of_the_moment_of_the_call() -> None:
    state = {"value": b"before"}

    def encode() -> Iterator[bytes]:
        yield b"first"
        yield state["value"]

    chunks = ForkedChunks(encode)
    state["value"] = b"after"
    assert list(chunks) == [b"first", b"before"]


def test_an_encoder_that_fails_is_noticed() -> None:
    def encode() -> Iterator[bytes]:
        yield b"first"
        os._exit(3)

    chunks = ForkedChunks(encode)
    assert next(chunks) == b"first"
    for _ in range(2):
        with pytest.raises(EncoderFailed, match="before it was done"):
            next(chunks)


def test_what_is_not_wanted_any_more_ends() -> None:
    def encode() -> Iterator[bytes]:
        while True:
            yield bytes(100_000)

    chunks = ForkedChunks(encode)
    assert next(chunks) == bytes(100_000)
    child = chunks.child
    chunks.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_a_child_keeps_no_socket_of_its_parent_open() -> None:
    def encode() -> Iterator[bytes]:
        yield b"closed"
        time.sleep(60)

    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    chunks = ForkedChunks(encode)
    assert next(chunks) == b"closed"
    listener.close()
    socket.create_server(address).close()
    chunks.close()
