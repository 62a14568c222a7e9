"""Journals over a partitioned network that say what cannot be: a sentence, or a life."""

from __future__ import annotations

import msgspec
import pytest
from tests.fuzz import journals
from tests.fuzz.files import chunks_of, with_chunks
from tests.fuzz.lives import ALONE, GROUP, ID, LivingColours
from tests.fuzz.memory_disk import MemoryDisk

from coterie.journal.engines.colours import COLOURS, ColoursRecovery
from coterie.journal.format import Kind, encode_fixed, read_fixed
from coterie.kernel.components import Component, ServerMemory
from coterie.kernel.views import Member, ViewId

STABLE = f"{GROUP}/{ID}/stable"


def recover(files: dict[str, bytes]) -> ColoursRecovery:
    found = COLOURS.recover(MemoryDisk(files), GROUP, ID, ALONE)
    assert isinstance(found, ColoursRecovery)
    return found


def newest_snapshot(files: dict[str, bytes]) -> str:
    return max(path for path in files if "/snapshots/" in path)


def served(files: dict[str, bytes]) -> None:
    """Start on a disk, and be a polite client."""
    life = LivingColours(MemoryDisk(files), 10**9)
    life.turns(30)
    assert life.leads
    life.use(2)


def test_promises_that_cannot_be_read_make_a_zombie() -> None:
    """Their checksum was right, and the replica died of them at every start."""
    files = journals.base("colours")
    body, _, _ = read_fixed(MemoryDisk(files), STABLE, files[STABLE][:8], "stable values")
    values = msgspec.msgpack.decode(body)
    at = next(i for i, each in enumerate(values) if isinstance(each, list) and len(each) == 3)
    values[at] = [1, 2]
    found = recover(
        {**files, STABLE: encode_fixed(files[STABLE][:8], msgspec.msgpack.encode(values))}
    )
    assert found.is_zombie
    assert found.reason == "which promises are on stable storage cannot be read"
    life = LivingColours(
        MemoryDisk(
            {**files, STABLE: encode_fixed(files[STABLE][:8], msgspec.msgpack.encode(values))}
        ),
        10**9,
    )
    life.turns(5)


@pytest.mark.parametrize("memory", [b"", b"\x93\x01", b"\xff"])
def test_a_snapshot_without_a_servers_memory_is_not_begun_with(memory: bytes) -> None:
    files = journals.base("colours")
    path = newest_snapshot(files)
    head, chunks = chunks_of(files[path])
    first = [memory] if memory else []
    wrong = {**files, path: with_chunks(head, [*first, *chunks[1:]] if first else [])}
    found = recover(wrong)
    assert any(
        each.kind is Kind.DAMAGED and "no server's memory" in each.reason for each in found.findings
    )
    assert found.snapshot is None or found.snapshot.path != path


def test_a_snapshot_with_actions_of_a_life_to_come_is_not_begun_with() -> None:
    """The first actions of that life were taken for known ones, and never answered."""
    files = journals.base("colours")
    path = newest_snapshot(files)
    head, chunks = chunks_of(files[path])
    memory = msgspec.msgpack.decode(chunks[0], type=ServerMemory)
    greens = tuple(
        (Member(ID, 4) if member == Member(ID, 3) else member, index)
        for member, index in memory.greens
    )
    chunks[0] = msgspec.msgpack.encode(msgspec.structs.replace(memory, greens=greens))
    found = recover({**files, path: with_chunks(head, chunks)})
    assert any("speak of different actions" in each.reason for each in found.findings)
    served({**files, path: with_chunks(head, chunks)})


def test_a_component_has_members() -> None:
    """Whoever judged by one without any found nobody to decide a tie, and died."""
    nobody = msgspec.msgpack.encode(Component(1, ViewId(1, "a", 1), ()))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(nobody, type=Component)


def test_a_snapshot_that_a_life_begins_with_is_not_thrown_away_at_once() -> None:
    """A segment of an earlier life stood in its place: it was begun with, and removed."""
    assert journals.fuzz_journals("colours", 32, 600).inputs == 600
