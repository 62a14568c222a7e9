"""The datagram format: what clients that know nothing of replication say and hear.

A message is a head of 22 bytes and a body in JSON, in UTF-8 (`docs/use/servers.md`):

    "COT1"  kind (1 byte)  status (1 byte)  client (8 bytes)  number (8 bytes)  body

Numbers are unsigned, big endian. A reply has the client and the number of its request. On a
connection each message is preceded by its length in 4 bytes.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple

import msgspec

from coterie.kernel.decoding import decode_any, decode_json
from coterie.kernel.errors import BadMessage

MAGIC = b"COT1"
HEAD = struct.Struct("!4sBBQQ")
REQUEST_BYTES_MAX = 8 << 10
"""The largest datagram that is read."""
REPLY_BYTES_MAX = 60_000
"""The largest datagram that is sent; UDP itself ends at 65,507."""
STREAM_BYTES_MAX = 512 << 10
"""The largest message on a connection."""
CLIENT_MAX = (1 << 63) - 1
NUMBER_MAX = (1 << 62) - 1
_METHOD_CHARS_MAX = 200


class MessageKind(enum.IntEnum):
    """What a message is for."""

    REQUEST = 1
    """Execute a method; the body is an array, the name first and then its arguments."""
    REPLY = 2
    MEMBERS = 3
    """Say which servers there are (the paper's retrieve_membership)."""
    INTERFACE = 4
    """Say which methods there are."""


class ReplyStatus(enum.IntEnum):
    """How a request ended."""

    DONE = 0
    """The body is the result."""
    FAILED = 1
    """The method raised: the name of the error and its message."""
    REFUSED = 2
    """Nothing was done, and the body says why; to send it again does no harm."""


class BadDatagram(BadMessage):
    """Bytes that are no message of ours."""


class Message(NamedTuple):
    """A message, its body not read."""

    kind: MessageKind
    status: int
    client: int
    number: int
    body: bytes


def decode_message(data: bytes) -> Message:
    """Read the head of a message; raises `BadDatagram`."""
    if len(data) < HEAD.size:
        raise BadDatagram(f"{len(data)} bytes are no message: its head alone has {HEAD.size}")
    magic, kind, status, client, number = HEAD.unpack_from(data)
    if magic != MAGIC or kind not in MessageKind.__members__.values():
        raise BadDatagram("it does not begin as a message does")
    if not 1 <= client <= CLIENT_MAX or not 1 <= number <= NUMBER_MAX:
        raise BadDatagram("client or number is out of range")
    return Message(MessageKind(kind), status, client, number, bytes(data[HEAD.size :]))


def encode_message(message: Message) -> bytes:
    """Write a message."""
    head = HEAD.pack(MAGIC, message.kind, message.status, message.client, message.number)
    return head + message.body


def decode_call(body: bytes) -> tuple[str, bytes]:
    """Give the method and the arguments of a request, these as MessagePack."""
    try:
        parts: Any = decode_json(body)
    except msgspec.DecodeError as error:
        raise BadDatagram(f"the body is no JSON: {error}") from None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise BadDatagram('the body is no call: write it as ["method", argument, ...]')
    if len(parts[0]) > _METHOD_CHARS_MAX:
        raise BadDatagram("the name of the method is too long")
    try:
        return parts[0], msgspec.msgpack.encode(parts[1:])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadDatagram(f"an argument cannot be carried: {error}") from None


def result_body(result: bytes) -> bytes:
    """Give a result as JSON; raises `BadDatagram` where JSON has no word for it."""
    try:
        return msgspec.json.encode(decode_any(result))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadDatagram(f"the result has no form in JSON: {error}") from None


def reply_to(
    request: Message, status: ReplyStatus, body: object | bytes, *, bytes_max: int = REPLY_BYTES_MAX
) -> bytes:
    """Write the reply to a message; what is too large for it is said instead."""
    text = body if isinstance(body, bytes) else msgspec.json.encode(body)
    if HEAD.size + len(text) > bytes_max:
        status = ReplyStatus.FAILED
        text = msgspec.json.encode(["ReplyTooLarge", f"{len(text)} bytes: use a connection"])
    return encode_message(Message(MessageKind.REPLY, status, request.client, request.number, text))
