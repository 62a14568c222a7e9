"""Hostile backups: files with something wrong inside, with which groups are founded.

Whatever a file says, `coterie restore` says in a sentence what is wrong with it and leaves nothing
behind, or a replica is founded, which starts, or says in a sentence why it does not. No turn may
raise, and one that leads its group, which has no other replicas here, carries out what is asked.
"""

from __future__ import annotations

import struct
import tempfile
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from tests.fuzz.files import wrong_state, wrong_value
from tests.fuzz.lives import GROUP, ID, STACK_NAME, LivingObject
from tests.fuzz.memory_disk import MemoryDisk
from tests.fuzz.tally import Tally

from coterie.journal.backup import Backup, BackupHead, write_backup
from coterie.journal.format import encode_fixed, read_fixed
from coterie.kernel.errors import CoterieError
from coterie.kernel.views import ChangedConfiguration
from coterie.service.config import ClusterConfig, GroupConfig, ReplicaConfig
from coterie.service.operate.backups import begin_with_backup, group_of_backup

if TYPE_CHECKING:
    from tests.fuzz.files import Files

START_EVERY = 4
"""All backups are read; with every so many of them a replica is founded."""
_MAGIC = b"COTBACK\n"
_CHUNK = struct.Struct("!II")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- a folder in it is made
MEMBERS = b"\xc1coterie configuration"
"""Before a configuration that stands before a state."""
GIVEN = GroupConfig(class_="tests.fuzz.lives:Books", stack=STACK_NAME)


@cache
def base() -> tuple[bytes, list[bytes]]:
    """Give the body of a backup's head and the chunks of its state."""
    disk = MemoryDisk({})
    LivingObject.family.found(disk, GROUP, ID)
    life = LivingObject(disk, 1000)
    life.turns(40)
    life.use(6)
    assert life.keeper.checkpoint is not None, "it lives"
    checkpoint = life.keeper.checkpoint()
    head = BackupHead(
        group=GROUP,
        replica=ID,
        position=checkpoint.position,
        version=checkpoint.version,
        taken_at=1,
        given=msgspec.to_builtins(GIVEN),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "books.backup"
        write_backup(path, head, checkpoint.chunks)
        chunks = list(Backup(path).chunks())
        data = path.read_bytes()
    body, _, _ = read_fixed(MemoryDisk({"x": data}), "x", _MAGIC, "backup")
    return body, chunks


def put(body: bytes, chunks: list[bytes]) -> bytes:
    """Give the file of a backup, its checksums right."""
    parts, check = [encode_fixed(_MAGIC, body)], 0
    for chunk in chunks:
        check = crc32(chunk, check)
        parts += [_CHUNK.pack(len(chunk), check), chunk]
    end = _CHUNK.pack(0, crc32(len(chunks).to_bytes(8, "big"), check))
    return b"".join((*parts, end))


def wrong(random: Random) -> bytes:
    """Give a backup with something wrong inside."""
    body, chunks = base()
    kind = random.random()
    if kind < 0.35:
        return put(wrong_value(body, random), chunks)
    if kind < 0.45:
        data = bytearray(put(body, chunks))
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data[: random.choice((len(data), random.randrange(len(data))))])
    if kind < 0.5:
        chunks = list(chunks)
        random.shuffle(chunks)
        return put(body, chunks[: random.randrange(len(chunks) + 1)])
    chunks = list(chunks)
    if kind < 0.6:
        changed = ChangedConfiguration(3, ("a", "b"), ("c",), ("a",), ("d",))
        members = wrong_value(msgspec.msgpack.encode(changed), random)
        return put(body, [MEMBERS + members, *chunks])
    at = random.randrange(len(chunks))
    try:
        chunks[at] = wrong_state(chunks[at], random)
    except (msgspec.DecodeError, ValueError):
        chunks[at] = random.randbytes(random.randrange(40)) + chunks[at]
    return put(body, [chunk for chunk in chunks if chunk])


def fuzz(seed: int, inputs: int) -> Tally:
    """Have groups founded with backups that are wrong inside."""
    random = Random(f"{seed}/backups")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / "books.backup"
        for number in range(inputs):
            path.write_bytes(wrong(random))
            tally.inputs += 1
            tally.outcomes[_restore(path, Path(folder) / str(number), number, tally)] += 1
    return tally


def _restore(path: Path, root: Path, number: int, tally: Tally) -> str:
    try:
        backup = Backup(path)
        backup.check()
        given = group_of_backup(backup)
    except CoterieError:
        return "refused"
    if number % START_EVERY:
        return "read"
    replica = ReplicaConfig(listen="127.0.0.1:1", clients="127.0.0.1:2", dir=str(root))
    config = ClusterConfig(cluster="c", groups={GROUP: given}, replicas={ID: replica})
    try:
        begin_with_backup(backup, config, GROUP, ID)
    except CoterieError:
        assert not any(each.is_file() for each in root.rglob("*") if each.name != "in-use"), (
            f"what could not be restored has left {sorted(root.rglob('*'))}"
        )
        return "not founded"
    disk = MemoryDisk(_files(root))
    try:
        life = LivingObject(disk, 10**9)
    except CoterieError:
        return "does not start"
    life.turns(3)
    if not life.leads:
        life.turns(30)
    if not life.leads:
        return "does not lead"
    begun = time.process_time()
    life.use(1)
    tally.latencies.append(time.process_time() - begun)
    return "served"


def _files(root: Path) -> Files:
    return {
        str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()
    }
