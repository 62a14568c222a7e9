"""Figures of the papers as text: who sends what to whom, and what is on record when.

A figure is the trace of a small scene on the simulator, with a network on which every message takes
a millisecond and whose chatter (signs of life, acknowledgements of the multicast) is left out. Time
is in milliseconds from when the figure begins:

        0.0  a  crashes
      361.0  b ▪  invites to view 2.b
      361.0  b → a, c  invite to view 2.b

A line with ▪ is what a replica wrote down; it stands before the messages of the same turn, because
nothing leaves before what it promises is on record.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from tests.seeded import seeded

from coterie.kernel.wire import decode_frame
from coterie.simulation.world.network import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coterie.simulation.world.world import World

    Words = Callable[[msgspec.Raw], "str | None"]
    """Says what a message says, or nothing if the figure leaves it out."""

TRAVEL = 1_000
"""How long every message takes, in microseconds."""
_HAPPENS = ("crashes", "is killed", "is replaced", "loses power", "starts its life")
_LINE = re.compile(r"(?:(?:eu|us) |[a-z]+(?:@edge)?/)?(?P<id>[a-z])(?:#\d+)? (?P<what>.+)")


class Drawing:
    """One figure, while it is drawn."""

    def __init__(self, words: Words, names: Mapping[str, str]) -> None:
        self._words = words
        self._names = names
        self._begins: int | None = None
        self._now: Callable[[], int] = lambda: 0
        self._lines: list[tuple[str, str, list[str], str]] = []
        self._told: set[tuple[str, str, str]] = set()

    def watch(self, world: World) -> None:
        """Draw what happens in a world from now on."""
        simulation = world.simulation
        network = _Slow(self)
        simulation.network = network
        simulation.trace = self._note
        self._now = lambda: simulation.now

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw what happens in this block: time begins with it."""
        self._begins = self._now()
        try:
            yield
        finally:
            self._begins = None

    def _note(self, line: str) -> None:
        """Take a line of the simulator's trace: what happened, or what is on record."""
        what = line.split(maxsplit=1)[1]
        by_one = _LINE.fullmatch(what)
        if by_one is None:
            self._add("", [], what)
        elif by_one["what"].startswith(_HAPPENS):
            self._add(self._name(by_one["id"]), [], by_one["what"])
        elif not by_one["what"].startswith("sends "):  # those are decoded, see below
            self._add(f"{self._name(by_one['id'])} ▪", [], by_one["what"])

    def sent(self, source: str, destination: str, frame: bytes) -> None:
        """Take a frame that was sent."""
        for envelope in decode_frame(frame, frame_bytes_max=1 << 23).envelopes:
            for message in envelope.messages:
                what = self._words(message)
                # What is only said again is no further step.
                if what is None or (source, destination, what) in self._told:
                    continue
                if self._begins is not None:
                    self._told.add((source, destination, what))
                    self._add(f"{self._name(source)} →", [self._name(destination)], what)

    def says(self, who: str, to: list[str], what: str) -> None:
        """Draw what a client sends, or is told: that does not go over the replicas' network."""
        self._add(f"{who} →", to, what)

    def _add(self, who: str, to: list[str], what: str) -> None:
        if self._begins is None:
            return
        time = f"{(self._now() - self._begins) / 1000:10.1f}"
        for line in reversed(self._lines) if to else ():
            if line[:2] != (time, who):
                break
            if line[2] and line[3] == what:
                line[2].extend(to)  # a multicast
                return
        self._lines.append((time, who, to, what))

    def _name(self, id: str) -> str:
        return self._names.get(id, id)

    def __str__(self) -> str:
        return "\n".join(
            "  ".join(filter(None, (time, f"{who} {', '.join(to)}".strip(), what)))
            for time, who, to, what in self._lines
        )


class _Slow(SimulatedNetwork):
    """Every frame takes the same time, and the figure sees it."""

    def __init__(self, drawing: Drawing) -> None:
        super().__init__(seeded("figures"))
        self._drawing = drawing
        self.delay_min, self.delay_spread = TRAVEL, 0

    def carry(
        self,
        source: str,
        destination: str,
        frame: bytes,
        arrive: Callable[[str, str, bytes, int], None],
    ) -> None:
        """Take a frame; it is drawn also if it is lost, for it was sent."""
        self._drawing.sent(source, destination, frame)
        super().carry(source, destination, frame, arrive)
