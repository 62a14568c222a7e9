"""Frames for property tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import strategies as st

from coterie.kernel.wire import Envelope, Frame, Heartbeat

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

names = st.text(max_size=8)
numbers = st.integers(-(2**63), 2**64 - 1)
lives = st.tuples(names, numbers)
# A frame does not look into its messages, so two shapes of them are enough here.
messages: SearchStrategy[msgspec.Raw] = (
    (st.binary(max_size=40) | st.lists(numbers, max_size=3))
    .map(msgspec.msgpack.encode)
    .map(msgspec.Raw)
)
heartbeats = st.builds(Heartbeat, st.lists(lives, max_size=3).map(tuple))
envelopes = st.builds(Envelope, names, numbers, st.lists(messages, max_size=3))
frames: SearchStrategy[Frame] = st.builds(
    Frame, names, numbers, st.none() | heartbeats, st.lists(envelopes, max_size=2)
)
