"""The history of one replica: entries in order, how advanced it is, and what of it is settled.

Entries are kept as runs. Everything up to `start` is contained in the object's state only;
everything above `settled` is always kept, so the state as of `settled` and the entries above it
are together the whole history. What lies between is kept, within a bound, for replicas that come
back after a short absence.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from coterie.kernel.configuration import decode_change, follows, is_change
from coterie.kernel.engine import Run, Version
from coterie.kernel.views import NO_VIEW, Configuration
from coterie.replication.vectors import Vector, beyond, last_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coterie.kernel.views import Member

NO_VERSION = Version(NO_VIEW, 0)
NOBODY = Configuration(0, ())
_encoder = msgspec.msgpack.Encoder()


class Log:
    """Positions are dense from 1."""

    def __init__(self, *, bytes_max: int, configuration: Configuration = NOBODY) -> None:
        self.version = NO_VERSION
        self.configurations: list[tuple[int, Configuration]] = [(0, configuration)]
        """From which position on which one is in force: at what is settled, then all above."""
        self.start = 0
        self.end = 0
        self.settled = 0
        self.forgotten: Vector = {}
        """For every origin, the number of its last entry up to `start`."""
        self.contained: Vector = {}
        """For every origin, the number of its last entry up to `end`."""
        self._runs: list[Run] = []
        self._ends: list[int] = []
        """The last position of each run, to find one by."""
        self._sizes: list[int] = []
        self._bytes = 0
        self._bytes_max = bytes_max

    def append(self, run: Run, size: int | None = None) -> None:
        """Add entries at the end; *size* is that of their payloads, if it is known."""
        assert run.position == self.end + 1, "entries must follow each other"
        if size is None:
            size = sum(map(len, run.payloads))
        count = len(run.payloads)
        self._runs.append(run)
        self._sizes.append(size)
        self._bytes += size
        self.end += count
        self._ends.append(self.end)
        self.contained[run.origin] = run.first + count - 1
        if count == 1 and is_change(run.payloads[0]):
            to = decode_change(run.payloads[0])
            if to is not None and follows(to, self.configuration):
                self.configurations.append((run.position, to))

    @property
    def configuration(self) -> Configuration:
        """The one in force at the end of the history."""
        return self.configurations[-1][1]

    @property
    def settled_configuration(self) -> Configuration:
        """The one in force at the last settled entry."""
        return self.configurations[0][1]

    def settle(self, position: int) -> None:
        """Learn what is authoritative; forget old entries that need not be kept."""
        assert self.settled <= position <= self.end, "settled beyond what is here, or backwards"
        self.settled = position
        while len(self.configurations) > 1 and self.configurations[1][0] <= position:
            del self.configurations[0]
        forget = 0
        while self._bytes > self._bytes_max and forget < len(self._runs):
            if self._ends[forget] > position:
                break
            run = self._runs[forget]
            self._bytes -= self._sizes[forget]
            self.count_in(self.forgotten, run)
            self.start = self._ends[forget]
            forget += 1
        if forget:
            del self._runs[:forget]
            del self._ends[:forget]
            del self._sizes[:forget]

    def cut_off(self, position: int) -> None:
        """Drop everything above *position*, which is not below what is settled."""
        assert position >= self.settled, "an authoritative entry is never rolled back"
        kept = [run.up_to(position) for run in self._runs if run.position <= position]
        changes = [each for each in self.configurations if each[0] <= position]
        self._runs, self._ends, self._sizes, self._bytes = [], [], [], 0
        self.end = self.start
        self.contained = dict(self.forgotten)
        for run in kept:
            self.append(run)
        self.configurations = changes

    def reset(
        self,
        position: int,
        origins: Mapping[Member, int],
        configuration: Configuration | None = None,
    ) -> None:
        """Begin anew above a state taken over whole, with the *configuration* before it if any."""
        self.configurations = [(position, configuration or self.settled_configuration)]
        self._runs, self._ends, self._sizes, self._bytes = [], [], [], 0
        self.start = self.end = self.settled = position
        self.forgotten = dict(origins)
        self.contained = dict(origins)

    def above(self, position: int) -> Iterator[Run]:
        """Give the entries above *position* that are kept, in order."""
        index = bisect_right(self._ends, position)
        for index in range(index, len(self._runs)):  # noqa: B020 -- from there on
            yield self._runs[index].after(position)

    def after(self, position: int, *, up_to: int, bytes_max: int) -> list[Run]:
        """Give entries above *position*, in order, about *bytes_max* of them but at least one."""
        runs: list[Run] = []
        size = 0
        for run in self.above(position):
            if run.position > up_to or size > bytes_max:
                break
            part = run.up_to(up_to)
            runs.append(part)
            size += sum(map(len, part.payloads))
        return runs

    def beyond(self, vector: Vector, *, bytes_max: int) -> list[Run]:
        """Give entries that are not in *vector*, about *bytes_max* of them but at least one."""
        runs: list[Run] = []
        size = 0
        for run in self._runs:
            if size > bytes_max:
                break
            part = beyond(run, vector)
            if part is not None:
                runs.append(part)
                size += sum(map(len, part.payloads))
        return runs

    def covered_by(self, vector: Vector) -> int:
        """Give the highest position up to which everything is settled or in *vector*."""
        position = self.settled
        for run in self.above(position):
            inside = vector.get(run.origin, 0) - run.first + 1
            if inside < len(run.payloads):
                return position + max(inside, 0)
            position = run.last_position
        return position

    def agrees_with(self, runs: Sequence[Run]) -> int:
        """Give the highest position up to which our entries are those of *runs*.

        *runs* begin right above a position up to which both are known to agree.
        """
        agreed = runs[0].position - 1
        ours = {position: stamp for run in self.above(agreed) for position, stamp in _stamps(run)}
        for run in runs:
            for position, stamp in _stamps(run):
                if ours.get(position) != stamp:
                    return agreed
                agreed = position
        return agreed

    def mark(self, position: int) -> int:
        """Name the history up to *position*, which is not below `start`; never 0.

        Two histories that part at some entry have different entries of its origin from there on,
        and entries have their names for ever, so who came how far tells them apart.
        """
        origins = sorted(self.origins(position).items())
        return crc32(_encoder.encode(origins)) | 1 << 32

    def origins(self, up_to: int) -> Vector:
        """Give, for every origin, the identity number of its last entry up to a position."""
        if up_to >= self.end:
            return dict(self.contained)
        last = dict(self.forgotten)
        for run in self._runs:
            if run.position > up_to:
                break
            self.count_in(last, run.up_to(up_to))
        return last

    def count_in(self, vector: Vector, run: Run) -> None:
        """Put a run into a vector that has what stands before it."""
        vector[run.origin] = last_number(run)


def _stamps(run: Run) -> list[tuple[int, tuple[object, int]]]:
    """Give the position and the viewstamp of every entry."""
    return [
        (run.position + index, (run.view, run.number + index)) for index in range(len(run.payloads))
    ]
