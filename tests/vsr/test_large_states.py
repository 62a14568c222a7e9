"""The state of a cohort is encoded outside of its turns, however large it is."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import PATIENCE
from tests.vsr.chain import Chain
from tests.vsr.table import Table
from tests.vsr.test_by_hand import in_first_view

from coterie.journal import CohortKeeper, JournalSettings, KeeperSettings, Sync, found_group
from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Context
from coterie.kernel.records import Stopped
from coterie.kernel.transfer import CHUNKS_PER_TURN, ChunkDonor
from coterie.kernel.views import NO_VIEW, Viewstamp
from coterie.runtime.forked import ForkedChunks
from coterie.simulation.world.disk import SimulatedDisk
from coterie.vsr import VsrSettings
from coterie.vsr.commit.psets import Aid
from coterie.vsr.objects.group_state import BaseVersion, Ended, GroupState
from coterie.vsr.views.messages import CohortStateChunk, CohortStateOffer

START = Viewstamp(NO_VIEW, 0)
SETTINGS = VsrSettings(log_bytes=1)
OBJECTS, OBJECT_BYTES = 4000, 10_000


class Large(Chain):
    """A chain with tens of megabytes beside it, encoded in another process."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.ballast = GroupState(ended_max=10, chunk_bytes=SETTINGS.chunk_bytes)
        for number in range(OBJECTS):
            value = number.to_bytes(4, "big") * (OBJECT_BYTES // 4)
            self.ballast.objects[f"object {number}"] = BaseVersion(value, START)
        self.encoded_here = 0
        """Chunks that were encoded in this process."""
        self.taken = 0
        """Chunks that this process took from another one."""
        self.encoders: list[ForkedChunks] = []

    def _encode(self) -> Iterator[bytes]:
        self.encoded_here += 1
        yield from super().snapshot()
        yield b"end of the chain"
        for chunk in self.ballast.snapshot():
            self.encoded_here += 1
            yield chunk

    def snapshot(self) -> Iterator[bytes]:
        chunks = _Counting(self._encode)
        chunks.module = self
        self.encoders.append(chunks)
        return chunks

    def restore(self, chunks: Sequence[bytes]) -> None:
        end = chunks.index(b"end of the chain")
        super().restore(chunks[:end])
        self.ballast.objects = {}
        self.ballast.restore(chunks[end + 1 :])


class _Counting(ForkedChunks):
    module: Large

    def poll(self) -> bytes | None:
        chunk = super().poll()
        if chunk is not None:
            self.module.taken += 1
        return chunk


def wait_for(module: Large) -> None:
    """Wait until the encoder has something to poll."""
    encoder = module.encoders[-1]
    if encoder.child:
        assert select.select([encoder._reading], [], [], PATIENCE)[0]


def module_of(table: Table, name: str) -> Large:
    module = table[name].module
    assert isinstance(module, Large)
    return module


def settled_table() -> Table:
    """Three cohorts in a view; what they know cannot be had as events any more."""
    table = Table(settings=SETTINGS, start=False)
    table.module = Large
    table.start_all()
    in_first_view(table)
    for event in (b"1", b"2"):
        table.force("a", event)
        table.deliver()
    return table


def fetch(table: Table, each_turn: Callable[[], None] = lambda: None) -> list[int]:
    """Have c fetch the state from a; give how many chunks left each time a looked for more.

    How often that is depends on how fast the other process encodes: once may be enough, as what is
    encoded by the time it is asked for leaves at once.
    """
    table.start("c")
    table["a"].manage()
    table.deliver()
    module = module_of(table, "a")
    sent: list[int] = []
    while not table["c"].up_to_date:
        wait_for(module)
        table.fire("a", "vsr encode")
        sent.append(sum(isinstance(message, CohortStateChunk) for _, _, message in table.mail))
        each_turn()
        table.deliver()
    return sent


def test_a_large_state_is_donated_a_few_chunks_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    table = settled_table()
    module = module_of(table, "a")
    taken: list[int] = []
    encode_more = ChunkDonor.encode_more

    def counted(donor: ChunkDonor) -> None:
        before = module.taken
        encode_more(donor)
        taken.append(module.taken - before)

    monkeypatch.setattr(ChunkDonor, "encode_more", counted)
    sent = fetch(table)
    assert module.encoded_here == 0
    assert module.taken > OBJECTS * OBJECT_BYTES // SETTINGS.chunk_bytes
    assert max(sent) <= SETTINGS.chunks_ahead
    assert max(taken) <= CHUNKS_PER_TURN
    assert module_of(table, "c").ballast.objects == module.ballast.objects
    assert table.knows("c") == 2
    assert table["c"].is_active
    assert table.problems() == set()


def test_the_encoder_is_asked_for_a_few_chunks_a_turn() -> None:
    table = settled_table()
    module = module_of(table, "a")
    table.start("c")
    table["a"].manage()
    table.deliver()
    turns = 0
    # What c asked for may be encoded in a turn or in many, as the other process gets on.
    while ("table", "vsr encode") in table.seats["a"].timers:
        before = module.taken
        wait_for(module)
        table.fire("a", "vsr encode")
        assert module.taken - before <= CHUNKS_PER_TURN
        table.mail.clear()
        turns += 1
    assert turns
    table["a"]._donor.close()
    assert module.encoders[-1].child == 0


def test_events_go_on_while_a_state_is_encoded_and_are_not_in_it() -> None:
    table = settled_table()
    numbers = count(3)

    def each_turn() -> None:
        table.force("a", b"%d" % next(numbers))

    fetch(table, each_turn)
    assert table.knows("c") == 2
    # The events that came meanwhile are gone from the log: it needs another state.
    for _ in range(2):  # at the second time it is clear that c does not get on
        table.fire("a", "vsr buffer")
        table.deliver()
    while table["c"].is_behind:
        wait_for(module_of(table, "a"))
        table.fire("a", "vsr encode")
        table.deliver()
    assert table.knows("c") == table.knows("a") > 2
    assert table.problems() == set()


def test_an_encoder_that_fails_is_followed_by_another() -> None:
    table = settled_table()
    module = module_of(table, "a")
    table.start("c")
    table["a"].manage()
    table.deliver()
    first = module.encoders[-1]
    first.close()
    first._has_failed = True
    table.fire("a", "vsr encode")
    table.fire("c", "vsr fetch")
    table.deliver()
    assert len(module.encoders) == 2
    table["a"]._donor.close()


def test_a_state_of_fewer_chunks_than_came_is_refused() -> None:
    table = settled_table()
    table.start("c")
    table["a"].manage()
    table.deliver()
    c, view = table["c"], table["a"].cur_viewid
    serial = table["a"]._donor._serial
    history = table["a"]._donor._history
    c.receive(table["a"].me, CohortStateChunk(view, serial, 3, b"x"))
    with pytest.raises(BadMessage, match="fewer chunks than have come"):
        c.receive(table["a"].me, CohortStateOffer(view, serial, history, 2))
    table["a"]._donor.close()


def test_a_snapshot_of_a_large_state_is_encoded_outside_of_the_turn() -> None:
    table = settled_table()
    cohort, module, disk = table["b"], module_of(table, "b"), SimulatedDisk()
    found_group(disk, "table", "b", table.configuration)
    settings = KeeperSettings(journal=JournalSettings(sync=Sync.NONE), snapshot_bytes=1)
    keeper = CohortKeeper(disk, "table", "b", table.configuration, settings)
    keeper.checkpoint = cohort.checkpoint
    keeper.write([Stopped("table", cohort.me, 0)])
    before = module.taken
    work = keeper.housekeeping()
    assert work is not None
    assert (module.encoded_here, module.taken) == (0, before)
    work()
    assert module.encoded_here == 0
    assert module.taken - before > OBJECTS * OBJECT_BYTES // SETTINGS.chunk_bytes
    newest = keeper.store.all()[0][0]
    module.restore(newest.take_chunks())
    assert len(module.ballast.objects) == OBJECTS


@given(
    st.lists(st.binary(max_size=50), max_size=40),
    st.integers(0, 40),
    st.integers(1, 100),
)
def test_the_chunks_are_the_encoded_state(values: list[bytes], ended: int, size: int) -> None:
    state = GroupState(ended_max=1000, chunk_bytes=size)
    for number, value in enumerate(values):
        state.objects[f"o{number}"] = BaseVersion(value, START)
    for number in range(ended):
        state.ended[Aid("g", NO_VIEW, number)] = Ended(committed=True, vs=START)
    chunks = list(state.snapshot())
    assert b"".join(chunks) == state.encode()
    assert {len(chunk) for chunk in chunks[:-1]} <= {size}
    other = GroupState(ended_max=1000, chunk_bytes=size)
    other.restore(chunks)
    assert other.encode() == state.encode()


def test_the_chunks_of_many_objects_are_the_encoded_state() -> None:
    state = GroupState(ended_max=10, chunk_bytes=1000)
    for number in range(70_000):
        state.objects[str(number)] = BaseVersion(b"", START)
    assert b"".join(state.snapshot()) == state.encode()
