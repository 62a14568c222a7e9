"""A network that changes what messages say, with checksums that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.wire import Envelope, Frame, decode_frame, encode_frame
from coterie.simulation.world.network import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

# Nothing between a few thousand and 2**62: whoever counts that far, or makes room for as many,
# takes the whole machine along instead of failing at once.
NUMBERS = (-(2**63), -2, -1, 0, 1, 2, 3, 4, 7, 255, 2**62, 2**63 - 1, 2**64 - 1)
TEXTS = ("", "a", "b", "c", "d", "stranger", "\0", "é" * 20)
RARE_KINDS = frozenset({2, 4, 8, 9, 10, 11, 12, 13})
"""Tags of the messages of repairs and view changes, which would hardly be met by chance."""


class Tampering(SimulatedNetwork):
    """Changes one place in some of the messages; a share of all frames is changed blindly."""

    def __init__(self, random: Random, *, share: float) -> None:
        super().__init__(random)
        self._random = random
        self._share = share
        self.changed = 0

    def carry(
        self,
        source: str,
        destination: str,
        frame: bytes,
        arrive: Callable[[str, str, bytes, int], None],
    ) -> None:
        super().carry(source, destination, self._changed(frame), arrive)

    def _changed(self, data: bytes) -> bytes:
        before = self.changed
        frame = decode_frame(data, frame_bytes_max=1 << 23)
        envelopes = [
            Envelope(
                envelope.group,
                envelope.incarnation,
                [raw for message in envelope.messages for raw in self._messages(message)],
            )
            for envelope in frame.envelopes
        ]
        if self.changed == before:
            return data
        return encode_frame(Frame(frame.process, frame.incarnation, frame.heartbeat, envelopes))

    def _messages(self, raw: msgspec.Raw) -> list[msgspec.Raw]:
        """A message as it was, or changed, or both."""
        tree = msgspec.msgpack.decode(raw)
        share = self._share * (12 if tree[0] in RARE_KINDS else 1)
        if self._random.random() >= share:
            return [raw]
        self.changed += 1
        changed = msgspec.Raw(msgspec.msgpack.encode(changed_value(self._random, tree)))
        return [raw, changed] if self._random.random() < 0.3 else [changed]


def changed_value(random: Random, value: object) -> object:
    """A value of the same shape in which one place is different."""
    match value:
        case bool():
            return not value
        case int():
            return random.choice([max(value - 1, -(2**63)), min(value + 1, 2**64 - 1), *NUMBERS])
        case str():
            return random.choice(TEXTS)
        case bytes():
            return _changed_bytes(random, value)
        case list():
            return _changed_list(random, value)
        case _:
            return random.choice([0, [], None])


def _changed_bytes(random: Random, value: bytes) -> bytes:
    # Headers, values and direct messages are MessagePack themselves.
    if value and random.random() < 0.7:
        try:
            inner = msgspec.msgpack.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return msgspec.msgpack.encode(changed_value(random, inner))
    return random.choice([b"", random.randbytes(5), value[:-1], value + b"\0"])


def _changed_list(random: Random, value: list[object]) -> list[object]:
    changed = list(value)
    how = random.random()
    if changed and how < 0.75:
        place = random.randrange(len(changed))
        changed[place] = changed_value(random, changed[place])
    elif changed and how < 0.82:
        del changed[random.randrange(len(changed))]
    elif changed and how < 0.89:
        changed.insert(random.randrange(len(changed)), random.choice(changed))
    elif how < 0.95:
        random.shuffle(changed)
    else:
        changed.append(random.choice(NUMBERS))
    return changed
