"""The simulated network: frames that are late, lost, doubled, damaged, or held back.

Links are directed, so that a one-way cut is as easy as a whole one. Cuts are counted: two faults
may cut the same link, and it works again when both are over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

Link = tuple[str, str]


class SimulatedNetwork:
    """Decides what becomes of every frame."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cuts: dict[Link, int] = {}
        self._clogs: dict[Link, int] = {}
        self._held: dict[Link, list[bytes]] = {}
        self.delay_min = 50
        """The least time a frame takes, in microseconds."""
        self.delay_spread = 100
        """How much longer it may take; more than the gap between frames reorders them."""
        self.loss = 0.0
        self.duplication = 0.0
        self.damage = 0.0
        self.frames = 0
        self.frames_lost = 0

    # ---- faults

    def cut(self, links: Iterable[Link]) -> None:
        """Lose every frame on these links until they are mended."""
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, links: Iterable[Link]) -> None:
        """End one cut of each of these links."""
        for link in links:
            left = self._cuts.get(link, 0) - 1
            if left > 0:
                self._cuts[link] = left
            else:
                self._cuts.pop(link, None)

    def clog(self, links: Iterable[Link]) -> None:
        """Hold frames on these links back until they are unclogged, then let all go at once."""
        for link in links:
            self._clogs[link] = self._clogs.get(link, 0) + 1

    def unclog(self, links: Iterable[Link], arrive: Callable[[str, str, bytes, int], None]) -> None:
        """End one clog of each of these links and send on what was held."""
        for link in links:
            left = self._clogs.get(link, 0) - 1
            if left > 0:
                self._clogs[link] = left
                continue
            self._clogs.pop(link, None)
            for frame in self._held.pop(link, ()):
                self.carry(*link, frame, arrive)

    def heal(self, arrive: Callable[[str, str, bytes, int], None]) -> None:
        """End all faults."""
        self._cuts.clear()
        self.loss = self.duplication = self.damage = 0.0
        self.delay_min, self.delay_spread = 50, 100
        clogged = sorted(self._clogs)
        self._clogs.clear()
        self.unclog(clogged, arrive)

    def is_cut(self, source: str, destination: str) -> bool:
        """Say whether a link loses everything at present."""
        return (source, destination) in self._cuts

    # ---- traffic

    def carry(
        self,
        source: str,
        destination: str,
        frame: bytes,
        arrive: Callable[[str, str, bytes, int], None],
    ) -> None:
        """Take a frame; call *arrive* with its delay for every copy that gets through."""
        self.frames += 1
        link = (source, destination)
        random = self._random.random
        if link in self._cuts or (self.loss and random() < self.loss):
            self.frames_lost += 1
            return
        if link in self._clogs:
            held = self._held.setdefault(link, [])
            if len(held) < 1000:  # noqa: PLR2004 -- a full buffer somewhere on the way
                held.append(frame)
            return
        if self.damage and random() < self.damage:
            frame = self._damaged(frame)
        arrive(source, destination, frame, self.delay_min + int(random() * self.delay_spread))
        if self.duplication and random() < self.duplication:
            delay = self.delay_min + int(random() * self.delay_spread * 3)
            arrive(source, destination, frame, delay)

    def _damaged(self, frame: bytes) -> bytes:
        place = self._random.randrange(len(frame))
        flipped = frame[place] ^ (1 << self._random.randrange(8))
        return frame[:place] + bytes([flipped]) + frame[place + 1 :]
