from __future__ import annotations

import pytest
from tests.journal import by_hand
from tests.journal.writing import GROUP, ID, begin

from coterie.journal.engines.stack import recover
from coterie.journal.stable import Stable, found_group
from coterie.simulation.world.disk import Died, SimulatedDisk


def test_values_survive_the_loss_of_the_machine() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        found_group(disk, GROUP, ID)
        stable = Stable(disk, GROUP, ID)
        stable.claim(3, has_been_primary=False)
        stable.set_been_primary()
        disk.lose_power()
        again = Stable(disk, GROUP, ID)
        assert (again.exists, again.damage) == (True, "")
        assert again.values == stable.values
        assert again.values.incarnation == 3
        assert again.values.is_founder
        assert again.has_been_primary


def test_a_crash_at_any_byte_leaves_the_old_values_or_the_new_ones() -> None:
    for after_bytes in range(60):
        disk = SimulatedDisk(seed=after_bytes)
        found_group(disk, GROUP, ID)
        Stable(disk, GROUP, ID).claim(1, has_been_primary=False)
        disk.die_in_write(after_bytes=after_bytes)
        with pytest.raises(Died):
            Stable(disk, GROUP, ID).claim(2, has_been_primary=False)
        if after_bytes % 2:
            disk.lose_power()
        stable = Stable(disk, GROUP, ID)
        assert stable.damage == ""
        assert stable.values.incarnation in {1, 2}
        stable.claim(7, has_been_primary=True)
        assert Stable(disk, GROUP, ID).values.incarnation == 7


def test_no_life_gets_a_number_twice() -> None:
    """Whatever happens between the claim and the first segment."""
    disk = SimulatedDisk()
    found_group(disk, GROUP, ID)
    numbers = []
    for _ in range(10):
        recovery = recover(disk, GROUP, ID)
        numbers.append(recovery.incarnation)
        Stable(disk, GROUP, ID).claim(recovery.incarnation, has_been_primary=False)
        disk.lose_power()
    assert numbers == list(range(1, 11))
    with pytest.raises(AssertionError, match="counted upwards"):
        Stable(disk, GROUP, ID).claim(10, has_been_primary=False)


def test_damage_is_told_and_ends_with_the_next_claim() -> None:
    disk = SimulatedDisk()
    begin(disk)
    disk.flip_bit("g/a/stable")
    stable = Stable(disk, GROUP, ID)
    assert stable.exists
    assert stable.damage
    recovery = recover(disk, GROUP, ID)
    assert recovery.is_zombie
    assert recovery.reason.startswith("its stable values cannot be read: ")
    assert recovery.incarnation == 2, "the folder of the life counts it"
    writer = begin_again(disk)
    assert writer == 2
    stable = Stable(disk, GROUP, ID)
    assert stable.damage == ""
    assert stable.has_been_primary, "it may have been, for all we know"


def begin_again(disk: SimulatedDisk) -> int:
    from coterie.journal.life import begin_life  # noqa: PLC0415

    return begin_life(disk, recover(disk, GROUP, ID)).incarnation


def test_values_of_another_replica_are_not_ours() -> None:
    disk = SimulatedDisk()
    disk.create("g/a/stable").write(by_hand.file_head(b"COTSTBL\n", ["g", "b", 5, True, True]))
    assert Stable(disk, GROUP, ID).damage == "it belongs to replica b of group g"


def test_the_bytes_are_those_of_the_document() -> None:
    disk = SimulatedDisk()
    found_group(disk, GROUP, ID)
    Stable(disk, GROUP, ID).claim(300, has_been_primary=True)
    expected = by_hand.file_head(b"COTSTBL\n", ["g", "a", 300, True, True, None, [[0, "", 0]] * 3])
    assert disk.read("g/a/stable", 0, 999) == expected


def test_only_a_new_replica_founds_a_group() -> None:
    disk = SimulatedDisk()
    found_group(disk, GROUP, ID)
    found_group(disk, GROUP, ID)  # once more is no harm
    other = SimulatedDisk()
    Stable(other, GROUP, ID).claim(1, has_been_primary=False)
    with pytest.raises(ValueError, match="only a new replica can found a group"):
        found_group(other, GROUP, ID)
