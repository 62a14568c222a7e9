"""Virtual time: a heap of events, and the groups that live in it."""

from __future__ import annotations

import heapq
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.journal.format import Sync
from coterie.journal.keeper import JournalKeeper, KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import Duration, milliseconds
from coterie.kernel.settings import Settings
from coterie.simulation.group import Group
from coterie.simulation.network import Network
from coterie.stacks import LAYERS, has_engine, parse_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coterie.kernel.layers import Layer

SIMULATED_SETTINGS = Settings(
    # Half as many life signs as in production: they are most of what a simulation has to do.
    heartbeat_interval=milliseconds(100),
    suspect_after_min=milliseconds(350),
)

SIMULATED_JOURNAL = KeeperSettings(
    # Small enough for segments, snapshots and retention to happen in a short run.
    journal=JournalSettings(segment_bytes=20_000),
    retention=Retention(journal_bytes_max=50_000),
    snapshot_bytes=10_000,
)


class Simulation:
    """One run of virtual time, reproducible by its seed."""

    def __init__(  # noqa: PLR0913 -- what a run is made of
        self,
        *,
        seed: int,
        stack: str,
        settings: Settings = SIMULATED_SETTINGS,
        layers: Mapping[str, type[Layer]] = LAYERS,
        journal: KeeperSettings = SIMULATED_JOURNAL,
        keeper: type[JournalKeeper] = JournalKeeper,
        has_object: bool = False,
        object_kind: str = "counter",
    ) -> None:
        parse_stack(stack, layers)
        self.has_engine = has_engine(stack)
        self.journal = journal
        self.keeper = keeper
        self.has_object = has_object
        self.object_kind = object_kind
        self.seed = seed
        self.stack = stack.upper()
        self.settings = settings
        self.layers = layers
        self.now = 0
        self.random = Random(f"{seed}/simulation")  # noqa: S311 -- reproducible on purpose
        self.network = Network(Random(f"{seed}/network"))  # noqa: S311
        self.trace: Callable[[str], None] | None = None
        self.events = 0
        self.digest = 0
        """A running checksum over everything that happened: equal runs have equal digests."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._serial = 0

    @property
    def syncs_every_turn(self) -> bool:
        """Whether what a replica has written down survives the loss of its machine."""
        return self.journal.journal.sync is Sync.TURN

    def group(self, *names: str, name: str = "group") -> Group:
        """Make a group of replicas with these names and start them all."""
        return Group(self, name, names)

    def at(self, wait: int, function: Callable[..., None], *arguments: object) -> None:
        """Have something happen *wait* microseconds from now."""
        self._serial += 1
        heapq.heappush(self._heap, (self.now + max(wait, 0), self._serial, function, arguments))

    def run(self, duration: Duration) -> None:
        """Let time pass."""
        end = self.now + duration
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= end:
            time, _, function, arguments = pop(heap)
            self.now = time
            self.events += 1
            function(*arguments)
        self.now = end

    def run_until(self, condition: Callable[[], bool], *, within: Duration) -> bool:
        """Let time pass until *condition* holds; say whether it did within the time."""
        end = self.now + within
        while not condition():
            if self.now >= end:
                return False
            self.run(min(milliseconds(10), Duration(end - self.now)))
        return True

    def note(self, what: str) -> None:
        """Put something that happened on the digest and, when tracing, on the trace."""
        self.digest = crc32(what.encode(), self.digest ^ self.now & 0xFFFFFFFF)
        if self.trace is not None:
            self.trace(f"{self.now / 1e6:12.6f} {what}")

    def note_frame(self, source: str, destination: str, frame: bytes) -> None:
        """The same for a frame: most of what happens, so nothing is put into words in vain."""
        self.digest = crc32(frame, self.digest ^ self.now & 0xFFFFFFFF)
        if self.trace is not None:
            self.note(f"{source} sends {destination} {len(frame)} bytes, {crc32(frame):08x}")
