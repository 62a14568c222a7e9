"""One history out of many journals."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from tests.pipeline.by_hand import NAMES, VIEW, begin, entries, settled, write
from tests.pipeline.here import broken, history_here, seal_here, verify_here
from tests.pipeline.journals import OPTIMISTIC, SAFE, copy_group, make_group, storm

from coterie.checking.replication import EngineTracker
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import seconds
from coterie.kernel.engine import Run, Version
from coterie.kernel.records import EntriesAccepted, HistoryAdopted, Record, Started, ViewInstalled
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId
from coterie.simulation import Group

Row = dict[str, Any]


def compare_with_the_simulator(group: Group, rows: list[Row]) -> None:
    """The simulator saw everything in true order; the journals must tell the same."""
    tracker = group.tracker
    assert isinstance(tracker, EngineTracker)
    found = {row["position"]: row for row in rows if row["standing"] == "authoritative"}
    assert found.keys() == tracker.authoritative.keys()
    for position, key in tracker.authoritative.items():
        row = found[position]
        assert ViewId(**row["view"]) == key[0]
        assert row["number"] == key[1]
        assert Member(**row["origin"]) == Member(key[2], key[3])
        assert row["identity"] == key[4]
        assert row["payload"] == tracker.payloads[key]


@pytest.mark.parametrize("stack", [OPTIMISTIC, SAFE])
def test_the_history_is_the_one_that_happened(stack: str, tmp_path: Path) -> None:
    group = make_group(seed=11, stack=stack, names="abcde", history_bytes=400)
    storm(group, duration=seconds(5), faults=("partition", "crash", "power", "pause"))
    group.check()
    copy_group(group, tmp_path / "journals")
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=64)
    rows = history_here(lake)
    compare_with_the_simulator(group, rows)
    assert any(row["transferred_to"] for row in rows)
    assert broken(lake) == set()


@pytest.mark.parametrize("lives", [0, 2])
def test_a_journal_with_parts_removed_breaks_nothing(lives: int, tmp_path: Path) -> None:
    """Its beginning is gone, or what came between the beginnings and the ends of its lives."""
    keeper = KeeperSettings(
        journal=JournalSettings(segment_bytes=3_000),
        retention=Retention(journal_bytes_max=0, lives=lives),
        snapshot_bytes=3_000,
    )
    group = make_group(seed=6, keeper=keeper, history_bytes=400)
    storm(group, duration=seconds(8))
    copy_group(group, tmp_path / "journals")
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=64)
    kinds = {row["kind"] for row in lake.table("findings", "group").to_pylist()}
    assert kinds == {"removed"}
    assert broken(lake) == set()
    standings = {row["standing"] for row in history_here(lake)}
    assert "undecidable" not in standings


def standings(folder: Path, told: dict[str, list[Record]]) -> dict[tuple[int, bytes], Row]:
    write(folder / "journals", "g", told)
    lake = seal_here(folder / "journals", folder / "lake")
    return {(row["position"], row["payload"]): row for row in history_here(lake)}


def accepted(name: str, *payloads: bytes) -> list[Record]:
    return [*begin("g", name), entries("g", name, 1, payloads)]


def test_a_majority_makes_an_entry_authoritative(tmp_path: Path) -> None:
    """4.1: accepted by a majority; what fewer accepted may still become so."""
    found = standings(
        tmp_path, {"a": accepted("a", b"x", b"y"), "b": accepted("b", b"x"), "c": begin("g", "c")}
    )
    assert found[1, b"x"]["standing"] == "authoritative"
    assert found[1, b"x"]["accepted_by"] == ["a", "b"]
    assert found[1, b"x"]["evidence"] == "a majority accepted it"
    assert found[2, b"y"]["standing"] == "optimistic"


def test_what_a_missing_journal_decides_is_undecidable(tmp_path: Path) -> None:
    found = standings(tmp_path, {"a": accepted("a", b"x", b"y"), "b": accepted("b", b"x")})
    assert found[1, b"x"]["standing"] == "authoritative"
    assert found[2, b"y"]["standing"] == "undecidable"


def test_the_word_of_who_settled_counts_where_journals_are_missing(tmp_path: Path) -> None:
    found = standings(tmp_path, {"a": [*accepted("a", b"x", b"y"), settled("g", "a", 1)]})
    assert found[1, b"x"]["standing"] == "authoritative"
    assert found[1, b"x"]["evidence"] == "the word of those who settled it"
    assert found[1, b"x"]["settled_by"] == ["a"]
    assert found[2, b"y"]["standing"] == "undecidable"


def adopted(name: str, *, kept: int, restored: int = 0, position: int = 2) -> HistoryAdopted:
    return HistoryAdopted(
        "g",
        Member(name, 1),
        1,
        view=ViewId(2, "b", 1),
        source=Member("b", 1),
        version=Version(VIEW, position),
        kept=kept,
        restored=restored,
    )


LATER = ViewId(2, "b", 1)


def test_what_is_given_up_for_another_history_is_rolled_back(tmp_path: Path) -> None:
    new = entries("g", "b", 2, [b"new"], view=LATER)
    taken = entries("g", "a", 2, [b"new"], view=LATER)
    found = standings(
        tmp_path,
        {
            "a": [*accepted("a", b"x", b"old", b"older"), adopted("a", kept=1), taken],
            "b": [*accepted("b", b"x"), new],
            "c": accepted("c", b"x"),
        },
    )
    assert found[2, b"new"]["standing"] == "authoritative"
    for key in ((2, b"old"), (3, b"older")):
        assert found[key]["standing"] == "rolled back"
        assert found[key]["given_up_by"] == ["a"]


def test_what_comes_with_a_state_is_accepted(tmp_path: Path) -> None:
    """4.1: implicitly, as part of the history adopted by a state transfer."""
    found = standings(
        tmp_path,
        {
            "a": [*accepted("a", b"x", b"y"), settled("g", "a", 2)],
            "b": [*begin("g", "b"), adopted("b", kept=0, restored=2)],
            "c": begin("g", "c"),
        },
    )
    assert found[2, b"y"]["standing"] == "authoritative"
    assert found[2, b"y"]["accepted_by"] == ["a"]
    assert found[2, b"y"]["transferred_to"] == ["b"]


def test_a_missing_replica_leaves_promises_undecided(
    optimistic_journals: Path, tmp_path: Path
) -> None:
    folder = copytree(optimistic_journals, tmp_path / "journals")
    for name in "de":
        rmtree(folder / "group" / name)
    lake = seal_here(folder, tmp_path / "lake", width=500)
    assert broken(lake) == set()
    rmtree(folder / "group" / "c")
    lake = seal_here(folder, tmp_path / "lake of two", width=500)
    [results] = verify_here(lake).values()
    assert not results.violations
    assert results.count("authoritative majority").undecided


def test_names_of_groups_may_be_anything(tmp_path: Path) -> None:
    group = "a/b c=1 é"
    told = {name: [*begin(group, name), entries(group, name, 1, [b"x"])] for name in NAMES}
    write(tmp_path / "journals", group, told)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake")
    assert lake.groups() == [group]
    [row] = history_here(lake)
    assert (row["group_name"], row["standing"]) == (group, "authoritative")


def test_a_replica_that_replaced_another_has_an_incarnation_like_the_time_of_day(
    tmp_path: Path,
) -> None:
    """Such a number does not fit into the upper bits of a key; the pipeline failed with it."""
    replaced = 1_763_424_000
    told: dict[str, list[Record]] = {
        name: [*accepted(name, b"x", b"y"), settled("g", name, 2)] for name in "ab"
    }
    write(tmp_path / "journals", "g", told)
    me = Member("c", replaced)
    members = (Member("a", 1), Member("b", 1), me)
    later: list[Record] = [
        Started("g", me, 1, stack=SAFE, configuration=Configuration(1, NAMES), is_zombie=True),
        ViewInstalled(
            "g", me, 1, view=LATER, members=members, previous=NO_VIEW, transitional=(me,)
        ),
        HistoryAdopted(
            *("g", me, 1),
            view=LATER,
            source=Member("b", 1),
            version=Version(VIEW, 2),
            kept=0,
            restored=0,
        ),
        EntriesAccepted("g", me, 1, run=Run(VIEW, 1, 1, Member("a", 1), 1, [b"x", b"y"])),
    ]
    write(tmp_path / "journals", "g", {"c": later}, incarnation=replaced)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=1)
    rows = history_here(lake)
    assert [row["accepted_by"] for row in rows] == [["a", "b", "c"]] * 2
    # What is not there of b's second view is damage of this story, not of the keys.
    assert broken(lake) <= {"validity"}
