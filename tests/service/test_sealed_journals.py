"""Replicas with a seal key write journals that only who has the key could have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.service.test_secured import Counter, make_config, write_files

from coterie.journal.disk import FileDisk
from coterie.journal.keyed import SealKey
from coterie.journal.segments import list_journals
from coterie.journal.tampering import find_tampering
from coterie.objects import define
from coterie.runtime.loop import run
from coterie.runtime.security import SecurityError, read_secrets, write_secret
from coterie.service.config import SecurityConfig
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("engine", ["stack", "vsr"])
def test_a_replica_seals_what_it_writes_life_after_life(tmp_path: Path, engine: str) -> None:
    write_files(tmp_path)
    file = tmp_path / "seal.key"
    write_secret(file)
    config = make_config(tmp_path, tls=False)
    group = msgspec.structs.replace(config.groups["sums"], engine=engine)
    config = msgspec.structs.replace(
        config, groups={"sums": group}, security=SecurityConfig(seal_key=str(file))
    )

    async def live(*, found: bool) -> None:
        objects = {name: define(Counter) for name in config.all_groups}
        async with ReplicaProcess(config, "a", objects=objects, found=found):
            pass

    for found in (True, False):
        run(live(found=found))
    disk = FileDisk(config.replicas["a"].dir)
    assert list_journals(disk)
    for name, replica in list_journals(disk):
        key = SealKey(*read_secrets(file))
        assert list(find_tampering(disk, name, replica, key)) == []
        assert list(find_tampering(disk, name, replica, SealKey(b"some other long key")))
    file.chmod(0o644)
    with pytest.raises(SecurityError, match="lets every user"):
        run(live(found=False))
