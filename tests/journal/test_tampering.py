"""With the seal key, tampering is told from damage: each kind of both, done to a real journal."""

from __future__ import annotations

import struct
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
import pytest
from tests.journal.writing import GROUP, ID, accepted, begin, confirmed, settled, taken

from coterie.journal.disk import FileDisk
from coterie.journal.engines.stack import recover
from coterie.journal.format import (
    BLOCK_HEAD_BYTES,
    Finding,
    Kind,
    Sync,
    decode_block_head,
    read_segment_head,
    seal_block,
)
from coterie.journal.keyed import SEAL_BYTES, SealKey
from coterie.journal.reader import JournalReader
from coterie.journal.removed import note_removed
from coterie.journal.segments import list_lives
from coterie.journal.tampering import find_tampering

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.records import Record

SECRET = b"a key of sufficient length"
KEY = SealKey(SECRET)


def write(
    folder: Path, *, key: SealKey | None = KEY, turns: int = 12, sync: Sync = Sync.TURN
) -> list[list[Record]]:
    """Write a life with several segments; give what was written."""
    writer = begin(FileDisk(folder), sync=sync, segment_bytes=900, seal_key=key)
    written: list[list[Record]] = [[accepted(), confirmed()]]
    written += [[taken(at, b"pay %d" % at), settled(at)] for at in range(1, turns)]
    for turn in written:
        writer.append(turn)
    writer.close()
    return written


def files(folder: Path) -> list[Path]:
    lives = list_lives(FileDisk(folder), GROUP, ID)
    return [folder / file.path for life in lives for file in life.segments]


def found(folder: Path, key: SealKey = KEY) -> list[Finding]:
    return list(find_tampering(FileDisk(folder), GROUP, ID, key))


def kinds(folder: Path, key: SealKey = KEY) -> list[Kind]:
    return [finding.kind for finding in found(folder, key)]


def blocks(folder: Path, file: Path) -> tuple[bytes, list[bytes]]:
    """Give the head of a segment, and its blocks."""
    sealed = read_segment_head(FileDisk(folder), file.relative_to(folder).as_posix())
    data, offset = file.read_bytes(), sealed.size
    pieces: list[bytes] = []
    while offset < len(data):
        head = decode_block_head(data, offset, sealed.seed)
        assert head is not None
        end = offset + BLOCK_HEAD_BYTES + head.length
        pieces.append(data[offset:end])
        offset = end
    return data[: sealed.size], pieces


def forge(folder: Path, file: Path, number: int, alter: Callable[[bytes], bytes]) -> None:
    """Alter a turn, and repair its checksums, as who cannot make a seal would."""
    sealed = read_segment_head(FileDisk(folder), file.relative_to(folder).as_posix())
    head, pieces = blocks(folder, file)
    old = decode_block_head(pieces[number], 0, sealed.seed)
    assert old is not None
    buffer = bytearray(pieces[number][:BLOCK_HEAD_BYTES])
    buffer += alter(pieces[number][BLOCK_HEAD_BYTES:])
    seal_block(buffer, seed=sealed.seed, count=old.records, first=old.first, synced=old.synced)
    pieces[number] = bytes(buffer)
    file.write_bytes(head + b"".join(pieces))


@pytest.mark.parametrize("key", [KEY, None])
def test_readers_and_recovery_read_a_sealed_journal_as_any_other(
    tmp_path: Path, key: SealKey | None
) -> None:
    written = write(tmp_path, key=key)
    reader = JournalReader(FileDisk(tmp_path), GROUP, ID, strict=True)
    assert [turn.records for turn in reader.turns()] == written
    assert reader.findings == []
    recovery = recover(FileDisk(tmp_path), GROUP, ID)
    assert not recovery.is_zombie
    assert recovery.version.position == 11
    write(tmp_path, key=key, turns=1)
    assert len(list_lives(FileDisk(tmp_path), GROUP, ID)) == 2


def test_a_journal_that_nobody_touched_is_clean(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, turns=3)
    assert len(files(tmp_path)) == 4
    assert found(tmp_path) == []


def test_the_seals_are_what_the_page_says(tmp_path: Path) -> None:
    """Computed here from docs/internals/journal-format.md alone."""
    write(tmp_path)
    key = blake2b(SECRET, person=b"coterie seal key", digest_size=32).digest()
    file = files(tmp_path)[1]
    head, pieces = blocks(tmp_path, file)
    value = head[20:]
    sealing = blake2b(value[:-32], key=key, person=b"coterie head", digest_size=32)
    assert value[-32:] == sealing.digest()
    for piece in pieces:
        count, first, synced = struct.unpack(">IQQ", piece[16:36])
        said = value[-32:] + struct.pack(">IQQ", count, first, synced) + piece[40:-32]
        sealing = blake2b(said, key=key, person=b"coterie turn", digest_size=32)
        assert piece[-32:] == sealing.digest()
        assert msgspec.msgpack.decode(piece[40:])[-1] == [65, "g", ["a", 1], 9, piece[-32:]]


def test_a_turn_that_was_altered_is_found(tmp_path: Path) -> None:
    write(tmp_path)
    forge(tmp_path, files(tmp_path)[1], 0, lambda body: body.replace(b"pay ", b"PAY "))
    reader = JournalReader(FileDisk(tmp_path), GROUP, ID)
    assert len(list(reader.turns())) == 12  # all checksums fit
    [finding] = found(tmp_path)
    assert finding.kind is Kind.TAMPERED
    assert "altered or made up" in finding.reason


def test_a_bit_that_flipped_is_damage_and_no_tampering(tmp_path: Path) -> None:
    write(tmp_path)
    file = files(tmp_path)[1]
    head, pieces = blocks(tmp_path, file)
    for at in (len(head) - 3, len(head) + 50, len(head) + len(pieces[0]) + 3):
        whole = file.read_bytes()
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert found(tmp_path) == []
        reader = JournalReader(FileDisk(tmp_path), GROUP, ID)
        assert list(reader.turns())
        assert {each.kind for each in reader.findings} & {Kind.DAMAGED, Kind.TORN_TAIL}
        file.write_bytes(whole)


def test_what_is_behind_damage_is_checked_all_the_same(tmp_path: Path) -> None:
    """A flipped bit is no cover for a forgery."""
    write(tmp_path)
    file = files(tmp_path)[1]
    forge(tmp_path, file, 1, lambda body: body.replace(b"pay ", b"PAY "))
    head, _ = blocks(tmp_path, file)
    whole, at = file.read_bytes(), len(head) + 60
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert kinds(tmp_path) == [Kind.TAMPERED]


def test_turns_in_another_order_are_found(tmp_path: Path) -> None:
    write(tmp_path)
    file = files(tmp_path)[1]
    _, pieces = blocks(tmp_path, file)
    one, other = pieces[0][BLOCK_HEAD_BYTES:], pieces[1][BLOCK_HEAD_BYTES:]
    forge(tmp_path, file, 0, lambda _: other)
    forge(tmp_path, file, 1, lambda _: one)
    assert kinds(tmp_path) == [Kind.TAMPERED] * 2


def test_a_turn_that_was_taken_out_is_found(tmp_path: Path) -> None:
    write(tmp_path)
    file = files(tmp_path)[0]
    head, pieces = blocks(tmp_path, file)
    assert len(pieces) > 2
    file.write_bytes(head + pieces[0] + b"".join(pieces[2:]))
    [finding] = found(tmp_path)
    assert "taken out" in finding.reason


def test_a_segment_that_was_cut_off_or_taken_away_is_found(tmp_path: Path) -> None:
    write(tmp_path)
    file = files(tmp_path)[1]
    whole = file.read_bytes()
    head, pieces = blocks(tmp_path, file)
    file.write_bytes(head + b"".join(pieces[:-1]))
    [finding] = found(tmp_path)
    assert "cut off" in finding.reason
    # In the middle of a turn it may be damage, and the readers say so.
    file.write_bytes(whole[:-5])
    assert found(tmp_path) == []
    file.unlink()
    [finding] = found(tmp_path)
    assert (finding.kind, finding.first > 1) == (Kind.TAMPERED, True)
    file.write_bytes(whole)
    files(tmp_path)[0].unlink()
    [finding] = found(tmp_path)
    assert "before it were taken away" in finding.reason


def test_without_syncs_a_lost_end_may_be_the_machines_doing(tmp_path: Path) -> None:
    write(tmp_path, sync=Sync.NONE)
    file = files(tmp_path)[1]
    head, pieces = blocks(tmp_path, file)
    file.write_bytes(head + b"".join(pieces[:-1]))
    assert found(tmp_path) == []
    reader = JournalReader(FileDisk(tmp_path), GROUP, ID)
    assert list(reader.turns())
    assert Kind.MISSING in {each.kind for each in reader.findings}


def test_segments_in_each_others_place_are_found(tmp_path: Path) -> None:
    write(tmp_path)
    one, other = files(tmp_path)[:2]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert [each.reason.split(":")[0] for each in found(tmp_path)] == ["it was put there"] * 2


def test_the_end_of_a_life_that_another_went_on_from_cannot_be_cut_off(tmp_path: Path) -> None:
    write(tmp_path)
    before = files(tmp_path)
    write(tmp_path, turns=2)
    head, pieces = blocks(tmp_path, before[-1])
    before[-1].write_bytes(head + b"".join(pieces[:-1]))
    [finding] = found(tmp_path)
    assert "life 2 went on from record" in finding.reason
    for file in before:
        file.unlink()
    before[0].parent.rmdir()
    [finding] = found(tmp_path)
    assert "life 1, from which this one went on, was taken away" in finding.reason


def test_the_very_end_can_be_cut_off_unnoticed(tmp_path: Path) -> None:
    """It looks as if the replica had been killed earlier; the guarantees say so."""
    write(tmp_path)
    file = files(tmp_path)[-1]
    head, pieces = blocks(tmp_path, file)
    file.write_bytes(head + b"".join(pieces[:-1]))
    assert found(tmp_path) == []


def test_a_head_that_was_altered_or_lost_its_seal_is_found(tmp_path: Path) -> None:
    """A forged beginning of a life could declare void what came before it."""
    write(tmp_path)
    file = files(tmp_path)[1]
    data = file.read_bytes()
    length = int.from_bytes(data[12:16], "big")
    value = msgspec.msgpack.decode(data[20 : 20 + length])
    for alter in (lambda fields: [*fields[:5], "another boot", *fields[6:]], lambda f: f[:-1]):
        body = msgspec.msgpack.encode(alter(value))
        checked = struct.pack(">HHI", 1, 0, len(body))
        head = data[:8] + checked + struct.pack(">I", crc32(checked + body)) + body
        file.write_bytes(head)
        assert kinds(tmp_path)[0] is Kind.TAMPERED
        file.write_bytes(data)


def test_the_note_of_what_was_removed_cannot_be_made_up(tmp_path: Path) -> None:
    write(tmp_path)
    files(tmp_path)[0].unlink()
    first = int(files(tmp_path)[0].stem)
    disk = FileDisk(tmp_path)
    note_removed(disk, GROUP, ID, {1: ((1, first - 1),)})
    assert kinds(tmp_path) == [Kind.TAMPERED, Kind.TAMPERED]
    note_removed(disk, GROUP, ID, {1: ((1, first - 1),)}, KEY)
    assert found(tmp_path) == []


def test_what_was_written_without_a_key_proves_nothing_and_is_no_forgery(tmp_path: Path) -> None:
    write(tmp_path, key=None)
    before = len(files(tmp_path))
    write(tmp_path)
    assert kinds(tmp_path) == [Kind.UNSEALED] * before


def test_a_key_is_replaced_while_the_old_one_is_accepted(tmp_path: Path) -> None:
    write(tmp_path)
    both = SealKey(b"a new key, also long enough", SECRET)
    write(tmp_path, key=both, turns=3)
    assert found(tmp_path, both) == []
    assert Kind.TAMPERED in kinds(tmp_path)  # the old key alone
    with pytest.raises(ValueError, match="at least"):
        SealKey(b"short")
    assert SECRET.decode() not in repr(KEY)
    assert SEAL_BYTES == 32
