"""The history of one replica: entries in order, how advanced it is, and what of it is settled.

Entries are kept as runs. Everything up to `start` is contained in the object's state only;
everything above `settled` is always kept, so the state as of `settled` and the entries above it
are together the whole history. What lies between is kept, within a bound, for replicas that come
back after a short absence.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from coterie.kernel.engine import Run, Version
from coterie.kernel.views import NO_VIEW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coterie.kernel.views import Member

NO_VERSION = Version(NO_VIEW, 0)


class Log:
    """Positions are dense from 1."""

    def __init__(self, *, bytes_max: int) -> None:
        self.version = NO_VERSION
        self.start = 0
        self.end = 0
        self.settled = 0
        self._runs: list[Run] = []
        self._bytes = 0
        self._bytes_max = bytes_max
        self._origins_at_start: dict[Member, int] = {}

    def append(self, run: Run) -> None:
        """Add entries at the end."""
        assert run.position == self.end + 1, "entries must follow each other"
        self._runs.append(run)
        self.end = run.last_position
        self._bytes += sum(map(len, run.payloads))

    def settle(self, position: int) -> None:
        """Learn what is authoritative; forget old entries that need not be kept."""
        assert self.settled <= position <= self.end, "settled beyond what is here, or backwards"
        self.settled = position
        forget = 0
        size = self._bytes
        while size > self._bytes_max and forget < len(self._runs):
            run = self._runs[forget]
            if run.last_position > position:
                break
            size -= sum(map(len, run.payloads))
            forget += 1
        if forget:
            for run in self._runs[:forget]:
                last = run.first + len(run.payloads) - 1
                self._origins_at_start[run.origin] = last
            self.start = self._runs[forget - 1].last_position
            del self._runs[:forget]
            self._bytes = size

    def cut_off(self, position: int) -> None:
        """Drop everything above *position*, which is not below what is settled."""
        assert position >= self.settled, "an authoritative entry is never rolled back"
        kept: list[Run] = []
        for run in self._runs:
            if run.position > position:
                break
            kept.append(run.up_to(position))
        self._runs = kept
        self.end = max(position, self.start) if kept else self.start
        self._bytes = sum(len(payload) for run in kept for payload in run.payloads)

    def reset(self, position: int, origins: Mapping[Member, int]) -> None:
        """Begin anew above a state taken over whole."""
        self._runs = []
        self._bytes = 0
        self.start = self.end = self.settled = position
        self._origins_at_start = dict(origins)

    def after(self, position: int, *, up_to: int, bytes_max: int) -> list[Run]:
        """Give entries above *position*, in order, about *bytes_max* of them but at least one."""
        runs: list[Run] = []
        size = 0
        index = bisect_left(self._runs, position + 1, key=lambda run: run.last_position)
        for run in self._runs[index:]:
            if run.position > up_to or size > bytes_max:
                break
            part = run.after(position).up_to(up_to)
            runs.append(part)
            size += sum(map(len, part.payloads))
        return runs

    def agrees_with(self, runs: Sequence[Run]) -> int:
        """Give the highest position up to which our entries are those of *runs*.

        *runs* begin right above a position up to which both are known to agree.
        """
        ours = {
            position: stamp
            for run in self.after(runs[0].position - 1, up_to=self.end, bytes_max=1 << 62)
            for position, stamp in _stamps(run)
        }
        agreed = runs[0].position - 1
        for run in runs:
            for position, stamp in _stamps(run):
                if ours.get(position) != stamp:
                    return agreed
                agreed = position
        return agreed

    def origins(self, up_to: int) -> dict[Member, int]:
        """Give, for every origin, the identity number of its last entry up to a position."""
        last = dict(self._origins_at_start)
        for run in self._runs:
            if run.position > up_to:
                break
            part = run.up_to(up_to)
            last[run.origin] = part.first + len(part.payloads) - 1
        return last


def _stamps(run: Run) -> list[tuple[int, tuple[object, int]]]:
    """Give the position and the viewstamp of every entry."""
    return [
        (run.position + index, (run.view, run.number + index)) for index in range(len(run.payloads))
    ]
