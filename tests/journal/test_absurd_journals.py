"""Journals whose checksums fit and whose contents cannot be: what fuzzing found, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.fuzz import journals
from tests.fuzz.files import (
    _fixed,
    _records_of,
    _seal,
    _seed,
    blocks_of,
    chunks_of,
    with_chunks,
)
from tests.fuzz.journals import LIVES
from tests.fuzz.lives import DEFINITION, GROUP, ID, SETTINGS, Living
from tests.fuzz.memory_disk import MemoryDisk

from coterie.journal.engines.stack_history import History
from coterie.journal.facts import Facts
from coterie.journal.format import JournalError, WrongJournal, encode_fixed
from coterie.journal.snapshots import Snapshot, SnapshotHead, Snapshots
from coterie.kernel.engine import Version
from coterie.kernel.errors import CoterieError
from coterie.kernel.views import ViewId
from coterie.objects import BadSnapshot
from coterie.objects.execution import snapshots as states
from coterie.objects.execution.machine_parts import machine_from_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_decode = msgspec.msgpack.decode
_encode = msgspec.msgpack.encode


def changed_head(data: bytes, change: Callable[[list[Any]], None]) -> bytes:
    """A file whose head says something else."""
    magic, body, rest = _fixed(data)
    values = _decode(body)
    change(values)
    return encode_fixed(magic, _encode(values)) + rest


def changed_segment(data: bytes, change: Callable[[list[Any]], None]) -> bytes:
    """A segment whose head says something else, with blocks that fit it."""
    _, blocks = blocks_of(data)
    head = changed_head(blocks_of(data)[0], change)
    return head + b"".join(_seal(block, _seed(head)) for block in blocks)


def newest(engine: str, what: str) -> str:
    return max(path for path in journals.base(engine) if what in path)


def start(engine: str, path: str, data: bytes) -> Living:
    life = LIVES[engine](MemoryDisk({**journals.base(engine), path: data}), 10**9)
    life.turns(3)
    return life


@pytest.mark.parametrize("engine", LIVES)
def test_a_segment_that_names_nobody_is_misplaced(engine: str) -> None:
    """It raised `ValueError` where only damage was expected."""
    path = newest(engine, ".segment")
    data = changed_segment(journals.base(engine)[path], lambda head: head.__setitem__(0, ""))
    life = start(engine, path, data)
    assert any("misplaced" in str(each) for each in life.keeper.recovery.findings)


@pytest.mark.parametrize("engine", LIVES)
def test_numbers_at_the_end_of_all_numbers_are_refused_before_anything_is_written(
    engine: str,
) -> None:
    """They could not be encoded: at the start, or turns later in the middle of one."""
    path = newest(engine, "/stable")
    data = changed_head(
        journals.base(engine)[path], lambda values: values.__setitem__(2, 2**64 - 1)
    )
    with pytest.raises(JournalError, match="leads to the number 18446744073709551616, which cann"):
        start(engine, path, data)


@pytest.mark.parametrize("engine", LIVES)
def test_a_block_numbered_at_the_end_of_all_numbers_is_refused_too(engine: str) -> None:
    """What the next life goes on from is a number as well: the record that it follows."""
    path = newest(engine, ".segment")
    head, blocks = blocks_of(journals.base(engine)[path])
    blocks[-1] = _seal(blocks[-1], _seed(head), None, first=2**64 - 1)
    try:
        life = start(engine, path, head + b"".join(blocks))
    except JournalError as error:
        assert "which cannot be" in str(error)  # noqa: PT017 -- or it was found out before
    else:
        assert life.keeper.recovery.findings


def test_a_history_that_ends_before_its_snapshot_is_broken() -> None:
    """The replica led its group from a shorter history than its state, and answered nobody."""
    view = ViewId(1, ID, 1)
    head = SnapshotHead(
        group=GROUP, replica=ID, incarnation=1, sequence=10, position=8, version=Version(view, 8)
    )
    disk = MemoryDisk({})
    history = History(
        Facts(version=Version(view, 5), settled=5),
        Snapshots(disk, GROUP, ID, []),
        Snapshot(disk, "", head, 0),
    )
    history.reached = (1, 12)  # records were read from behind the place of the snapshot
    history.finish()
    assert history.broken == "the history ends at 5, and its snapshot is of 8"
    assert (history.end, history.settled) == (8, 8)


def test_a_cohort_whose_promises_cannot_be_read_does_not_start() -> None:
    path = newest("vsr", "/stable")
    data = changed_head(journals.base("vsr")[path], lambda values: values.__setitem__(6, [1, 2, 3]))
    with pytest.raises(WrongJournal, match="which views it has promised cannot be read"):
        start("vsr", path, data)


def test_a_snapshot_of_a_cohort_without_a_history_is_no_index_error() -> None:
    path = newest("vsr", "/snapshots/")
    data = changed_head(journals.base("vsr")[path], lambda head: head.__setitem__(8, []))
    start("vsr", path, data)


def test_a_state_in_which_a_commit_was_decided_nowhere_is_refused() -> None:
    """Every new primary failed at it, and the group never came back."""
    path = newest("vsr", "/snapshots/")
    head, chunks = chunks_of(journals.base("vsr")[path])
    whole = _decode(b"".join(chunks))
    aid = ["books", [9, "a", 9], 9]
    whole[2] = [[aid, []]]
    with pytest.raises(CoterieError, match="a commit was decided nowhere"):
        start("vsr", path, with_chunks(head, [_encode(whole)]))


def test_a_field_that_is_no_container_and_comes_twice_is_a_bad_snapshot() -> None:
    _, chunks = chunks_of(journals.base("stack")[newest("stack", "/dumps/")])
    records = _records_of(b"".join(chunks))
    assert records is not None
    parts = [states._decode(each) for each in records[:-1]]
    total = next(each for each in parts if getattr(each, "name", "") == "total")
    stream = states.write([*parts, total], 1 << 20)  # type: ignore[list-item]
    with pytest.raises(BadSnapshot, match="the field 'total' of Books comes twice"):
        machine_from_parts(DEFINITION, SETTINGS, states.read(stream), majority=1)
