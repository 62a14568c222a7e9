"""One table: what is done to journals or to a lake, and what a run says of it.

A row is a tampering, and what comes of it: the outcome, whose journal is named, which records prove
it, and the exit status. Everything here is what `coterie pipeline run` does, but for Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import NamedTuple

import pytest
from tests.pipeline.by_hand import (
    MEMBERS,
    NAMES,
    VIEW,
    begin,
    entries,
    replied,
    settled,
    write,
)
from tests.pipeline.here import judge_here, recorded_journals

from coterie.cli import exits
from coterie.cli.commands.pipeline import STATUSES
from coterie.cli.main import main
from coterie.journal import FileDisk, JournalSettings, Sync, begin_life, recover
from coterie.kernel.engine import Version
from coterie.kernel.records import (
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Record,
    Started,
    StateDigest,
    Stopped,
    TransitionalInstalled,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId
from coterie.pipeline.lake.lake import Lake, LakeDamaged
from coterie.pipeline.lake.remembered import check_files
from coterie.pipeline.outcomes import Outcome
from coterie.pipeline.read.planning import survey
from coterie.service.folder import lock_folder

Tamper = Callable[[Path], None]


class Case(NamedTuple):
    """A tampering, and what a run says of it."""

    tamper: Tamper
    outcome: str
    replica: str = ""
    """Whose journal is named: in a violation if something is broken, else in a problem."""
    check: str = ""
    """The broken promise."""
    said: str = ""
    """What a sentence says."""
    is_later: bool = False
    """Whether it is done after a first run."""
    view: ViewId = VIEW
    """The view in which the promise was broken."""


def segments(folder: Path, replica: str) -> list[Path]:
    return sorted((folder / "g" / replica).rglob("*.segment"))


def last(folder: Path, replica: str) -> Path:
    return segments(folder, replica)[-1]


def nothing(folder: Path) -> None:
    del folder


def flip(replica: str, part: float) -> Tamper:
    """Turn one byte, somewhere in the middle of the last segment."""

    def tamper(folder: Path) -> None:
        path = last(folder, replica)
        data = bytearray(path.read_bytes())
        data[int(len(data) * part)] ^= 0xFF
        path.write_bytes(data)

    return tamper


def cut(replica: str, keep: float) -> Tamper:
    def tamper(folder: Path) -> None:
        path = last(folder, replica)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])

    return tamper


def remove(replica: str) -> Tamper:
    return lambda folder: rmtree(folder / "g" / replica)


def remove_last_life(replica: str) -> Tamper:
    return lambda folder: rmtree(max((folder / "g" / replica).glob("0*")))


def remove_stable_too(replica: str) -> Tamper:
    def tamper(folder: Path) -> None:
        remove_last_life(replica)(folder)
        (folder / "g" / replica / "stable").unlink()

    return tamper


def dangle(folder: Path) -> None:
    path = last(folder, "b")
    path.unlink()
    path.symlink_to("nowhere")


def hinder(folder: Path) -> None:
    """A folder in the place of a file: it is there, and cannot be read as one."""
    path = last(folder, "b")
    path.unlink()
    path.mkdir()


def rename_badly(folder: Path) -> None:
    os.rename(os.fsencode(folder / "g" / "c"), os.fsencode(folder / "g") + b"/\xff\xfe")  # noqa: PTH104


def swap(folder: Path) -> None:
    """The journals of two replicas in each other's place."""
    (folder / "g" / "b").rename(folder / "g" / "x")
    (folder / "g" / "c").rename(folder / "g" / "b")
    (folder / "g" / "x").rename(folder / "g" / "c")


def harm_stable(folder: Path) -> None:
    path = folder / "g" / "b" / "stable"
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def with_end(records: list[Record], name: str) -> list[Record]:
    return [*records, Stopped("g", Member(name, 1), 9)]


def tell(name: str, count: int = 5) -> list[Record]:
    """What a replica tells of an ordinary life."""
    told = begin("g", name)
    for position in range(1, count + 1):
        told += [entries("g", name, position, [b"entry %d" % position])]
        told += [settled("g", name, position)]
    if name == "a":
        told += [replied("g", "a", at=5, session=1, request=1, position=2)]
    return told


def write_again(folder: Path, **told: list[Record]) -> None:
    """Write journals anew, as a forger would who knows the format."""
    for name, records in told.items():
        rmtree(folder / "g" / name)
        write(folder, "g", {name: with_end(records, name)})


def forge_payload(folder: Path) -> None:
    told = [
        entries("g", "b", 3, [b"forged 3"])
        if record == entries("g", "b", 3, [b"entry 3"])
        else record
        for record in tell("b")
    ]
    write_again(folder, b=told)


def forge_answer(position: int) -> Tamper:
    def tamper(folder: Path) -> None:
        answer = replied("g", "a", at=6, session=1, request=7, position=position)
        write_again(folder, a=[*tell("a"), answer])

    return tamper


def settle_backwards(folder: Path) -> None:
    write_again(folder, c=[*tell("c"), settled("g", "c", 2)])


def settle_alone(folder: Path) -> None:
    """A replica calls authoritative what nobody else has."""
    more = [entries("g", "a", 6, [b"entry 6"]), settled("g", "a", 6)]
    write_again(folder, a=[*tell("a"), *more])


def settle_beyond(folder: Path) -> None:
    """A replica calls authoritative what nobody has, not even itself."""
    write_again(folder, a=[*tell("a"), settled("g", "a", 9)])


def skip_an_entry(folder: Path) -> None:
    told = [each for each in tell("b") if each != entries("g", "b", 3, [b"entry 3"])]
    write_again(folder, b=told)


def accept_twice(folder: Path) -> None:
    """A replica accepts another entry at a position, without a word about the first."""
    write_again(folder, b=[*tell("b"), entries("g", "b", 3, [b"another"])])


def copy_life(folder: Path) -> None:
    """The journal of one replica as that of another."""
    rmtree(folder / "g" / "c")
    copytree(folder / "g" / "b", folder / "g" / "c")


def empty_file(folder: Path) -> None:
    last(folder, "b").write_bytes(b"")


def append_rubbish(folder: Path) -> None:
    with last(folder, "b").open("ab") as file:
        file.write(b"rubbish" * 50)


def remove_segment(folder: Path) -> None:
    last(folder, "b").unlink()


def end_unsynced(folder: Path) -> None:
    """The machine of b is lost, and with it the end of its journal, which was never synced.

    c was cut off at that time, so a had settled with b alone.
    """
    more = [entries("g", "a", 6, [b"entry 6"]), settled("g", "a", 6)]
    write_again(folder, a=[*tell("a"), *more])
    rmtree(folder / "g" / "b")
    write(folder, "g", {"b": tell("b")}, settings=JournalSettings(sync=Sync.NONE))


def lose_the_adoption(folder: Path) -> None:
    """A zombie fetched the history in a turn that cannot be read any more."""
    me = Member("b", 1)
    started = Started("g", me, 1, stack="SAFE:DYNSEQ:PVSYNC", configuration=THREE, is_zombie=True)
    adopted = HistoryAdopted(
        "g", me, 2, view=VIEW, source=MEMBERS[0], version=Version(VIEW, 5), kept=0, restored=0
    )
    accepted: list[Record] = [
        PrimaryAccepted("g", me, 3, view=VIEW, members=MEMBERS, version=Version(VIEW, 5))
    ]
    told: list[Record] = [started, *begin("g", "b")[1:-2], adopted]
    told += [entries("g", "b", each, [b"entry %d" % each]) for each in range(1, 6)]
    rmtree(folder / "g" / "b")
    write(folder, "g", {"b": with_end([*told, *accepted], "b")})
    path = last(folder, "b")
    data = bytearray(path.read_bytes())
    data[data.index(b"entry 1") - 60] ^= 0xFF
    path.write_bytes(data)


THREE = Configuration(1, NAMES)


def second_life(folder: Path) -> None:
    """Give b a second life, which the others met in a view."""
    later = ViewId(2, "a", 1)
    members = (Member("a", 1), Member("b", 2), Member("c", 1))
    write(
        folder,
        "g",
        {name: with_end([*tell(name), *met(name, later, members)], name) for name in "ac"},
    )
    write(folder, "g", {"b": tell("b")})
    disk = FileDisk(folder)
    writer = begin_life(disk, recover(disk, "g", "b"))
    me = Member("b", 2)
    writer.append([Started("g", me, 9, stack="SAFE:DYNSEQ:PVSYNC", configuration=THREE)])
    writer.append(met("b", later, members, 2))
    writer.append([Stopped("g", me, 9)])
    writer.close()


def met(name: str, view: ViewId, members: tuple[Member, ...], incarnation: int = 1) -> list[Record]:
    """A later view, in which everybody is."""
    me = Member(name, incarnation)
    before: list[Record] = []
    if name == view.proposer:
        before = [ViewProposed("g", me, 8, view=view, members=members, after=VIEW)]
    came: tuple[Member, ...] = (me,)
    if me in MEMBERS:
        came = tuple(each for each in MEMBERS if each in members)
        before += [TransitionalInstalled("g", me, 8, view=VIEW, members=came)]
    previous = VIEW if me in MEMBERS else NO_VIEW
    return [
        *before,
        ViewInstalled("g", me, 8, view=view, members=members, previous=previous, transitional=came),
        PrimaryAccepted("g", me, 8, view=view, members=members, version=Version(VIEW, 5)),
        PrimaryConfirmed("g", me, 8, view=view, position=5, accepted_by=members),
    ]


def lose_proposals(folder: Path) -> None:
    """The end of a, cut off between two turns, so that the file itself looks whole."""
    rmtree(folder / "g" / "a")
    write(folder, "g", {"a": tell("a")})


def answer_twice(folder: Path) -> None:
    """One request, answered as final from two places."""
    answer = replied("g", "a", at=6, session=1, request=1, position=4)
    write_again(folder, a=[*tell("a"), answer])


def answer_otherwise(folder: Path) -> None:
    """Another replica answers the same request from the same place with another result."""
    answer = replied("g", "c", at=6, session=1, request=1, position=2, digest=77)
    write_again(folder, c=[*tell("c"), answer])


def repeat_a_turn(folder: Path) -> None:
    """What stood at the end stands there twice: its records do not follow."""
    path = last(folder, "b")
    data = path.read_bytes()
    path.write_bytes(data + data[-(len(data) // 6) :])


def lose_the_first_life(folder: Path) -> None:
    rmtree(min(each for each in (folder / "g" / "b").iterdir() if each.is_dir()))


def bring_another_group(folder: Path) -> None:
    """A journal of another group, under the name of a replica of this one."""
    write(folder, "other", {"b": with_end(begin("other", "b"), "b")})
    rmtree(folder / "g" / "b")
    (folder / "other" / "b").rename(folder / "g" / "b")
    rmtree(folder / "other")


def go_back(folder: Path) -> None:
    """An older copy of the journal of b: it cannot be told from one that is late, and may be."""
    rmtree(folder / "g" / "b")
    write(folder, "g", {"b": tell("b", 2)})


def confirm_alone(folder: Path) -> None:
    """B says that a primary view counts which nobody else has accepted."""
    later = ViewId(7, "b", 1)
    me = Member("b", 1)
    told: list[Record] = [
        ViewProposed("g", me, 8, view=later, members=(me,), after=VIEW),
        TransitionalInstalled("g", me, 8, view=VIEW, members=(me,)),
        ViewInstalled("g", me, 8, view=later, members=(me,), previous=VIEW, transitional=(me,)),
        PrimaryAccepted("g", me, 8, view=later, members=(me,), version=Version(VIEW, 5)),
        PrimaryConfirmed("g", me, 8, view=later, position=5, accepted_by=(me,)),
    ]
    write_again(folder, b=[*tell("b"), *told])


def forge_state(folder: Path) -> None:
    """B's state is another than that of the others at the same place."""
    for name in NAMES:
        digest = b"another" if name == "b" else b"the same"
        state = StateDigest("g", Member(name, 1), 8, position=5, digest=digest)
        write_again(folder, **{name: [*tell(name), state]})


def leave_a_note(folder: Path) -> None:
    (folder / "g" / "b" / "README.txt").write_text("not of this journal", "utf-8")
    (folder / "g" / "notes").write_text("nor this", "utf-8")


def remove_all_but_one(folder: Path) -> None:
    for name in "bc":
        rmtree(folder / "g" / name)


PLAIN = {name: with_end(tell(name), name) for name in NAMES}

CASES = {
    "nothing": Case(nothing, "kept"),
    "nothing, again": Case(nothing, "kept", is_later=True),
    "a byte is turned": Case(flip("b", 0.5), "damaged", "b", said="does not fit its checksum"),
    "a head is turned": Case(flip("b", 0.01), "damaged", "b", said="damaged"),
    "a byte is turned later": Case(
        flip("b", 0.5), "damaged", "b", said="not what an earlier run sealed", is_later=True
    ),
    "a replica is missing": Case(remove("c"), "damaged", "c", said="there is no journal of c"),
    "a replica is removed later": Case(
        remove("c"), "damaged", "c", said="is in no folder any more", is_later=True
    ),
    "a payload is forged": Case(forge_payload, "broken", "b", check="one authoritative entry"),
    "a payload is forged later": Case(
        forge_payload, "damaged", "b", said="not what an earlier run sealed", is_later=True
    ),
    "an answer is forged": Case(
        forge_answer(9), "broken", "a", check="acknowledged means authoritative"
    ),
    "settled goes backwards": Case(settle_backwards, "broken", "c", check="authoritative for ever"),
    "settled alone": Case(settle_alone, "broken", "a", check="authoritative majority"),
    "settled beyond everything": Case(settle_beyond, "broken", "a", check="global ordering"),
    "an entry is skipped": Case(skip_an_entry, "broken", "b", check="global ordering"),
    "an entry is replaced": Case(accept_twice, "broken", "b", check="one authoritative entry"),
    "a journal is copied": Case(copy_life, "damaged", "c", said="misplaced"),
    "a file is emptied": Case(empty_file, "damaged", "b"),
    "rubbish is appended": Case(append_rubbish, "kept"),
    "rubbish is appended later": Case(append_rubbish, "kept", is_later=True),
    "a segment is removed": Case(remove_segment, "damaged", "b"),
    "a segment is removed later": Case(remove_segment, "damaged", "b", is_later=True),
    "an unsynced end is lost": Case(end_unsynced, "damaged"),
    "the turn of an adoption": Case(
        lose_the_adoption, "damaged", "b", said="does not fit its checksum"
    ),
    "the last life is removed": Case(
        remove_last_life("b"), "damaged", "b", said="life 2 of b is not there"
    ),
    "the last life and what says so": Case(
        remove_stable_too("b"), "damaged", "b", said="others met it in views"
    ),
    "a file dangles": Case(dangle, "damaged", "b", said="it cannot be read: No such file"),
    "a folder in the place of a file": Case(hinder, "damaged", "b", said="it cannot be read: Is a"),
    "a name that is no text": Case(rename_badly, "damaged", said="its name is no text"),
    "journals are swapped": Case(swap, "damaged", "b", said="misplaced"),
    "stable values are harmed": Case(harm_stable, "damaged", "b", said="stable values cannot be"),
    "the end is torn": Case(cut("b", 0.7), "kept"),
    "the end is torn later": Case(
        cut("b", 0.7), "damaged", "b", said="not what an earlier run sealed", is_later=True
    ),
    "an answer from two places": Case(answer_twice, "broken", "a", check="exactly once"),
    "an answer with another result": Case(answer_otherwise, "broken", "c", check="exactly once"),
    "a turn is repeated": Case(repeat_a_turn, "kept"),
    "a turn is repeated later": Case(repeat_a_turn, "kept", is_later=True),
    "the first life is removed": Case(lose_the_first_life, "damaged", "b"),
    "a journal of another group": Case(bring_another_group, "damaged", "b", said="misplaced"),
    "an older copy": Case(go_back, "kept"),
    "an older copy later": Case(
        go_back, "damaged", "b", said="not what an earlier run sealed", is_later=True
    ),
    "a primary view of one": Case(
        confirm_alone, "broken", "b", check="confirmed chain", view=ViewId(7, "b", 1)
    ),
    "a state is forged": Case(forge_state, "broken", "b", check="active replication"),
    "files that mean nothing": Case(leave_a_note, "kept"),
    "one journal of three": Case(remove_all_but_one, "damaged", "b", said="there is no journal of"),
    "an end that others know of, of a second life": Case(
        lose_proposals, "damaged", "a", said="others have view 2.a from it"
    ),
}


def prepare(folder: Path, name: str) -> None:
    """Write what is to be tampered with."""
    if "life" in name:
        second_life(folder)
    else:
        write(folder, "g", PLAIN)


@pytest.mark.parametrize("name", CASES)
def test_what_a_run_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    journals, lake = tmp_path / "journals", tmp_path / "lake"
    prepare(journals, name)
    if case.is_later:
        assert judge_here(journals, lake).outcome is Outcome.KEPT
    case.tamper(journals)
    found = judge_here(journals, lake)
    told = found.told()
    assert told["outcome"] == case.outcome, (told["violations"], told["problems"], told["verdicts"])
    status = {"kept": exits.DONE, "broken": exits.NOT_DONE, "damaged": exits.UNKNOWN}
    assert STATUSES[told["outcome"]] == status[case.outcome]
    if case.outcome == "broken":
        [violation, *_] = [row for row in told["violations"] if row["check_name"] == case.check]
        assert case.replica in violation["replicas"]
        view = case.view
        assert tuple(violation["view"].values()) == (view.number, view.proposer, view.incarnation)
        assert all(row["sequence"] > 0 for row in violation["rows"])
        assert violation["rows"]
    else:
        assert not told["violations"]
    if case.said:
        assert any(case.said in sentence for sentence in told["problems"]), told["problems"]
    if case.outcome == "damaged" and case.replica:
        assert case.replica in {row["replica"] for row in told["findings"]} or any(
            f"journal of {case.replica}" in sentence for sentence in told["problems"]
        )


# ---- the lake


def file_of(lake: Path, table: str) -> Path:
    return min((lake / table).rglob("*.parquet"))


def harm_about(lake: Path) -> None:
    (lake / "lake.json").write_bytes(b"")


def cut_file(lake: Path) -> None:
    path = file_of(lake, "entries")
    path.write_bytes(path.read_bytes()[:-20])


def unlink_file(lake: Path) -> None:
    file_of(lake, "entries").unlink()


def unlink_mark(lake: Path) -> None:
    file_of(lake, "segments").unlink()


def harm_mark(lake: Path) -> None:
    file_of(lake, "segments").write_bytes(b"PAR1")


def turn_byte(lake: Path) -> None:
    path = file_of(lake, "entries")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


LAKE_CASES = {
    "a file is cut off": (cut_file, "bytes in the place of"),
    "a file is missing": (unlink_file, "is missing"),
    "a mark is missing": (unlink_mark, "is missing"),
    "a mark is harmed": (harm_mark, "cannot be read"),
    "a byte is turned": (turn_byte, "was changed"),
}


@pytest.mark.parametrize("name", LAKE_CASES)
def test_a_lake_that_was_tampered_with(name: str, tmp_path: Path) -> None:
    """It is said once, and made anew from the journals."""
    tamper, said = LAKE_CASES[name]
    journals, lake = tmp_path / "journals", tmp_path / "lake"
    write(journals, "g", PLAIN)
    assert judge_here(journals, lake).outcome is Outcome.KEPT
    assert list(check_files(Lake.open(lake), has_content=True)) == []
    tamper(lake)
    assert list(check_files(Lake.open(lake), has_content=True))
    found = judge_here(journals, lake, verify_sources=True)
    assert found.outcome is Outcome.DAMAGED
    assert any(said in sentence for sentence in found.problems), found.problems
    assert judge_here(journals, lake).outcome is Outcome.KEPT


def test_a_lake_without_its_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journals, out = tmp_path / "journals", tmp_path / "out"
    write(journals, "g", PLAIN)
    judge_here(journals, out / "lake")
    assert main(["pipeline", "lake", "check", str(out)]) == exits.DONE
    harm_about(out / "lake")
    with pytest.raises(LakeDamaged, match=r"lake\.json is damaged .*: remove"):
        judge_here(journals, out / "lake")
    assert main(["pipeline", "lake", "check", str(out), "--json"]) == exits.UNKNOWN
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["outcome"] == "damaged"


def test_a_damaged_copy_may_be_mended(tmp_path: Path) -> None:
    """A good copy of equal size in the place of a damaged one is read, and believed."""
    journals, lake = tmp_path / "journals", tmp_path / "lake"
    write(journals, "g", PLAIN)
    whole = last(journals, "b").read_bytes()
    flip("b", 0.5)(journals)
    assert judge_here(journals, lake).outcome is Outcome.DAMAGED
    last(journals, "b").write_bytes(whole)
    assert judge_here(journals, lake).outcome is Outcome.KEPT


def test_what_was_altered_and_put_back(tmp_path: Path) -> None:
    journals, lake = tmp_path / "journals", tmp_path / "lake"
    write(journals, "g", PLAIN)
    assert judge_here(journals, lake).outcome is Outcome.KEPT
    whole = last(journals, "b").read_bytes()
    flip("b", 0.5)(journals)
    for _ in range(2):
        assert judge_here(journals, lake).outcome is Outcome.DAMAGED
    last(journals, "b").write_bytes(whole)
    assert judge_here(journals, lake).outcome is Outcome.KEPT


def test_two_of_five(tmp_path: Path) -> None:
    """What rests on a part of the journals is not simply kept, and says on how many."""
    names = "abcde"
    told = {name: [*begin("g", name, names), settled("g", name, 0)] for name in names}
    write(tmp_path / "journals", "g", told)
    for name in "cde":
        rmtree(tmp_path / "journals" / "g" / name)
    found = judge_here(tmp_path / "journals", tmp_path / "lake")
    assert found.outcome is Outcome.DAMAGED
    words = {row["verdict"] for row in found.verdicts}
    assert "kept" not in words
    assert "kept in part" in words
    assert str(found.bases["g"]).startswith("2 of 5 journals, 2 of 5 lives")


# ---- live groups


def test_a_live_group_is_recognised(tmp_path: Path) -> None:
    """A has settled with b, whose journal was read before b had written that down."""
    journals = tmp_path / "journals"
    for name in NAMES:
        place = journals / name
        behind = [*tell("a", 9)] if name == "a" else tell(name, 3)
        write(place, "g", {name: behind})
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(lock_folder(journals / name, ""))
        live = judge_here(journals, tmp_path / "lake")
    assert live.outcome is Outcome.KEPT, live.violations
    assert "not yet" in {row["verdict"] for row in live.verdicts}
    # The replicas are gone, without a word: now somebody's journal lacks something.
    dead = judge_here(journals, tmp_path / "lake")
    assert dead.outcome is Outcome.DAMAGED


def test_a_live_group_is_recognised_by_an_open_segment(tmp_path: Path) -> None:
    write(tmp_path, "g", {"a": tell("a")})
    [source] = survey([tmp_path]).sources
    assert not source.is_open
    with last(tmp_path, "a").open("ab"):
        [source] = survey([tmp_path]).sources
        assert source.is_open


def test_a_segment_that_has_just_begun_does_not_end_a_live_journal(tmp_path: Path) -> None:
    """Its head is on its way, as are the records behind it that others answer to already."""
    journals = tmp_path / "journals"
    told = {name: tell(name, 9 if name == "a" else 3) for name in NAMES}
    write(journals, "g", told)
    for name in "bc":
        path = last(journals, name)
        size = len(path.stem)
        begun = path.with_name(f"{len(told[name]) + 1:0{size}}{path.suffix}")
        begun.write_bytes(path.read_bytes()[:3])
    live = judge_here(journals, tmp_path / "lake", growing=True)
    assert live.outcome is Outcome.KEPT, (live.violations, live.problems)
    assert "not yet" in {row["verdict"] for row in live.verdicts}


def test_closed_positions_of_a_live_group_are_decided(tmp_path: Path) -> None:
    """A forged answer at a place that all have settled is found while they work."""
    journals = tmp_path / "journals"
    told = {name: tell(name) for name in NAMES}
    told["a"].append(replied("g", "a", at=6, session=1, request=7, position=3, number=99))
    write(journals, "g", told)
    live = judge_here(journals, tmp_path / "lake", growing=True)
    assert live.outcome is Outcome.BROKEN
    assert {row["check_name"] for row in live.violations} == {"acknowledged means authoritative"}


def test_following_and_reading_at_once_end_with_the_same_verdicts(tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    write(journals, "g", PLAIN)
    whole = {name: last(journals, name).read_bytes() for name in NAMES}
    for keep in (0.4, 0.7, 1.0):
        for name, data in whole.items():
            last(journals, name).write_bytes(data[: int(len(data) * keep)])
        judge_here(journals, tmp_path / "followed", growing=True)
    followed = judge_here(journals, tmp_path / "followed", growing=True)
    once = judge_here(journals, tmp_path / "once")
    assert followed.verdicts == once.verdicts
    assert followed.outcome is once.outcome is Outcome.KEPT


# ---- damage by chance


def harm(folder: Path, random: Random) -> None:
    """Turn bytes, overwrite them with zeros, cut files off and remove them."""
    for _ in range(random.choice([1, 1, 2, 4])):
        path = random.choice(sorted(folder.rglob("*.segment")))
        data = bytearray(path.read_bytes())
        place = random.randrange(len(data))
        match random.choice(["turn", "turn", "zero", "cut", "remove", "life"]):
            case "turn":
                data[place] ^= 0xFF
                path.write_bytes(data)
            case "zero":
                end = min(len(data), place + random.randrange(1, 2000))
                path.write_bytes(data[:place] + bytes(end - place) + data[end:])
            case "cut":
                path.write_bytes(data[:place])
            case "remove":
                path.unlink()
            case _:
                rmtree(path.parent)


def check_that_damage_accuses_nobody(journals: Path, seed: int, folder: Path) -> None:
    """Whatever is lost of journals that keep all promises, no promise seems broken."""
    harmed = copytree(journals, folder / "journals")
    harm(harmed, Random(seed))  # noqa: S311 -- reproducible on purpose
    found = judge_here(harmed, folder / "lake")
    assert found.violations == []


@pytest.mark.parametrize("seed", [0, 7, 10, 12])
def test_damage_accuses_nobody(seed: int, counter_journals: Path, tmp_path: Path) -> None:
    check_that_damage_accuses_nobody(counter_journals, seed, tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_damage_accuses_no_cohort(seed: int, bank_journals: Path, tmp_path: Path) -> None:
    check_that_damage_accuses_nobody(bank_journals, seed, tmp_path)


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_damage_accuses_no_server_and_no_program(
    seed: int, colours_journals: Path, program_journals: Path, tmp_path: Path
) -> None:
    """Whoever led a program was accused of orders that a damaged edge no longer had (0)."""
    check_that_damage_accuses_nobody(colours_journals, seed, tmp_path / "a")
    check_that_damage_accuses_nobody(program_journals, seed, tmp_path / "b")


@pytest.mark.long
@pytest.mark.parametrize("seed", [100, 101, 105, 106, 116, 118, 127, 135, 139])
def test_much_damage_accuses_nobody(
    seed: int, optimistic_journals: Path, bank_journals: Path, tmp_path: Path
) -> None:
    """From 105 on, seeds by which a cohort was accused of what only the damage had done."""
    check_that_damage_accuses_nobody(optimistic_journals, seed, tmp_path / "a")
    check_that_damage_accuses_nobody(bank_journals, seed, tmp_path / "b")


def test_a_gap_excuses_what_it_may_have_held(tmp_path: Path) -> None:
    """A turn that held an adoption could not be read; d was said to have lost its memory."""
    found = judge_here(recorded_journals("gap", tmp_path / "journals"), tmp_path / "lake")
    assert found.outcome is Outcome.DAMAGED
    assert found.violations == []
    assert {row["replica"] for row in found.findings} == {"a", "d"}
