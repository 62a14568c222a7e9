"""Valid messages with one wrong thing inside: what a fuzzer that knows the grammar makes.

Random bytes end at the checksum. So a message is taken apart (also where bytes inside it are a
message of their own, such as the header of a layer or a command), one value in it is changed, and
it is put together again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from random import Random

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

NUMBERS = (
    *(-1, 0, 1, 2, 3, 127, 128, 255, 256, 65_535, 65_536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    *(-(2**31), -(2**63), 10**9, 10**15),
)
BROKEN_TEXT = msgspec.Raw(b"\xa3a\xffb")
DEEP = msgspec.Raw(b"\x91" * 5000 + b"\x01")
STRANGE: tuple[object, ...] = (
    *(None, True, False, "", "a", "b", "zz", "x" * 300, "é\n\x1b[31m\x00"),
    *(b"", b"\x00", b"\xff" * 40, 0.0, -1.5, float("nan"), float("inf")),
    *([], [[]], {}, {"a": 1}, BROKEN_TEXT, DEEP, msgspec.Raw(b"\xd4\x05\x00")),
)


class _Inner(list[object]):
    """Bytes that are MessagePack themselves, taken apart."""


class _Action(list[object]):
    """An action over a partitioned network: two numbers in front of a command, taken apart."""


_PREFIX = struct.Struct(">QQ")


def take_apart(data: bytes, *, has_actions: bool = False) -> object:
    """Read a value, and what is encoded in the bytes inside it."""
    return _open(_decode(data), has_actions=has_actions)


def _open(value: object, *, has_actions: bool) -> object:
    if isinstance(value, list):
        return [_open(each, has_actions=has_actions) for each in value]
    if isinstance(value, dict):
        return {key: _open(each, has_actions=has_actions) for key, each in value.items()}
    if isinstance(value, bytes):
        inner = _array_in(value)
        if inner is not None:
            return _Inner(_open(each, has_actions=has_actions) for each in inner)
        command = _array_in(value[_PREFIX.size :]) if has_actions else None
        if command is not None:
            return _Action((*_PREFIX.unpack_from(value), _Inner(command)))
    return value


def _array_in(data: bytes) -> list[object] | None:
    if not data or not (0x90 <= data[0] <= 0x9F or data[0] == 0xDC):
        return None
    try:
        found: list[object] = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found


def put_together(value: object) -> bytes:
    """Give the bytes of what `take_apart` gave."""
    return _encode(_close(value))


def _pack(action: _Action) -> bytes:
    """Give an action as bytes; what has become of it, its numbers have to fit."""
    numbers = [each if isinstance(each, int) else 0 for each in (*action[:2], 0, 0)[:2]]
    head = _PREFIX.pack(*(max(0, min(each, 2**64 - 1)) for each in numbers))
    rest = [_close(each) for each in action[2:]]
    return head + b"".join(each if isinstance(each, bytes) else _encode(each) for each in rest)


def _close(value: object) -> object:
    if isinstance(value, _Action):
        return _pack(value)
    if isinstance(value, _Inner):
        return _encode([_close(each) for each in value])
    if isinstance(value, list):
        return [_close(each) for each in value]
    if isinstance(value, dict):
        return {key: _close(each) for key, each in value.items()}
    return value


_Spot = tuple[Any, Any]
"""A value inside another: what holds it, and its index or key there."""
_WHOLE: _Spot = (None, None)


def _spots(value: object) -> list[_Spot]:
    """Where something can be changed: all values, the whole one first."""
    found = [_WHOLE]
    _gather(value, found)
    return found


def _gather(value: object, found: list[_Spot]) -> None:
    # Most of what a fuzzer does is this, so it has no steps that it does not need.
    if isinstance(value, list):
        for index, each in enumerate(value[:64]):
            found.append((value, index))
            if isinstance(each, (list, dict)):
                _gather(each, found)
    elif isinstance(value, dict):
        for key, each in list(value.items())[:64]:
            found.append((value, key))
            if isinstance(each, (list, dict)):
                _gather(each, found)


def _at(whole: object, spot: _Spot) -> object:
    holder, step = spot
    return whole if holder is None else holder[step]


def mutate(value: object, random: Random, *, changes: int = 1) -> object:
    """Give *value*, which is changed in place, with something wrong inside."""
    for _ in range(changes):
        spots = _spots(value)
        holder, step = random.choice(spots)
        if holder is None:
            if random.random() < 0.1:
                return _copy(random.choice(STRANGE))
            holder, step = random.choice(spots)
            if holder is None:
                continue
        holder[step] = _changed(holder[step], value, random)
        if isinstance(holder, list) and random.random() < 0.15:
            _reshape(holder, random)
    return value


def _changed(old: object, whole: object, random: Random) -> object:  # noqa: PLR0911 -- a table
    kind = random.random()
    if kind < 0.2:  # something else from the same message
        other = _at(whole, random.choice(_spots(whole)))
        return _copy(other)
    if isinstance(old, bool):
        return not old if kind < 0.6 else _copy(random.choice(STRANGE))
    if isinstance(old, int) and kind < 0.85:
        near = old + random.choice((-1, 1, 1, 2, -old, 1000))
        return max(-(2**63), min(near, 2**64 - 1)) if kind < 0.5 else random.choice(NUMBERS)
    if isinstance(old, str) and kind < 0.7:
        return random.choice((BROKEN_TEXT, "", old + "'", old * 50, "é\n\x1b[31m\x00", "a", "b"))
    if isinstance(old, bytes) and kind < 0.7:
        cut = random.randrange(len(old) + 1)
        return random.choice((b"", old[:cut], old + b"\x00", b"\xff" * 30, old[cut:] + old[:cut]))
    if isinstance(old, list) and kind < 0.85:
        new = type(old)(_copy(each) for each in old)
        _reshape(new, random)
        return new
    return _copy(random.choice(STRANGE if kind < 0.93 else NUMBERS))


def _reshape(items: list[object], random: Random) -> None:
    """Make a list longer, shorter, or another order of the same."""
    what = random.randrange(5)
    if what == 0 and items:
        del items[random.randrange(len(items))]
    elif what == 1 and items:
        items.append(_copy(random.choice(items)))
    elif what == 2 and items:
        items += [_copy(each) for each in items for _ in range(random.choice((1, 2, 30)))]
    elif what == 3:
        random.shuffle(items)
    else:
        items.insert(random.randrange(len(items) + 1), _copy(random.choice((*NUMBERS, *STRANGE))))


def _copy(value: object) -> object:
    if isinstance(value, list):
        return type(value)(_copy(each) for each in value)
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return value


_START = struct.Struct("!2sBBI")


def reframe(frame: bytes, body: bytes) -> bytes:
    """Give a frame with another body, its length and checksum put right."""
    magic, version, reserved, _ = _START.unpack_from(frame)
    start = _START.pack(magic, version, reserved, len(body))
    return start + crc32(body, crc32(start)).to_bytes(4, "big") + body


def body_of(frame: bytes) -> bytes:
    """Give what is in a frame."""
    return frame[_START.size + 4 :]


def wrong_frame(frame: bytes, random: Random) -> bytes:
    """Give a valid frame with one to three wrong things inside."""
    changes = random.choice((1, 1, 1, 2, 3))
    return reframe(frame, put_together(mutate(take_apart(body_of(frame)), random, changes=changes)))
